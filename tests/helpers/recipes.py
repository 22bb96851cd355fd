"""Documents of themes, whose words and embeddings an encoder of few lines has."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtopics import Corpus, Study
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.program import plan_of
from fedtopics.methods.core.plan import ClientContext
from fedtopics.privacy.recipe import RECIPES
from tests.helpers.clusters import corpus_of
from tests.helpers.encoders import unit

THEMES = 3
WORDS = 14  # words of a theme
DIMENSION = 16
PUBLIC = [f"theme{chr(97 + k)}{chr(97 + i)}" for k in range(THEMES) for i in range(WORDS)]
BY_WORDS = ("lda", "nmf")
METHODS = (*BY_WORDS, "kmeans")
CENTRES = unit(np.random.default_rng(3).normal(size=(THEMES, DIMENSION)))


class Themed:
    """An encoder by which a text is near the themes that its words are of."""

    fingerprint = "themed"

    def __call__(self, texts: list[str]) -> Any:
        rng = np.random.default_rng(len(texts))
        themes = [[ord(word[5]) - 97 for word in text.split()] for text in texts]
        near = np.array([CENTRES[of].mean(0) for of in themes])
        return unit(near + 0.05 * rng.normal(size=near.shape))


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTOPICS_CACHE", "off")
    monkeypatch.setattr("fedtopics.text.embeddings.sentence_encoder", lambda _: Themed())


def themed(n: int, seed: int = 0) -> Corpus:
    """Documents of six words, nearly all of one theme."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(THEMES, size=n)
    themes = np.where(rng.random((n, 6)) < 0.9, labels[:, None], rng.integers(THEMES, size=(n, 6)))
    texts = [[PUBLIC[k * WORDS + rng.integers(WORDS)] for k in row] for row in themes]
    return corpus_of(unit(CENTRES[labels] + 0.1 * rng.normal(size=(n, DIMENSION))), labels, texts)


def planned(name: str, epsilon: float | None = None, seed: int = 0, **method: Any) -> Study:
    """A study of such documents by a method; by default without privacy."""
    settings = {"name": name, "n_components": THEMES, **method}
    if name == "kmeans":
        settings["embedding"] = {"model": "themed", "dimension": DIMENSION}
    bound = {"differential_privacy": {"epsilon": epsilon, "words": PUBLIC}} if epsilon else {}
    return Study.make(seed=seed, method=settings, aggregation="secure", **bound)


def half_of(corpus: Corpus, name: str, epsilon: float | None = None) -> Any:
    """A client that has taken up the public words; by default without noise."""
    study = planned(name, epsilon or 1).with_clients("a")
    half: Any = RECIPES.find(name).client(plan_of(study), ClientContext("a", corpus, OPEN_POLICY))
    if epsilon is None:
        half.noise = SimpleNamespace(added=lambda values, *_: np.asarray(values, float))
    half.take(PUBLIC)
    return half


def questions(name: str, rng: np.random.Generator) -> list[tuple[str, dict[str, Any]]]:
    """What a study asks, with any centres and topics, but for what has no document."""
    columns = rng.permutation(len(PUBLIC))[:30]
    origin: NDArray[np.float64] = 0.1 * rng.normal(size=DIMENSION)
    where = {"origin": origin, "centres": unit(rng.normal(size=(THEMES, DIMENSION)))}
    topics = rng.dirichlet(np.full(len(columns), 0.05), THEMES).T + 1e-9
    rarity = rng.exponential(10.0, len(columns))
    by_words = [
        ("noisy_word_counts", {}),
        ("noisy_word_products", {"columns": columns, "rarity": rarity}),
    ]
    if name == "lda":
        return [
            *by_words,
            ("noisy_topic_words", {"number": 1, "columns": columns, "topics": topics}),
        ]
    if name == "nmf":
        factors = {"number": 1, "columns": columns, "rarity": rarity, "topics": unit(topics.T).T}
        return [*by_words, ("noisy_factors", factors)]
    return [
        ("noisy_key_words", {}),
        ("noisy_cluster_sums", {"number": 1, **where}),
        ("noisy_cluster_words", {"columns": columns, **where}),
    ]
