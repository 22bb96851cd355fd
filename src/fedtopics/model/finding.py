"""Topics of documents (theta), found from their words and embeddings."""

import io
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError, check_choice, check_number, refuse
from fedtopics.escaping import for_csv
from fedtopics.files import check_output, write_output
from fedtopics.inference import READOUTS, Readout
from fedtopics.inference.lda import refine as refined
from fedtopics.inference.vectors import batches
from fedtopics.model.nearness import near_to_topics
from fedtopics.model.topics import Topics
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import document_embeddings
from fedtopics.text.vocabulary import count_words
from fedtopics.threads import small_products

THETA = "id", "known_words", "topic"  # columns before those of topics
THETA_FILES = ".parquet", ".csv", ".jsonl"
BEST = 3  # representative documents of a topic
RECALLED = 4  # readings that stay in memory
MOST_RECALLED = 200_000  # documents of a reading that stays
Reading = tuple[Any, NDArray[np.float32], NDArray[np.bool_]]
"""Documents as a model reads them: float32 counts, (n_documents, n_words); theta; whether the
model knows anything in each."""
# The last readings, because an analyst's next question is about the same documents.
_recent: OrderedDict[tuple[Any, ...], tuple[Reading, "TopicFinder"]] = OrderedDict()


class TopicFinder(Topics):
    """Topics, and methods that find them in documents."""

    def transform(
        self, documents: Any, *, refine: bool = False, readout: Readout | None = None
    ) -> NDArray[np.float32]:
        """Find the topics of documents.

        Parameters
        ----------
        documents : whatever `Corpus.of` takes
        refine : bool
            Correct an encoder's result by each document's own words, with twenty variational steps
            of LDA. Slower, and more accurate for documents with several topics. Embeddings are
            ignored. LDA's own results do not change.
        readout : {"mean", "root"}, optional
            For a refined theta, or one of LDA: the posterior mean (default), or the theta closest
            to the posterior in Hellinger's distance.

        Returns
        -------
        theta : float32 array of shape (n_documents, n_topics)
            Rows sum to 1, in the documents' order. A document without a known word or embedding
            has 1 / n_topics everywhere.

        Raises
        ------
        StudyError
            If `readout` is unknown, or a network has no posterior to read out because `refine` is
            not set.
        """
        check_choice(readout, "readout", (None, *READOUTS))
        refuse(
            {
                "This model has clusters of documents, which cannot be refined or read out; "
                "leave out refine and readout.": (
                    self.shows_clusters and (refine or readout is not None)
                ),
                "readout needs refine=True for this model; give both, or leave out readout.": (
                    readout is not None and not (refine or self.inference.readouts)
                ),
            },
            error=StudyError,
        )
        corpus = Corpus.of(documents)
        if self.inference.readouts:
            return self.read(corpus, readout or "mean")[1].copy()
        counts, theta, _ = self.read(corpus)
        if not refine:
            return theta.copy()
        rows = np.flatnonzero(np.diff(counts.indptr))
        refined_theta = theta.copy()
        refined_theta[rows] = refined(
            counts[rows],
            beta=self.beta,
            alpha=self._prior,
            theta=theta[rows],
            readout=readout or "mean",
        )
        return refined_theta

    @property
    def _prior(self) -> float:
        """The prior of theta; StudyError if the model has none."""
        prior: float | None = getattr(self.inference.settings, "theta_prior", None)
        if prior is None:
            raise StudyError(
                "The topics of this model are not word probabilities, which refine needs; leave "
                "out refine."
            )
        return prior

    def main_topics(self, documents: Any) -> NDArray[np.int64]:
        """Return each document's largest topic, -1 where it contains nothing the model knows."""
        _, theta, seen = self.read(Corpus.of(documents))
        return np.where(seen, theta.argmax(1), -1)

    def read(self, corpus: Corpus, readout: Readout = "mean") -> Reading:
        """Return what the model reads in documents, at once if these were among the last.

        Callers must not change its arrays.
        """
        key = corpus.content, readout, id(self.weights), id(self.shared)
        reading, _ = _recent.pop(key, (None, None))
        if reading is None:
            embedded = self.inference.sees_embedding
            embeddings = self.embedded(corpus).embeddings if embedded else None
            counts = self.count_words(corpus)
            theta = np.full((counts.shape[0], self.n_topics), 1 / self.n_topics, np.float32)
            seen = np.zeros(counts.shape[0], bool)
            if self.inference.sees_words:
                seen |= np.diff(counts.indptr) > 0
            if embeddings is not None:
                seen |= embeddings.any(1)
            how = {"readout": readout} if self.inference.readouts else {}
            with small_products():  # the threads of training, also in notebooks and services
                for rows in batches(np.flatnonzero(seen)):
                    theta[rows] = self.inference.infer(
                        self.weights,
                        self.shared,
                        counts[rows],
                        None if embeddings is None else embeddings[rows],
                        **how,
                    )
            reading = counts, theta, seen
        if len(corpus) <= MOST_RECALLED:
            _recent[key] = reading, self  # with its weights alive, no other object has their id
        while len(_recent) > RECALLED:
            _recent.popitem(last=False)
        return reading

    def embedded(
        self,
        corpus: Corpus,
        embedding_model: str | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Corpus:
        """Return a corpus with embeddings, if the network uses them; see `document_embeddings`.

        If the encoder was trained as well, texts are always embedded again. That needs the model
        from which training started, ``inference.settings.embedding`` or `embedding_model`.

        Raises
        ------
        StudyError
            If the embeddings' model is a different one, or cannot be loaded.
        DataError
            If embeddings do not fit, or the encoder was trained and there are no texts.
        """
        if not self.inference.sees_embedding:
            return corpus.with_embeddings(None)
        encoder = self.inference.trained_encoder(
            self.weights, embedding_model or self.inference.settings.embedding.model
        )
        if encoder is not None and corpus.embeddings is not None:
            if corpus.embedded_by == encoder.fingerprint:
                return corpus
            if not any(text.strip() for batch in corpus.texts() for text in batch):
                raise DataError(
                    "The documents have embeddings but no texts, and this model must embed texts "
                    "with its own trained encoder; give the texts."
                )
            corpus = corpus.with_embeddings(None)
        embeddings = document_embeddings(
            corpus,
            self.inference.settings.embedding,
            embedding_model=embedding_model,
            on_progress=on_progress,
            encoder=encoder,
        )
        return corpus.with_embeddings(embeddings, "" if encoder is None else encoder.fingerprint)

    def count_words(self, documents: Any) -> Any:
        """Return word counts of documents, a CSR array of shape (n_documents, n_words)."""
        return count_words(Corpus.of(documents), self.text, self.vocabulary.index).counts.astype(
            np.float32
        )

    def write_theta(self, documents: Any, path: str | Path) -> int:
        """Write the topics of documents as a table, one row per document, in order.

        The name's ending sets the format: .parquet, .csv or .jsonl. Columns are id, known_words,
        topic, theta_0, theta_1, ... A document that contains nothing the model knows has a null
        topic and uniform theta; the number of such documents is returned.

        Raises
        ------
        InputError
            If the ending is unknown, or the file is one of the inputs or is not such a table.
        """
        inputs = [documents] if isinstance(documents, (str, Path)) else []
        check_output(path, THETA_FILES, inputs, THETA)
        corpus = Corpus.of(documents)
        counts, theta, seen = self.read(corpus)
        main_topic = pa.array(theta.argmax(1), pa.int64(), mask=~seen)
        words = counts.sum(1).astype("int64")
        columns = dict(zip(THETA, (corpus.ids, words, main_topic), strict=True)) | {
            f"theta_{k}": theta[:, k] for k in range(self.n_topics)
        }
        write_output(
            path,
            _as_file(pa.table(columns), Path(path).suffix.lower()),
            THETA_FILES,
            inputs=inputs,
            names=THETA,
        )
        return int((~seen).sum())

    def representative_documents(
        self, documents: Any, topic: int | None = None, n_documents: int = BEST
    ) -> list[dict[str, Any]]:
        """Return the documents to read first of each topic, or of one topic.

        A document represents only its largest topic. Documents with embeddings are sorted by
        nearness to the centre of those that have the topic, others by their shares of it.

        Leaves the client
            Nothing: the list is made where the documents are, and stays there.

        Parameters
        ----------
        documents : whatever `Corpus.of` takes, or a mapping of client to that
            Your own documents, from the training or others.
        topic : int, optional
            By default all topics.
        n_documents : int
            Most documents per topic.

        Returns
        -------
        list of dict
            ``topic``; ``document``, its row in the given documents, from 0; ``client``, its key in
            the mapping; ``share`` of the topic in the document; ``text``. Sorted by topic, then the
            best first.

        Raises
        ------
        StudyError
            If there is no such topic, or `n_documents` is less than 1.
        """
        check_number(n_documents, "n_documents")
        check_number(0 if topic is None else topic, "topic", 0, self.n_topics - 1)
        by_client = documents if isinstance(documents, Mapping) else {None: documents}
        corpora = {client: Corpus.of(texts) for client, texts in by_client.items()}
        theta, seen, order = self.ranked([*corpora.values()])
        origins = [
            (client, row) for client, corpus in corpora.items() for row in range(len(corpus))
        ]
        texts = [text for corpus in corpora.values() for batch in corpus.texts() for text in batch]
        best = representatives(theta, seen, order, n_documents)
        return [
            {"topic": k, "document": origins[i][1], "client": origins[i][0]}
            | {"share": float(theta[i, k]), "text": texts[i]}
            for k in (range(self.n_topics) if topic is None else [topic])
            for i in best[k]
        ]

    def ranked(
        self, corpora: Sequence[Corpus]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.floating]]:
        """Return theta and which documents are known, and what orders documents for readers.

        The last, of shape (n_documents, n_topics), is nearness if all documents have embeddings,
        else theta.
        """
        if self.inference.sees_embedding:
            corpora = [self.embedded(corpus) for corpus in corpora]
        by_corpus = [self.read(corpus)[1:] for corpus in corpora]
        theta, seen = (np.concatenate(arrays) for arrays in zip(*by_corpus, strict=True))
        vectors = [corpus.embeddings for corpus in corpora if corpus.embeddings is not None]
        if len(vectors) < len(corpora):
            return theta, seen, theta
        embeddings = np.concatenate(vectors)
        used = seen & embeddings.any(1)
        near, centres = near_to_topics(theta, embeddings, used)
        near = np.where(centres.any(1), near, theta)  # no document has much of such a topic
        return theta, seen, np.where(used[:, None], near, -1)


def _as_file(table: pa.Table, suffix: str) -> bytes:
    """Return a table as a file; in CSV no text is a formula for a spreadsheet."""
    file = io.BytesIO()
    if suffix == ".jsonl":
        file.writelines(
            f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in table.to_pylist()
        )
    elif suffix == ".csv":
        safe = pa.array(map(for_csv, table["id"].to_pylist()), pa.large_string())
        pa.csv.write_csv(table.set_column(0, "id", safe), file)
    else:
        pq.write_table(table, file)
    return file.getvalue()


def representatives(
    theta: NDArray[np.floating],
    seen: NDArray[np.bool_],
    order: NDArray[np.floating],
    n_documents: int = BEST,
) -> list[list[int]]:
    """Return, for each topic, the first rows by `order` of those whose largest topic it is."""
    main = np.where(seen, theta.argmax(1), -1)
    of_topics = (np.flatnonzero(main == topic) for topic in range(theta.shape[1]))
    return [
        rows[np.argsort(-order[rows, topic], kind="stable")[:n_documents]].tolist()
        for topic, rows in enumerate(of_topics)
    ]
