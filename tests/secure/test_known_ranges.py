"""Numbers whose range is known by the last total: fewer bits, the same at all participants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.federation.local import LocalClients
from fedtopics.engines.states import EVERY
from fedtopics.federation import run_folder
from fedtopics.federation.server import serve
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.methods.core.aggregation import Rows
from fedtopics.methods.core.replies import Announced, Field, Template, sums
from fedtopics.model.topic_model import TopicModel
from fedtopics.secure import ranges
from fedtopics.secure.field import PRIME
from fedtopics.secure.fixed import ENOUGH, FINE, Layout
from fedtopics.secure.packing import BITS, Pieces, read_pieces, write_pieces
from fedtopics.secure.ranges import DECAY, MARGIN, Ranges
from fedtopics.secure.said import ADDED, AGREED, CHECKED, COMMITTED, OPENED, PREPARED
from fedtopics.secure.sum import SecureClients
from tests.helpers import masked as helper
from tests.helpers.federation import assert_same_bits, study, subjects
from tests.helpers.grpc_federation import HOST, Notes, Partner, partner, until
from tests.helpers.masked import NAMES, left_of, masked, reply_of

SIZES = {"east": 50, "north": 40, "south": 30, "west": 30}


def members(n: int) -> list[str]:
    return [f"c{number:03}" for number in range(n)]


# Numbers in pieces


@pytest.mark.parametrize(
    ("n", "pieces"),
    [(3, (2, 39, 19)), (5, (2, 39, 18)), (8, (2, 39, 18)), (9, (3, 43, 13)), (50, (3, 42, 12))],
)
def test_how_many_residues_hold_a_number_more(n: int, pieces: tuple[int, int, int]) -> None:
    assert Pieces.of(n, ENOUGH) == pieces


@pytest.mark.parametrize("n", [1, 3, 5, 9, 50, 100, 1000])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 1000])
def test_sums_of_any_replies_are_read_again(n: int, size: int) -> None:
    """Also where all clients' numbers are the largest, or the least: nothing is carried over."""
    pieces, rng = Pieces.of(n, ENOUGH), np.random.default_rng(n)
    most = ((1 << pieces.bits) - 1) // n
    cases = [np.full((n, size), most), np.zeros((n, size), np.int64)]
    cases.append(rng.integers(0, most, (n, size), endpoint=True))
    for numbers in cases:
        total = np.zeros(pieces.size(size), np.uint64)
        for each in numbers:
            residues = np.empty_like(total)
            write_pieces(each - 7, -7, residues, *pieces)
            total += residues
            assert (total < 1 << BITS).all()
        found = np.empty(size, np.int64)
        read_pieces(total, -7 * n, found, *pieces)
        assert found.tolist() == (numbers - 7).sum(0).tolist()


# Replies

TEMPLATE: Template = {
    "documents": Announced(dict.fromkeys(members(50), 100)),
    "rows": Field((60, 5), dtype="float32", rows=True),
    "counts": sums(60, 5, most=1e9),
    "few": Field((3,)),
}


def replies(n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    def rows() -> Rows:
        index = np.flatnonzero(rng.random(60) < 0.5)
        return Rows(index, rng.uniform(-1, 1, (len(index), 5)).astype(np.float32), 60)

    return [
        {
            "documents": 5,
            "rows": rows(),
            "counts": rng.uniform(0, 1e3, (60, 5)),
            "few": rng.normal(size=3),
        }
        for _ in range(n)
    ]


KNOWN = {"rows 60x5": 1.0, "counts 60x5": 1e3}


@pytest.mark.parametrize(("n", "share"), [(5, 2 / 3), (50, 3 / 4)])
def test_sums_within_a_known_range(n: int, share: float) -> None:
    layout = Layout.of(TEMPLATE, members(n), FINE, KNOWN)
    assert layout.size == 1 + 3 + 2 * 300 * share
    total = np.zeros(layout.size, np.uint64)
    said = replies(n, np.random.default_rng(n))
    for reply in said:
        residues, factor = layout.encode(reply)
        assert factor == 1
        total = (total + residues) % np.uint64(PRIME)
    found = layout.decode(total, n)
    finest = n * 2.0**-ENOUGH
    expected = sum(each["counts"] for each in said)
    np.testing.assert_allclose(found["counts"], expected, rtol=0, atol=1e3 * finest)
    dense = sum(each["rows"].dense().astype(float) for each in said)
    np.testing.assert_allclose(
        found["rows"].dense(), dense, rtol=2.0**-24, atol=2 * finest + 2.0**-40
    )


# What is known of them


def test_ranges_follow_from_checked_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "LARGE", 4)
    kept: dict[str, float] = {}
    known = Ranges(kept)

    def total(most: float) -> dict[str, Any]:
        rows = Rows(np.array([1]), np.array([[0.5, -most]], np.float32), 4)
        return {"a": {"rows": rows}, "n": np.arange(9), "few": np.ones(3), "zero": np.zeros(4)}

    known.note("f", total(8.0))
    assert kept == {}
    known.checked()
    assert kept == {"f a.rows 4x2": MARGIN * 8}
    assert known.of("f") == {"a.rows 4x2": MARGIN * 8}
    assert known.of("g") == {}
    known.note("f", total(1.0))
    known.checked()
    assert kept == {"f a.rows 4x2": DECAY * MARGIN * 8}
    known.note("f", total(100.0))
    known.forget_unchecked()
    known.checked()
    assert kept == {"f a.rows 4x2": DECAY * MARGIN * 8}
    known.forget()
    assert kept == {}


