"""The method that suits the documents, by a rule that all participants apply to the same sums."""

from fedtopics.methods.auto.method import Auto, AutoClient
from fedtopics.methods.auto.settings import AutoSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "auto", "what suits the documents", AutoSettings, Auto, AutoClient, starts_from_models=True,
)  # fmt: skip
