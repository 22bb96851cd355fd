"""Training rounds of some of the clients, drawn by the seed: of every method, on every engine."""

from collections import Counter
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Policy, Study, TopicModel, train
from fedtopics.contract.interfaces import EVERYONE, Draw
from fedtopics.contract.replies import counts
from fedtopics.errors import RunError, StudyError
from fedtopics.federation.local import LocalClients
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import iterate
from fedtopics.methods.kmeans.lloyd import Lloyd, Partition
from fedtopics.text.vocabulary import Vocabulary
from tests.helpers.bent import bend_replies, nothing
from tests.helpers.federation import (
    ANY_WORDS,
    assert_same_bits,
    embedded,
    subjects,
    train_and_note,
    train_until_killed,
)
from tests.helpers.grpc_federation import Notes
from tests.helpers.ledgers import lines_that_left
from tests.helpers.methods import METHODS, NAMES, POLICIES, SIZES, planned
from tests.helpers.programs import Half, door

CORPORA = embedded(subjects(SIZES))
ONE = {"documents": counts()}


@cache
def whole(case: str) -> tuple[TopicModel, Notes]:
    """The model of a run that nothing interrupts, and its events."""
    return train_and_note(planned(case), CORPORA, policies=POLICIES, at_once=False)


def test_draws_are_a_function_of_seed_and_round() -> None:
    draw = Draw(2, seed=3)
    rounds = [draw.members(n, NAMES, NAMES) for n in range(1, 200)]
    assert rounds == [Draw(2, seed=3).members(n, NAMES[::-1], set(NAMES)) for n in range(1, 200)]
    assert rounds != [Draw(2, seed=4).members(n, NAMES, NAMES) for n in range(1, 200)]
    assert all(len(set(members)) == 2 and members == sorted(members) for members in rounds)
    assert min(Counter(name for members in rounds for name in members).values()) > 45, (
        "each is drawn about 66 times"
    )


def test_who_is_away_is_replaced_by_the_next_drawn() -> None:
    draw = Draw(3, seed=0)
    for number in range(1, 20):
        members = draw.members(number, NAMES, NAMES)
        without = draw.members(number, NAMES, [name for name in NAMES if name != members[0]])
        assert set(members[1:]) < set(without)
        assert len(without) == 3
        assert members[0] not in without
    assert draw.members(1, NAMES, ["c5"]) == ["c5"]
    assert EVERYONE.members(1, NAMES, NAMES) == NAMES


def test_the_share_of_the_clients() -> None:
    assert EVERYONE.fraction_drawn(6) == 1.0
    assert Draw(2, 0).fraction_drawn(6) == pytest.approx(1 / 3)
    assert Draw(9, 0).fraction_drawn(6) == 1.0


def test_a_round_asks_only_those_who_are_drawn() -> None:
    halves = {name: Half({"ask": lambda **_: {"documents": 1}}) for name in "abcde"}
    draw = Draw(2, seed=1)
    expected = [draw.members(n, list("abcde"), "abcde") for n in (1, 2, 3)]
    clients: Any = LocalClients({name: door(name, half) for name, half in halves.items()})
    for number, members in enumerate(expected, 1):
        total, report = clients.round(number, lambda: clients.sum("ask", ONE, round=1), draw)
        assert total == {"documents": 2}
        assert report["clients"] == members
        assert not report.get("missing"), "who is not drawn is not missing"
    assert clients.sum("ask", ONE) == {"documents": 5}
    for name, half in halves.items():
        assert len(half.calls) == 1 + sum(name in members for members in expected)


@pytest.mark.parametrize("case", METHODS)
def test_every_method_trains_with_those_who_are_drawn(case: str) -> None:
    model, events = whole(case)
    rounds = [event for event in events.of("round") if event["round"] > 0]
    draw = Draw(2, planned(case).seed)
    assert rounds
    for event in rounds:
        assert event["clients"] == draw.members(event["round"], NAMES, NAMES)
    assert sorted(model.shares) == NAMES, "of the model in the end, all say what they have"


@pytest.mark.parametrize("case", ["mixture", "lda, batch"])
def test_to_draw_all_changes_nothing(case: str) -> None:
    every = train(planned(case, 6), CORPORA, policies=POLICIES)
    assert every.topics() == train(planned(case, None), CORPORA, policies=POLICIES).topics()


@pytest.mark.parametrize("case", ["gfedntm", "gfedntm, local steps", "lda", "lda, batch", "nmf"])
def test_permuted_clients_change_no_bit(case: str) -> None:
    """Of methods by embeddings test_clusters.py says so."""
    forth, _ = whole(case)
    back = train(planned(case), dict(reversed(CORPORA.items())), policies=POLICIES, at_once=False)
    assert_same_bits(back, forth)
    assert back.topics() == forth.topics()
    assert back.info == forth.info


