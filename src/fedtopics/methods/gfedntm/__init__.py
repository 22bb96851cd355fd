"""Federated neural topic models (gFedNTM): combined minibatch gradients."""

from fedtopics.methods.gfedntm.client import GFedNTMClient
from fedtopics.methods.gfedntm.method import GFedNTM
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "gfedntm", "gFedNTM", GFedNTMSettings, GFedNTM, GFedNTMClient, version=4,
    starts_from_models=True,
)  # fmt: skip
