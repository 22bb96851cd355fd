"""A mixture of topics by embeddings and words: expectation-maximisation by sums."""

from fedtopics.inference.mixture import Mixture
from fedtopics.methods.mixture.client import MixtureClient
from fedtopics.methods.mixture.method import MixtureProgram
from fedtopics.methods.mixture.settings import MixtureSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "mixture", "mixture of embeddings and words", MixtureSettings, MixtureProgram, MixtureClient,
    starts_from_models=True, inferences=(Mixture,),
)  # fmt: skip
