"""Rules that end a training before its last round, checked after every round.

A rule is a function of the training's progress and a number from the study: a setting of the
method, or an entry of ``stop_when``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedtopics.extras import Registry


@dataclass(frozen=True)
class Progress:
    """The progress of a training after a round."""

    round: int
    loss: float = np.nan  # mean over the documents of this round; NaN where there is none
    change: float = np.inf  # of what is trained, relative to its norm; infinite if not measured
    validations_without_gain: int = 0
    best_loss: float = np.inf  # of a validation
    idle: int = 0  # rounds in a row without new documents
    coherence: float = np.nan  # of the topics of this round, where rounds score them
    coherence_before: float = np.nan  # of those of the round before


GAIN = 1e-3  # of a validation loss: a client could say that it loses a little less each time
StopRule = Callable[[Progress, float], str]
"""Returns why the training ends, or nothing."""
STOP_RULES: Registry[StopRule] = Registry("stop rule", "fedtopics.stop_rules")


def improves(loss: float, best: float) -> bool:
    """Whether a validation is clearly better than the best one before it."""
    return best - loss > GAIN * abs(loss)


def why_stop(progress: Progress, limits: Mapping[str, float]) -> str:
    """Return why a training ends here, or nothing; limits have each rule's number by its name."""
    reasons = (STOP_RULES.find(name)(progress, limit) for name, limit in limits.items())
    return next(filter(None, reasons), "")


def _tolerance(progress: Progress, limit: float) -> str:
    """Stop where little changes; 0 never stops."""
    if progress.change < limit:
        return f"what is trained changed by {progress.change:.2e}, less than the tolerance"
    return ""


def _patience(progress: Progress, limit: float) -> str:
    """Stop after so many validations without a gain."""
    if progress.validations_without_gain < max(limit, 1):
        return ""
    return (
        f"no better validation loss than {progress.best_loss:.4f} in "
        f"{progress.validations_without_gain} validations"
    )


def _idle(progress: Progress, limit: float) -> str:
    """Stop after so many rounds without new documents."""
    return "no client has enough new documents" if progress.idle >= limit else ""


def _coherence(progress: Progress, limit: float) -> str:
    """Stop where topics are less coherent than those of the round before."""
    if progress.coherence < progress.coherence_before - limit:
        return "the topics are less coherent than those of the round before, which stay"
    return ""


def _loss(progress: Progress, limit: float) -> str:
    """Stop at a loss that is low enough."""
    return f"the loss is {progress.loss:.4f}, at most {limit:g}" if progress.loss <= limit else ""


SETTINGS_OF_METHODS: dict[str, StopRule] = {
    "tolerance": _tolerance, "patience": _patience, "idle": _idle, "coherence": _coherence,
}  # fmt: skip
"""Rules that only methods name, which measure what these need."""
for _name, _rule in {**SETTINGS_OF_METHODS, "loss": _loss}.items():
    STOP_RULES.register(_name, _rule)
