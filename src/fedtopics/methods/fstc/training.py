"""What a client of FSTC trains: its own network, on pseudo-labels that it finds itself.

All of it is of one client's own documents. What is here leaves nothing; `fstc` says what does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import normalize

from fedtopics.errors import StudyError
from fedtopics.inference.points import Numbers
from fedtopics.methods.aggregation import optimizer_state, restore_optimizer
from fedtopics.methods.fstc.pseudo_labels import (
    Mixture,
    schedule,
    sharpen,
    transport,
    weighted_error,
)
from fedtopics.methods.fstc.pseudo_labels import weights as trusted
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.methods.minibatches import Minibatches
from fedtopics.networks import Tensors, represent, score
from fedtopics.networks.trained_encoder import EncoderNetwork, Tokens, encoder_network, take
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import require_texts

EVALUATION_BATCH = 2048
DROPOUT = 2  # of what is drawn, besides the study's seed and the client's


class Inputs(Protocol):
    """What the network sees of a client's documents."""

    @property
    def weights(self) -> Tensors:
        """Weights of its own that are trained as well: those of an encoder."""

    @property
    def device(self) -> torch.device:
        """Where points are, and what is computed with them."""

    def __len__(self) -> int:
        """Return the number of documents."""

    def __call__(self, rows: NDArray[np.int64], step: int | None = None) -> Tensor:
        """Return the points of documents, shape (n, n_dimensions), in training or for use."""


class FixedInputs:
    """Points that do not change.

    Parameters
    ----------
    points : float32 array of shape (n_documents, n_dimensions)
    """

    weights: Tensors = {}  # noqa: RUF012 - there are none, ever
    device = torch.device("cpu")

    def __init__(self, points: NDArray[np.float32]) -> None:
        self._points = torch.from_numpy(points)

    def __len__(self) -> int:
        return len(self._points)

    def __call__(self, rows: NDArray[np.int64], step: int | None = None) -> Tensor:
        """Return the points of documents."""
        return self._points[torch.from_numpy(rows)]


class EncodedInputs:
    """Texts, and an encoder that is trained with the network.

    A point is what the embedding of a frozen encoder would be made into: of unit length, less the
    mean embedding of all clients before training, of unit length again.

    Parameters
    ----------
    encoder : EncoderNetwork
    tokens : tokens
        Of the texts.
    origin : float64 array of shape (n_dimensions,)
        The mean embedding.
    seed : sequence of int
        The study's and the client's: dropout of a step is a function of it.
    """

    def __init__(
        self, encoder: EncoderNetwork, tokens: Tokens, origin: Numbers, seed: Sequence[int]
    ) -> None:
        self.weights = {name: weight.clone() for name, weight in encoder.first.items()}
        self.device = encoder.device
        self._encoder = encoder
        self._tokens = tokens
        self._origin = torch.from_numpy(origin).to(self.device, torch.float32)
        self._seed = seed

    def __len__(self) -> int:
        return len(self._tokens["input_ids"])

    def __call__(self, rows: NDArray[np.int64], step: int | None = None) -> Tensor:
        """Return the points of documents; with a gradient and dropout in a training step."""
        tokens = take(self._tokens, rows)
        if step is None:
            embedded = self._encoder.embed(self.weights, tokens)
        else:
            embedded = self._encoder(self.weights, tokens, [*self._seed, DROPOUT, step])
        return normalize(normalize(embedded) - self._origin)


def encoder_to_train(
    corpus: Corpus, settings: FSTCSettings, embedding_model: str | None
) -> EncoderNetwork:
    """Load the encoder that is to be trained on a client's texts, or say why it cannot be.

    Parameters
    ----------
    corpus : Corpus
        With the embeddings of the untrained encoder.
    settings : FSTCSettings
    embedding_model : str, optional
        Where the client has the study's model.

    Raises
    ------
    StudyError
        If the model cannot be loaded or trained, or has another dimension than the study says.
    DataError
        If documents have embeddings and no text.
    FedTopicsError
        If sentence-transformers is not installed.
    """
    model, dimension = embedding_model or settings.embedding.model, settings.embedding.dimension
    encoder = encoder_network(model, settings.max_length)
    if encoder.dimension != dimension:
        raise StudyError(
            f"The model {model!r} gives embeddings of {encoder.dimension} dimensions and the study "
            f"says {dimension}; set dimension to {encoder.dimension} in the study, or check which "
            "model it means."
        )
    require_texts(
        corpus, "that the encoder is to be trained on, or set fine_tune = false in the study"
    )
    return encoder


@dataclass(frozen=True)
class Broadcast:
    """What the server tells a client before a round.

    Parameters
    ----------
    round : int
    centres : float64 array of shape (n_clusters, n_dimensions)
        Of all clients' clusters.
    present : bool array of shape (n_clusters,)
        Which clusters any client has.
    masses : float64 array of shape (n_clusters,)
        Sizes of clusters for the transport.
    """

    round: int
    centres: Numbers
    present: NDArray[np.bool_]
    masses: Numbers


