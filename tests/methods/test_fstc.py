"""FSTC: its training by hand, what travels, and clients that are killed and come back."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedtopics import Corpus, Study, train
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.inference.vectors import unit_rows
from fedtopics.methods.clusters.client import ClusterSums
from fedtopics.methods.clusters.settings import WHOLE
from fedtopics.methods.clusters.sums import sums_by_label
from fedtopics.methods.core.plan import Secret
from fedtopics.methods.fstc import training as fstc_training
from fedtopics.methods.fstc.client import FSTCClient
from fedtopics.methods.fstc.pseudo_labels import GaussianUniformMixture
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.methods.fstc.training import EncoderTrainer, FixedInputs
from fedtopics.methods.registry import find_method
from fedtopics.metrics import clustering_accuracy
from fedtopics.networks.trained_encoder import Adapter, represent, score
from tests.helpers.clusters import (
    CLUSTERS,
    DIMENSION,
    Messages,
    StoppedError,
    assert_same_result,
    blobs,
    corpus_of,
    half,
    labels_of,
    overheard,
    planned,
    spread,
    trained,
)
from tests.helpers.federation import assert_same, train_and_note
from tests.helpers.noted import noted

CENTRES = np.eye(CLUSTERS, DIMENSION)


def test_the_papers_presets() -> None:
    def method(preset: str, **given: Any) -> Any:
        return Study.make(method={"name": "fstc", "preset": preset} | given).method

    def parts(chosen: FSTCSettings) -> tuple[str, float | None, float]:
        return chosen.first_labels, chosen.mixture_from, chosen.alignment

    assert parts(method("paper")) == parts(method("frozen")) == ("kmeans", 0.0, 1.0)
    paper, frozen = method("paper"), method("frozen")
    assert (paper.fine_tune, paper.network.deletion, paper.warm_up) == (True, 0.2, 0.0)
    assert (frozen.fine_tune, frozen.network.deletion, frozen.warm_up) == (False, 0.0, 0.1)
    assert (paper.max_rounds, paper.network.local_steps) == (40, 100)
    assert paper.encoder_learning_rate == 5e-6
    assert parts(method("rstc")) == ("kmeans", 0.0, 0.0)
    assert parts(method("stc")) == ("kmeans", None, 0.0)
    assert parts(method("default"))[:2] == ("discriminative", None)
    assert method("default").alignment > 0
    assert parts(method("paper", alignment=0.01, mixture_from=0.5)) == ("kmeans", 0.5, 0.01)
    for preset in ("paper", "frozen", "rstc", "stc"):
        chosen = method(preset)
        how = chosen.network
        assert (chosen.max_rounds, how.local_steps, how.batch_size) == (40, 100, 200)
        assert (chosen.epsilon, how.learning_rate, chosen.masses) == (0.1, 5e-4, "even")
        assert chosen.average_every == 0
        assert method(preset, network={"hidden": 9}).network.local_steps == 100
    changed = method("paper", network={"local_steps": 7, "deletion": 0.5}).network
    assert (changed.local_steps, changed.deletion, changed.hidden) == (7, 0.5, 128)
    assert method("default", network={"hidden": 9}).network.local_steps == 40, "FSTC's own"


def test_an_adapter_and_a_head_by_hand() -> None:
    weights = {
        "adapter_in": torch.tensor([[1.0], [-1.0]]),
        "adapter_bias": torch.tensor([0.5]),
        "adapter_out": torch.tensor([[2.0, 1.0]]),
        "head": torch.tensor([[1.0, 0.0], [1.0, 1.0]]),
        "head_bias": torch.tensor([0.0, -1.0]),
    }
    represented = represent(weights, torch.eye(2))
    assert represented.tolist() == [[4.0, 1.5], [0.0, 1.0]]
    assert score(weights, represented).tolist() == [[4.0, 4.5], [0.0, 0.0]]


ONE = {"local_steps": 1, "batch_size": 40}  # all documents in one step


POINTS = np.random.default_rng(0).normal(size=(40, DIMENSION)).astype(np.float32)
LABELS = np.random.default_rng(1).dirichlet(np.ones(CLUSTERS), len(POINTS))


def trainer(points: Any, labels: Any, weights: Any = None, **given: Any) -> EncoderTrainer:
    method = planned("fstc", **given).method
    return EncoderTrainer(
        settings=method,
        inputs=FixedInputs(points, method.network.n_views),
        weights=weights or Adapter(DIMENSION, method.network.hidden, CLUSTERS).initial_weights(0),
        labels=labels,
        secret=Secret(b"1" * 32),
    )


def broadcast(round_: int = 1, present: Any = (True,) * CLUSTERS) -> dict[str, Any]:
    return {
        "round_": round_,
        "centres": CENTRES,
        "present": np.array(present),
        "masses": np.ones(CLUSTERS),
    }


def test_centres_are_means_of_what_the_adapter_makes_of_documents() -> None:
    """Equation 15."""
    weights = Adapter(DIMENSION, 8, CLUSTERS).initial_weights(0)
    weights["adapter_out"] = torch.ones(8, DIMENSION)
    represented = represent(weights, torch.from_numpy(POINTS)).numpy()
    sums, largest = trainer(POINTS, LABELS, weights).cluster_sums()
    np.testing.assert_allclose(
        sums, sums_by_label(represented, LABELS.argmax(1), CLUSTERS)[0], rtol=1e-6
    )
    np.testing.assert_array_equal(largest, LABELS.argmax(1))


@pytest.mark.parametrize("alignment", [0.0, 0.5])
def test_the_loss_of_a_step(alignment: float) -> None:
    """Equations 14, 17 and 18, of all documents in one minibatch."""
    labels = LABELS.copy()
    labels[labels.argmax(1) == 4] = np.eye(CLUSTERS)[0]  # none is of the last cluster
    present = [True, False, True, True, True]
    one = trainer(POINTS, labels, alignment=alignment, network=ONE, transports=0)
    weights = {name: weight.detach().numpy().copy() for name, weight in one.weights.items()}
    outputs = POINTS @ weights["head"].T + weights["head_bias"]
    sums, largest = one.cluster_sums()
    counts = np.bincount(largest, minlength=CLUSTERS)
    both_have = np.array(present) & (counts > 0)
    means = sums / np.maximum(counts, 1)[:, None]
    apart = ((means - CENTRES) ** 2).sum(1)[both_have].sum()
    error = ((labels - outputs) ** 2).sum(1).mean()
    assert one.train(**broadcast(present=present)) == pytest.approx(
        error + alignment * apart, rel=1e-5
    )
    assert one.round == 1
    assert not np.array_equal(one.weights["head"].detach().numpy(), weights["head"])


def test_cross_entropy_instead_of_squared_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the scores' softmax; the mixture is of what that misses."""
    called = noted(monkeypatch, GaussianUniformMixture, "step")
    given = {"loss": "cross_entropy", "mixture_from": 0.0, "alignment": 0.0, "transports": 0}
    one = trainer(POINTS, LABELS, network=ONE, **given)
    weights = {name: weight.detach().numpy().copy() for name, weight in one.weights.items()}
    scores = np.exp(POINTS @ weights["head"].T + weights["head_bias"])
    probable = scores / scores.sum(1, keepdims=True)
    assert one.train(**broadcast()) == pytest.approx(
        -(LABELS * np.log(probable)).sum(1).mean(), rel=1e-5
    )
    (((_, missed), _),) = called
    np.testing.assert_allclose(
        np.sort(missed.detach().numpy(), 0), np.sort(LABELS - probable, 0), atol=1e-6
    )


