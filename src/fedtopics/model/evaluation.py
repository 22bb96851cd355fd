"""Quality of topics on documents: coherence, diversity and agreement with labels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError, check_choice
from fedtopics.metrics import METRICS, Metric
from fedtopics.model.card import nearness_basis
from fedtopics.model.coherence import count_pairs, federated_coherence
from fedtopics.model.nearness import Nearness, measured_nearness
from fedtopics.model.shown_words import METRIC_WORDS, WORDS_SHOWN
from fedtopics.model.spread import jackknife_margin, margin
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.columns import Column
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings, sentence_encoder
from fedtopics.text.vocabulary import count_words

Rows = slice | NDArray[np.bool_]
ROWS = {"counts", "theta", "main_topics", "labels"}  # inputs of metrics with one row per document


def evaluate(
    model: TopicModel,
    documents: Any,
    *,
    by: Literal["windows", "documents"] = "windows",
    relevance: float | None = None,
    embedding_model: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Score a model's topics on documents, not necessarily those of the training.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes, with labels or without
    by : {"windows", "documents"}
        Where words occur together: in each measure's usual windows, or in a document.
    relevance : float in [0, 1], optional
        How words are ranked: 1 by probability, 0 by lift. By default as the model ranks them.
    embedding_model, on_progress
        As in `document_embeddings`: a model's name or folder; gets the number of documents done.
        For a model of topics that needs no embeddings, only nearness needs them.

    Returns
    -------
    dict
        ``topics``, ``documents``, ``by``, ``relevance``: what was scored, and how. ``absent``:
        number of topics of which most of the words shown occur in no document. ``npmi_in_training``
        and so on: in the clients' documents, if the words are the same; ``npmi_change``: here minus
        there, with ``npmi_change_margin``. ``npmi_margin`` and so on: half of the score's 95 %
        interval, over topics (coherence) or over ``unit``, which are persons or documents; None if
        the score is exact (diversity), or without two persons or topics that change it.
        ``nearness``: by how much documents are nearer to a topic's centre if they have the topic
        (see `Nearness`), with ``nearness_basis`` in words; None without embeddings. Every
        metric of `METRICS` by name, registered ones too: ``c_v``, ``npmi``, ``u_mass``,
        ``unique_words``, ``cosine_dissimilarity``, ``inverted_rbo``.
        With labels also ``purity``, ``accuracy``, ``nmi`` (None if ``labelled`` is 0), and numbers
        of documents: scored (``labelled``), with a missing or blank label (``without_label``), and
        with a label but nothing that the model knows (``unseen``).

    Raises
    ------
    DataError
        If no document has a word of the model, if labels are lists, or if embeddings do not fit it.
    """
    corpus = Corpus.of(documents)
    parts = _Parts(
        model=model,
        corpus=corpus,
        by=by,
        relevance=relevance,
        embedding_model=embedding_model,
        on_progress=on_progress,
    )
    if not parts.counts.nnz:
        raise DataError(
            "No document has a word that the model knows, so its topics cannot be scored; give "
            "documents of the same language and kind as those of its training."
        )
    nearness = parts.nearness
    ranked_by = model.word_ranking.relevance if relevance is None else relevance
    scores: dict[str, Any] = {
        "documents": len(corpus),
        "topics": model.n_topics,
        "by": by,
        "relevance": ranked_by,
        "absent": parts.absent,
        "unit": corpus.unit,
        "nearness": nearness,
        "nearness_basis": nearness_basis(model, nearness) if nearness else "",
    }
    # Training scored the words of the model's own ranking.
    if ranked_by == model.word_ranking.relevance:
        for name, in_training in model.coherence.items():
            change = (parts.coherence[name] - in_training)[np.isfinite(in_training)]
            scores |= {
                f"{name}_in_training": float(np.nanmean(in_training)),
                f"{name}_change": float(np.mean(change)),
                f"{name}_change_margin": margin(change),
            }
    metrics = [METRICS.find(name) for name in METRICS.names]
    for metric in metrics:
        if "labels" not in metric.takes:
            scores |= _score(parts, metric, slice(None))
    return scores if corpus.labels is None else scores | _agreement(parts, metrics)


