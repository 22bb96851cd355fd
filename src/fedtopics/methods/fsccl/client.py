"""The client side of FSCCL: a round of contrastive training on the client's own documents."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fedtopics.contract.interfaces import published
from fedtopics.inference.trained_clusters import Contrastive, log_student_t
from fedtopics.methods.clusters.augmented_texts import embedded_views
from fedtopics.methods.clusters.client import ClusterClient, ClusterSums
from fedtopics.methods.clusters.settings import ClusterSettings, NetworkTraining
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.plan import ClientContext, Plan, Secret
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.kmeans.lloyd import calls_of_start
from fedtopics.networks.base import Tensors
from fedtopics.networks.trained_encoder import represent, score


class FSCCLSettings(ClusterSettings):
    name: Literal["fsccl"] = Field("fsccl", description="the method")
    max_rounds: int = Field(40, ge=1, description="rounds")
    network: NetworkTraining = Field(
        NetworkTraining(deletion=0.2),
        description="how clients train the network; with deletion = 0, only dropout makes views",
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="share of an embedding's numbers that a view sets to zero"
    )
    contrast_temperature: float = Field(
        0.5,
        gt=0,
        description="temperature of views' similarity; lower values give near views more weight",
    )
    contrastive_weight: float = Field(
        10.0,
        ge=0,
        description="weight of the contrastive loss, relative to the clustering loss (eta)",
    )


FEATURES = 128  # dimensions in which views are compared


def train_on_pairs(
    weights: Tensors,
    points: Tensor,
    views: Sequence[Tensor],
    settings: FSCCLSettings,
    secret: Secret,
    round_: int,
    attempt: int = 1,
) -> float:
    """Train weights in place on a round's minibatches; return the mean loss.

    Points of a client's texts, and of each of two views of them, have shape (n, n_dimensions).
    """
    network = settings.network
    parameters = [weight.requires_grad_() for weight in weights.values()]
    optimizer = torch.optim.Adam(parameters, lr=network.learning_rate)
    batches = Minibatches(np.arange(len(points)), secret, network.batch_size)
    generator = torch.Generator().manual_seed(secret.seed("dropout", round_, attempt))
    total = 0.0
    steps = network.local_steps
    for number in range((round_ - 1) * steps, round_ * steps):
        rows = torch.from_numpy(batches.draw(number + 1, attempt))
        both = torch.cat([view[rows] for view in views])
        features = contrast(weights, represent(weights, drop(both, settings.dropout, generator)))
        scores = log_student_t(represent(weights, points[rows]), weights["centres"])
        contrastive = contrastive_loss(features, settings.contrast_temperature)
        loss = settings.contrastive_weight * contrastive + clustering_loss(scores)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += float(loss.detach())
    return total / steps


def drop(points: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Apply dropout with a generator, which torch's own dropout does not support."""
    remains = torch.rand(points.shape, generator=generator) >= share
    return points * remains / (1 - share)


def contrast(weights: Tensors, represented: Tensor) -> Tensor:
    n = represented.shape[1]
    first = {name: weights[name][:n] for name in ("head", "head_bias")}
    second = {name: weights[name][n:] for name in ("head", "head_bias")}
    return score(second, torch.relu(score(first, represented)))


def contrastive_loss(features: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of a text's two views against all other views (NT-Xent, nats)."""
    unit = normalize(features)
    itself = torch.eye(len(unit), dtype=torch.bool)
    likeness = (unit @ unit.T / temperature).masked_fill(itself, -torch.inf)
    return cross_entropy(likeness, torch.arange(len(unit)).roll(len(unit) // 2))


def clustering_loss(near: Tensor) -> Tensor:
    """Return KL(p || q) / n in nats, with q the softmax of `near` and p a sharper, more even q.

    References
    ----------
    Xie et al., Unsupervised Deep Embedding for Clustering Analysis, ICML 2016, equations 2 and 3.
    """
    log_q = near.log_softmax(1)
    fixed = log_q.detach()
    log_p = (2 * fixed - fixed.logsumexp(0)).log_softmax(1)
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


class FSCCLClient(ClusterClient[FSCCLSettings]):
    inference = Contrastive

    def __init__(self, plan: Plan[FSCCLSettings], site: ClientContext) -> None:
        super().__init__(plan, site)
        network = self.settings.network
        embedding = self.settings.embedding
        self._views = embedded_views(self.corpus, network, embedding, site)

    @staticmethod
    def rounds(settings: FSCCLSettings) -> dict[str, str]:
        return calls_of_start(settings.start) | {"train_locally": "each round"}

    @published(
        "The change of the network's weights and centres by training on the documents, times the "
        "number of documents; the loss, summed over documents; the number of documents."
    )
    def train_locally(self, vocabulary: str, round: int, weights: Arrays) -> dict[str, Any]:
        self.check(vocabulary)
        arrays = dict(weights)
        n = len(self.usable)
        origin = arrays.pop("origin")
        points = self.part(ClusterSums).points(origin)
        views = self.points_of(origin, self._views) or [points, points]
        trained = {name: torch.tensor(array, dtype=torch.float32) for name, array in arrays.items()}
        loss = 0.0
        if n:
            loss = train_on_pairs(
                trained,
                torch.from_numpy(points),
                [*map(torch.from_numpy, views)],
                settings=self.settings,
                secret=self.secret,
                round_=round,
                attempt=self.attempt,
            )
        # The change is sent because a bound on its length limits how far a client moves the
        # network.
        sums = {
            name: (weight.detach().numpy() - arrays[name]) * np.float64(n)
            for name, weight in trained.items()
        }
        return {"changes": sums, "loss": loss * n, "documents": n}