def test_a_step_sees_views_in_the_documents_place() -> None:
    """Each view with the document's pseudo-label; centres are those of the documents."""
    views = [POINTS[::-1], 2 * POINTS]
    given = {"alignment": 0.0, "network": ONE | {"deletion": 0.2}, "transports": 0}
    one = trainer(np.concatenate([POINTS, *views]), LABELS, **given)
    weights = {name: weight.detach().numpy().copy() for name, weight in one.weights.items()}
    outputs = [view @ weights["head"].T + weights["head_bias"] for view in views]
    error = np.mean([((LABELS - output) ** 2).sum(1) for output in outputs])
    sums, largest = one.cluster_sums()
    np.testing.assert_allclose(sums.sum(0), POINTS.sum(0), rtol=1e-4)
    np.testing.assert_array_equal(largest, LABELS.argmax(1))
    assert one.train(**broadcast()) == pytest.approx(error, rel=1e-5)


def test_labels_are_found_anew_where_the_schedule_says(monkeypatch: pytest.MonkeyPatch) -> None:
    relabelled_at = []
    monkeypatch.setattr(
        EncoderTrainer, "_relabel", lambda self, _: relabelled_at.append(self._steps_taken)
    )
    step = EncoderTrainer._step

    def counting(self: Any, rows: Any, target: Any, present: Any, number: Any) -> float:
        self._steps_taken = number[0] + 1
        return step(self, rows, target, present, number)

    monkeypatch.setattr(EncoderTrainer, "_step", counting)
    monkeypatch.setattr(EncoderTrainer, "_steps_taken", 0, raising=False)
    one = trainer(POINTS, LABELS, transports=4, warm_up=0.2)
    for round_ in (1, 2, 3, 4):
        one.train(**broadcast(round_))
    assert relabelled_at == [8, 10, 16, 26], "8 of 40 steps of warm-up, then 8 + 32 (i / 4)^2"


