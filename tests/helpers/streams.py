"""Documents that come round by round, of themes whose words tell them apart."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fedtopics import Corpus, Study
from tests.helpers.federation import ANY_WORDS

THEMES = {name: [f"{name}{i}" for i in range(12)] for name in ("apple", "bread", "cloud", "dance")}
ABC = ["apple", "bread", "cloud"]
STEADY = [ABC] * 3
DRIFT = [ABC, ABC, ["apple", "bread", "dance"]]
SIZE = 60  # documents of a client and round

Themes = Sequence[str]


def documents(themes: Themes, size: int, rng: np.random.Generator) -> list[list[str]]:
    return [rng.choice(THEMES[themes[rng.integers(len(themes))]], 10).tolist() for _ in range(size)]


def stream(
    rounds: Sequence[Themes] | Mapping[str, Sequence[Themes]],
    size: int = SIZE,
    clients: str = "abc",
    seed: int = 0,
) -> dict[str, Corpus]:
    rng = np.random.default_rng(seed)
    plans = rounds if isinstance(rounds, Mapping) else dict.fromkeys(clients, rounds)
    return {
        name: Corpus.of([text for themes in plan for text in documents(themes, size, rng)])
        for name, plan in plans.items()
    }


def coming(sizes: Mapping[int, tuple[int, Themes]], seed: int = 0) -> Corpus:
    """Documents with a column of rounds: how many come in which, and of which themes."""
    rng = np.random.default_rng(seed)
    texts = [text for size, themes in sizes.values() for text in documents(themes, size, rng)]
    numbers = [number for number, (size, _) in sizes.items() for _ in range(size)]
    return replace(Corpus.of(texts), rounds=pa.chunked_array([numbers]))


def flda(**method: Any) -> Study:
    """A study that is quick, in slices of so many documents, with a topic for each theme."""
    small: dict[str, Any] = {
        "name": "flda",
        "n_components": 3,
        "spare_topics": 0,
        "n_words": 12,
        "iterations": 100,
        "min_new_documents": 20,
        "documents_per_round": SIZE,
        "coherence": "nothing",
    }
    return Study.make(method=small | method, vocabulary={**ANY_WORDS, "max_document_share": 1.0})
