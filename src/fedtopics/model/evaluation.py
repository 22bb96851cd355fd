"""How good a model's topics are on documents: coherence, diversity, and agreement with labels.

References
----------
Röder, Both and Hinneburg (2015), Exploring the Space of Topic Coherence Measures; Dieng, Ruiz and
Blei (2020), Topic Modeling in Embedding Spaces, section 6; Webber, Moffat and Zobel (2010), A
Similarity Measure for Indefinite Rankings; Manning, Raghavan and Schütze (2008), Introduction to
Information Retrieval, section 16.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError
from fedtopics.metrics import (
    clustering_accuracy,
    inverted_rank_biased_overlap,
    mean_cosine_dissimilarity,
    normalised_mutual_information,
    purity,
    unique_words,
)
from fedtopics.model.coherence import count_pairs, federated_coherence
from fedtopics.model.shown_words import SHOWN
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus

TOP = 25  # words of a topic that the unique share looks at


def evaluate(
    model: TopicModel,
    documents: Any,
    *,
    by: Literal["windows", "documents"] = "windows",
    lambda_: float | None = None,
    embedding_model: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Score a model's topics on documents, which may be others than it was trained on.

    Parameters
    ----------
    model : TopicModel
    documents : whatever `Corpus.of` takes, with labels or without
    by : {"windows", "documents"}
        Where words occur together: in the measures' usual windows, or in a document.
    lambda_ : float in [0, 1], optional
        How topics are read: 1 by probability, 0 by lift. By default as the model says.
    embedding_model, on_progress
        As of `document_embeddings`: the model's name or folder; called with how many are done.

    Returns
    -------
    dict
        ``topics``, ``documents``, ``by``, ``lambda``: what was scored, and how.
        ``c_v``, ``npmi``, ``u_mass``: the mean over topics, of the ten words shown.
        ``unique_words``: the share of different words among the first 25 of all topics.
        ``cosine_dissimilarity``: of the rows of beta, the mean over pairs of topics.
        ``inverted_rbo``: inverted rank-biased overlap of the ten words.
        With labels also ``purity``, ``accuracy`` (of the best matching of topics and labels, one
        to one), ``nmi`` (all None if ``labelled`` is 0), and the number of documents they are of
        (``labelled``), without a label (``without_label``: missing or blank), and with one of
        which the model sees nothing (``unseen``).

    Raises
    ------
    StudyError
        If `by` is unknown.
    DataError
        If no document has a word of the model, the labels are lists, or embeddings do not fit.
    """
    corpus = Corpus.of(documents)
    if not model.count(corpus).nnz:
        raise DataError(
            "No document has a word that the model knows, so there is nothing to score its topics "
            "by; give documents of the same language and kind as those it was trained on."
        )
    reading = model.reading.lambda_ if lambda_ is None else lambda_
    scores: dict[str, Any] = {"documents": len(corpus), "topics": model.n_topics, "by": by}
    scores["lambda"] = reading
    scores |= _coherence(model, corpus, by, lambda_) | _diversity(model, lambda_)
    if corpus.labels is not None:
        embedded = model.embedded(corpus, embedding_model, on_progress)
        scores |= _agreement(corpus.labels, model.main_topics(embedded))
    return scores


def _coherence(
    model: TopicModel, corpus: Corpus, by: Literal["windows", "documents"], lambda_: float | None
) -> dict[str, float]:
    """Return the mean over topics of each measure, counted as in training."""
    if by not in ("windows", "documents"):
        raise StudyError(f"by={by!r} is unknown; choose from windows, documents.")
    if by == "windows" and model.text.ngrams[1] > 1:
        raise StudyError(
            "With n-grams, words of a document are not in its order; score by documents."
        )

    def ask(_: Any, **payload: Any) -> dict[str, Any]:
        return count_pairs(corpus, model.text, **payload)

    (scores,) = federated_coherence(ask, [model.topics(SHOWN, lambda_)], by)
    return {measure: float(score.mean()) for measure, score in scores.items()}


def _diversity(model: TopicModel, lambda_: float | None) -> dict[str, float]:
    """Return how different the topics are, read as `lambda_` says."""
    return {
        "unique_words": unique_words(model.topics(TOP, lambda_), TOP),
        "cosine_dissimilarity": mean_cosine_dissimilarity(model.beta),
        "inverted_rbo": inverted_rank_biased_overlap(model.topics(SHOWN, lambda_), n_words=SHOWN),
    }


def _agreement(labels: Any, topics: NDArray[np.int64]) -> dict[str, Any]:
    """Hold main topics against labels, where there are both."""
    if pa.types.is_floating(labels.type):
        labels = pc.if_else(pc.is_nan(labels), None, labels)
    try:
        names = np.array(pc.fill_null(labels.cast("large_string"), "").to_pylist())
    except pa.ArrowException:
        raise DataError(f"The labels are {labels.type}; give strings or numbers.") from None
    labelled = np.char.strip(names) != ""
    used = labelled & (topics >= 0)
    scores = {
        "purity": purity,
        "accuracy": clustering_accuracy,
        "nmi": normalised_mutual_information,
    }
    given = names[used], topics[used]
    return {
        **{name: score(*given) if used.any() else None for name, score in scores.items()},
        "labelled": int(used.sum()),
        "without_label": int((~labelled).sum()),
        "unseen": int((labelled & (topics < 0)).sum()),
    }