class Trainer:
    """One client's network and pseudo-labels.

    Parameters
    ----------
    settings : FSTCSettings
    inputs : Inputs
    weights : tensors
        The network's first weights, the same at each client.
    labels : float array of shape (n_documents, n_clusters)
        Pseudo-labels to begin with.
    seed : sequence of int
        The study's and the client's.
    """

    def __init__(
        self,
        settings: FSTCSettings,
        inputs: Inputs,
        weights: Tensors,
        labels: NDArray[np.floating[Any]],
        seed: tuple[int, ...],
    ) -> None:
        self.round = 0
        self._settings = settings
        self._inputs = inputs
        self._device = inputs.device
        network = {name: weight.to(self._device) for name, weight in weights.items()}
        self.weights = network | inputs.weights
        self._labels = torch.from_numpy(np.asarray(labels, np.float32)).to(self._device)
        self._mixture = Mixture.begin(self._labels.shape[1])
        self._batches = Minibatches(np.arange(len(inputs)), seed, 0.0, 1)
        self._size = self._batches.size(settings.batch_size)
        warm_up = round(settings.warm_up * settings.total_steps)
        times = min(settings.transports, settings.total_steps - warm_up)
        self._transports = frozenset(
            schedule(settings.total_steps, times, warm_up) if times else ()
        )
        mixture_from = settings.mixture_from
        self._mixture_from = (
            settings.total_steps if mixture_from is None else mixture_from * settings.total_steps
        )
        for weight in self.weights.values():
            weight.requires_grad_()
        groups = [
            {"params": list(network.values()), "lr": settings.learning_rate},
            {"params": list(inputs.weights.values()), "lr": settings.encoder_learning_rate},
        ]
        self._optimizer = torch.optim.Adam([group for group in groups if group["params"]])

    def train(self, broadcast: Broadcast) -> float:
        """Take a round's steps (Algorithm 3); return their mean loss."""
        total = 0.0
        target = torch.from_numpy(broadcast.centres).to(self._device, torch.float32)
        present = torch.from_numpy(broadcast.present).to(self._device)
        for step in range(self._settings.local_steps):
            number = (broadcast.round - 1) * self._settings.local_steps + step
            if number in self._transports:
                self._label_anew(broadcast.masses)
            rows = self._batches.draw(number + 1, self._size)
            total += self._step(rows, target, present, number)
        self.round = broadcast.round
        return total / self._settings.local_steps

    def _step(self, rows: NDArray[np.int64], target: Tensor, present: Tensor, number: int) -> float:
        labels = self._labels[torch.from_numpy(rows)]
        points = represent(self.weights, self._inputs(rows, number))
        outputs = score(self.weights, points)
        trust = torch.ones(len(rows), device=self._device)
        if number >= self._mixture_from:
            residuals = labels - outputs
            self._mixture, right = self._mixture.fit(residuals, self._settings.mixture_steps)
            trust = trusted(right)
        loss = weighted_error(labels, outputs, trust)
        if self._settings.alignment:
            own, counts = _centres(points, labels.argmax(1), len(target))
            known = present & (counts > 0)
            apart = (own - target).square().sum(1)[known].sum()
            loss = loss + self._settings.alignment * apart
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def _label_anew(self, masses: Numbers) -> None:
        """Find pseudo-labels of all documents by transport (Algorithm 1)."""
        scores = torch.cat([score(self.weights, points) for _, points in self._represented()])
        plan = transport(scores, torch.from_numpy(masses), self._settings.epsilon)
        self._labels = sharpen(plan).to(self._labels)

    @torch.no_grad()
    def centres(self) -> tuple[Numbers, NDArray[np.float64]]:
        """Sum the representations of each cluster's documents, and count them (equation 15)."""
        n_clusters = self._labels.shape[1]
        sums, counts = np.zeros((n_clusters, 0)), np.zeros(n_clusters)
        labels = self._labels.argmax(1)
        for rows, points in self._represented():
            own = torch.nn.functional.one_hot(labels[rows], n_clusters).to(torch.float64)
            part = (own.T @ points.double()).cpu().numpy()
            sums = part if sums.size == 0 else sums + part
            counts += own.sum(0).cpu().numpy()
        return sums, counts

    def _represented(self) -> Any:
        for start in range(0, len(self._inputs), EVALUATION_BATCH):
            rows = np.arange(start, min(start + EVALUATION_BATCH, len(self._inputs)))
            yield slice(start, start + len(rows)), represent(self.weights, self._inputs(rows))

    @torch.no_grad()
    def take(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take up the mean weights of all clients."""
        for name, weight in self.weights.items():
            weight.copy_(torch.from_numpy(weights[name]))

    def save(self, path: Path) -> None:
        """Write all that outlives a round, beside the file first."""
        tensors = {f"weights/{name}": weight.detach() for name, weight in self.weights.items()}
        state = optimizer_state(self._optimizer, self.weights)
        tensors |= {f"optimizer/{name}": value for name, value in state.items()}
        tensors |= {f"mixture/{name}": value for name, value in self._mixture.state().items()}
        tensors["labels"] = self._labels
        beside = path.with_suffix(".part")
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: t.contiguous() for name, t in tensors.items()}, beside)
        beside.chmod(0o600)  # it says which documents are in which cluster
        beside.replace(path)

    def restore(self, path: Path, round_: int) -> None:
        """Take up what `save` wrote after a round."""
        tensors = load_file(path)
        below = {"weights": {}, "optimizer": {}, "mixture": {}}  # type: dict[str, Tensors]
        for name, tensor in tensors.items():
            owner, _, last = name.partition("/")
            below.setdefault(owner, {})[last] = tensor
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(below["weights"][name])
        restore_optimizer(self._optimizer, self.weights, below["optimizer"])
        self._mixture = Mixture.restore(below["mixture"])
        self._labels = tensors["labels"].to(self._device)
        self.round = round_


def _centres(points: Tensor, labels: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the mean point of each label in a minibatch, and how many there are."""
    own = torch.nn.functional.one_hot(labels, n).to(points)
    counts = own.sum(0)
    return own.T @ points / counts.clamp(min=1)[:, None], counts
