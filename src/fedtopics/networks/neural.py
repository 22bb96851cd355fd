"""The encoder that all networks share: from a document's words and embedding to its posterior."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from fedtopics.errors import StudyError
from fedtopics.networks.base import Batch, NetworkNoise, NetworkSettings, Shared, Stage, Tensors
from fedtopics.text.embeddings import Vectors

EPSILON = 1e-5  # added to variances, as in torch's batch normalisation
SMALLEST_SHARE = 1e-5  # smallest share of a word in a first topic, so that it has a logarithm


class NeuralTopicModel(ABC):
    """A topic model with a logistic-normal posterior; a subclass defines the decoder.

    The encoder's input is a bag of words, an embedding of the document, or both. Two softplus
    layers are followed by the batch-normalised mean and log variance of the posterior. The setting
    embedding_weight is relative to `document_length`, the mean number of words. See Srivastava and
    Sutton, Autoencoding Variational Inference for Topic Models, ICLR 2017.

    A new network is a subclass with a `name`, `loss` and `beta`; see docs/how-to/extend.md.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[BaseModel]] = NetworkSettings
    shows: ClassVar[Literal["topics", "clusters"]] = "topics"
    readouts: ClassVar[tuple[Literal["mean", "root"], ...]] = ()
    sees_words: bool = True
    sees_embedding: bool = False
    first_topics_alike: ClassVar[float] = 0.0
    """How much of all other topics each topic contains when training begins with topics."""
    finish_weights: ClassVar[frozenset[str]] = frozenset()
    """Weights that only a stage's `finish` uses, so that clients do not get them."""

    def __init__(
        self,
        n_words: int,
        settings: NetworkSettings,
        dtype: torch.dtype = torch.float32,
        document_length: float = 1.0,
    ) -> None:
        self.n_words = n_words
        self.document_length = document_length
        self.settings = settings
        self.dtype = dtype
        self.precision = str(dtype).removeprefix("torch.")
        self.prior_variance = (1 - 1 / settings.n_components) / settings.alpha

    def layout(self) -> dict[str, tuple[tuple[int, ...], str]]:
        with torch.device("meta"):  # allocates nothing, as a config could request any amount
            weights = self.initial_weights(0)
        return {name: (tuple(weight.shape), self.precision) for name, weight in weights.items()}

    def trained_encoder(self, weights: Tensors, model: str) -> None:
        return None  # texts are embedded by the model in the settings

    @property
    def row_weights(self) -> frozenset[str]:
        """Weights with a row per word; a stage gets their product with the bag of words."""
        return frozenset({"encoder_words"} if self.sees_words else ())

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages before the loss."""
        return self.encoder_stages

    @cached_property
    def encoder_stages(self) -> tuple[Stage, ...]:
        finish = partial(mean_and_scale, self.dtype)
        return (
            ()
            if self.settings.layer_norm
            else (Stage("posterior", self._hidden, finish, squares=True),)
        )

    @abstractmethod
    def loss(self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors) -> Tensor:
        """Return the negative ELBO, summed over the documents (nats)."""

    @abstractmethod
    def beta(self, weights: Tensors, shared: Shared) -> Tensor:
        """Return the decoder's topics, shape (n_topics, n_words); rows sum to 1."""

    def initial_weights(self, seed: int) -> Tensors:
        """Draw uniform first weights, with the bounds of torch's linear layers and of Glorot."""
        generator = torch.Generator().manual_seed(seed)
        settings = self.settings
        uniform = partial(self.uniform, generator)
        k = settings.n_components
        h1, h2 = settings.hidden
        dimension = settings.embedding.dimension
        n_inputs = self.n_words if self.sees_words else dimension
        weights = {}
        if self.sees_words:
            weights["encoder_words"] = uniform(self.n_words**-0.5, self.n_words, h1)
        if self.sees_embedding:
            weights["encoder_embedding"] = uniform(dimension**-0.5, dimension, h1)
        weights |= {
            "encoder_bias": uniform(n_inputs**-0.5, h1),
            "hidden": uniform(h1**-0.5, h1, h2),
            "hidden_bias": uniform(h1**-0.5, h2),
            "posterior": uniform(h2**-0.5, h2, 2 * k),
            **self.draw_decoder(generator),
        }
        if self.sees_embedding and settings.embedding_weight > 0:
            weights["embedding_centres"] = uniform(0.1, k, dimension)
        if settings.layer_norm:  # otherwise batch normalisation would remove it
            weights["posterior_bias"] = uniform(h2**-0.5, 2 * k)
        if settings.posterior_gain is not None:
            gain = torch.ones(2 * k, dtype=self.dtype)
            gain[:k] = settings.posterior_gain
            weights |= {"posterior_gain": gain, "posterior_shift": torch.zeros_like(gain)}
        if settings.word_bias:
            weights["word_bias"] = torch.zeros(self.n_words, dtype=self.dtype)
        if settings.learn_prior:
            weights["prior_mean"] = torch.zeros(k, dtype=self.dtype)
            weights["prior_log_variance"] = torch.full_like(
                weights["prior_mean"], math.log(self.prior_variance)
            )
        return weights

    def draw_decoder(self, generator: torch.Generator) -> Tensors:
        """Draw the decoder's matrices: beta_logits, shape (n_topics, n_words)."""
        k = self.settings.n_components
        return {
            "beta_logits": self.uniform(
                generator, math.sqrt(6 / (k + self.n_words)), k, self.n_words
            )
        }

    def uniform(self, generator: torch.Generator, bound: float, *shape: int) -> Tensor:
        # In float64 for every dtype, so that they differ only by rounding.
        values = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return ((2 * values - 1) * bound).to(self.dtype)

    def batch(
        self,
        bag: sparse.csr_array,
        noise: NetworkNoise | None = None,
        embedding: NDArray[np.floating[Any]] | None = None,
    ) -> Batch:
        return Batch.of(
            bag,
            noise=noise,
            dtype=self.dtype,
            embedding=embedding if self.sees_embedding else None,
            encoder_input=self.settings.encoder_input,
        )

    def draw(self, *parts: tuple[np.random.Generator, int]) -> NetworkNoise:
        """Draw the noise of one pass; each generator draws for its number of documents."""
        settings = self.settings
        k = settings.n_components
        n = sum(number for _, number in parts)
        normal = np.empty((n, k), np.float32)
        hidden = np.ones((n, settings.hidden[1]), np.float32)
        theta = np.ones((n, k), np.float32)
        first = 0
        for rng, number in parts:
            rows = slice(first, first + number)
            first += number
            rng.standard_normal(dtype=np.float32, out=normal[rows])
            for units, dropout in ((hidden, settings.dropout), (theta, settings.dropout_theta)):
                if dropout > 0:
                    rng.random(dtype=np.float32, out=units[rows])

        def mask(units: NDArray[np.float32], dropout: float) -> Tensor:
            remaining = torch.from_numpy(units < 1 - dropout if dropout > 0 else units)
            return remaining.to(self.dtype) / (1 - dropout)

        return NetworkNoise(
            normal=torch.from_numpy(normal).to(self.dtype),
            keep_hidden=mask(hidden, settings.dropout),
            keep_theta=mask(theta, settings.dropout_theta),
        )

    @torch.no_grad()
    def infer(
        self, weights: Tensors, shared: Shared, counts: sparse.csr_array, embeddings: Vectors | None
    ) -> NDArray[np.floating[Any]]:
        """Return theta of documents, from their bags of words and embeddings."""
        batch = self.batch(counts, None, embeddings)
        return np.asarray(self.theta(batch_weights(self, weights, batch), shared, batch).numpy())

    def start_from(
        self,
        weights: Tensors,
        topics: NDArray[np.float64],
        directions: NDArray[np.float64] | None = None,
    ) -> None:
        """Begin with topics (rows sum to 1) instead of noise, in decoder and hidden units."""
        if "beta_logits" not in weights:
            raise StudyError(
                f"The network {self.name!r} has no beta_logits, so it cannot begin with topics; "
                'set initialisation = "random", and give no topics.'
            )
        alike = self.first_topics_alike
        topics = (1 - alike) * topics + alike * topics.mean(0)
        logits = np.log(topics + SMALLEST_SHARE)
        logits -= logits.mean(1, keepdims=True)
        weights["beta_logits"].copy_(torch.from_numpy(logits))
        if self.sees_words and len(topics) <= self.settings.hidden[0]:
            shares = topics / np.maximum(topics.sum(0), SMALLEST_SHARE)
            weights["encoder_words"][:, : len(topics)] += torch.from_numpy(shares.T).to(self.dtype)
        if directions is None:
            return
        towards = torch.from_numpy(directions).to(self.dtype)
        k = len(towards)
        if "embedding_centres" in weights:
            weights["embedding_centres"].copy_(towards)
        if k <= min(weights["hidden"].shape):  # the encoder measures how far embeddings point there
            weights["encoder_embedding"][:, :k] += towards.T
            for name in ("hidden", "posterior"):  # one unit after another, up to the topics' means
                weights[name][:k, :k] += torch.eye(k, dtype=self.dtype)

    def theta(self, weights: Tensors, shared: Shared, batch: Batch) -> Tensor:
        """Return theta, (n, n_topics): the softmax of the documents' posterior means."""
        carried, entered, _ = through(
            self.encoder_stages, weights, batch, share=lambda stage, _: shared[stage.name]
        )
        return self.sample(weights, batch, carried, entered)["theta"]

    def sample(self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors) -> Tensors:
        """Return mu, log_variance and theta; theta is drawn, or without noise from the mean."""
        if self.settings.layer_norm:
            hidden, _ = self._hidden(weights, batch, {}, {})
            k = (self.settings.n_components,)
            halves = (hidden["posterior"] + weights["posterior_bias"]).chunk(2, 1)
            normal = torch.cat([functional.layer_norm(h, k, eps=EPSILON) for h in halves], 1)
        else:
            normal = (carried["posterior"] - shared["mean"]) * shared["scale"]
        if "posterior_gain" in weights:
            normal = normal * weights["posterior_gain"] + weights["posterior_shift"]
        mu, log_variance = normal.chunk(2, 1)
        if batch.noise is None:
            theta = torch.softmax(mu, 1)
        else:
            z = mu + batch.noise.normal * (0.5 * log_variance).exp()
            theta = torch.softmax(z, 1) * batch.noise.keep_theta
        return {"theta": theta, "mu": mu, "log_variance": log_variance}

    def embedding_loss(self, weights: Tensors, batch: Batch, theta: Tensor) -> Tensor:
        """Return the sum of how far theta's mixtures of centres point away from the embeddings.

        Up to a constant, the sum is the loss of a von Mises-Fisher distribution.
        """
        if batch.embedding is None or "embedding_centres" not in weights:
            return theta.new_zeros(())
        centres = functional.normalize(weights["embedding_centres"], dim=1)
        cosine = functional.cosine_similarity(theta @ centres, batch.embedding, dim=1)
        return self.settings.embedding_weight * self.document_length * (1 - cosine).sum()

    def divergence(self, weights: Tensors, mu: Tensor, log_variance: Tensor) -> Tensor:
        """Kullback-Leibler divergence of the posterior from the Laplace-approximated Dirichlet."""
        if self.settings.learn_prior:
            # Batch normalisation centres mu, so the gradient would consist of rounding errors,
            # which Adam scales up to whole steps.
            centred = not self.settings.layer_norm and self.settings.posterior_gain is None
            mean = weights["prior_mean"]
            distance = mu - (mean.detach() if centred else mean)
            log_prior = weights["prior_log_variance"]
        else:
            distance = mu
            log_prior = mu.new_tensor(math.log(self.prior_variance))
        ratio = (log_variance.exp() + distance.square()) / log_prior.exp()
        return 0.5 * (ratio - 1 + log_prior - log_variance).sum()

    def _hidden(
        self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors
    ) -> tuple[Tensors, Tensor]:
        first = weights["encoder_bias"]
        if self.sees_words:
            first = first + weights["encoder_words"]
        if batch.embedding is not None:
            # Embeddings have unit length; with numbers of about 1, learning is faster.
            scaled = batch.embedding * self.settings.embedding.dimension**0.5
            first = first + scaled @ weights["encoder_embedding"]
        second = torch.addmm(weights["hidden_bias"], functional.softplus(first), weights["hidden"])
        hidden = functional.softplus(second)
        if batch.noise is not None:
            hidden = hidden * batch.noise.keep_hidden
        posterior = hidden @ weights["posterior"]
        wide = posterior.double()
        return {"posterior": posterior}, torch.cat([wide.sum(0), wide.square().sum(0)])


