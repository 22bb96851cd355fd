"""The result of a study: a topic model that can be read, applied, saved and loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedtopics import __version__
from fedtopics.corpus import Corpus
from fedtopics.embeddings import document_embeddings
from fedtopics.errors import ModelError, StudyError
from fedtopics.networks import (
    Batch,
    NetworkSettings,
    NeuralTopicModel,
    Tensors,
    find_network,
)
from fedtopics.passes import batch_weights
from fedtopics.vocabulary import TextRules, Vocabulary, count_words

FORMAT = 1
BATCH = 1024


@dataclass(frozen=True)
class TopicModel:
    """Topics, and the network that finds them in documents.

    Parameters
    ----------
    network : NeuralTopicModel
    weights : tensors
    shared : mapping of stage name to tensors
        What documents share at inference (running statistics).
    vocabulary : Vocabulary
    text : TextRules
    shares : mapping of client name to float array of shape (n_topics,)
        Mean theta of each client's documents.
    documents : mapping of client name to int
    relevance : float
        How topics are read, see `topics`.
    coherence : mapping of measure to float array of shape (n_topics,)
        Of the ten first words of each topic, on the clients' own documents.
    info : mapping
        Method, rounds and seed, for the card.
    """

    network: NeuralTopicModel
    weights: Tensors
    shared: Mapping[str, Tensors]
    vocabulary: Vocabulary
    text: TextRules
    shares: Mapping[str, NDArray[np.float64]]
    documents: Mapping[str, int]
    relevance: float = 0.6
    coherence: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_topics(self) -> int:
        """Number of topics."""
        return self.network.settings.n_components

    @cached_property
    def beta(self) -> NDArray[np.float64]:
        """Topics as the decoder uses them, shape (n_topics, n_words), rows sum to 1."""
        with torch.no_grad():
            beta: NDArray[np.float64] = self.network.beta(self.weights, self.shared).numpy()
        return beta

    @property
    def share(self) -> NDArray[np.float64]:
        """Mean theta over all documents, shape (n_topics,)."""
        total = sum(self.documents.values())
        return sum(
            (self.shares[name] * n / total for name, n in self.documents.items()),
            np.zeros(self.n_topics),
        )

    def topics(self, n_words: int = 10, relevance: float | None = None) -> list[list[str]]:
        """Return the words of each topic.

        Parameters
        ----------
        n_words : int
        relevance : float in [0, 1], optional
            Weight of log p(word | topic) against its lift, log p(word | topic) - log p(word): 1
            reads by probability, 0 by lift. By default as the model was trained to be read.

        References
        ----------
        Sievert and Shirley, LDAvis: A method for visualizing and interpreting topics, 2014.
        """
        weight = self.relevance if relevance is None else relevance
        score = np.log(self.beta) - (1 - weight) * np.log(self.vocabulary.frequency)
        order = np.argsort(-score, axis=1, kind="stable")[:, :n_words]
        return [[self.vocabulary.words[i] for i in row] for row in order]

    def transform(self, documents: Any) -> NDArray[np.float32]:
        """Find the topics of documents.

        Parameters
        ----------
        documents : whatever `Corpus.of` takes

        Returns
        -------
        theta : float32 array of shape (n_documents, n_topics)
            Rows sum to 1 and follow the documents' order. A document without a known word, or
            without an embedding for networks that see one, has 1 / n_topics everywhere.
        """
        corpus = Corpus.of(documents)
        return self._theta(self.count(corpus), self._embeddings(corpus))[0]

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
        corpus = Corpus.of(documents)
        counts = self.count(corpus)
        theta, seen = self._theta(counts, self._embeddings(corpus))
        main_topic = pa.array(theta.argmax(1), pa.int64(), mask=~seen)
        words = counts.sum(1).astype("int64")
        columns = {"id": corpus.ids, "known_words": words, "topic": main_topic}
        columns |= {f"theta_{k}": theta[:, k] for k in range(self.n_topics)}
        pq.write_table(pa.table(columns), path)
        return int((~seen).sum())

    def _embeddings(self, corpus: Corpus) -> NDArray[Any] | None:
        if not self.network.sees_embedding:
            return None
        return document_embeddings(corpus, self.network.settings.embedding)

    def _theta(
        self, counts: Any, embeddings: NDArray[Any] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return theta, and of which documents the network sees something."""
        theta = np.full((counts.shape[0], self.n_topics), 1 / self.n_topics, np.float32)
        seen = np.zeros(counts.shape[0], bool)
        if self.network.sees_words:
            seen |= np.diff(counts.indptr) > 0
        if embeddings is not None:
            seen |= embeddings.any(1)
        found = np.flatnonzero(seen)
        with torch.no_grad():
            for start in range(0, len(found), BATCH):
                rows = found[start : start + BATCH]
                embedded = None if embeddings is None else embeddings[rows]
                batch = Batch.of(counts[rows], None, self.network.dtype, embedded)
                used = batch_weights(self.network, self.weights, batch)
                theta[rows] = self.network.theta(used, self.shared, batch).numpy()
        return theta, seen

    def get_topic_info(
        self, n_words: int = 10, relevance: float | None = None
    ) -> list[dict[str, Any]]:
        """Return a row a topic, largest first; ``pandas.DataFrame`` takes it as it is.

        Each row has the topic's number, its share of all documents, its words, their coherence,
        and the topic's share of each client's documents.
        """
        words = self.topics(n_words, relevance)
        return [
            {
                "topic": int(k),
                "share": float(self.share[k]),
                "words": words[k],
                "coherence": {name: float(score[k]) for name, score in self.coherence.items()},
                "clients": {name: float(share[k]) for name, share in self.shares.items()},
            }
            for k in np.argsort(-self.share, kind="stable")
        ]

    def save_pretrained(self, path: str | Path) -> Path:
        """Write the model to a folder: safetensors, JSON and a card. No document text is in it."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"weights/{n}": t.contiguous() for n, t in self.weights.items()}
        for stage, values in self.shared.items():
            tensors |= {f"shared/{stage}/{n}": t.contiguous() for n, t in values.items()}
        data = save(tensors)
        config = {
            "format": FORMAT,
            "fedtopics": __version__,
            "network": self.network.name,
            "precision": str(self.network.dtype).removeprefix("torch."),
            "settings": self.network.settings.model_dump(
                mode="json", include=set(NetworkSettings.model_fields)
            ),
            "text": self.text.model_dump(mode="json"),
            "vocabulary": self.vocabulary.fingerprint,
            "sha256": hashlib.sha256(data).hexdigest(),
            "relevance": self.relevance,
            "shares": {name: share.tolist() for name, share in self.shares.items()},
            "documents": dict(self.documents),
            "coherence": {name: score.tolist() for name, score in self.coherence.items()},
            "info": dict(self.info),
        }
        (folder / "model.safetensors").write_bytes(data)
        _write(folder / "config.json", config)
        _write(folder / "vocabulary.json", self.vocabulary.plain())
        _write(folder / "topics.json", self.get_topic_info())
        (folder / "README.md").write_text(card(self), encoding="utf-8")
        return folder

    @classmethod
    def from_pretrained(cls, path: str | Path) -> TopicModel:
        """Read a model that `save_pretrained` wrote.

        Raises
        ------
        ModelError
            If there is none, it is of another format, or it is damaged.
        """
        folder = Path(path)
        if not (folder / "config.json").is_file():
            raise ModelError(f"There is no model in {folder}: it has no config.json.")
        config = _read(folder / "config.json")
        if config.get("format") != FORMAT:
            raise ModelError(
                f"The model in {folder} has format {config.get('format')} (written by fedtopics "
                f"{config.get('fedtopics', 'unknown')}), this is fedtopics {__version__} with "
                f"format {FORMAT}; train it again, or install the version that wrote it."
            )
        try:
            return cls._build(config, _read(folder / "vocabulary.json"), folder)
        except (KeyError, TypeError, AttributeError, ValidationError, SafetensorError, OSError):
            raise ModelError(
                f"The model in {folder} is damaged or incomplete; copy it again."
            ) from None

    @classmethod
    def _build(cls, config: Any, words: Any, folder: Path) -> TopicModel:
        vocabulary = Vocabulary.of(words)
        if vocabulary.fingerprint != config["vocabulary"]:
            raise ModelError(
                f"The model in {folder} was trained with the vocabulary {config['vocabulary']}, "
                f"its vocabulary.json is {vocabulary.fingerprint}; copy the whole folder again."
            )
        settings = NetworkSettings(**config["settings"])
        dtype = getattr(torch, config["precision"])
        try:
            kind = find_network(config["network"])
        except StudyError as error:
            raise ModelError(f"The model in {folder} cannot be used: {error}") from None
        network = kind(len(vocabulary), settings, dtype)
        weights, shared = _read_tensors(folder / "model.safetensors", config["sha256"])
        if _shapes(weights) != _shapes(network.initial_weights(0)):
            raise ModelError(
                f"The weights in {folder} are not those of the network that its config.json "
                "describes; copy the whole folder again."
            )
        return cls(
            network=network,
            weights=weights,
            shared=shared,
            vocabulary=vocabulary,
            text=TextRules(**config["text"]),
            shares={name: np.array(share) for name, share in config["shares"].items()},
            documents=config["documents"],
            relevance=config["relevance"],
            coherence={name: np.array(score) for name, score in config["coherence"].items()},
            info=config["info"],
        )


def card(model: TopicModel) -> str:
    """Describe a model for people, in Markdown."""
    total = sum(model.documents.values())
    lines = [
        "# Topic model",
        "",
        f"- Method: {model.info.get('method', '?')}, network {model.network.name}, "
        f"{model.info.get('rounds', '?')} rounds, seed {model.info.get('seed', '?')}",
        f"- Vocabulary: {len(model.vocabulary)} words, fingerprint {model.vocabulary.fingerprint}",
        f"- Documents with a known word: {total}",
        *(
            f"- Coherence {name} of the topics' ten first words: {score.mean():.3f}"
            for name, score in model.coherence.items()
        ),
        f"- Written by fedtopics {__version__}. This folder holds words and numbers, no document.",
        "",
        "| client | documents |",
        "| --- | --- |",
        *(f"| {name} | {n} |" for name, n in model.documents.items()),
        "",
        "| topic | share | words |",
        "| --- | --- | --- |",
        *(
            f"| {row['topic']} | {row['share']:.1%} | {', '.join(row['words'])} |"
            for row in model.get_topic_info()
        ),
    ]
    return "\n".join(lines) + "\n"


def _shapes(tensors: Tensors) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def _read_tensors(path: Path, digest: str) -> tuple[Tensors, dict[str, Tensors]]:
    """Return the weights, and by stage what documents share."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ModelError(f"{path} is damaged or incomplete; copy it again.")
    weights: Tensors = {}
    shared: dict[str, Tensors] = {}
    for name, tensor in load(data).items():
        kind, *rest = name.split("/")
        (weights if kind == "weights" else shared.setdefault(rest[0], {}))[rest[-1]] = tensor
    return weights, shared


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _read(path: Path) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError
        return content
    except (OSError, ValueError):
        raise ModelError(f"{path} is missing or damaged; copy the model's folder again.") from None
