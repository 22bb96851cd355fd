"""Small groups: where masks hide replies, they are those of all clients' documents."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtopics import Policy, Study, TopicModel, train
from fedtopics.federation.program import client_of
from fedtopics.inference.vectors import unit_rows
from fedtopics.methods.clusters.settings import WHOLE
from fedtopics.methods.core.groups import GroupThreshold, as_many, enough_have
from fedtopics.methods.core.plan import ClientContext
from tests.helpers.clusters import blobs, corpus_of, overheard, planned, spread
from tests.helpers.federation import ANY_WORDS

LEAST = 10
POLICY = Policy(min_persons=LEAST, min_persons_per_word=1, min_clients_in_sum=1)
OWN = POLICY.model_copy(update={"counts_of_all": False})
CORPUS = blobs(300, 12, spread=1.5)
COUNT = {"least": LEAST, "clients": 1}
STUDIES: dict[str, dict[str, Any]] = {
    "kmeans": {"name": "kmeans", "n_components": 12},
    "discriminative": {  # which words are known depends on who has them
        "name": "discriminative",
        "n_components": 12,
        "temperature": 0.02,
        "word_weight": 0,
    },
    "mixture": {"name": "mixture", "n_components": 12, "start": {"tries": 2}, "max_rounds": 15},
    # Of 12 groups none stands out, so the last bits of sums decide on some of the first topics.
    "nmf": {"name": "nmf", "n_components": 7, "max_rounds": 15},
    "lda": {"name": "lda", "n_components": 12, "max_rounds": 15, "learning": "batch"},
    "lda from nmf": {
        "name": "lda",
        "n_components": 10,
        "max_rounds": 5,
        "learning": "batch",
        "initialisation": "nmf",
    },
}


def study(secure: bool, name: str, **method: Any) -> Study:
    if name in ("nmf", "lda"):
        plan = Study.make(
            method={"name": name, "coherence": "nothing"} | method, vocabulary=ANY_WORDS
        )
    else:
        plan = planned(name, **method)
    return plan.model_copy(update={"aggregation": "secure" if secure else "plain"})


def model_of(secure: bool, method: dict[str, Any], n: int, policy: Policy = POLICY) -> TopicModel:
    corpora = spread(CORPUS, n, alpha=0.5 if n > 1 else None)
    return train(
        study(secure, **method), corpora, policies=dict.fromkeys(corpora, policy), at_once=False
    )


def apart(one: TopicModel, other: TopicModel) -> float:
    """By how much weights and words differ, relative to their largest number."""
    pairs = [tuple(np.asarray(m.weights[name]) for m in (one, other)) for name in one.weights]
    pairs.append((one.word_sums, other.word_sums))
    if one.n_topics != other.n_topics:  # empty topics of a mixture are left out
        return np.inf
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-9)) for a, b in pairs)


@pytest.mark.parametrize("name", STUDIES)
def test_with_masks_the_result_is_that_of_pooled_documents(name: str) -> None:
    """Of pooled documents with the same threshold; where each client counts its own it is not."""
    method = STUDIES[name]
    pooled = model_of(True, method, 1)
    assert apart(model_of(True, method, 4), pooled) < 1e-5
    assert apart(model_of(False, method, 4), pooled) > 1e-3
    assert apart(model_of(True, method, 4, OWN), pooled) > 1e-3


def test_the_strictest_policy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All know the fewest documents of a group, and say it of each policy; one is a count's end."""
    corpora = spread(CORPUS, 4)
    least = dict(zip(corpora, (1, 5, 20, 8), strict=True))
    policies = {n: POLICY.model_copy(update={"min_persons": m}) for n, m in least.items()}
    policies["client-3"] = policies["client-3"].model_copy(update={"counts_of_all": False})
    messages = overheard(monkeypatch)
    train(study(True, "kmeans", max_rounds=2), corpora, policies=policies)
    assert {name: messages.of("document_counts", name)[0]["least"] for name in corpora} == least
    assert {p["groups"]["least"] for _, f, p, _ in messages.calls if f == "cluster_sums"} == {20}
    for reply in messages.of("cluster_sums", "client-3"):
        counts = reply["counts"] if "counts" in reply else reply["moves"].sum(1)
        assert not ((counts > 0) & (counts < 20)).any(), "it counts its own alone, for others too"