@dataclass
class _Parts:
    """The inputs of metrics (see `Metric`), each computed at first use."""

    model: TopicModel
    corpus: Corpus
    by: Literal["windows", "documents"]
    relevance: float | None
    embedding_model: str | None
    on_progress: Callable[[int, int], None] | None

    @property
    def beta(self) -> NDArray[np.float64]:
        return self.model.beta

    @cached_property
    def words(self) -> list[list[str]]:
        return self.model.topics(METRIC_WORDS, self.relevance)

    @property
    def absent(self) -> int:
        occurs = np.asarray(self.counts.sum(0)).ravel() > 0
        present = (
            [occurs[self.model.vocabulary.index[word]] for word in topic]
            for topic in self.model.topics(WORDS_SHOWN, self.relevance)
        )
        return int(sum(2 * sum(words) < len(words) for words in present))

    @cached_property
    def coherence(self) -> dict[str, NDArray[np.float64]]:
        """Coherence of the words shown, counted as in training."""
        check_choice(self.by, "by", ("windows", "documents"))
        if self.by == "windows" and self.model.text.ngrams[1] > 1:
            raise StudyError(
                "With n-grams, the order of a document's words is lost; score by documents."
            )
        ask = partial(count_pairs, count_words(self.corpus, self.model.text))
        return federated_coherence(ask, self.model.topics(WORDS_SHOWN, self.relevance), self.by)

    @cached_property
    def _embedded(self) -> Corpus:
        return self.model.embedded(self.corpus, self.embedding_model, self.on_progress)

    @cached_property
    def nearness(self) -> Nearness | None:
        """Nearness to topics, by embeddings that the model or the documents have, or a model's."""
        corpus = self._embedded if self.model.inference.sees_embedding else self.corpus
        encoder = self.embedding_model or "the model of the documents' own embeddings"
        embeddings = corpus.embeddings
        if self.model.inference.sees_embedding:
            encoder = self.model.inference.settings.embedding.model
        elif embeddings is None and self.embedding_model is not None:
            # The encoder's dimension is not known before it has encoded a text.
            dimension = sentence_encoder(encoder)(["a"]).shape[1]
            settings = EmbeddingSettings(model=encoder, dimension=dimension)
            embeddings = document_embeddings(corpus, settings, on_progress=self.on_progress)
        if embeddings is None:
            return None
        rows = np.flatnonzero((self.main_topics >= 0) & embeddings.any(1))
        return measured_nearness(
            self.theta[rows], embeddings[rows], self.corpus.person_numbers[rows], encoder
        )

    @cached_property
    def counts(self) -> Any:
        return self.model.count_words(self.corpus)

    @cached_property
    def theta(self) -> NDArray[np.float32]:
        return self.model.transform(self._embedded)

    @cached_property
    def main_topics(self) -> NDArray[np.int64]:
        return self.model.main_topics(self._embedded)

    @cached_property
    def labels(self) -> NDArray[np.str_]:
        """The documents' labels as text, "" for a document without one."""
        return np.array(Column([self.corpus.labels], "the labels").names().to_pylist(), np.str_)


def _score(parts: _Parts, metric: Metric, used: Rows) -> dict[str, float | None]:
    """Score a metric on the documents `used`, with half of its interval."""
    inputs = {name: getattr(parts, name) for name in metric.takes}
    by_document = inputs.keys() & ROWS
    inputs |= {name: inputs[name][used] for name in by_document}

    def score(rows: Rows) -> float:
        chosen = {name: inputs[name][rows] for name in by_document}
        if not by_document and "coherence" in inputs:
            chosen["coherence"] = {name: of[rows] for name, of in inputs["coherence"].items()}
        return metric.function(*((inputs | chosen)[name] for name in metric.takes))

    topics = np.arange(parts.model.n_topics if "coherence" in inputs else 0)
    return {
        metric.name: score(slice(None)),
        f"{metric.name}_margin": jackknife_margin(
            score, parts.corpus.person_numbers[used] if by_document else topics
        ),
    }


def _agreement(parts: _Parts, metrics: Sequence[Metric]) -> dict[str, Any]:
    """Score metrics that take labels, on documents that have a label and a topic."""
    labelled = parts.labels != ""
    used = labelled & (parts.main_topics >= 0)
    scores: dict[str, Any] = {}
    for metric in metrics:
        if "labels" in metric.takes:
            scores |= (
                _score(parts, metric, used)
                if used.any()
                else {metric.name: None, f"{metric.name}_margin": None}
            )
    return scores | {
        "labelled": int(used.sum()),
        "without_label": int((~labelled).sum()),
        "unseen": int((labelled & ~used).sum()),
    }
