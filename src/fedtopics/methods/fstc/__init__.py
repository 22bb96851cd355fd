"""FSTC: pseudo-labels by optimal transport, and shared cluster centres."""

from fedtopics.inference.trained_clusters import Adapted, FineTuned
from fedtopics.methods.fstc.client import FSTCClient
from fedtopics.methods.fstc.method import FSTC
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "fstc", "FSTC", FSTCSettings, FSTC, FSTCClient, version=3, shows="clusters",
    inferences=(Adapted, FineTuned),
)  # fmt: skip