def test_sums_run_on_where_few_are_drawn() -> None:
    """One of three clients a round: two thirds of what was known stay."""
    told = iter([(4.0, 2.0), (30.0, 3.0)])

    def cluster_sums(**_: Any) -> dict[str, Any]:
        total, count = next(told)
        of = {"sums": np.full((1, 1, 2), total), "counts": np.array([[count]])}
        return of | {"distances": np.ones(1), "documents": 3}

    halves = {name: Half({"cluster_sums": cluster_sums}) for name in "abc"}
    clients = LocalClients({name: door(name, half) for name, half in halves.items()})
    ones = np.ones(1, np.int64)
    agreement = Agreement(
        clients=clients,
        settings=Study.make(method={"name": "kmeans"}).method,
        vocabulary=Vocabulary(("w",), document_frequency=ones, occurrences=ones),
        documents=9,
        training=9,
        length=1.0,
        draw=Draw(1, seed=0),
    )
    partition = iterate(agreement, Lloyd(np.zeros(2)), Partition.first(np.ones((1, 1, 2))), [1, 2])
    assert partition.counts == pytest.approx(3 + 2 / 3 * 2)
    assert partition.sums == pytest.approx(30 + 2 / 3 * 4)
    assert partition.centres == pytest.approx((30 + 2 / 3 * 4) / (3 + 2 / 3 * 2))
    assert partition.distances == pytest.approx(1 + 2 / 3)


def test_a_quorum_of_those_who_are_drawn() -> None:
    assert Study.make(method={"clients_per_round": 3}).with_clients(NAMES).quorum == 2
    assert Study.make().with_clients(NAMES).quorum == 4
    with pytest.raises(StudyError, match=r"quorum = 4 is more than method.clients_per_round"):
        Study.make(method={"clients_per_round": 3}, federation={"quorum": 4})


@pytest.mark.parametrize("case", METHODS)
def test_who_resumes_is_told_and_not_asked_again(case: str, tmp_path: Path) -> None:
    """Words, numbers of documents and first centres left once; moments grow on."""
    plan = planned(case).model_copy(update={"checkpoint_every": 1})
    train_until_killed(3, plan, CORPORA, policies=POLICIES, out=tmp_path)
    try:
        resumed = train(plan, CORPORA, policies=POLICIES, out=tmp_path, resume=True)
    except RunError:
        assert case == "kmeans", "of which several starts are left"
        return
    assert_same_bits(resumed, whole(case)[0])
    lines = lines_that_left(tmp_path / "clients/c0/ledger.jsonl")
    often = Counter(line["function"] for line in lines)
    once = {"vocabulary", "document_counts", "first_centres", "projections"} & often.keys()
    assert once >= {"vocabulary", "document_counts"}
    assert {often[function] for function in once} == {1}
    moments = [line["position"] for line in lines]
    assert moments == sorted(moments)
    assert len({tuple(moment) for moment in moments}) == len(moments)


COMPASS = ["east", "north", "south", "west"]


def trained_without(
    names: Collection[str], monkeypatch: pytest.MonkeyPatch, **method: Any
) -> tuple[TopicModel, Notes]:
    """LDA of four clients, of whom some have nothing in each round."""
    for name in names:
        bend_replies(monkeypatch, name, nothing)
    small = {"name": "lda", "learning": "stochastic", "n_components": 4, "batch_size": 100}
    small |= {"max_rounds": 12, **method}
    plan = Study.make(method=small, vocabulary={**ANY_WORDS, "max_words": 200})
    return train_and_note(
        plan, subjects(dict.fromkeys(COMPASS, 50)), policies=dict.fromkeys(COMPASS, Policy())
    )


@pytest.mark.parametrize("size", [1, 2])
def test_the_next_ones_are_drawn_for_who_has_none(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, events = trained_without(["north", "west"], monkeypatch, clients_per_round=size)
    rounds = events.of("round")
    assert [event["round"] for event in rounds] == [*range(1, 13)]
    assert all(set(event["clients"]) & {"east", "south"} for event in rounds)
    assert all(len(event["clients"]) == size for event in rounds)
    assert np.isfinite(model.beta).all()


def test_where_nobody_has_a_document_all_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        StudyError, match="None of east, north, south, west has a document that counts in round 1"
    ):
        trained_without(COMPASS, monkeypatch, clients_per_round=1)
