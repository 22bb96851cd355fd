"""Topics for a word or sentence, and terms of an ontology for topics.

Search by meaning: Grootendorst, BERTopic, 2022. Terms: the F-LDA paper, section on interpretation.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError, check_choice, check_number
from fedtopics.files import read_toml
from fedtopics.model.topics import Topics
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, sentence_encoder
from fedtopics.text.readers import read_table
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import tokens
from fedtopics.text.words import LISTS

By = Literal["words", "meaning"]
ENDINGS = {3: 1, 4: 4}  # shared letters (4: or more): most letters of a different ending


def find_topics(
    model: Topics,
    query: str | Sequence[str],
    top_n: int = 5,
    *,
    by: By = "words",
    embedding_model: str | None = None,
) -> tuple[list[int], list[float]]:
    """Return the topics nearest to a word or a sentence.

    Parameters
    ----------
    query : str or list of str
        A text, or its words.
    top_n : int
        Number of topics.
    by : {"words", "meaning"}
        "words": the share of a word's occurrences that are in the topic, averaged over the query's
        words. For an unknown word, words with a different ending count. "meaning": the cosine of
        the embeddings of the query and of the topic's ten words; no common word is needed.
    embedding_model : str, optional
        For "meaning": by default the model's, or that of studies.

    Returns
    -------
    topics : list of int
    similarity : list of float

    Raises
    ------
    StudyError
        If the model knows no word of the query, or `by` is unknown.
    """
    check_choice(by, "by", get_args(By))
    check_number(top_n, "top_n")
    if not (isinstance(query, Sequence) and query and all(isinstance(w, str) for w in query)):
        raise StudyError("The query cannot be read; give a text, or a list of words.")
    texts = [query if isinstance(query, str) else " ".join(query)]
    near = _by_words(model, query) if by == "words" else nearness(model, texts, embedding_model)[0]
    order = np.argsort(-near, kind="stable")[:top_n]
    return order.tolist(), near[order].tolist()


def _by_words(model: Topics, query: str | Sequence[str]) -> NDArray[np.float64]:
    [words] = words_of(model, [query])
    matches = [columns for word in words if (columns := columns_like(word, model))]
    if not matches:
        raise StudyError(
            "The model knows no word of the query; use words of its vocabulary, or search with "
            'by="meaning".'
        )
    counts = occurrences_in_topics(model)
    shares = counts / counts.sum(0)
    return np.asarray(np.mean([shares[:, columns].mean(1) for columns in matches], axis=0))


def words_of(model: Topics, texts: Sequence[str | Sequence[str]]) -> list[list[str]]:
    """Split texts as the model's documents were split; words of lists are normalised likewise."""
    rules = TextRules() if model.text.token_pattern == LISTS else model.text
    corpus = Corpus.of(texts)
    vocabulary = model.vocabulary.index
    by_text = [words for batch in tokens(corpus, rules) for words in batch]
    if not corpus.is_tokenised:
        return by_text
    forms_of = rules.forms_of_words()  # once: it reads all stop words
    return [
        [form for w in words for form in ([w] if w in vocabulary else forms_of([w])[0])]
        for words in by_text
    ]


def occurrences_in_topics(model: Topics) -> NDArray[np.float64]:
    """Return how often words occur in topics, (n_topics, n_words)."""
    counts = model.word_sums.astype(np.float64)
    unseen = ~counts.any(0)  # words too rare at every client to be counted
    counts[:, unseen] = model.share[:, None] * model.beta[:, unseen] * max(counts.sum(), 1)
    return counts


def columns_like(word: str, model: Topics) -> list[int]:
    """Return the column of a word, or those of words with a different ending."""
    index = model.vocabulary.index
    words = model.vocabulary.alphabetical
    if word in index:
        return [index[word]]
    # Looks only at neighbours: an ontology has tens of thousands of words unknown to the model.
    behind = islice(words, bisect_left(words, word), None)
    longer = takewhile(lambda other: other.startswith(word), behind)
    shorter = (word[:-n] for n in range(1, max(ENDINGS.values()) + 1))
    forms = (other for other in chain(longer, shorter) if other in index and is_form(word, other))
    return sorted(index[other] for other in forms)


def is_form(word: str, other: str) -> bool:
    """Whether two words are equal or differ only by an ending."""
    short, long = sorted((word, other), key=len)
    ending = ENDINGS.get(min(len(short), max(ENDINGS)), 0)
    return long.startswith(short) and len(long) - len(short) <= ending