def mean_and_scale(dtype: torch.dtype, weights: Tensors, totals: Tensor, n: float) -> Tensors:
    mean, square = (totals / n).chunk(2)
    scale = ((square - mean.square()).clamp(min=0) + EPSILON).rsqrt()
    return {"mean": mean.to(dtype), "scale": scale.to(dtype)}


class Projection(torch.autograd.Function):
    """The product of a bag of words and a dense matrix, faster than by autograd."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, batch: Batch) -> Tensor:
        ctx.batch = batch
        ctx.shape = rows.shape
        return torch.from_numpy(batch.bag @ rows.numpy())

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None]:
        gradient = outer.new_zeros(ctx.shape)
        gradient[torch.from_numpy(ctx.batch.words)] = ctx.batch.spread(outer)
        return gradient, None


def through(
    stages: Sequence[Stage],
    weights: Tensors,
    batch: Batch,
    share: Callable[[Stage, Tensor], Tensors],
) -> tuple[Tensors, Tensors, Tensors]:
    """Run all stages; `share` computes the input of the next stage from the sums of a stage."""
    carried: Tensors = {}
    entered: Tensors = {}
    sums: Tensors = {}
    for stage in stages:
        carried, sums[stage.name] = stage.local(weights, batch, carried, entered)
        entered = share(stage, sums[stage.name])
    return carried, entered, sums


def batch_weights(network: NeuralTopicModel, weights: Tensors, batch: Batch) -> Tensors:
    """Return the weights for a batch: row weights are multiplied by its bag of words."""
    return {
        name: Projection.apply(tensor, batch)  # type: ignore[no-untyped-call]
        if name in network.row_weights
        else tensor
        for name, tensor in weights.items()
    }
