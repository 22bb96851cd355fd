"""FSCCL: views are alike, documents are sure of a cluster, networks are averaged."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from fedtopics import Corpus, Study, TopicModel
from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.inference.trained_clusters import LENGTH, log_student_t
from fedtopics.inference.vectors import unit_rows
from fedtopics.methods.clusters.augmented_texts import embedded_views, shorten, text_views
from fedtopics.methods.clusters.settings import NetworkTraining
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.plan import ClientContext, Secret
from fedtopics.methods.core.settings import filled
from fedtopics.methods.fsccl.method import (
    FEATURES,
    clustering_loss,
    contrastive_loss,
)
from fedtopics.networks.trained_encoder import Adapter, represent
from fedtopics.text.embeddings import EmbeddingSettings
from tests.helpers.clusters import DIMENSION, accuracy, blobs, half, planned, spread, trained
from tests.helpers.federation import train_and_note

CLUSTERS = 3
HIDDEN = 8


def plan(**method: Any) -> Study:
    """A small study without a model of embeddings."""
    network = {"hidden": HIDDEN, "deletion": 0, "local_steps": 10, "batch_size": 30}
    small: dict[str, Any] = {"n_components": CLUSTERS, "max_rounds": 3, "network": network}
    return planned(
        "fsccl", **filled(method, small | {"embedding": {"model": "x", "dimension": DIMENSION}})
    )


def drawn(corpus: Any, seed: int = 0) -> dict[str, Any]:
    """A network as the server sends it."""
    weights = Adapter(DIMENSION, HIDDEN, DIMENSION + FEATURES).initial_weights(seed, torch.float64)
    rng = np.random.default_rng(seed)
    weights["adapter_out"] += torch.from_numpy(rng.normal(size=(HIDDEN, DIMENSION)))
    centres = rng.normal(size=(CLUSTERS, DIMENSION)) * LENGTH / np.sqrt(DIMENSION)
    origin = corpus.embeddings.mean(0).astype(np.float64)
    return {"origin": origin, "centres": centres, **{n: w.numpy() for n, w in weights.items()}}


def test_contrastive_loss_by_hand() -> None:
    # Texts a and b. Views of a point east and north-east, views of b both north.
    features = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0], [0.0, 5.0]])
    e = [math.exp(2 * cosine) for cosine in (0.0, math.sqrt(0.5), 1.0)]
    terms = [
        -math.log(e[1] / (e[1] + 2 * e[0])),  # east: the other view at 45, both of b at 90 degrees
        -math.log(e[2] / (e[0] + e[1] + e[2])),  # north
        -math.log(e[1] / (3 * e[1])),  # north-east: all at 45 degrees
        -math.log(e[2] / (e[0] + e[1] + e[2])),
    ]
    assert float(contrastive_loss(features, 0.5)) == pytest.approx(sum(terms) / 4, rel=1e-6)


def test_student_t_by_hand() -> None:
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(
        log_student_t(points, torch.tensor([[0.0, 0.0], [0.0, 1.0]])).exp(),
        [[1, 1 / 2], [1 / 26, 1 / 19]],
        rtol=1e-5,
    )


def test_clustering_loss_by_hand() -> None:
    q = torch.tensor([[0.5, 0.5], [0.75, 0.25]])
    near: Any = (q.log() + torch.tensor([[3.0], [-1.0]])).requires_grad_()
    # f = (1.25, 0.75). p is as q^2 / f: (0.2, 1/3) and (0.45, 1/12), brought to a sum of 1.
    p = np.array([[0.375, 0.625], [0.84375, 0.15625]])
    expected = (p * np.log(p / q.numpy())).sum() / 2
    loss = clustering_loss(near)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(near.grad, (q.numpy() - p) / 2, rtol=1e-5)  # p is fixed


class Plain(nn.Module):
    """The network as SCCL has it, with an adapter for a language model."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.inner = nn.Linear(DIMENSION, HIDDEN)
        self.outer = nn.Linear(HIDDEN, DIMENSION, bias=False)
        self.first = nn.Linear(DIMENSION, DIMENSION)
        self.second = nn.Linear(DIMENSION, FEATURES)
        tensors = {name: torch.tensor(array, dtype=torch.float32) for name, array in given.items()}
        self.inner.weight.data = tensors["adapter_in"].T
        self.inner.bias.data = tensors["adapter_bias"]
        self.outer.weight.data = tensors["adapter_out"].T
        parts = [DIMENSION, FEATURES]
        self.first.weight.data, self.second.weight.data = tensors["head"].split(parts)
        self.first.bias.data, self.second.bias.data = tensors["head_bias"].split(parts)
        self.centres = nn.Parameter(tensors["centres"])

    def loss(self, points: torch.Tensor) -> torch.Tensor:
        """Ten times the contrastive loss of two equal views, and KL of p from q."""
        represented = points + self.outer(torch.relu(self.inner(points)))
        features = self.second(torch.relu(self.first(represented)))
        unit = nn.functional.normalize(torch.cat([features, features]))
        n = len(points)
        alike = torch.exp(unit @ unit.T / 0.5)
        others = alike.sum(1) - alike.diag()
        partner = torch.cat([alike.diag(n), alike.diag(-n)])
        t = 1 / (1 + torch.cdist(represented, self.centres) ** 2)
        q = t / t.sum(1, keepdim=True)
        p = (q**2 / q.sum(0)).detach()
        p = p / p.sum(1, keepdim=True)
        kl = nn.functional.kl_div(q.log(), p, reduction="batchmean")
        return 10 * -torch.log(partner / others).mean() + kl

    def arrays(self) -> dict[str, torch.Tensor]:
        """Return the weights under our names."""
        return {
            "adapter_in": self.inner.weight.T,
            "adapter_bias": self.inner.bias,
            "adapter_out": self.outer.weight.T,
            "centres": self.centres,
            "head": torch.cat([self.first.weight, self.second.weight]),
            "head_bias": torch.cat([self.first.bias, self.second.bias]),
        }


