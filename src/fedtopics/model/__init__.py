"""The topic model: its folder, card and exports, and the quality of its topics."""

from typing import TYPE_CHECKING

from fedtopics.extras import load_when_used

if TYPE_CHECKING:
    from fedtopics.model.comparison import compare
    from fedtopics.model.evaluation import evaluate

__all__ = ["compare", "evaluate"]

__getattr__ = load_when_used(__name__, {"compare": "comparison", "evaluate": "evaluation"})
