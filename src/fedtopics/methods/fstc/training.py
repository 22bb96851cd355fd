"""How a client of FSTC trains its own network, with pseudo-labels of its own documents."""

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from fedtopics.errors import StudyError
from fedtopics.files import make_folder, require_file, write_durably
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.plan import Secret
from fedtopics.methods.core.training import with_prefix, without_prefix
from fedtopics.methods.fstc import pseudo_labels
from fedtopics.methods.fstc.pseudo_labels import weights as trusted
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.networks import trained_encoder
from fedtopics.networks.base import Tensors
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import require_texts

EVALUATION_BATCH = 2048
Step = tuple[int, int]
"""The number of a training step, and the number of the attempt at its round."""


class FixedInputs:
    """Inputs of the network that do not change, (n, n_dimensions), followed by those of views."""

    weights: Tensors = {}  # noqa: RUF012 - weights of an encoder trained with the network
    device = torch.device("cpu")

    def __init__(self, points: NDArray[np.float32], n_views: int = 0) -> None:
        self._points = torch.from_numpy(points)
        self._n_views = n_views

    def __len__(self) -> int:
        return len(self._points) // (1 + self._n_views)

    def __call__(self, rows: NDArray[np.int64], step: Step | None = None) -> Tensor:
        """Return the points of documents; training steps use the views in turn, with dropout."""
        return self._points[torch.from_numpy(self._seen(rows, step))]

    def _seen(self, rows: NDArray[np.int64], step: Step | None) -> NDArray[np.int64]:
        return (
            rows
            if step is None or not self._n_views
            else np.concatenate([rows + len(self) * (1 + view) for view in range(self._n_views)])
        )


class EncodedInputs(FixedInputs):
    """Texts, followed by their views, and an encoder that is trained with the network."""

    def __init__(
        self,
        encoder: trained_encoder.EncoderNetwork,
        tokens: trained_encoder.Tokens,
        origin: Numbers,
        secret: Secret,
        n_views: int = 0,
    ) -> None:
        self.weights = {name: weight.clone() for name, weight in encoder.first.items()}
        self.device = encoder.device
        self._encoder = encoder
        self._tokens = tokens
        self._origin = torch.from_numpy(origin).to(self.device, torch.float32)
        self._secret = secret
        self._n_views = n_views

    def __len__(self) -> int:
        return len(self._tokens["input_ids"]) // (1 + self._n_views)

    def __call__(self, rows: NDArray[np.int64], step: Step | None = None) -> Tensor:
        tokens = trained_encoder.take_encoded(self._tokens, self._seen(rows, step))
        embedded = (
            self._encoder.embed(self.weights, tokens)
            if step is None
            else self._encoder(self.weights, tokens, self._secret.seed("dropout", *step))
        )
        return normalize(normalize(embedded) - self._origin)


def encoder_to_train(
    corpus: Corpus, settings: FSTCSettings, local_model: str | None
) -> trained_encoder.EncoderNetwork:
    """Load the study's encoder (or the client's copy of it), to train it on the client's texts."""
    model = local_model or settings.embedding.model
    dimension = settings.embedding.dimension
    encoder = trained_encoder.encoder_network(model, settings.max_length)
    if encoder.dimension != dimension:
        raise StudyError(
            f"The model {model!r} gives embeddings of {encoder.dimension} dimensions, but the "
            f"study requires {dimension}; set dimension to {encoder.dimension} in the "
            "study, or correct the study's model."
        )
    require_texts(corpus, "on which the encoder is trained, or set fine_tune = false in the study")
    return encoder


