"""Federated non-negative matrix factorisation: topics of weighted words, by sums alone."""

from fedtopics.inference.nmf import Factors
from fedtopics.methods.nmf.client import NMFClient
from fedtopics.methods.nmf.method import NMF
from fedtopics.methods.nmf.noisy import NoisyNMF, NoisyNMFClient
from fedtopics.methods.nmf.settings import NMFSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "nmf", "federated NMF", NMFSettings, NMF, NMFClient, starts_from_models=True,
    inferences=(Factors,),
    noisy=NoisyNMF, noisy_client=NoisyNMFClient,
)  # fmt: skip