def test_networks_tell_centres_of_enough_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """FSTC: its first centres, and those of each round, of the training that was counted."""
    messages = overheard(monkeypatch)
    model_of(True, {"name": "fstc", "n_components": 12, "max_rounds": 2}, 4)
    for function, rounds in ("first_centres", 1), ("adapter_sums", 2):
        told = [messages.of(function, f"client-{n}") for n in range(1, 5)]
        replies = np.array([[reply["counts"] for reply in of[1::2]] for of in told])
        assert replies.shape == (4, rounds, 12)
        size = replies.sum(0)
        assert (size[size > 0] >= LEAST).all()
        assert ((replies > 0) & (replies < LEAST)).any(), "of one client it can be few"
        if function == "adapter_sums":
            counted = np.sum([[reply["counts"] for reply in of[::2]] for of in told], axis=0)
            np.testing.assert_array_equal(size, np.where(counted < LEAST, 0, counted))


def kmeans_half(n: int, policy: Policy = POLICY, first: int = 0) -> Any:
    """A half under masks whose documents' embeddings are unit vectors, from this one on."""
    plan = planned("kmeans", embedding={"dimension": 60})
    corpus = corpus_of(np.eye(60)[first : first + n])
    client: Any = client_of(plan, ClientContext("a", plan.embedded(corpus), policy, masked=True))
    client.adopt(
        sorted({word for batch in corpus.batches() for text in batch for word in text}), n, 3.0
    )
    return client


def asked(client: Any, centres: NDArray[np.float64], **groups: Any) -> dict[str, Any]:
    return dict(
        client.function("cluster_sums")(
            round=1,
            origin=np.zeros(60),
            centres=centres,
            starts=list(range(len(centres))),
            part=WHOLE,
            groups=groups,
        )
    )


def near(*groups: range) -> NDArray[np.float64]:
    """Centres of one clustering that these unit vectors are nearest to."""
    centres = np.zeros((1, len(groups), 60))
    for i, group in enumerate(groups):
        centres[0, i, list(group)] = 1
    return unit_rows(centres)


def test_the_sum_of_few_leaves_if_all_have_enough() -> None:
    """Of its own 12 documents one is in the second cluster, of all clients' nine or ten."""
    half = kmeans_half(12)
    centres = near(range(11), range(11, 12), range(12, 60))
    told = asked(half, centres, **COUNT)
    assert told.keys() == {"moves", "documents"}
    assert told["moves"][0].tolist() == [[11, 0, 0], [0, 1, 0], [0, 0, 0]]
    for others, given in (8, 0), (9, 1):
        moves = told["moves"] + np.diag([20, others, 20])
        reply = asked(half, centres, **COUNT, counted={"moves": moves})
        assert reply["counts"].tolist() == [[11, given, 0]]
        assert reply["sums"][0, 1].sum() == given
        assert reply["documents"] == 12


@pytest.mark.parametrize(("others", "claimed"), [(9, 9), (0, 50)], ids=["it has nine", "it lies"])
def test_what_one_of_the_others_can_read(others: int, claimed: int) -> None:
    """Totals less its own are the embedding of who alone has another document of the cluster."""
    centres = near(range(11), range(11, 30), range(30, 60))
    for policy, told in (POLICY, 1), (OWN, 0):
        victim = kmeans_half(12, policy)
        reader = kmeans_half(11 + others, first=12)
        moves = asked(reader, centres, **COUNT)["moves"]
        moves[0, 1, 1] += claimed - others
        counted = {"moves": asked(victim, centres, **COUNT)["moves"] + moves}
        replies = [asked(half, centres, **COUNT, counted=counted) for half in (victim, reader)]
        read = (sum(reply["sums"] for reply in replies) - replies[1]["sums"])[0, 1]
        np.testing.assert_array_equal(read, np.eye(60)[11] * told)


