"""FSCCL: contrastive clustering, averaged over clients."""

from fedtopics.inference.trained_clusters import Contrastive
from fedtopics.methods.fsccl.client import FSCCLClient
from fedtopics.methods.fsccl.method import FSCCL
from fedtopics.methods.fsccl.settings import FSCCLSettings
from fedtopics.methods.registry import Method

METHOD = Method(
    "fsccl", "FSCCL", FSCCLSettings, FSCCL, FSCCLClient, version=2, shows="clusters",
    inferences=[Contrastive],
)  # fmt: skip
