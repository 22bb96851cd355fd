"""Small corpora and federations for the tests."""

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, Study, TopicModel, train
from fedtopics.contract.payload import CountsByWord, SparseRows
from tests.helpers.background import KilledError, Notes

DIMENSION = 7  # of the embeddings
NETWORKS = ("prodlda", "neurallda", "combinedtm", "zeroshottm")
COMMON = [f"common{i}" for i in range(20)]
ANY_WORDS = {"min_persons_per_word": 1, "min_clients_per_word": 1}  # few persons have them


def subjects(sizes: dict[str, int], seed: int = 0) -> dict[str, Corpus]:
    """One subject a client: 40 words of its own, 20 that all share."""
    rng = np.random.default_rng(seed)
    corpora = {}
    for name, size in sizes.items():
        words = np.array([f"{name}{i}" for i in range(40)] + COMMON)
        weights = rng.dirichlet(np.full(len(words), 0.3))
        corpora[name] = Corpus.of(
            [rng.choice(words, rng.integers(5, 30), p=weights).tolist() for _ in range(size)]
        )
    return corpora


def tokens_of(corpus: Corpus) -> list[list[str]]:
    return [list(document) for batch in corpus.batches() for document in batch]


def embedded(corpora: dict[str, Corpus], seed: int = 0) -> dict[str, Corpus]:
    """Those corpora with embeddings that their clients bring along: no model is needed."""
    rng = np.random.default_rng(seed)
    result = {}
    for name, corpus in corpora.items():
        vectors = rng.normal(size=(len(corpus), DIMENSION))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        result[name] = corpus.with_embeddings(vectors.astype(np.float32))
    return result


def study(**method: object) -> Study:
    """A small study on those corpora, whatever the defaults are, that adds up plain replies."""
    small = {
        "n_components": 6,
        "hidden": [16, 12],
        "dropout": 0.2,
        "learning_rate": 0.002,
        "batch_size": 64,
        "max_rounds": 50,
        "embedding": {"dimension": DIMENSION},
    }
    method = {"name": "gfedntm", **small, **method}
    return Study.make(
        method=method,
        vocabulary=ANY_WORDS,
        checkpoint_every=10,
        aggregation="plain",
        federation={"outliers": "none"},
    )


def assert_same(actual: Any, expected: Any) -> None:
    """Hold plain data against each other: types, orders, shapes, every bit."""
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for name, value in expected.items():
            assert_same(actual[name], value)
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert actual.tobytes() == expected.tobytes()
    elif isinstance(expected, SparseRows):
        assert actual.n_rows == expected.n_rows
        assert_same(actual.index, expected.index)
        assert_same(actual.values, expected.values)
    elif isinstance(expected, CountsByWord):
        assert actual.names == expected.names
        assert_same(actual.values, expected.values)
    elif isinstance(expected, float):
        assert struct.pack("d", actual) == struct.pack("d", expected)
    else:
        assert actual == expected


def assert_same_bits(one: TopicModel, other: TopicModel) -> None:
    for name, tensor in one.weights.items():
        np.testing.assert_array_equal(tensor, other.weights[name], name)
    np.testing.assert_array_equal(one.beta, other.beta)
    np.testing.assert_array_equal(one.word_sums, other.word_sums)
    assert one.word_ranking == other.word_ranking
    assert one.coherence.keys() == other.coherence.keys()
    for measure, scores in one.coherence.items():
        np.testing.assert_array_equal(scores, other.coherence[measure])


def train_and_note(
    *given: Any, run: Callable[..., TopicModel] = train, **how: Any
) -> tuple[TopicModel, Notes]:
    """Train, and return the model and the events of the run."""
    events = Notes()
    return run(*given, on_event=events.append, **how), events


def killed_after(round_: int) -> Callable[[Mapping[str, Any]], None]:
    """What ends a run after a round, given to it as `on_event`."""

    def kill(event: Mapping[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == round_:
            raise KilledError

    return kill


def train_until_killed(
    round_: int, *given: Any, run: Callable[..., Any] = train, **how: Any
) -> None:
    """Train, and be killed after a round."""
    with pytest.raises(KilledError):
        run(*given, on_event=killed_after(round_), **how)
