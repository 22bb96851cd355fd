"""Federated latent Dirichlet allocation: expected counts, summed."""

from fedtopics.inference.lda import VariationalLDA
from fedtopics.methods.lda.client import LDAClient
from fedtopics.methods.lda.method import LDA
from fedtopics.methods.lda.noisy import NoisyLDA, NoisyLDAClient
from fedtopics.methods.lda.settings import LDASettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "lda", "federated LDA", LDASettings, LDA, LDAClient, starts_from_models=True,
    inferences=(VariationalLDA,),
    noisy=NoisyLDA, noisy_client=NoisyLDAClient,
)  # fmt: skip
