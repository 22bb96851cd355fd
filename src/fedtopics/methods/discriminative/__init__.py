"""Discriminative clustering, exact from sums."""

from fedtopics.inference.clusters import Discriminants
from fedtopics.methods.discriminative.client import DiscriminativeClient
from fedtopics.methods.discriminative.method import Discriminative
from fedtopics.methods.discriminative.noisy import NoisyDiscriminative, NoisyDiscriminativeClient
from fedtopics.methods.discriminative.settings import DiscriminativeSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "discriminative", "discriminative clustering", DiscriminativeSettings, Discriminative,
    DiscriminativeClient, version=3, shows="clusters", inferences=(Discriminants,),
    noisy=NoisyDiscriminative, noisy_client=NoisyDiscriminativeClient,
)  # fmt: skip
