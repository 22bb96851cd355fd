"""Federated topic models: find the topics in texts that may not be pooled.

Names are loaded when they are first used, so that the command line starts fast.
"""

import os
from typing import TYPE_CHECKING

from fedtopics.extras import load_when_used
from fedtopics.versions import VERSION

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # waiting threads sleep; before numpy
__version__ = VERSION

if TYPE_CHECKING:
    from fedtopics.estimators import (
        FLDA,
        LDA,
        NMF,
        CombinedTM,
        GuidedLDA,
        MixtureTM,
        NeuralLDA,
        ProdLDA,
        ShortTextClustering,
        TopicEstimator,
        ZeroShotTM,
    )
    from fedtopics.federation.policy import Policy
    from fedtopics.federation.simulation import train
    from fedtopics.federation.study import Study
    from fedtopics.model.topic_model import TopicModel
    from fedtopics.privacy.disclosure import disclosure
    from fedtopics.text.corpus import Corpus
    from fedtopics.text.tables import Columns

__all__ = [
    "FLDA",
    "LDA",
    "NMF",
    "Columns",
    "CombinedTM",
    "Corpus",
    "GuidedLDA",
    "MixtureTM",
    "NeuralLDA",
    "Policy",
    "ProdLDA",
    "ShortTextClustering",
    "Study",
    "TopicEstimator",
    "TopicModel",
    "ZeroShotTM",
    "disclosure",
    "train",
]

_ELSEWHERE = {
    "Columns": "text.tables",
    "Corpus": "text.corpus",
    "Policy": "federation.policy",
    "Study": "federation.study",
    "TopicModel": "model.topic_model",
    "disclosure": "privacy.disclosure",
    "train": "federation.simulation",
}
__getattr__ = load_when_used(__name__, dict.fromkeys(__all__, "estimators") | _ELSEWHERE)
