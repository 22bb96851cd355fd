"""Masked sums are the sums, whoever says what and whoever adds, and what is seen is noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from fedtopics.federation.local import LocalClients
from fedtopics.errors import FederationError, StudyError
from fedtopics.methods.core.aggregation import Payload, Rows
from fedtopics.methods.core.interfaces import Moment
from fedtopics.methods.core.replies import Field, WordCounts, counts
from fedtopics.secure import said
from fedtopics.secure.field import PRIME, Residues
from fedtopics.secure.fixed import Layout
from fedtopics.secure.masks import mask, remove_self_mask, seeds_of_pairs
from fedtopics.secure.opening import own_seed
from fedtopics.secure.said import ADDED, AGREED, CHECKED, COMMITTED, PREPARED
from fedtopics.secure.sum import SecureClients
from tests.helpers.fixed_point import assert_close
from tests.helpers.masked import (
    NAMES,
    TEMPLATE,
    Client,
    Clients,
    assert_total,
    half_of,
    masked,
    program,
    reply_of,
)
from tests.helpers.masked_adder import Adder, added, begun, stops
from tests.helpers.programs import POLICY, Half, Member, door
from tests.helpers.sums import add_up

SIZE = 4096
LONG = {"documents": counts(), "x": Field((SIZE,), 1e3, -1e3)}
BINS = 64
WORDS = {"documents": counts(), "words": WordCounts(3)}


def doors(replies: Mapping[str, Payload], names: Sequence[str] = NAMES) -> dict[str, Client]:
    def of(name: str) -> Half:
        say = lambda **_: dict(replies[name])  # noqa: E731
        return Half({"drawn": say, "whole": say})

    return {name: Client(door(name, of(name)), name, bytes) for name in names}


def summed(
    function: str, replies: Mapping[str, Payload], template: Any
) -> tuple[dict[str, Any], dict[str, Client]]:
    """The sum in one process, and the doors that the replies left by."""
    made = doors(replies, list(replies))
    clients = SecureClients(LocalClients(made), {"drawn": -1})
    return clients.sum(function, template, round=1), made


def seen(made: Mapping[str, Client]) -> dict[str, Any]:
    """The masked replies, as whoever adds has them."""
    return {
        name: reply["masked"]["values"]
        for name, client in made.items()
        for stage, _, reply in client.left
        if stage == said.ADDED
    }


def drawn_replies(seed: int = 0) -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return {name: {"documents": 7, "x": rng.normal(size=SIZE)} for name in NAMES}


# The sum


@pytest.mark.parametrize("names", ["abc", NAMES])
@pytest.mark.parametrize("functions", [("drawn",), ("whole",), ("drawn", "whole", "again")])
def test_between_machines(names: str, functions: tuple[str, ...]) -> None:
    """Several sums in a round, of both kinds, in two rounds: all have the same totals."""
    with masked(names, *functions, rounds=2) as (f, _, members):
        found = [f.lead(f.program).result()]
        found += [member.work.result() for member in members.values()]
        for each in found:
            for totals, report in each:
                assert report["missing"] == {}
                assert len(totals) == len(functions)
                for total in totals:
                    assert_total(total, names)


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_the_same_bits_whoever_says_what(function: str) -> None:
    """Numbers that do not add up to the same in each order as they are."""
    replies = drawn_replies()
    found = set()
    for order in list(permutations(NAMES))[::17]:
        total, _ = summed(function, dict(zip(order, replies.values(), strict=True)), LONG)
        found.add(total["x"].tobytes())
        assert_close(total, add_up(replies), len(NAMES))
    assert len(found) == 1
    assert len({add_up(dict(zip(o, replies.values(), strict=True)))["x"].tobytes()
                for o in list(permutations(NAMES))[::17]}) > 1  # fmt: skip


def test_the_same_bits_whoever_adds(clients: Clients) -> None:
    """In one process, a server, an adder by hand: what it comes to is the same."""
    made = {name: Client(door(name, half_of(name)), name, bytes) for name in NAMES}
    ((local, _),) = program("drawn", "whole")(LocalClients(made))
    with masked(NAMES, "drawn", "whole") as (f, _, _):
        ((led, _),) = f.lead(f.program).result()
    hand = Adder(clients)
    for name in NAMES:
        clients.start(name, "drawn", "whole")
    hand.start(*NAMES)
    for _ in range(7):
        hand.step(NAMES)
    ((by_hand, _),) = clients.members["a"].work.result()
    for one, other, third in zip(local, led, by_hand, strict=True):
        assert bits(one) == bits(other) == bits(third)


def bits(total: Mapping[str, Any]) -> dict[str, bytes]:
    rows: Rows = total["rows"]
    plain = {n: np.asarray(v) for n, v in total.items() if n not in ("rows", "more")}
    plain |= {"index": rows.index, "values": rows.values, "y": total["more"]["y"]}
    return {name: value.tobytes() for name, value in plain.items()}


def test_two_are_too_few() -> None:
    with pytest.raises(FederationError, match="needs 3 clients here, and 2 are left"):
        summed("drawn", {name: reply_of(name) for name in "ab"}, TEMPLATE)


def test_a_total_is_checked_before_a_plain_reply_leaves() -> None:
    """Replies that all see, and sums of documents that stay, may follow from it."""
    made = doors({name: reply_of(name) for name in NAMES})
    clients = SecureClients(LocalClients(made), {"drawn": -1})

    def work() -> None:
        for ask in (lambda: clients.call("whole"), lambda: clients.sum("whole", TEMPLATE)):
            clients.sum("drawn", TEMPLATE, round=1)
            ask()

    clients.round(1, work)
    once = [said.COMMITTED, said.ADDED, said.CHECKED]
    whole = [said.PREPARED, said.ADDED, said.AGREED, said.OPENED]
    assert made["a"].stages() == [*once, "whole", *once, *whole]


def test_words_need_limits() -> None:
    with pytest.raises(StudyError, match="a field 'words' that cannot be masked"):
        summed("whole", {name: reply_of(name) for name in NAMES}, WORDS)


# What is seen


def chi_square(values: Any) -> float:
    """How uneven the leading bits of residues are."""
    found = np.bincount((values >> np.uint64(61 - 6)).astype(int), minlength=BINS)
    expected = len(values) / BINS
    return float(((found - expected) ** 2).sum() / expected)


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_no_reply_is_seen(function: str) -> None:
    """Each masked reply by itself is even noise, and goes with no plain one and no other."""
    replies = drawn_replies()
    _, made = summed(function, replies, LONG)
    masked_replies = seen(made)
    layout = Layout.of(LONG, NAMES)
    most = 150  # of 63 degrees of freedom, where 63 are usual: one in 10^8 is above
    for values in masked_replies.values():
        assert chi_square(values) < most
        for name in NAMES:
            plain, _ = layout.encode(replies[name])
            assert chi_square(plain) > 100 * most
            assert not np.isin(plain[plain > 0], values).any()
            assert abs(np.corrcoef(plain.astype(float), values.astype(float))[0, 1]) < 0.07
    for one in NAMES:
        for other in NAMES:
            if one < other:
                pair = masked_replies[one].astype(float), masked_replies[other].astype(float)
                assert abs(np.corrcoef(*pair)[0, 1]) < 0.07


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_two_inputs_with_one_sum(function: str) -> None:
    """Whoever adds has the keys of all but two clients, and all that was opened: what is left of
    the two is what another mask between them makes of any other input with the same sum."""
    replies = drawn_replies()
    rng = np.random.default_rng(1)
    moved = rng.normal(size=SIZE) * 30
    others = replies | {
        "a": replies["a"] | {"x": replies["a"]["x"] + moved},
        "b": replies["b"] | {"x": replies["b"]["x"] - moved},
    }
    layout = Layout.of(LONG, NAMES)
    known: list[dict[str, Any]] = []
    for each in (replies, others):
        _, made = summed(function, each, LONG)
        known.append({name: unmasked_by_others(function, made, name) for name in "ab"})
    streams = []
    for each, left in zip((replies, others), known, strict=True):
        plain = {name: layout.encode(each[name])[0] for name in "ab"}
        both = [(left[name] + np.uint64(PRIME) - plain[name]) % np.uint64(PRIME) for name in "ab"]
        assert ((both[0] + both[1]) % np.uint64(PRIME) == 0).all()
        streams.append(both[0])
        assert chi_square(left["a"]) < 150
        assert chi_square(left["b"]) < 150
    np.testing.assert_array_equal(streams[0], streams[1])  # masks do not depend on what they hide
    plain = layout.encode(others["a"])[0]
    fits = (known[0]["a"] + np.uint64(PRIME) - plain) % np.uint64(PRIME)
    assert chi_square(fits) < 150  # the mask by which it would have been the other input


def unmasked_by_others(function: str, made: Mapping[str, Client], name: str) -> Any:
    """A masked reply of a or b without the masks that it shares with c, d and e, and its own."""
    values = seen(made)[name].copy()
    client = made[name]
    context = client.left[0][1]["context"]
    if function == "drawn":
        pair, keys = client._pair, {n: made[n].key for n in "cde"}
    else:
        seeds = client._seeds
        pair, keys = seeds.key, {n: made[n]._seeds.key.public for n in "cde"}
        remove_self_mask(values, own_seed(seeds.own))
    negative = (np.uint64(PRIME) - values) % np.uint64(PRIME)
    mask(negative, name, seeds_of_pairs(name, pair, keys, context))
    return (np.uint64(PRIME) - negative) % np.uint64(PRIME)


# Members that show another's key as their own, and replies that who adds has made itself


THREE = ["a", "b", "c"]
LAYOUT = Layout.of(TEMPLATE, THREE)


@pytest.fixture
def of_three() -> dict[str, Client]:
    return {n: Client(door(n, half_of(n), None, POLICY), n, lambda content: b"") for n in THREE}


ASKED = {"context": b"here", "documents": 60}


def drawn(made: dict[str, Client]) -> Residues:
    """What leaves b, to which a has shown the key of c as its own."""
    keys = {name: made[name].key for name in THREE} | {"a": made["c"].key}
    asked = {
        "context": b"here", "seed": b"", "called": "drawn", "payload": {}, "known": False,
        "keys": keys, "layout": LAYOUT,
    }  # fmt: skip
    made["b"].call(COMMITTED, asked, Moment(1, 1, 1))
    sent: Residues = made["b"].call(ADDED, ASKED, Moment(1, 1, 2))["masked"]["values"]
    return sent


def whole(made: dict[str, Client]) -> Residues:
    """The same without the mask that b itself will tell; the key is that of one sum."""
    keys = {name: made[name].key for name in THREE}
    asked = {
        "context": b"here", "seed": b"", "called": "whole", "payload": {}, "keys": keys,
        "layout": LAYOUT, "number": 1,
    }  # fmt: skip
    prepared = {n: made[n].call(PREPARED, asked, Moment(1, 1, 1))["said"] for n in THREE}
    prepared["a"] = prepared["a"] | {"key": prepared["c"]["key"]}
    adds = {"context": b"here", "there": THREE, "prepared": prepared, "layout": LAYOUT}
    adds["documents"] = 60
    sent: Residues = made["b"].call(ADDED, adds, Moment(1, 1, 2))["masked"]["values"].copy()
    remove_self_mask(sent, own_seed(made["b"]._seeds.own))
    return sent


@pytest.mark.parametrize("asked", [drawn, whole])
def test_two_members_with_one_key(asked: object, of_three: dict[str, Client]) -> None:
    """Their masks with a third one, of which one is added and one subtracted, stay two."""
    sent = asked(of_three)  # type: ignore[operator]
    assert not np.array_equal(sent, LAYOUT.encode(reply_of("b"))[0])
    assert np.mean(sent == LAYOUT.encode(reply_of("b"))[0]) < 0.5


# Replies that all see


def without_b(told: Any) -> None:
    del told["replies"]["b"]


def with_another(told: Any) -> None:
    told["replies"]["f"] = told["replies"]["b"]


def no_replies(told: Any) -> None:
    told["replies"] = 5


@pytest.mark.parametrize("lie", [without_b, with_another, no_replies])
@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_other_replies_than_those_of_the_members(
    clients: Clients, function: str, step: int, lie: Callable[[Any], None]
) -> None:
    liar = begun(clients, function)
    for _ in range(step):
        liar.step(NAMES)
    liar.step(NAMES, added(lie))
    stages = [COMMITTED, ADDED, CHECKED] if function == "drawn" else [PREPARED, ADDED, AGREED]
    stops(clients, liar, "other replies than those of its members", stages[: step + 1])


def test_another_reply_than_the_own(clients: Clients) -> None:
    """What sizes are announced decides which masks are drawn."""
    liar = Adder(clients)
    for name in NAMES:
        port, signed = clients.hub.port_of(name), clients.identities[name]
        answering = clients.wrap(name)(door(name, half_of(name), None, POLICY))
        todo = lambda engine: SecureClients(engine, {}).call("whole", TEMPLATE)  # noqa: E731
        clients.members[name] = Member(name, NAMES, port, answering, todo, signed)
    liar.start(*NAMES, round=0)

    def larger(told: Any) -> None:
        told["replies"]["b"]["documents"] += 1

    liar.step(NAMES, added(larger))
    stops(clients, liar, "there is another reply than its own", ["whole"], "b")


def test_two_rounds_that_differ_by_a_client(clients: Clients) -> None:
    """Who adds says that one is away in the second: if all are asked the same, that is its reply.

    Nothing can be seen in it; clients whose policies ask for all of them in a sum would not answer.
    """
    liar = begun(clients, "whole", rounds=2)
    for _ in range(4):
        liar.step(NAMES)
    liar.start("a", "b", "c", "d", turn=2)
    for _ in range(4):
        liar.step("abcd")
    (first, _), (second, _) = clients.members["a"].work.result()
    assert_total(first[0], NAMES)
    assert_total(second[0], "abcd")
    np.testing.assert_array_equal(first[0]["x"] - second[0]["x"], reply_of("e")["x"])
