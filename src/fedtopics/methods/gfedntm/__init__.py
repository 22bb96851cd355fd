"""Federated neural topic models (gFedNTM): combined minibatch gradients."""

from fedtopics.methods.gfedntm.client import GFedNTMClient
from fedtopics.methods.gfedntm.method import GFedNTM
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    name="gfedntm",
    title="gFedNTM",
    settings=GFedNTMSettings,
    server=GFedNTM,
    client=GFedNTMClient,
    version=4,
    starts_from_models=True,
)