def test_the_mixture_weighs_documents_from_its_step_on(monkeypatch: pytest.MonkeyPatch) -> None:
    called = noted(monkeypatch, fstc_training.pseudo_labels, "weighted_error")
    one = trainer(POINTS, LABELS, mixture_from=0.5)
    for round_ in (1, 2, 3, 4):
        one.train(**broadcast(round_))
    weighed = [float(given[2].min()) for given, _ in called]
    assert weighed[:20] == [1.0] * 20
    assert min(weighed[21:]) < 1, "the first holds all labels to be right"


UNEVEN = {"client-1": blobs(80), "client-2": blobs(40, seed=0), "client-3": blobs(25, seed=0)}


def conversation(
    monkeypatch: pytest.MonkeyPatch, policy: Policy = OPEN_POLICY, **method: Any
) -> tuple[Any, Messages]:
    with monkeypatch.context() as patch:
        messages = overheard(patch)
        model = train(planned("fstc", **method), UNEVEN, policies=dict.fromkeys(UNEVEN, policy))
    return model, messages


def asked(messages: Messages, function: str, client: str = "client-1") -> list[dict[str, Any]]:
    """The payloads that a client got."""
    return [
        given for name, called, given, _ in messages.calls if (name, called) == (client, function)
    ]


def test_the_model_is_the_mean_of_the_networks_by_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, messages = conversation(monkeypatch)
    (replies,) = zip(*(messages.of("network_weights", name) for name in UNEVEN), strict=True)
    assert [reply["documents"] for reply in replies] == [80, 40, 25]
    networks = [
        {n: w / reply["documents"] for n, w in reply["weights"].items()} for reply in replies
    ]
    assert not np.allclose(networks[0]["head"], networks[1]["head"]), "each trained its own"
    for name in networks[0]:
        mean = (
            sum(n * network[name] for n, network in zip((80, 40, 25), networks, strict=True)) / 145
        )
        np.testing.assert_allclose(model.weights[name], mean, rtol=1e-10, atol=1e-12)
    assert [given["round"] for given in asked(messages, "network_weights")] == [4]


@pytest.mark.parametrize("policy", [OPEN_POLICY, Policy()], ids=["open", "usual"])
def test_global_centres_are_means_of_local_ones_by_documents(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equation 16; a cluster with too few of a client's documents counts nothing there."""
    _, messages = conversation(monkeypatch, policy)
    functions = ("first_centres", "adapter_sums")
    replies = [[r for function in functions for r in messages.of(function, n)] for n in UNEVEN]
    payloads = asked(messages, "adapter_sums")
    assert [given["round"] for given in payloads] == [1, 2, 3, 4]
    for round_replies, given in zip(zip(*replies, strict=True), payloads, strict=False):
        counts = sum(reply["counts"] for reply in round_replies)
        np.testing.assert_array_equal(given["counts"], counts)
        np.testing.assert_allclose(
            given["centres"],
            sum(reply["sums"] for reply in round_replies) / np.maximum(counts, 1)[:, None],
        )
        for reply in round_replies:
            assert not ((reply["counts"] > 0) & (reply["counts"] < policy.min_persons)).any()
            assert not reply["sums"][reply["counts"] == 0].any()
        assert given["network"] == {}


def test_networks_are_averaged_every_so_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, Any]] = []
    take = EncoderTrainer.take

    def noting(self: EncoderTrainer, weights: Any) -> None:
        taken.append((self.round, weights["head"]))
        take(self, weights)

    monkeypatch.setattr(EncoderTrainer, "take", noting)
    _, messages = conversation(monkeypatch, average_every=2)
    assert [given["round"] for given in asked(messages, "network_weights")] == [2, 4, 4]
    payloads = asked(messages, "adapter_sums")
    assert [bool(given["network"]) for given in payloads] == [False, False, True, False]
    replies = [messages.of("network_weights", name)[0] for name in UNEVEN]
    for name, weight in payloads[2]["network"].items():
        np.testing.assert_allclose(
            weight, sum(reply["weights"][name] for reply in replies) / 145, rtol=1e-12
        )
    assert [round_ for round_, _ in taken] == [2, 2, 2]
    assert all(head is payloads[2]["network"]["head"] for _, head in taken)
    often = find_method("fstc").client.in_study(planned("fstc", average_every=2).method)
    assert str(often["network_weights"]) == "every 2 rounds, and once, at the end"


