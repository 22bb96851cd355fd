"""Find the topics in text that may not be pooled: federated topic models.

Names are loaded when they are first used, so that the command line answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedtopics.corpus import Columns, Corpus
    from fedtopics.estimators import (
        FLDA,
        LDA,
        CombinedTM,
        GuidedLDA,
        NeuralLDA,
        ProdLDA,
        ShortTextClustering,
        ZeroShotTM,
    )
    from fedtopics.privacy import Policy
    from fedtopics.simulation import train
    from fedtopics.study import Study
    from fedtopics.topics import TopicModel

_HOMES = {
    "FLDA": "estimators",
    "LDA": "estimators",
    "Columns": "corpus",
    "CombinedTM": "estimators",
    "Corpus": "corpus",
    "GuidedLDA": "estimators",
    "NeuralLDA": "estimators",
    "Policy": "privacy",
    "ProdLDA": "estimators",
    "ShortTextClustering": "estimators",
    "Study": "study",
    "TopicModel": "topics",
    "ZeroShotTM": "estimators",
    "train": "simulation",
}

__all__ = [
    "FLDA",
    "LDA",
    "Columns",
    "CombinedTM",
    "Corpus",
    "GuidedLDA",
    "NeuralLDA",
    "Policy",
    "ProdLDA",
    "ShortTextClustering",
    "Study",
    "TopicModel",
    "ZeroShotTM",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedtopics' has no attribute {name!r}")
    return getattr(import_module(f"fedtopics.{_HOMES[name]}"), name)
