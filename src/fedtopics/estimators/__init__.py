"""Topic models like scikit-learn's: `fit` for one corpus, `fit_clients` for a federation."""

from fedtopics.estimators.base import TopicEstimator
from fedtopics.estimators.short_texts import ShortTextClustering
from fedtopics.estimators.topic_models import (
    FLDA,
    LDA,
    NMF,
    CombinedTM,
    GuidedLDA,
    MixtureTM,
    NeuralLDA,
    ProdLDA,
    ZeroShotTM,
)

__all__ = [
    "FLDA",
    "LDA",
    "NMF",
    "CombinedTM",
    "GuidedLDA",
    "MixtureTM",
    "NeuralLDA",
    "ProdLDA",
    "ShortTextClustering",
    "TopicEstimator",
    "ZeroShotTM",
]
