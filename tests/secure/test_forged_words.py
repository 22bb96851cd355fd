"""Keys, digests and answers of clients of a masked sum that who adds swaps, forges or replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedtopics.secure.keys import KeyPair
from fedtopics.secure.said import ADDED, COMMITTED, PREPARED
from tests.helpers.masked import NAMES, Clients, assert_total, opened
from tests.helpers.masked_adder import DRAWN, WHOLE, Adder, Decided, added, begun, stops

# Keys


def of_nobody(begun: Decided) -> None:
    begun["keys"]["b"] = KeyPair(bytes(31) + b"1").public + bytes(70)


def of_another(begun: Decided) -> None:
    begun["keys"]["b"] = begun["keys"]["c"]


def with_anothers_signature(begun: Decided) -> None:
    begun["keys"]["b"] = KeyPair(bytes(31) + b"1").public + begun["keys"]["c"][32:]


def cut(begun: Decided) -> None:
    begun["keys"]["b"] = begun["keys"]["b"][:31]


@pytest.mark.parametrize("change", [of_nobody, of_another, with_anothers_signature, cut])
def test_another_key_for_a_client(clients: Clients, change: Callable[[Any], None]) -> None:
    """Masks with that key would be the adder's to take away; not even a digest leaves."""
    liar = Adder(clients)
    for name in NAMES:
        clients.start(name, "drawn")
    liar.start(*NAMES, change=change)
    stops(clients, liar, "'b' shows another key for its masks than it has signed", [])


@pytest.mark.parametrize("lacking", ["a key", "an entry"])
def test_no_key_for_a_client(clients: Clients, lacking: str) -> None:
    def change(begun: Decided) -> None:
        begun["keys"]["b"] = b""
        if lacking == "an entry":
            del begun["keys"]["b"]

    liar = Adder(clients)
    for name in "acde":
        clients.start(name, "drawn")
    clients.start("b", "drawn")
    liar.start(*NAMES, change=change)
    said = "'b' shows no key for its masks" if lacking == "a key" else "a certificate and a key"
    stops(clients, liar, said, [], "acde")


def test_another_key_later(clients: Clients) -> None:
    """A client has one key in a run; what it may sign later is not taken."""
    liar = begun(clients, "drawn", rounds=2)
    for _ in DRAWN:
        liar.step(NAMES)

    def change(begun: Decided) -> None:
        begun["keys"]["b"] = another

    signer = clients.members["b"].node.introduction
    another = type(signer)._with_signature(signer, KeyPair(bytes(31) + b"1").public)
    liar.start(*NAMES, turn=2, change=change)
    stops(clients, liar, "'b' shows another key for its masks than it has signed", DRAWN)


@pytest.mark.parametrize("part", ["key", "own", "shares", "signature"])
def test_other_words_of_a_client_on_its_masks(clients: Clients, part: str) -> None:
    """Its key of pairs, what commits it to its own mask, what others are to hold of both."""

    def change(told: Any) -> None:
        words = told["replies"]["b"]["said"]
        words[part] = told["replies"]["c"]["said"][part]

    liar = begun(clients, "whole")
    liar.step(NAMES, added(change))
    stops(clients, liar, "the total of 'secure.prepare': its signature does not fit", [PREPARED])


def test_an_earlier_decision(clients: Clients) -> None:
    liar = begun(clients, "whole", "whole")
    for _ in WHOLE:
        liar.step(NAMES)
    liar.step(NAMES, lambda *_: liar.past[0])
    stops(clients, liar, "a decision is damaged, or of another kind", [*WHOLE, PREPARED])


@pytest.mark.parametrize("function", ["drawn", "whole"])
@pytest.mark.parametrize("part", ["digest", "signature"])
def test_another_digest(clients: Clients, function: str, part: str) -> None:
    """A client is held to what it has sent by what it has signed."""

    def change(told: Any) -> None:
        masked = function == "whole"
        words = told["total"]["masked"]["said"] if masked else told["replies"]
        (words["b"] if masked else words["b"]["said"])[part] = bytes(32)

    liar = begun(clients, function)
    if function == "whole":
        liar.step(NAMES)
    liar.step(NAMES, added(change))
    stages = [PREPARED, ADDED] if function == "whole" else [COMMITTED]
    stops(clients, liar, "its signature does not fit", stages)


# Opening


@pytest.mark.parametrize("part", ["own", "shares"])
def test_other_words_on_what_is_opened(clients: Clients, part: str) -> None:
    liar = begun(clients, "whole")
    liar.step(NAMES)
    liar.step(NAMES, add_up="abcd")
    liar.step("abcd")

    def change(told: Any) -> None:
        words = told["replies"]["b"]["said"]
        words[part] = bytes(len(words[part]))

    liar.step("abcd", added(change))
    stops(clients, liar, "its signature does not fit", WHOLE, "abcd")


def test_own_masks_and_those_of_pairs(clients: Clients) -> None:
    """When all have told their own masks, one is said not to have: its own one is asked for again,
    and nothing else of it."""
    liar = begun(clients, "whole")
    for _ in WHOLE[:-1]:
        liar.step(NAMES)
    liar.step(NAMES, add_up="abcd")
    liar.step("abcd")
    for name in "abcd":
        assert_total(clients.members[name].work.result()[0][0][0], NAMES)
    assert set(map(tuple, opened(clients.everything).values())) == {("own",)}