class EncoderTrainer:
    def __init__(
        self,
        settings: FSTCSettings,
        inputs: FixedInputs,
        weights: Tensors,
        labels: NDArray[np.floating[Any]],
        secret: Secret,
    ) -> None:
        self.round = 0
        self._settings = settings
        self._inputs = inputs
        self._device = inputs.device
        network = {name: weight.to(self._device) for name, weight in weights.items()}
        self.weights = network | inputs.weights
        self._labels = torch.from_numpy(np.asarray(labels, np.float32)).to(self._device)
        self._mixture = pseudo_labels.GaussianUniformMixture.begin(self._labels.shape[1])
        self._batches = Minibatches(np.arange(len(inputs)), secret, settings.network.batch_size)
        total = settings.max_rounds * settings.network.local_steps
        self._transports = {
            *pseudo_labels.schedule(
                total, settings.transports, first=round(settings.warm_up * total)
            )
        }
        self._mixture_from = total * (
            1.0 if settings.mixture_from is None else settings.mixture_from
        )
        for weight in self.weights.values():
            weight.requires_grad_()
        groups = [
            {"params": list(network.values()), "lr": settings.network.learning_rate},
            {"params": list(inputs.weights.values()), "lr": settings.encoder_learning_rate},
        ]
        self._optimizer = torch.optim.Adam([group for group in groups if group["params"]])

    def train(
        self,
        round_: int,
        centres: Numbers,
        present: NDArray[np.bool_],
        masses: Numbers,
        attempt: int = 1,
    ) -> float:
        """Take a round's steps (Algorithm 3); return their mean loss.

        `present`: whether any client has a cluster; `masses`: their sizes, for the transport.
        """
        total = 0.0
        target = torch.from_numpy(centres).to(self._device, torch.float32)
        present_clusters = torch.from_numpy(present).to(self._device)
        steps = self._settings.network.local_steps
        for number in range((round_ - 1) * steps, round_ * steps):
            if number in self._transports:
                self._relabel(masses)
            rows = self._batches.draw(number + 1, attempt)
            total += self._step(rows, target, present_clusters, (number, attempt))
        self.round = round_
        return total / steps

    def _step(self, rows: NDArray[np.int64], target: Tensor, present: Tensor, step: Step) -> float:
        points = trained_encoder.represent(self.weights, self._inputs(rows, step))
        # Each view of a document has the document's pseudo-label.
        labels = self._labels[torch.from_numpy(rows)].repeat(len(points) // len(rows), 1)
        outputs = trained_encoder.score(self.weights, points)
        trust = torch.ones(len(points), device=self._device)
        if step[0] >= self._mixture_from:
            # With cross entropy, the softmax of scores approaches the label.
            residuals = labels - (
                outputs if self._settings.loss == "squared" else outputs.softmax(1)
            )
            self._mixture, right = self._mixture.step(residuals)
            trust = trusted(right)
        loss = pseudo_labels.weighted_error(labels, outputs, trust, self._settings.loss)
        if self._settings.alignment:
            centres, counts = _centres(points, labels.argmax(1), len(target))
            distance = (centres - target).square().sum(1)[present & (counts > 0)].sum()
            loss = loss + self._settings.alignment * distance
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def _relabel(self, masses: Numbers) -> None:
        """Compute pseudo-labels of all documents by transport (Algorithm 1)."""
        scores = torch.cat(
            [trained_encoder.score(self.weights, points) for _, points in self._represented()]
        )
        plan = pseudo_labels.transport(scores, torch.from_numpy(masses), self._settings.epsilon)
        self._labels = pseudo_labels.sharpen(plan).to(self._labels)

    @torch.no_grad()
    def cluster_sums(self) -> tuple[Numbers, NDArray[np.int64]]:
        """Sum the representations of each cluster's documents (equation 15); return the labels."""
        labels = self._labels.argmax(1)
        members = one_hot(labels, self._labels.shape[1]).double()
        parts = [
            (members[rows].T @ points.double()).cpu().numpy()
            for rows, points in self._represented()
        ]
        return reduce(add, parts), labels.cpu().numpy()

    def _represented(self) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, len(self._inputs), EVALUATION_BATCH):
            rows = np.arange(start, min(start + EVALUATION_BATCH, len(self._inputs)))
            yield (
                slice(start, start + len(rows)),
                trained_encoder.represent(self.weights, self._inputs(rows)),
            )

    @torch.no_grad()
    def take(self, weights: Mapping[str, Any]) -> None:
        for name, weight in self.weights.items():
            weight.copy_(torch.as_tensor(weights[name]))

    def save(self, path: Path) -> None:
        moments = {
            f"{name}.{key}": value
            for name, weight in self.weights.items()
            for key, value in self._optimizer.state[weight].items()
        }
        tensors = {
            **with_prefix("weights", self.weights),
            **with_prefix("optimizer", moments),
            **with_prefix("mixture", self._mixture.state()),
            "labels": self._labels,
        }
        make_folder(path.parent)
        write_durably(path, save({name: t.detach().contiguous() for name, t in tensors.items()}))

    @torch.no_grad()
    def restore(self, path: Path, round_: int) -> None:
        require_file(path)
        tensors = load_file(path)
        self.take(without_prefix("weights", tensors))
        for name, value in without_prefix("optimizer", tensors).items():
            weight_name, key = name.rsplit(".", 1)
            weight = self.weights[weight_name]
            self._optimizer.state[weight][key] = value if key == "step" else value.to(weight)
        self._mixture = pseudo_labels.GaussianUniformMixture.restore(
            without_prefix("mixture", tensors)
        )
        self._labels = tensors["labels"].to(self._device)
        self.round = round_


def _centres(points: Tensor, labels: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the mean point of each label in a minibatch, and the labels' counts."""
    members = one_hot(labels, n).to(points)
    counts = members.sum(0)
    return members.T @ points / counts.clamp(min=1)[:, None], counts
