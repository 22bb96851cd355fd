"""The result of a study: a topic model that can be read, applied, saved and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError
from fedtopics.files import open_private
from fedtopics.inference import READOUTS, Readout
from fedtopics.inference.lda import refine as refined
from fedtopics.model import (
    card,
    document_map,
    exports,
    figures,
    labels,
    merging,
    over_time,
    representative,
    search,
    terms,
)
from fedtopics.model.figures import Figure
from fedtopics.model.folder import checked_labels, checked_names, read_model, write_model
from fedtopics.model.topics import Topics
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import document_embeddings
from fedtopics.text.vocabulary import count_words

BATCH = 1024


class TopicModel(Topics):
    """Topics, and what finds them in documents; its fields are those of `Topics`."""

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
        if (refine or readout) and self.shows_clusters:
            raise StudyError(
                "Clusters are no topics of words, so there is nothing to refine or to read out; "
                "leave out refine and readout."
            )
        corpus = self.embedded(Corpus.of(documents))
        counts = self.count(corpus)
        if self.inference.readouts:
            return self._theta(counts, corpus.embeddings, readout=readout or "mean")[0]
        theta, _ = self._theta(counts, corpus.embeddings)
        if refine:
            rows = np.flatnonzero(np.diff(counts.indptr))
            how = theta[rows], readout or "mean"
            theta[rows] = refined(counts[rows], self.beta, self._prior, *how)
        elif readout is not None:
            raise StudyError("An encoder gives no posterior to read out; give refine=True as well.")
        return theta

    @property
    def _prior(self) -> float:
        """The prior of theta; StudyError if beta is not of documents drawn from topics."""
        prior: float | None = getattr(self.inference.settings, "theta_prior", None)
        if prior is None:
            raise StudyError(
                "The topics of this model are no probabilities of words, by which a theta could "
                "be refined; leave out refine."
            )
        return prior

    def main_topics(self, documents: Any) -> NDArray[np.int64]:
        """Return each document's largest topic, -1 where the model sees nothing of it."""
        theta, seen = self.theta_and_seen(documents)
        return np.where(seen, theta.argmax(1), -1)

    def theta_and_seen(self, documents: Any) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return theta as `transform`, and of which documents the model sees something."""
        corpus = self.embedded(Corpus.of(documents))
        return self._theta(self.count(corpus), corpus.embeddings)

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
            return corpus.with_embeddings(None)
        settings = self.inference.settings.embedding
        encoder = self.inference.trained_encoder(self.weights, embedding_model or settings.model)
        if encoder is not None and corpus.embeddings is not None:
            if corpus.embedded_by == encoder.fingerprint:
                return corpus
            if not any(text.strip() for batch in corpus.texts() for text in batch):
                raise DataError(
                    "The documents have embeddings and no texts, which the trained encoder of "
                    "this model embeds itself; give the texts."
                )
            corpus = corpus.with_embeddings(None)
        embeddings = document_embeddings(
            corpus,
            settings,
            embedding_model=embedding_model,
            on_progress=on_progress,
            encoder=encoder,
        )
        return corpus.with_embeddings(embeddings, "" if encoder is None else encoder.fingerprint)

    def count(self, documents: Any) -> Any:
        """Return the bag of words of documents, a CSR array of shape (n_documents, n_words)."""
        counts = count_words(Corpus.of(documents), self.text, self.vocabulary.index).counts
        return counts.astype(np.float32)

    def write_theta(self, documents: Any, path: str | Path) -> int:
        """Write the topics of documents as a Parquet table, a row a document, in their order.

        Columns are id, known_words, topic and theta_0, theta_1, ...; topic is null, and theta even,
        where the model sees nothing of a document. Returned is how many such documents there are.
        """
        corpus = self.embedded(Corpus.of(documents))
        counts = self.count(corpus)
        theta, seen = self._theta(counts, corpus.embeddings)
        main_topic = pa.array(theta.argmax(1), pa.int64(), mask=~seen)
        words = counts.sum(1).astype("int64")
        columns = {"id": corpus.ids, "known_words": words, "topic": main_topic}
        columns |= {f"theta_{k}": theta[:, k] for k in range(self.n_topics)}
        with open_private(Path(path), "wb") as file:
            pq.write_table(pa.table(columns), file)
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
        all_rows = np.flatnonzero(seen)
        for start in range(0, len(all_rows), BATCH):
            rows = all_rows[start : start + BATCH]
            batch = counts[rows], None if embeddings is None else embeddings[rows]
            theta[rows] = self.inference.infer(self.weights, self.shared, *batch, **how)
        return theta, seen

    def with_labels(self, labels: Mapping[int, str]) -> Self:
        """Return the model with labels of these topics; the others keep theirs, "" takes one away.

        Raises
        ------
        StudyError
            If there is no such topic, or a label is no text of at most 100 characters in one line.
        """
        kept = checked_labels({**self.labels, **labels}, self.n_topics)
        return replace(self, labels=kept, suggested=self.suggested - labels.keys())

    def with_suggested_labels(self, documents: Any = None, **how: Any) -> Self:
        """Return the model with labels that rules suggest for topics without one.

        They are marked as suggested wherever they are shown, until a label is given with
        `with_labels` or in ``topics.json``. What it takes is as of `suggest_labels`.
        """
        found = self.suggest_labels(documents, **how)
        return replace(self.with_labels(found), suggested=frozenset(found))

    def with_client_names(self, names: Mapping[str, str]) -> Self:
        """Return the model with names for people of these clients, "" takes one away.

        Raises
        ------
        StudyError
            If there is no such client, two would have one name, or a name is no text of at most 100
            characters in one line.
        """
        return replace(
            self, client_names=checked_names({**self.client_names, **names}, self.documents)
        )

    # Methods, whose docstrings are there.
    __repr__ = card.summary
    _repr_html_ = card.table
    find_topics = search.find_topics
    suggest_labels = labels.suggest_labels
    match_terms = terms.match_terms
    hierarchy = merging.hierarchy
    merge_topics = merging.merge_topics
    reduce_topics = merging.reduce_topics
    topics_over_time = over_time.topics_over_time
    topics_per_class = over_time.topics_per_class
    representative_documents = representative.representative_documents
    document_map = document_map.document_map
    plot_topics = figures.plot_topics
    plot_clients = figures.plot_clients
    plot_map = figures.plot_map
    get_document_info = exports.document_info
    get_topics = exports.get_topics
    get_topic = exports.get_topic
    to_pandas = exports.to_pandas
    to_pyldavis = exports.to_pyldavis
    to_gensim = exports.to_gensim

    def to_octis(
        self, documents: Any = None, n_words: int = 10, lambda_: float | None = None
    ) -> dict[str, Any]:
        """Return what OCTIS' metrics take as a model's output; some look at documents' topics.

        These are ``topics``, lists of `n_words` words; ``topic-word-matrix``, float64 of shape
        (n_topics, n_words), beta; with documents, ``topic-document-matrix``, float64 (n_topics,
        n_documents).
        """
        output: dict[str, Any] = {
            "topics": self.topics(n_words, lambda_),
            "topic-word-matrix": np.array(self.beta, np.float64),
        }
        if documents is not None:
            output["topic-document-matrix"] = self.transform(documents).T.astype(np.float64)
        return output

    def plot_over_time(self, documents: Any = None, timestamps: Any = None, **how: Any) -> Figure:
        """Draw what grew and what shrank by period, as `topics_over_time` finds it."""
        return figures.change_over_time(self, self.topics_over_time(documents, timestamps, **how))

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
