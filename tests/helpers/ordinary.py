"""Networks as one writes them for one process, to hold federated rounds against."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from fedtopics import Study, TopicModel
from fedtopics.inference import Weights
from fedtopics.methods.gfedntm.client import Passes
from fedtopics.networks.base import Batch, NetworkNoise
from fedtopics.networks.neural import NeuralTopicModel

SIZES = {"east": 400, "north": 150, "south": 60, "tiny": 20, "west": 90}


class Ordinary(nn.Module):
    """A network as one would write it for one process, with torch's batch normalisation."""

    document_length = 1.0

    def __init__(self, network: NeuralTopicModel, seed: int) -> None:
        super().__init__()
        k = network.settings.n_components
        self.prior = torch.tensor(network.prior_variance, dtype=network.dtype).log()
        self.settings = network.settings
        self.embedding_weight = network.settings.embedding_weight
        for name, tensor in network.initial_weights(seed).items():
            self.register_parameter(name, nn.Parameter(tensor.clone()))
        self.norm_mu, self.norm_log_variance = (
            nn.BatchNorm1d(k, affine=False, dtype=network.dtype) for _ in range(2)
        )

    def forward(self, x: Tensor, noise: NetworkNoise, embedding: Tensor | None = None) -> Tensor:
        words = x
        if self.settings.encoder_input == "log":
            words = x.log1p()
        elif self.settings.encoder_input == "shares":
            words = 50 * x / x.sum(1, keepdim=True)
        hidden = functional.softplus(self.seen(words, embedding) + self.encoder_bias)
        hidden = functional.softplus(hidden @ self.hidden + self.hidden_bias) * noise.keep_hidden
        mu, log_variance = (hidden @ self.posterior).chunk(2, 1)
        mu = self.norm_mu(mu)
        log_variance = self.norm_log_variance(log_variance)
        if self.settings.posterior_gain is not None:
            gain = self.posterior_gain.chunk(2)
            shift = self.posterior_shift.chunk(2)
            mu = gain[0] * mu + shift[0]
            log_variance = gain[1] * log_variance + shift[1]
        theta = torch.softmax(mu + noise.normal * (0.5 * log_variance).exp(), 1) * noise.keep_theta
        reconstruction = -(x * self.log_probability(theta)).sum()
        learned = self.settings.learn_prior
        mean, log_prior = (self.prior_mean, self.prior_log_variance) if learned else (0, self.prior)
        ratio = (log_variance.exp() + (mu - mean).square()) / log_prior.exp()
        divergence = 0.5 * (ratio - 1 + log_prior - log_variance).sum()
        return (reconstruction + self.unlike(theta, embedding) + divergence) / len(x)

    def unlike(self, theta: Tensor, embedding: Tensor | None) -> Tensor | float:
        """Of the embeddings and what theta says they are."""
        return 0.0

    def seen(self, x: Tensor, embedding: Tensor | None) -> Tensor:
        """The first layer's sums, of words alone."""
        return x @ self.encoder_words

    def log_probability(self, theta: Tensor) -> Tensor:
        """Of each word in each document, shape (n, n_words)."""
        raise NotImplementedError


class OrdinaryProdLDA(Ordinary):
    def __init__(self, network: NeuralTopicModel, seed: int) -> None:
        super().__init__(network, seed)
        self.norm_words = nn.BatchNorm1d(network.n_words, affine=False, dtype=network.dtype)

    def log_probability(self, theta: Tensor) -> Tensor:
        bias = self.word_bias if self.settings.word_bias else 0
        return torch.log_softmax(self.norm_words(theta @ self.beta_logits) + bias, 1)


class OrdinaryZeroShotTM(OrdinaryProdLDA):
    def seen(self, x: Tensor, embedding: Tensor | None) -> Tensor:
        assert embedding is not None
        return embedding * embedding.shape[1] ** 0.5 @ self.encoder_embedding

    def unlike(self, theta: Tensor, embedding: Tensor | None) -> Tensor | float:
        assert embedding is not None
        unit = self.embedding_centres / self.embedding_centres.norm(dim=1, keepdim=True)
        mixture = theta @ unit
        length = mixture.norm(dim=1) * embedding.norm(dim=1)
        distance = 1 - (mixture * embedding).sum(1) / length
        return self.embedding_weight * self.document_length * distance.sum()


class OrdinaryCombinedTM(OrdinaryZeroShotTM):
    def seen(self, x: Tensor, embedding: Tensor | None) -> Tensor:
        return x @ self.encoder_words + super().seen(x, embedding)


class OrdinaryNeuralLDA(Ordinary):
    def topics(self) -> Tensor:
        over_topics = self.beta_logits
        if self.settings.normalise_topics:
            over_topics = functional.batch_norm(over_topics, None, None, training=True)
        return torch.softmax(over_topics + self.word_bias, 1)

    def log_probability(self, theta: Tensor) -> Tensor:
        return (theta @ self.topics() + 1e-10).log()


ORDINARY: dict[str, type[Ordinary]] = {
    "prodlda": OrdinaryProdLDA,
    "neurallda": OrdinaryNeuralLDA,
    "combinedtm": OrdinaryCombinedTM,
    "zeroshottm": OrdinaryZeroShotTM,
}


def dense(batch: Batch) -> Tensor:
    """The words' counts, also if the encoder sees something else."""
    entries = batch.values.numpy(), batch.bag.indices, batch.bag.indptr
    return torch.from_numpy(sparse.csr_array(entries, batch.bag.shape).toarray())


def united(batches: list[Batch]) -> tuple[Tensor, NetworkNoise, Tensor | None]:
    """The minibatches' words, noise and embeddings, one below the other."""
    noises = [batch.noise for batch in batches if batch.noise is not None]
    noise = NetworkNoise(
        torch.cat([noise.normal for noise in noises]),
        torch.cat([noise.keep_hidden for noise in noises]),
        torch.cat([noise.keep_theta for noise in noises]),
    )
    embeddings = [batch.embedding for batch in batches if batch.embedding is not None]
    words = torch.cat([dense(batch) for batch in batches])
    return words, noise, torch.cat(embeddings) if embeddings else None


def record_minibatches(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[Batch]]:
    seen: dict[int, list[Batch]] = {}
    draw = Passes.minibatch

    def drawn(self: Passes, number: int) -> Batch:
        batch = draw(self, number)
        seen.setdefault(number, []).append(batch)
        return batch

    monkeypatch.setattr(Passes, "minibatch", drawn)
    return seen


def ordinary(
    model: TopicModel,
    plan: Study,
    minibatches: dict[int, list[Batch]],
    kind: type[Ordinary] | None = None,
) -> dict[str, Tensor]:
    """Train in one process on the union of the same minibatches."""
    reference = (kind or ORDINARY[model.inference.name])(model.inference, plan.seed)
    reference.document_length = float(model.vocabulary.occurrences.sum() / sum(SIZES.values()))
    settings = plan.method
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "adam":
        betas = (settings.beta1, 0.999)
        optimizer = torch.optim.Adam(reference.parameters(), settings.learning_rate, betas)
    else:
        optimizer = torch.optim.SGD(reference.parameters(), settings.learning_rate)
    for number in sorted(minibatches):
        optimizer.zero_grad()
        reference(*united(minibatches[number])).backward()
        optimizer.step()
    return {name: parameter.detach() for name, parameter in reference.named_parameters()}


def difference(weights: Weights, reference: Weights) -> float:
    """Largest relative difference of a weight matrix."""
    return max(
        float(np.linalg.norm(weights[name] - part) / np.linalg.norm(part))
        for name, part in reference.items()
    )