@pytest.mark.parametrize("start", ["discriminative", "kmeans"])
def test_the_first_labels_are_of_the_start(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    first_labels = FSTCClient.first_labels

    @wraps(first_labels)
    def telling(self: FSTCClient, **given: Any) -> None:
        told.append(given)
        first_labels(self, **given)

    monkeypatch.setattr(FSTCClient, "first_labels", telling)
    _, messages = conversation(monkeypatch, first_labels=start)
    given = told[0]
    names = {"centres"} if start == "kmeans" else {"projection", "directions", "bias"}
    assert given["start"].keys() == names
    one = half(planned("fstc", first_labels=start), UNEVEN["client-1"])
    first_labels(one, given["origin"], given["start"])
    reply = one.first_centres()
    assert_same(reply, messages.of("first_centres", "client-1")[0])
    labels = one._first_labels
    np.testing.assert_allclose(labels.sum(1), 1)
    assert (np.unique(labels).tolist() == [0, 1]) == (start == "kmeans"), "hard or soft"
    largest = labels.astype(np.float32).argmax(1)
    sums, counts = sums_by_label(one.part(ClusterSums).points(given["origin"]), largest, CLUSTERS)
    np.testing.assert_allclose(reply["sums"], sums, atol=1e-6)
    np.testing.assert_array_equal(reply["counts"], counts)


def test_no_or_many_documents_change_place_between_kmeans_and_the_first_labels() -> None:
    rng = np.random.default_rng(0)
    plan = planned("fstc", first_labels="kmeans", n_components=4, embedding={"dimension": 60})
    sizes = []
    for _ in range(20):
        one = half(plan, corpus_of(np.eye(60)), Policy(min_persons=5))
        centres = unit_rows(rng.normal(size=(1, 4, 60)))
        origin = np.zeros(60)
        before = one.function("cluster_sums")(
            round=0, origin=origin, centres=centres, starts=[0], part=WHOLE
        )["sums"][0]
        one.first_labels(origin, {"centres": centres[0] + 0.02 * rng.normal(size=(4, 60))})
        sizes += (before != one.first_centres()["sums"]).sum(1).tolist()
    assert {size for size in sizes if size < 5} == {0}
    assert max(sizes) >= 5


@pytest.mark.parametrize("preset", ["default", "frozen", "rstc", "stc"])
def test_clusters_are_found(preset: str) -> None:
    corpus = blobs(400, spread=0.8)
    plan = planned("fstc", preset=preset, max_rounds=6, transports=10, start={"tries": 4})
    model, events = train_and_note(plan, spread(corpus, 3), run=trained)
    assert clustering_accuracy(labels_of(corpus), model.main_topics(corpus)) > 0.97
    rounds = events.of("round")
    assert [event["round"] for event in rounds] == [1, 2, 3, 4, 5, 6]
    assert {event["documents"] for event in rounds} == {400}
    assert rounds[-1]["loss"] < 0.7 * rounds[0]["loss"]
    assert model.info["rounds"] == 6


@pytest.fixture(scope="module")
def corpora() -> dict[str, Corpus]:
    return spread(blobs(90), 3)


LONG: dict[str, Any] = {
    "max_rounds": 6,
    "average_every": 2,
    "mixture_from": 0.3,
    "network": {"local_steps": 5},
}


@pytest.fixture(scope="module")
def whole(corpora: dict[str, Corpus]) -> Any:
    """The model of a run that nothing interrupts."""
    return trained(planned("fstc", **LONG), corpora)


@pytest.mark.parametrize(("function", "round_"), [("adapter_sums", 4), ("network_weights", 6)])
def test_a_run_that_is_interrupted_in_a_round_goes_on_with_the_same_bits(
    function: str,
    round_: int,
    corpora: dict[str, Corpus],
    whole: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original: Callable[..., Any] = getattr(FSTCClient, function)

    @wraps(original)
    def stopping(self: FSTCClient, **given: Any) -> Any:
        reply = original(self, **given)
        if (self.name, given["round"]) == ("client-2", round_):
            raise StoppedError
        return reply

    plan = planned("fstc", **LONG)
    with monkeypatch.context() as patch:
        patch.setattr(FSTCClient, function, stopping)
        with pytest.raises(StoppedError):
            trained(plan, corpora, out=tmp_path)
    for _ in range(2):  # to its end; when it is done
        assert_same_result(trained(plan, corpora, out=tmp_path, resume=True), whole)