@pytest.mark.parametrize(
    ("policy", "least"), [(OWN, 10), (POLICY.model_copy(update={"min_persons": 11}), 10)]
)
def test_who_goes_by_its_own_counts_gives_no_less(policy: Policy, least: int) -> None:
    """Its policy says so, or asks for more than the study: whatever all are said to have."""
    half = kmeans_half(12, policy)
    centres = near(range(11), range(11, 12), range(12, 60))
    assert (
        asked(half, centres, least=least, clients=1)["moves"][0].tolist()
        == np.diag([11, 0, 0]).tolist()
    )
    reply = asked(half, centres, least=least, clients=1, counted={"moves": 1000 * np.eye(3)[None]})
    assert reply["counts"].tolist() == [[11, 0, 0]]


def test_between_two_totals_no_or_many_documents_change_place() -> None:
    """Those of all clients together; of one it can be a single document."""
    rng = np.random.default_rng(0)
    policy = POLICY.model_copy(update={"min_persons": 5})
    halves = [kmeans_half(20, policy, first) for first in (0, 20, 40)]
    centres = rng.normal(size=(3, 4, 60))
    count = {"least": 5, "clients": 1}
    sizes = []
    of_one = []
    before = np.zeros((3, 3, 4, 60), bool)
    for _ in range(60):
        counted = {"moves": sum(asked(half, centres, **count)["moves"] for half in halves)}
        replies = [asked(half, centres, **count, counted=counted) for half in halves]
        now = np.array([reply["sums"] > 0.5 for reply in replies])  # whose points are in which
        size = now.any(0).sum(2)
        assert not ((size > 0) & (size < 5)).any()
        told = (size > 0) & before.any((0, 3))
        changed = (before ^ now).sum(3)
        sizes += changed.sum(0)[told].tolist()
        of_one += changed[:, told].ravel().tolist()
        before = now
        centres = centres + 0.1 * rng.normal(size=centres.shape)
    assert min(set(sizes) - {0}) == 5
    assert 1 in of_one


def test_what_was_summed_in_vain_has_not_moved() -> None:
    """Groups are counted again, if a client is lost: documents move from where they were told."""
    half = kmeans_half(12)
    for centres in near(range(12), range(12, 60)), near(range(6), range(6, 60)):
        moves = [asked(half, centres, **COUNT)["moves"] for _ in range(2)]
        np.testing.assert_array_equal(*moves)
        asked(half, centres, **COUNT, counted={"moves": moves[0] * 10})
        np.testing.assert_array_equal(asked(half, centres, **COUNT)["moves"], moves[0])
    assert moves[0][0].tolist() == [[6, 6], [0, 0]]


def test_what_is_summed_is_what_was_counted() -> None:
    """Once: as networks are trained anew, and least squares are not solved twice."""
    guard = GroupThreshold(2, True)
    computed = list[int]()

    def compute() -> int:
        computed.append(1)
        return len(computed)

    given = {"b": np.ones(2), "a": {"c": np.zeros(1)}}
    assert [guard.once(COUNT, given, compute) for _ in range(2)] == [1, 1]
    assert guard.once(COUNT, given | {"b": np.zeros(2)}, compute) == 2
    assert [guard.once({}, given, compute) for _ in range(2)] == [3, 4]


def test_rules() -> None:
    counts = np.array([0, 1, 9.5, 10])
    assert as_many(counts, 10).tolist() == [False, False, False, True]
    assert as_many(counts, 1).all()
    squares = np.array([10, 9.0, 5])
    assert enough_have(squares, np.array([10, 9.0, 2.5]), 10).tolist() == [True, False, True]
