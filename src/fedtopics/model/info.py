"""What a model says of its training, for its card and for trainings that go on from it."""

from __future__ import annotations

from typing import Any, TypedDict


class Origin(TypedDict):
    """The model that a training began with."""

    model: str  # fingerprint of its words and weights
    method: str
    rounds: int
    vocabulary: str  # "keep" or "agree"


class TrainingInfo(TypedDict, total=False):
    """`TopicModel.info`: a plain dict. A method may add keys, in a TypedDict that extends this."""

    method: str  # the name of the method
    rounds: int  # all of them, those of a model that was trained further included
    seed: int
    length: float  # words of an average document, where the network's loss depends on it
    seen: int  # documents that it was trained on, by trainings before this one as well
    sizes: dict[str, list[int]]  # by client, the documents of each cluster
    unclear: dict[str, int]  # by client, the documents of which no cluster has half a probability
    ids: list[int]  # by topic, a number that it keeps from round to round, where topics come and go
    history: list[Any]  # by round, the topics that came and went
    continued: Origin  # what the training began with, if it was a model
