"""Topic models in the manner of scikit-learn: `fit` is one corpus, `fit_clients` a federation."""

from fedtopics.estimators.base import TopicEstimator
from fedtopics.estimators.flda import FLDA, GuidedLDA
from fedtopics.estimators.lda import LDA
from fedtopics.estimators.mixture import MixtureTM
from fedtopics.estimators.neural import CombinedTM, NeuralLDA, ProdLDA, ZeroShotTM
from fedtopics.estimators.nmf import NMF
from fedtopics.estimators.short_texts import ShortTextClustering

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