def sizes_left(clients: Any, name: str) -> list[int]:
    """How many residues left a client, sum by sum."""
    left = [left for door in clients.doors[name] for left in door.left]
    return [len(reply["masked"]["values"]) for stage, _, reply in left if stage == ADDED]


ROUND = [COMMITTED, ADDED, CHECKED]


def test_who_has_a_larger_number_has_all_send_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not made smaller, and nothing has left in fewer bits."""
    monkeypatch.setattr(ranges, "LARGE", 6)
    asked: list[str] = []

    def changed(name: str) -> dict[str, Any]:
        asked.append(name)
        most = 1000.0 if name == "c" and asked.count("c") == 2 else 1.0
        return reply_of(name) | {
            "rows": Rows(np.array([0]), np.array([[most, 2.0**-38]], np.float32), 6)
        }

    monkeypatch.setattr(helper, "reply_of", changed)
    with masked(NAMES, "drawn", rounds=3) as (f, clients, _):
        totals = [found[0]["rows"].values[0] for found, _ in f.lead(f.program).result()]
        assert left_of(clients, "a") == [*ROUND, COMMITTED, *ROUND, *ROUND]
        one, two, three = sizes_left(clients, "a")
        assert one == two == three + 4
    assert totals[1].tolist() == [1004.0, 5 * 2.0**-38]
    assert totals[0][0] == totals[2][0] == 5.0


# Who comes back


def test_a_state_that_all_sign_has_no_ranges() -> None:
    """Who takes it over was not there, and knows none."""
    kept = {"f a 4": 2.0}
    clients = SecureClients(LocalClients({}), {}, ranges=kept)
    clients.settle(EVERY - 1, lambda: None)
    assert kept == {"f a 4": 2.0}
    clients.settle(EVERY, lambda: None)
    assert kept == {}


def test_a_client_behind_a_checkpoint_has_the_same_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its replies would have another length, and its model other weights."""
    monkeypatch.setattr(ranges, "LARGE", 64)
    monkeypatch.setattr(run_folder, "LONGEST_UNSAVED", 0.0)  # so that it has one of each round
    settings = FederationSettings(
        min_clients=3, deadline=60, gather=60, wait=60, robust="none", pause=0.02
    )
    plan = study(max_rounds=12, norm="server").with_clients(SIZES).model_copy(
        update={"federation": settings, "secure": True}
    )  # fmt: skip
    corpora, events, address = subjects(SIZES), Notes(), list[str]()
    partners: dict[str, Partner] = {}
    nodes: list[Any] = []

    def start(name: str) -> None:
        partners[name] = partner(address[0], name, corpora[name], tmp_path / name)

    def follow(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "listening":
            address.append(event["address"])
            for name in SIZES:
                start(name)
        if event["event"] == "round" and event["round"] == 5:
            partners["north"].kill()
            assert list((tmp_path / "north/state/checkpoints").glob("*.sha256"))
        if event["event"] == "round" and event["round"] == 8:
            start("north")
        if event["event"] == "round" and event["round"] == 10 and "north" in event["missing"]:
            there = nodes[0].members
            until(lambda: there["north"].turn > there["east"].turn)

    model = serve(
        plan, None, f"{HOST}:0", tmp_path / "run", on_event=follow, on_listen=nodes.append
    )
    for name, each in partners.items():
        each.result()
        assert_same_bits(TopicModel.from_pretrained(tmp_path / name / "model"), model)
    assert events.of("bad reply") == []
    assert "north" in events.of("round")[-1]["clients"]
    lines = (tmp_path / "north/ledger.jsonl").read_text().splitlines()
    sizes = [
        line["fields"]["values"]["shape"]
        for line in map(json.loads, lines)
        if line["what"] == "left" and line["function"] == ADDED
    ]
    assert sizes[-1] < sizes[-8]


# Numbers without a bound: fine ones where all are small, coarser ones where one is not


SMALL, LARGE = 2.0**20 / 5, 2.0**28 / 5  # what five clients' numbers are below


def rows_of(first: float) -> Rows:
    return Rows(np.array([0]), np.array([[first, 2.0**-38]], np.float32), 6)


def total_of(
    monkeypatch: pytest.MonkeyPatch, function: str, largest: float
) -> tuple[Rows, list[str]]:
    """Sum rows of which the first client's has one such number; return the sum, and what left."""

    def changed(name: str) -> dict[str, Any]:
        return reply_of(name) | {"rows": rows_of(largest if name == "a" else 1.0)}

    monkeypatch.setattr(helper, "reply_of", changed)
    with masked(NAMES, function) as (f, clients, _):
        total = f.lead(f.program).result()[0][0][0]["rows"]
        return total, left_of(clients, "a")


@pytest.mark.parametrize(
    ("function", "stages"),
    [
        ("drawn", [COMMITTED, COMMITTED, ADDED, CHECKED]),
        ("whole", [PREPARED, ADDED, AGREED, OPENED]),
    ],
)
def test_one_client_with_a_larger_one_makes_those_of_all_coarser(
    monkeypatch: pytest.MonkeyPatch, function: str, stages: list[str]
) -> None:
    """It is not made smaller, and nothing has left in fine numbers."""
    largest = float(np.nextafter(np.float32(SMALL), np.float32(LARGE)))
    total, left = total_of(monkeypatch, function, largest)
    assert left == stages
    assert total.values[0].tolist() == [np.float32(largest + 4), 0.0]
