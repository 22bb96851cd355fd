"""Federated methods, one file a paper: the server's half and the client's half side by side."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fedtopics.methods.base import ServerHalf
from fedtopics.methods.client import TopicClient
from fedtopics.methods.cluster_settings import (
    DiscriminativeSettings,
    FSCCLSettings,
    FSTCSettings,
    KMeansSettings,
)
from fedtopics.methods.discriminative.method import Discriminative, DiscriminativeClient
from fedtopics.methods.flda.method import FLDA, FLDAClient
from fedtopics.methods.fsccl.method import FSCCL, FSCCLClient
from fedtopics.methods.fstc.method import FSTC, FSTCClient
from fedtopics.methods.gfedntm.method import GFedNTM, GFedNTMClient
from fedtopics.methods.kmeans.method import KMeans, KMeansClient
from fedtopics.methods.lda.method import LDA, LDAClient
from fedtopics.methods.settings import FLDASettings, GFedNTMSettings, LDASettings

_HALVES: list[tuple[Callable[..., ServerHalf], type[TopicClient[Any]]]] = [
    (GFedNTM, GFedNTMClient),
    (LDA, LDAClient),
    (FLDA, FLDAClient),
    (FSTC, FSTCClient),
    (FSCCL, FSCCLClient),
    (Discriminative, DiscriminativeClient),
    (KMeans, KMeansClient),
]
SERVER_HALVES = {client.method: server for server, client in _HALVES}
CLIENT_HALVES = {client.method: client for _, client in _HALVES}
STARTED = ("gfedntm", "lda", "flda")  # methods that can begin with a model
VERSIONS = {name: half.version for name, half in CLIENT_HALVES.items()}


def what_leaves(method: str, function: str) -> str:
    """Return what a client's function says of itself under "Leaves the client"."""
    text = inspect.getdoc(getattr(CLIENT_HALVES.get(method), function, None)) or ""
    _, _, section = text.partition("Leaves the client\n")
    return " ".join(section.partition("\n\n")[0].split())


__all__ = [
    "CLIENT_HALVES",
    "SERVER_HALVES",
    "STARTED",
    "VERSIONS",
    "DiscriminativeClient",
    "DiscriminativeSettings",
    "FLDAClient",
    "FLDASettings",
    "FSCCLClient",
    "FSCCLSettings",
    "FSTCClient",
    "FSTCSettings",
    "GFedNTMClient",
    "GFedNTMSettings",
    "KMeansClient",
    "KMeansSettings",
    "LDAClient",
    "LDASettings",
    "ServerHalf",
    "TopicClient",
    "what_leaves",
]