def test_a_round_is_plain_training() -> None:
    corpus = blobs(70, CLUSTERS)
    client = half(plan(dropout=0), corpus)
    weights = drawn(corpus)
    reply = client.network_changes(2, weights)
    plain = Plain(weights)
    optimizer = torch.optim.Adam(plain.parameters(), lr=5e-4)
    vectors = unit_rows(corpus.embeddings) - weights["origin"]
    points = torch.tensor(LENGTH * unit_rows(vectors), dtype=torch.float32)
    batches = Minibatches(np.arange(70), Secret.from_seed(0, "a"), 30)
    losses = []
    for number in range(11, 21):  # of the second round
        loss = plain.loss(points[torch.from_numpy(batches.draw(number))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert reply["documents"] == 70
    assert reply["loss"] / 70 == pytest.approx(np.mean(losses), rel=1e-5)
    for name, weight in plain.arrays().items():
        np.testing.assert_allclose(
            weights[name] + reply["changes"][name] / 70, weight.detach(), atol=2e-5
        )


def test_the_server_takes_the_mean_by_documents(tmp_path: Path) -> None:
    corpus = blobs(120, CLUSTERS)
    corpora = {"a": corpus.take(range(70)), "b": corpus.take(range(70, 120))}
    study = plan(max_rounds=2).model_copy(update={"checkpoint_every": 1})
    trained(study, corpora, out=tmp_path)
    checkpoints = tmp_path / "checkpoints"
    first, second = (load_file(checkpoints / f"0000000{n}.safetensors") for n in (1, 2))
    replies = {}
    for name, documents in corpora.items():
        replies[name] = half(study, documents, name=name).network_changes(2, first)["changes"]
    for name in replies["a"]:
        mean = (replies["a"][name] + replies["b"][name]) / 120
        np.testing.assert_allclose(second[name], first[name] + mean, rtol=1e-12)
    np.testing.assert_array_equal(first["origin"], second["origin"])


def test_the_first_network_adds_nothing_and_its_centres_are_those_of_kmeans() -> None:
    corpora = spread(blobs(90, CLUSTERS, spread=0.3), 2)
    few = trained(plan(max_rounds=1, network={"local_steps": 1, "learning_rate": 1e-12}), corpora)
    centres = trained(planned("kmeans", n_components=CLUSTERS), corpora).weights["centres"]
    np.testing.assert_allclose(few.weights["centres"] / LENGTH, centres, atol=0.04)
    points = torch.randn(4, DIMENSION, dtype=torch.float64)
    weights = {name: torch.from_numpy(weight) for name, weight in few.weights.items()}
    np.testing.assert_allclose(represent(weights, points), points, atol=1e-5)


def test_blobs_are_found(tmp_path: Path) -> None:
    corpora = spread(blobs(240, CLUSTERS), 3)
    model, events = train_and_note(plan(), corpora, run=trained)
    rounds = events.of("round")
    assert [event["round"] for event in rounds] == [1, 2, 3]
    assert all(event["documents"] == 240 for event in rounds)
    assert rounds[-1]["loss"] < rounds[0]["loss"]
    assert accuracy(model, corpora) > 0.99
    assert len({word[:5] for word in model.topics(5)[0]}) == 1, "words of the cluster's documents"
    assert model.info["method"] == "fsccl"
    sizes = np.array([*model.info["sizes"].values()])
    assert abs(sizes.sum() - 240) < sizes.size * 10 / 2, "rounded to multiples of 10"
    assert not (sizes % 10).any()

    model.save_pretrained(tmp_path)
    again = TopicModel.from_pretrained(tmp_path)
    corpus = next(iter(corpora.values()))
    np.testing.assert_array_equal(again.transform(corpus), model.transform(corpus))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"representation": "bow"}, "for the method kmeans"),
        ({"network": {"deletion": 1.0}}, "'method.network.deletion' is 1.0: .* less than 1"),
        ({"dropout": -0.1}, "greater than or equal to 0"),
        ({"contrast_temperature": 0}, "greater than 0"),
        ({"alignment": 1}, "no key"),
    ],
)
def test_wrong_parameters_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(StudyError, match=reason):
        plan(**given)


def test_a_shortened_text_keeps_words_in_their_order() -> None:
    (short,) = shorten([" ".join(f"w{i:03d}" for i in range(1000))], 0.2, 0)
    words = short.split()
    assert words == sorted(words)
    assert 760 < len(words) < 840


class Lengths:
    """An encoder by numbers of words."""

    fingerprint = "lengths"

    def __call__(self, texts: list[str]) -> Any:
        angles = np.array([len(text.split()) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def test_two_views_of_all_texts_and_their_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTOPICS_CACHE", "off")
    monkeypatch.setattr("fedtopics.text.embeddings.sentence_encoder", lambda model: Lengths())
    corpus = Corpus.of(["oak elm ash", "sloop"])
    settings = NetworkTraining(deletion=0.4)
    views = text_views(corpus, settings)
    assert [view[1] for view in views] == ["sloop", "sloop"]
    assert views[0][0] != views[1][0]
    site = ClientContext("north", corpus, OPEN_POLICY)
    embedded = embedded_views(corpus, settings, EmbeddingSettings(model="x", dimension=2), site)
    lengths = [[len(text.split()) for text in view] for view in views]
    np.testing.assert_allclose(embedded, np.stack([np.cos(lengths), np.sin(lengths)], 2), atol=1e-6)
