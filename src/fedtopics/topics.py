"""The result of a study: a topic model that can be read, applied, saved and loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedtopics import __version__
from fedtopics.card import card
from fedtopics.cluster_inference import (
    Adapted,
    AdapterShape,
    Centres,
    ClusterInference,
    ClusterShape,
    Contrastive,
    Discriminants,
    FineTuned,
    TunedShape,
)
from fedtopics.corpus import Corpus
from fedtopics.embeddings import document_embeddings
from fedtopics.errors import DataError, ModelError, StudyError
from fedtopics.inference import READOUTS, Inference, LDAPrior, Readout, VariationalLDA
from fedtopics.inference import refine as refined
from fedtopics.networks import NetworkSettings, Tensors, find_network
from fedtopics.reading import USUAL, Reading
from fedtopics.tuned import TunedEncoder
from fedtopics.vocabulary import TextRules, Vocabulary, count_words

FORMAT = 3
BATCH = 1024


@dataclass(frozen=True)
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
        total = sum(self.documents.values())
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
            If `lambda_` is not between 0 and 1.
        """
        reading = self.reading if lambda_ is None else Reading(lambda_, self.reading.by_sums)
        return self.read(reading, n_words)

    def read(self, reading: Reading, n_words: int = 10) -> list[list[str]]:
        """Return the words of each topic under a reading."""
        shares = self.beta
        if reading.by_sums:
            shares = self.word_sums / np.maximum(self.word_sums.sum(1, keepdims=True), 1)
        order = reading.order(shares, self.vocabulary.frequency, n_words)
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
        own_model: str | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Corpus:
        """Return a corpus with embeddings, if the network sees them; see `document_embeddings`.

        Where the encoder was trained as well, texts are embedded anew, whatever embeddings they
        come with; the model that training began with is needed for it, under the name in
        ``inference.settings.embedding`` or as `own_model`.

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
        given: dict[str, Any] = {"own_model": own_model, "on_progress": on_progress}
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
            given["encoder"] = TunedEncoder(own_model or settings.model, length, weights)
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

    def get_topic_info(
        self, n_words: int = 10, lambda_: float | None = None
    ) -> list[dict[str, Any]]:
        """Return a row a topic, largest first; ``pandas.DataFrame`` takes it as it is.

        Each row has the topic's number, its share of all documents, its words, the coherence of
        its ten first (none if `lambda_` reads others), and its share of each client's documents.
        """
        words = self.topics(n_words, lambda_)
        scores = self.coherence if lambda_ in (None, self.reading.lambda_) else {}
        return [
            {
                "topic": int(k),
                "share": float(self.share[k]),
                "words": words[k],
                "coherence": {name: float(score[k]) for name, score in scores.items()},
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
        tensors["words/sums"] = torch.from_numpy(self.word_sums)
        data = save(tensors)
        config = {
            "format": FORMAT,
            "fedtopics": __version__,
            "inference": self.inference.name,
            "precision": str(self.inference.dtype).removeprefix("torch."),
            "settings": self.inference.settings.model_dump(
                mode="json", include=set(_settings_of(self.inference.name).model_fields)
            ),
            "text": self.text.model_dump(mode="json"),
            "vocabulary": self.vocabulary.fingerprint,
            "sha256": hashlib.sha256(data).hexdigest(),
            "reading": asdict(self.reading),
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
        except ModelError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, SafetensorError, OSError):
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
        try:
            inference = _inference(config, len(vocabulary))
        except StudyError as error:
            raise ModelError(f"The model in {folder} cannot be used: {error}") from None
        tensors = _read_tensors(folder / "model.safetensors", config["sha256"])
        weights, word_sums = tensors["weights"], tensors["words"]["sums"]
        shared = {
            owner.removeprefix("shared/"): values
            for owner, values in tensors.items()
            if owner.startswith("shared/")
        }
        by_topic = [np.array(scores) for scores in config["coherence"].values()]
        by_topic += [np.array(share) for share in config["shares"].values()]
        numbers = (inference.settings.n_components,)
        if (
            _shapes(weights) != _shapes(inference.initial_weights(0))
            or word_sums.shape != (*numbers, len(vocabulary))
            or any((array.shape, array.dtype.kind) != (numbers, "f") for array in by_topic)
        ):
            raise ModelError(
                f"The numbers in {folder} are not those of the model that its config.json "
                "describes; copy the whole folder again."
            )
        return cls(
            inference=inference,
            weights=weights,
            shared=shared,
            vocabulary=vocabulary,
            text=TextRules(**config["text"]),
            shares={name: np.array(share) for name, share in config["shares"].items()},
            documents=dict(config["documents"]),
            word_sums=word_sums.numpy(),
            reading=Reading(**config["reading"]),
            coherence={name: np.array(score) for name, score in config["coherence"].items()},
            info=config["info"],
        )


_INFERENCES: dict[str, tuple[type[BaseModel], Callable[[int, Any], Inference]]] = {
    VariationalLDA.name: (LDAPrior, VariationalLDA),
    Centres.name: (ClusterShape, Centres),
    Discriminants.name: (ClusterShape, Discriminants),
    Adapted.name: (AdapterShape, Adapted),
    FineTuned.name: (TunedShape, FineTuned),
    Contrastive.name: (AdapterShape, Contrastive),
}
"""What is no network: its settings, and what makes it."""


def _settings_of(name: str) -> type[BaseModel]:
    return _INFERENCES[name][0] if name in _INFERENCES else NetworkSettings


def _inference(config: Any, n_words: int) -> Inference:
    name = config["inference"]
    if name in _INFERENCES:
        settings_of, make = _INFERENCES[name]
        return make(n_words, settings_of(**config["settings"]))
    settings = NetworkSettings(**config["settings"])
    return find_network(name)(n_words, settings, getattr(torch, config["precision"]))


def _shapes(tensors: Tensors) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def _read_tensors(path: Path, digest: str) -> dict[str, Tensors]:
    """Return the tensors by what they belong to, and below that by name."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ModelError(f"{path} is damaged or incomplete; copy it again.")
    found: dict[str, Tensors] = {}
    for name, tensor in load(data).items():
        owner, _, last = name.rpartition("/")
        found.setdefault(owner, {})[last] = tensor
    return found


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
