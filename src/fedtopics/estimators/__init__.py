"""Topic models in the manner of scikit-learn: `fit` is one corpus, `fit_clients` a federation."""

from fedtopics.estimators.lda import LDA
from fedtopics.estimators.neural import CombinedTM, NeuralLDA, ProdLDA, ZeroShotTM

__all__ = ["LDA", "CombinedTM", "NeuralLDA", "ProdLDA", "ZeroShotTM"]
