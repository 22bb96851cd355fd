"""Topics beside the terms of an ontology of one's own; `match_terms` is a method of `TopicModel`.

The F-LDA paper, section on interpretation, names it as a way to read topics: by the classes of
ICD-10, say. Terms, model and what is found stay with who asks.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.files import read_text, read_toml
from fedtopics.model.search import columns_of, nearness, occurrences, words_of
from fedtopics.model.topics import Topics

Terms = Mapping[str, Sequence[str]]


def match_terms(
    model: Topics,
    terms: Terms,
    top_n: int = 3,
    *,
    by: Literal["words", "meaning"] = "words",
    embedding_model: str | None = None,
) -> list[dict[str, Any]]:
    """Return the terms of an ontology that are nearest to each topic.

    Parameters
    ----------
    terms : mapping of str to list of str
        Words or texts by term, ``{"J45": ["asthma", "wheezing"]}``, of which the nearest counts.
    top_n : int
        How many terms of a topic, at most.
    by : {"words", "meaning"}
        "words": the geometric mean of two shares: how much of a word is in the topic, and how often
        the topic has it beside its most frequent one; the mean over a synonym's words, an unknown
        one as zero. "meaning": the cosine of the embeddings of synonym and topic's ten words.
    embedding_model : str, optional
        Of "meaning": by default the model's, or that of studies.

    Returns
    -------
    list of dict
        A row a topic, in order: ``topic``, ``label``, ``words``, and ``terms``, a list of (name,
        similarity), the nearest first; without those that have nothing in common with it.

    Raises
    ------
    StudyError
        If there are no terms, one has no synonym, or `by` is unknown.
    """
    if by not in ("words", "meaning"):
        raise StudyError(f"by={by!r} is unknown; choose from words, meaning.")
    if not terms or not all(terms.values()):
        raise StudyError("There is no term, or one without a synonym; give each a word at least.")
    near = _nearest(model, terms, by, embedding_model)

    def first(number: int) -> list[tuple[str, float]]:
        found = zip(terms, near[:, number].tolist(), strict=True)
        return sorted((each for each in found if each[1] > 0), key=lambda each: -each[1])[:top_n]

    labels = model.labels
    return [
        {"topic": k, "label": labels.get(k, ""), "words": words, "terms": first(k)}
        for k, words in enumerate(model.topics())
    ]


def _nearest(model: Topics, terms: Terms, by: str, encoder: str | None) -> NDArray[np.float64]:
    """Return how near the nearest synonym of each term is to topics, (n_terms, n_topics)."""
    texts = [synonym for each in terms.values() for synonym in each]
    near = _by_words(model, texts) if by == "words" else nearness(model, texts, encoder)
    ends = np.cumsum([len(each) for each in terms.values()])
    return np.stack([rows.max(0) for rows in np.split(near, ends[:-1])])


def _by_words(model: Topics, synonyms: Sequence[str]) -> NDArray[np.float64]:
    """Return how near synonyms are to topics, (n_synonyms, n_topics)."""
    counts = occurrences(model)
    inside = counts / counts.sum(0)
    beside = counts / np.maximum(counts.max(1, keepdims=True), np.finfo(float).tiny)
    of_word = np.sqrt(inside * beside)
    rows = []
    for words in words_of(model, synonyms):
        found = [columns_of(word, model) for word in words]
        each = [of_word[:, columns].mean(1) if columns else 0 * of_word[:, 0] for columns in found]
        rows.append(np.mean(each, axis=0) if each else 0 * of_word[:, 0])
    return np.stack(rows)


def read_terms(path: str | Path) -> dict[str, list[str]]:
    """Read terms: TOML of lists by name, or CSV with the columns term and synonym, a row a pair.

    StudyError if the file is none of these.
    """
    path = Path(path)
    try:
        found = _of_csv(path) if path.suffix.lower() == ".csv" else read_toml(path)
    except (OSError, ValueError, csv.Error, KeyError):
        found = {}
    fits = all(
        isinstance(each, list) and all(isinstance(one, str) for one in each)
        for each in found.values()
    )
    if not found or not fits:
        raise StudyError(
            f'{path} has no terms; write TOML, a line a term as in J45 = ["asthma"], or a .csv '
            "with the columns term and synonym."
        )
    return dict(found)


def _of_csv(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in csv.DictReader(read_text(path, "utf-8-sig").splitlines()):
        found.setdefault(row["term"], []).append(row["synonym"])
    return found
