"""Topics of documents: theta, by the words and embeddings that a model sees."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError, check_number
from fedtopics.files import check_output, write_output
from fedtopics.harmless import for_csv
from fedtopics.inference import READOUTS, Readout
from fedtopics.inference.lda import refine as refined
from fedtopics.model.topics import Topics
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import document_embeddings
from fedtopics.text.vocabulary import count_words

BATCH = 1024
BEST = 3  # documents of a topic that stand for it


class Finder(Topics):
    """Topics, and what finds them in documents."""

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
        self, corpus: Corpus, embedding_model: str | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Corpus:  # fmt: skip
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
            corpus, settings, embedding_model=embedding_model, on_progress=on_progress,
            encoder=encoder,
        )  # fmt: skip
        return corpus.with_embeddings(embeddings, "" if encoder is None else encoder.fingerprint)

    def count(self, documents: Any) -> Any:
        """Return the bag of words of documents, a CSR array of shape (n_documents, n_words)."""
        counts = count_words(Corpus.of(documents), self.text, self.vocabulary.index).counts
        return counts.astype(np.float32)

    def write_theta(self, documents: Any, path: str | Path) -> int:
        """Write the topics of documents as a table, a row a document, in their order.

        The file is Parquet, CSV or JSON lines, as its name ends: .parquet, .csv or .jsonl. Columns
        are id, known_words, topic and theta_0, theta_1, ...; topic is null, and theta even, where
        the model sees nothing of a document. Returned is how many such documents there are.

        Raises
        ------
        InputError
            If the name ends otherwise, or the file is that of the documents, or is there already
            and is no such table.
        """
        inputs = [documents] if isinstance(documents, (str, Path)) else []
        check_output(path, THETA_FILES, inputs, THETA)
        corpus = self.embedded(Corpus.of(documents))
        counts = self.count(corpus)
        theta, seen = self._theta(counts, corpus.embeddings)
        main_topic = pa.array(theta.argmax(1), pa.int64(), mask=~seen)
        words = counts.sum(1).astype("int64")
        columns = dict(zip(THETA, (corpus.ids, words, main_topic), strict=True))
        columns |= {f"theta_{k}": theta[:, k] for k in range(self.n_topics)}
        content = THETA_FILES[Path(path).suffix.lower()](pa.table(columns))
        write_output(path, content, THETA_FILES, inputs, THETA)
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

    def representative_documents(
        self, documents: Any, topic: int | None = None, n_documents: int = BEST
    ) -> list[dict[str, Any]]:
        """Return the documents that are most of each topic, or of one.

        A document stands for its largest topic only.

        Leaves the client
            Nothing: it is made where the documents are, and stays with who asks for it.

        Parameters
        ----------
        documents : whatever `Corpus.of` takes, or a mapping of client to that
            One's own: those of the training, or others.
        topic : int, optional
            By default all.
        n_documents : int
            The most of a topic.

        Returns
        -------
        list of dict
            ``topic``; ``document``, its row among those given, counted from 0; ``client``, its key
            in the mapping; ``share``, that of the topic in the document; ``text``. By topic, in
            each the largest share first; a topic that is the largest of no document has none.

        Raises
        ------
        StudyError
            If there is no such topic, or `n_documents` is less than 1.
        """
        check_number(n_documents, "n_documents")
        check_number(0 if topic is None else topic, "topic", 0, self.n_topics - 1)
        by_client = documents if isinstance(documents, Mapping) else {None: documents}
        corpora = {client: Corpus.of(each) for client, each in by_client.items()}
        found = [self.theta_and_seen(corpus) for corpus in corpora.values()]
        theta, seen = (np.concatenate(parts) for parts in zip(*found, strict=True))
        rows = [(client, row) for client, corpus in corpora.items() for row in range(len(corpus))]
        texts = [text for corpus in corpora.values() for batch in corpus.texts() for text in batch]
        best = representatives(theta, seen, n_documents)
        return [
            {"topic": k, "document": rows[i][1], "client": rows[i][0]}
            | {"share": float(theta[i, k]), "text": texts[i]}
            for k in (range(self.n_topics) if topic is None else [topic])
            for i in best[k]
        ]


def _as_parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def _as_csv(table: pa.Table) -> bytes:
    """Return a table of which a spreadsheet computes nothing."""
    safe = pa.array(map(for_csv, table["id"].to_pylist()), pa.large_string())
    file = io.BytesIO()
    pa.csv.write_csv(table.set_column(0, "id", safe), file)
    return file.getvalue()


def _as_json_lines(table: pa.Table) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in table.to_pylist()).encode()


THETA = "id", "known_words", "topic"  # columns before those of topics
THETA_FILES = {".parquet": _as_parquet, ".csv": _as_csv, ".jsonl": _as_json_lines}


def representatives(
    theta: NDArray[np.floating], seen: NDArray[np.bool_], n_documents: int = BEST
) -> list[list[int]]:
    """Return for each topic the rows with most of it, of those whose largest it is."""
    main = np.where(seen, theta.argmax(1), -1)
    of_topics = (np.flatnonzero(main == topic) for topic in range(theta.shape[1]))
    return [
        rows[np.argsort(-theta[rows, topic], kind="stable")[:n_documents]].tolist()
        for topic, rows in enumerate(of_topics)
    ]
