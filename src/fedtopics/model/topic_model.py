"""The result of a study: a topic model that can be read, applied, saved and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError
from fedtopics.inference.clusters import ClusterInference, FineTuned
from fedtopics.inference.theta import READOUTS, Inference, Readout, VariationalLDA
from fedtopics.inference.theta import refine as refined
from fedtopics.model import exports, figures, html
from fedtopics.model.folder import checked_labels, read_model, write_model
from fedtopics.model.shown_words import USUAL, Reading
from fedtopics.networks import Tensors
from fedtopics.networks.trained_encoder import TunedEncoder
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import document_embeddings
from fedtopics.text.vocabulary import TextRules, Vocabulary, count_words

if TYPE_CHECKING:
    import altair

BATCH = 1024


@dataclass(frozen=True, repr=False)
class TopicModel:
    """Topics, and what finds them in documents.

    Parameters
    ----------
    inference : Inference
        A network, or LDA.
    weights : tensors
    shared : mapping of stage name to tensors
        What documents share at inference (running statistics).
    vocabulary : Vocabulary
    text : TextRules
    shares : mapping of client name to float array of shape (n_topics,)
        Mean theta of each client's documents.
    documents : mapping of client name to int
    word_sums : float array of shape (n_topics, n_words)
        The words of all clients' documents, weighted by the documents' theta; without those of a
        client that are rarer there than its policy allows.
    reading : Reading
        How topics are read, see `topics`.
    coherence : mapping of measure to float array of shape (n_topics,)
        Of the ten first words of each topic, on the clients' own documents.
    info : mapping
        Method, rounds and seed, for the card.
    labels : mapping of topic to str
        What people call topics; see `with_labels`.
    """

    inference: Inference
    weights: Tensors
    shared: Mapping[str, Tensors]
    vocabulary: Vocabulary
    text: TextRules
    shares: Mapping[str, NDArray[np.float64]]
    documents: Mapping[str, int]
    word_sums: NDArray[np.float64]
    reading: Reading = USUAL
    coherence: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[int, str] = field(default_factory=dict)

    @property
    def n_topics(self) -> int:
        """Number of topics."""
        return int(self.inference.settings.n_components)

    @cached_property
    def beta(self) -> NDArray[np.float64]:
        """Topics as the decoder uses them, shape (n_topics, n_words), rows sum to 1."""
        with torch.no_grad():
            beta: NDArray[np.float64] = self.inference.beta(self.weights, self.shared).numpy()
        return beta

    @property
    def share(self) -> NDArray[np.float64]:
        """Mean theta over all documents, shape (n_topics,)."""
        total = max(sum(self.documents.values()), 1)
        return sum(
            (self.shares[name] * n / total for name, n in self.documents.items()),
            np.zeros(self.n_topics),
        )

    def topics(self, n_words: int = 10, lambda_: float | None = None) -> list[list[str]]:
        """Return the words of each topic, the most relevant first.

        Parameters
        ----------
        n_words : int
        lambda_ : float in [0, 1], optional
            1 reads by probability, 0 by lift; see `Reading`. By default as `reading` says.

        Raises
        ------
        StudyError
            If `n_words` is less than 1, or `lambda_` not between 0 and 1.
        """
        reading = self.reading if lambda_ is None else Reading(lambda_, self.reading.by_sums)
        return self.read(reading, n_words)

    @property
    def word_shares(self) -> NDArray[np.float64]:
        """p(word | topic) that topics are read by, shape (n_topics, n_words): see `Reading`."""
        return self._shares(self.reading)

    def _shares(self, reading: Reading) -> NDArray[np.float64]:
        if not reading.by_sums:
            return self.beta
        shares: NDArray[np.float64] = self.word_sums / np.maximum(
            self.word_sums.sum(1, keepdims=True), 1
        )
        return shares

    def read(self, reading: Reading, n_words: int = 10) -> list[list[str]]:
        """Return the words of each topic under a reading."""
        if n_words < 1:
            raise StudyError(f"n_words={n_words} cannot be used; ask for one word or more.")
        order = reading.order(self._shares(reading), self.vocabulary.frequency, n_words)
        return [[self.vocabulary.words[i] for i in row] for row in order]

    def transform(
        self, documents: Any, *, refine: bool = False, readout: Readout | None = None
    ) -> NDArray[np.float32]:
        """Find the topics of documents.

        Parameters
        ----------
        documents : whatever `Corpus.of` takes
        refine : bool
            Let each document's own words correct what an encoder said of it, by twenty variational
            steps of LDA with these topics and the model's prior of theta. It takes longer, and is
            closer for documents that are mixtures; the words alone count, not embeddings. What LDA
            says of a document is of that kind already, and stays.
        readout : {"mean", "root"}, optional
            Of a refined theta, or one of LDA: the mean of the posterior, which is the default, or
            the theta that is closest to it in Hellinger's distance.

        Returns
        -------
        theta : float32 array of shape (n_documents, n_topics)
            Rows sum to 1 and follow the documents' order. A document of which the model sees
            nothing, no known word and no embedding, has 1 / n_topics everywhere.

        Raises
        ------
        StudyError
            If `readout` is unknown, or there is no posterior to read out: a network's, without
            `refine`.
        """
        if readout not in (None, *READOUTS):
            raise StudyError(f"readout={readout!r} is unknown; choose from {', '.join(READOUTS)}.")
        if (refine or readout) and isinstance(self.inference, ClusterInference):
            raise StudyError(
                "Clusters are no topics of words, so there is nothing to refine or to read out; "
                "leave out refine and readout."
            )
        corpus = self.embedded(Corpus.of(documents))
        counts = self.count(corpus)
        if isinstance(self.inference, VariationalLDA):
            return self._theta(counts, None, readout=readout or "mean")[0]
        theta, _ = self._theta(counts, corpus.embeddings)
        if refine:
            worded = np.flatnonzero(np.diff(counts.indptr))
            prior = self.inference.settings.theta_prior
            given = counts[worded], self.beta, prior, theta[worded]
            theta[worded] = refined(*given, readout or "mean")
        elif readout is not None:
            raise StudyError("An encoder gives no posterior to read out; give refine=True as well.")
        return theta

    def main_topics(self, documents: Any) -> NDArray[np.int64]:
        """Return each document's largest topic, -1 where the model sees nothing of it."""
        corpus = self.embedded(Corpus.of(documents))
        theta, seen = self._theta(self.count(corpus), corpus.embeddings)
        return np.where(seen, theta.argmax(1), -1)

    def embedded(
        self,
        corpus: Corpus,
        embedding_model: str | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Corpus:
        """Return a corpus with embeddings, if the network sees them; see `document_embeddings`.

        Where the encoder was trained as well, texts are embedded anew, whatever embeddings they
        come with; the model that training began with is needed for it, under the name in
        ``inference.settings.embedding`` or as `embedding_model`.

        Raises
        ------
        StudyError
            If the model of the embeddings is another one, or cannot be loaded.
        DataError
            If embeddings do not fit; if the encoder was trained and there are no texts.
        """
        if not self.inference.sees_embedding:
            return replace(corpus, embeddings=None)
        settings = self.inference.settings.embedding
        given: dict[str, Any] = {"embedding_model": embedding_model, "on_progress": on_progress}
        if isinstance(self.inference, FineTuned):
            if corpus.embeddings is not None:
                if any(known() is corpus.embeddings for known in self._embedded):
                    return corpus
                if not any(text.strip() for batch in corpus.texts() for text in batch):
                    raise DataError(
                        "The documents have embeddings and no texts, which the trained encoder of "
                        "this model embeds itself; give the texts."
                    )
            corpus = replace(corpus, embeddings=None)
            weights = self.inference.encoder_weights(self.weights)
            length = self.inference.settings.max_length
            given["encoder"] = TunedEncoder(embedding_model or settings.model, length, weights)
        embeddings = document_embeddings(corpus, settings, **given)
        self._embedded[:] = [ref(embeddings)]
        return corpus.with_embeddings(embeddings)

    @cached_property
    def _embedded(self) -> list[ref[NDArray[Any]]]:
        """What texts were last made into, to tell it from embeddings of other encoders."""
        return []

    def count(self, documents: Any) -> Any:
        """Return the bag of words of documents, a CSR array of shape (n_documents, n_words)."""
        counts = count_words(Corpus.of(documents), self.text, self.vocabulary.index).counts
        return counts.astype(np.float32)

    def write_theta(self, documents: Any, path: str | Path) -> int:
        """Write the topics of documents as a Parquet table, a row a document, in their order.

        Columns are id, known_words, topic and theta_0, theta_1, ...; topic is null where the
        model sees nothing of a document.

        Returns
        -------
        int
            Documents of which the model sees nothing; their theta is even.
        """
        corpus = self.embedded(Corpus.of(documents))
        counts = self.count(corpus)
        theta, seen = self._theta(counts, corpus.embeddings)
        main_topic = pa.array(theta.argmax(1), pa.int64(), mask=~seen)
        words = counts.sum(1).astype("int64")
        columns = {"id": corpus.ids, "known_words": words, "topic": main_topic}
        columns |= {f"theta_{k}": theta[:, k] for k in range(self.n_topics)}
        pq.write_table(pa.table(columns), path)
        return int((~seen).sum())

    def _theta(
        self, counts: Any, embeddings: NDArray[Any] | None, **how: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return theta, and of which documents the network sees something."""
        theta = np.full((counts.shape[0], self.n_topics), 1 / self.n_topics, np.float32)
        seen = np.zeros(counts.shape[0], bool)
        if self.inference.sees_words:
            seen |= np.diff(counts.indptr) > 0
        if embeddings is not None:
            seen |= embeddings.any(1)
        found = np.flatnonzero(seen)
        for start in range(0, len(found), BATCH):
            rows = found[start : start + BATCH]
            embedded = None if embeddings is None else embeddings[rows]
            given = self.weights, self.shared, counts[rows], embedded
            theta[rows] = self.inference.infer(*given, **how)
        return theta, seen

    def with_labels(self, labels: Mapping[int, str]) -> Self:
        """Return the model with labels of these topics; the others keep theirs, "" takes one away.

        Raises
        ------
        StudyError
            If there is no such topic; if a label is no text, holds control characters or more than
            200 others.
        """
        return replace(self, labels=checked_labels({**self.labels, **labels}, self.n_topics))

    # Methods, whose docstrings are there.
    __repr__ = html.summary
    _repr_html_ = html.table
    get_topic_info = exports.get_topic_info
    to_pandas = exports.to_pandas
    to_pyldavis = exports.to_pyldavis
    to_octis = exports.to_octis
    to_gensim = exports.to_gensim

    def plot_topics(self) -> altair.Chart:
        """Draw a bar a topic, its share of all documents, as an Altair chart.

        Raises
        ------
        FedTopicsError
            If Altair is not installed.
        """
        return figures.topic_shares(self.get_topic_info())

    def plot_clients(self) -> altair.Chart:
        """Draw the share of each topic in each client's documents, as `plot_topics`."""
        return figures.clients_by_topics(self.get_topic_info())

    def plot_map(self) -> altair.Chart:
        """Draw topics as circles, near those with similar words, as `plot_topics`."""
        return figures.topic_map(self.get_topic_info(), figures.positions(self.beta))

    def save_pretrained(self, path: str | Path) -> Path:
        """Write the model to a folder: safetensors, JSON and a card. No document text is in it.

        Labels are in its ``topics.json``, which is there to be edited.
        """
        write_model(self, Path(path))
        return Path(path)

    @classmethod
    def from_pretrained(cls, path: str | Path) -> Self:
        """Read a model that `save_pretrained` wrote, with the labels that its ``topics.json`` has.

        Raises
        ------
        ModelError
            If there is none, it is of another format, or it is damaged; if ``topics.json`` was
            edited into something else than labelled topics.
        """
        return cls(**read_model(Path(path)))