def nearness(
    model: Topics, texts: Sequence[str], embedding_model: str | None
) -> NDArray[np.float64]:
    """Return the cosines of texts with topics' ten words, shape (n_texts, n_topics)."""
    settings = getattr(model.inference.settings, "embedding", None) or EmbeddingSettings()
    encode = sentence_encoder(embedding_model or settings.model)
    vectors = np.asarray(encode([*texts, *map(" ".join, model.topics())]), np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(float).tiny)
    return np.asarray(vectors[: len(texts)] @ vectors[len(texts) :].T)


def match_terms(
    model: Topics,
    terms: Mapping[str, Sequence[str]],
    top_n: int = 3,
    *,
    by: By = "words",
    embedding_model: str | None = None,
) -> list[dict[str, Any]]:
    """Return the terms of an ontology that are nearest to each topic.

    Parameters
    ----------
    terms : mapping of str to list of str
        Synonyms (words or texts) by term, ``{"J45": ["asthma", "wheezing"]}``; the nearest decides.
    top_n : int
        Most terms per topic.
    by : {"words", "meaning"}
        "words": the geometric mean of two shares, averaged over a synonym's words: the part of the
        word's occurrences that are in the topic, and its frequency there relative to the topic's
        most frequent word. Unknown words count as zero. "meaning": the cosine of the embeddings of
        the synonym and of the topic's ten words.
    embedding_model : str, optional
        For "meaning": by default the model's, or that of studies.

    Returns
    -------
    list of dict
        One row per topic, in order: ``topic``, ``label``, ``words``, and ``terms``, a list of
        (name, similarity) with positive similarity, nearest first.

    Raises
    ------
    StudyError
        If there are no terms, one has no synonym, or `by` is unknown.
    """
    check_choice(by, "by", get_args(By))
    if not terms or not all(terms.values()):
        raise StudyError("There are no terms, or one has no synonym; give each at least one word.")
    texts = [synonym for synonyms in terms.values() for synonym in synonyms]
    rows = (
        _synonyms_by_words(model, texts)
        if by == "words"
        else nearness(model, texts, embedding_model)
    )
    ends = np.cumsum([len(synonyms) for synonyms in terms.values()])
    near = np.maximum.reduceat(rows, [0, *ends[:-1]])

    def first(number: int) -> list[tuple[str, float]]:
        pairs = zip(terms, near[:, number].tolist(), strict=True)
        return sorted((pair for pair in pairs if pair[1] > 0), key=lambda pair: -pair[1])[:top_n]

    return [
        {"topic": k, "label": model.labels.get(k, ""), "words": words, "terms": first(k)}
        for k, words in enumerate(model.topics())
    ]


def _synonyms_by_words(model: Topics, synonyms: Sequence[str]) -> NDArray[np.float64]:
    """Return the nearness of synonyms to topics, (n_synonyms, n_topics)."""
    counts = occurrences_in_topics(model)
    relative = counts / np.maximum(counts.max(1, keepdims=True), np.finfo(float).tiny)
    of_word = np.sqrt(counts / counts.sum(0) * relative)
    none = 0 * of_word[:, 0]

    def near(word: str) -> NDArray[np.float64]:
        columns = columns_like(word, model)
        return np.asarray(of_word[:, columns].mean(1)) if columns else none

    return np.stack(
        [
            np.mean([near(word) for word in words], axis=0) if words else none
            for words in words_of(model, synonyms)
        ]
    )


def read_terms(path: str | Path) -> dict[str, list[str]]:
    """Read terms from TOML (lists by name) or CSV (columns term and synonym, one pair per row)."""
    path = Path(path)
    terms: dict[str, list[str]] = {}
    if path.suffix.lower() == ".csv":
        table = read_table(path)
        columns = [table.column(name).names().to_pylist() for name in ("term", "synonym")]
        for term, synonym in filter(any, zip(*columns, strict=True)):
            terms.setdefault(term, []).append(synonym)
    else:
        with suppress(OSError, ValueError):
            terms = msgspec.convert(read_toml(path), dict[str, list[str]])
    if not terms:
        raise StudyError(
            f'{path} has no terms; write TOML with one line per term, as in J45 = ["asthma"], or a '
            ".csv with the columns term and synonym."
        )
    return terms
