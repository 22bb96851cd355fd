"""Documents of themes, whose words and embeddings an encoder of few lines has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.study import Study, plan_of
from fedtopics.methods.plan import Site
from fedtopics.methods.private import METHOD
from fedtopics.text.corpus import Corpus
from tests.helpers.encoders import unit

THEMES, WORDS, DIMENSION = 3, 14, 16  # words of a theme
PUBLIC = [f"theme{chr(97 + k)}{chr(97 + i)}" for k in range(THEMES) for i in range(WORDS)]
MODES = "embeddings", "both", "words", "factors", "classes"
OTHERS = {"factors": "nmf", "classes": "discriminative"}  # whose modes the method `private` lacks
BY_WORDS = "lda", "nmf"
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
    """Let this be the study's encoder."""
    monkeypatch.setenv("FEDTOPICS_CACHE", "off")
    monkeypatch.setattr("fedtopics.text.embeddings.sentence_encoder", lambda _: Themed())


def themed(n: int, seed: int = 0) -> Corpus:
    """Documents of six words, nearly all of one theme."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(THEMES, size=n)
    themes = np.where(rng.random((n, 6)) < 0.9, labels[:, None], rng.integers(THEMES, size=(n, 6)))
    texts = [[PUBLIC[k * WORDS + rng.integers(WORDS)] for k in row] for row in themes]
    embeddings = unit(CENTRES[labels] + 0.1 * rng.normal(size=(n, DIMENSION)))
    corpus = replace(Corpus.of(texts), labels=pa.chunked_array([labels]))
    return corpus.with_embeddings(embeddings)


def planned(epsilon: float | None = None, seed: int = 0, **method: Any) -> Study:
    """A study of such documents: of the method that has the mode, or that is named."""
    settings = {"name": OTHERS.get(method.get("mode", ""), "private"), **method}
    if settings["name"] != "private":
        settings.pop("mode", None)
    settings |= {"n_components": THEMES, "words": PUBLIC}
    if settings["name"] not in BY_WORDS:
        settings["embedding"] = {"model": "themed", "dimension": DIMENSION}
    bound = {} if epsilon is None else {"privacy": {"epsilon": epsilon}}
    return Study.make(seed=seed, method=settings, secure=True, **bound)


def half_of(corpus: Corpus, epsilon: float | None = None, **method: Any) -> Any:
    """A client's half that has taken up a mode and the public words; by default without noise."""
    plan = plan_of(planned(epsilon, **method).with_clients("a"))
    half: Any = METHOD.client(plan, Site("a", corpus, OPEN_POLICY))
    half.take(plan.settings.recipe.mode, PUBLIC)
    return half


def questions(mode: str, rng: np.random.Generator) -> list[tuple[str, dict[str, Any]]]:
    """What a study asks in a mode, with any centres and topics, but for what has no document."""
    columns = rng.permutation(len(PUBLIC))[:30]
    origin: NDArray[np.float64] = 0.1 * rng.normal(size=DIMENSION)
    where = {"origin": origin, "centres": unit(rng.normal(size=(THEMES, DIMENSION)))}
    if mode == "classes":
        return [("key_words", {}), *_of_classes(columns, origin, rng)]
    topics = rng.dirichlet(np.full(len(columns), 0.05), THEMES).T + 1e-9
    of_topics = ("topic_words", {"number": 1, "columns": columns, "topics": topics})
    rarity = rng.exponential(10.0, len(columns))
    sketch = ("sketch", {"columns": columns, "rarity": rarity})
    if mode == "words":
        return [("occurrences", {}), sketch, of_topics]
    if mode == "factors":
        factors = {"number": 1, "columns": columns, "rarity": rarity, "topics": unit(topics.T).T}
        return [("occurrences", {}), sketch, ("noisy_factors", factors)]
    return [
        ("key_words", {}),
        ("cluster_sums", {"number": 1, **where}),
        ("cluster_words", {"columns": columns, **where}),
        *([of_topics] if mode == "both" else []),
    ]


def _of_classes(
    columns: NDArray[np.int64], origin: NDArray[np.float64], rng: np.random.Generator
) -> list[tuple[str, dict[str, Any]]]:
    apart = {
        "origin": origin, "projection": rng.normal(size=(DIMENSION, 2)),
        "directions": unit(rng.normal(size=(THEMES, 2))), "bias": rng.normal(size=THEMES),
    }  # fmt: skip
    return [("class_sums", {"number": 1, **apart}), ("class_words", {"columns": columns, **apart})]
