"""A client that lies where masked words are counted: what of it is found, and that nothing ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.engines.decisions import ADDED as DECIDED
from fedtopics.engines.decisions import BEGUN
from fedtopics.federation.local import LocalClients
from fedtopics.engines.log import Entry
from fedtopics.engines.messages import Reply
from fedtopics.protocol.values import dumps, loads
from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import Named, Payload
from fedtopics.methods.core.replies import Announced, WordCounts
from fedtopics.secure.field import PRIME
from fedtopics.secure.fixed import Layout
from fedtopics.secure.keys import KeyPair
from fedtopics.secure.said import ADDED, AGREED, CHECKED, COMMITTED, OPENED, PREPARED, PRODUCT, SAME
from fedtopics.secure.sum import SecureClients
from fedtopics.text.vocabulary import VocabularyLimits
from tests.helpers.background import Notes, until
from tests.helpers.masked import NAMES, Change, Client, Clients, assert_total, opened
from tests.helpers.masked_adder import DRAWN, WHOLE, Adder, Decided, added, begun, stops
from tests.helpers.programs import POLICY, Half, door

WORDS = [f"word{number:02}" for number in range(40)]
LIMITS = VocabularyLimits(max_words=20, max_document_share=1.0)
TEMPLATE = {"documents": Announced({}), "words": WordCounts(4)}


def reply_of(name: str) -> dict[str, Any]:
    """Each has all words, of 10 documents, one oftener than the next one."""
    occurrences = np.arange(60, 20, -1)
    columns = [np.full(40, 10), occurrences, np.ones(40), np.arange(40) < 4]
    return {"documents": 10, "words": Named(WORDS, np.stack(columns, 1).astype(np.int64))}


class Counted:
    """The masked counts of some clients, of which one may add to a field of a sum."""

    def __init__(
        self,
        names: str,
        liar: str,
        fields: set[str],
        lie: Mapping[str, int],
        changes: Mapping[str, Mapping[str, Change]] | None = None,
    ) -> None:
        halves = {name: Half({"vocabulary": lambda **_: reply_of("")}) for name in names}
        doors = {
            n: Client(door(n, halves[n], None, POLICY), n, bytes, changes=(changes or {}).get(n))
            for n in names
        }
        honest = doors[liar]._encoded

        def lying(layout: Layout) -> Any:
            values = honest(layout)
            for field, number in lie.items() if layout._parts.keys() == fields else ():
                start = layout._parts[field].start
                values[start] = np.uint64((int(values[start]) + number) % PRIME)
            return values

        doors[liar]._encoded = lying  # type: ignore[method-assign]
        self.notes = Notes()
        engine = LocalClients(doors, notify=self.notes)
        clients = SecureClients(engine, {}, self.notes, LIMITS)
        work = lambda: clients.sum("vocabulary", TEMPLATE)  # noqa: E731
        self.found, self.report = clients.round(0, work)


def test_who_says_another_key_of_words_three_times_is_left_out() -> None:
    def another(client: Client, reply: Payload) -> Payload:
        return {"said": client.signed(SAME, reply["said"] | {"same": bytes(32)})}

    counted = Counted(NAMES, "b", set(), {}, changes={"b": {"secure.same": another}})
    assert counted.report["missing"].keys() == {"b"}
    np.testing.assert_array_equal(counted.found["words"].values[:, 2], np.full(20, 4))
    assert len(counted.notes.of("voided")) == 3


SIZES = {"documents", "occurrences", "words"}
OF_LIST = {"documents", "frequency", "occurrences", "clients", "first"}


@pytest.mark.parametrize("lie", [{"occurrences": -1620 * 4 - 1}, {"words": -161}])
def test_who_lowers_a_size_ends_nothing(lie: Mapping[str, int]) -> None:
    """Others say that they have more than all are said to: none of the sizes is believed."""
    counted = Counted(NAMES, "b", SIZES, lie)
    assert counted.found["words"].names == WORDS[:20]
    np.testing.assert_array_equal(
        counted.found["words"].values, 5 * reply_of("")["words"].values[:20]
    )
    assert "said more than all together did" in counted.notes.of("voided")[0]["reason"]


@pytest.mark.parametrize(
    ("fields", "lie"),
    [(SIZES, {"documents": -512}), (SIZES, {"words": -512}), (OF_LIST, {"occurrences": 10**10})],
)
def test_who_says_what_cannot_be(fields: set[str], lie: Mapping[str, int]) -> None:
    with pytest.raises(FederationError, match="was void 3 times"):
        Counted(NAMES, "b", fields, lie)


def test_the_counts_of_a_list_are_those_of_words() -> None:
    """No number is too large by itself: a client has more first words than there are places."""
    with pytest.raises(FederationError, match="counts of words that cannot be"):
        Counted(NAMES, "b", OF_LIST, {"first": 1})


# Keys, digests and answers of clients of a masked sum that who adds swaps, forges or replays


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


# Who adds masked sums and lies, to real clients that sign: what left them after the lie


# Totals


def by_one(place: Any) -> Callable[[Any], None]:
    def change(told: Any) -> None:
        values = told["total"]["masked"]["values"]
        values[place] = (values[place] + np.uint64(1)) % np.uint64(PRIME)

    return change


def with_another(told: Any) -> None:
    values = told["total"]["masked"]["values"]
    values[[0, 1]] = values[[1, 0]]


FALSE = {
    "the first number": by_one(0), "the last number": by_one(-1), "all": by_one(slice(None)),
    "two numbers": with_another,
}  # fmt: skip


@pytest.mark.parametrize("false", FALSE)
@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_a_false_total(clients: Clients, function: str, false: str) -> None:
    """All say their product, and stop: nothing is opened, and no round goes on."""
    liar = begun(clients, function)
    liar.step(NAMES)
    liar.step(NAMES, added(FALSE[false]))
    liar.step(NAMES)
    stages = [COMMITTED, ADDED, CHECKED] if function == "drawn" else [PREPARED, ADDED, AGREED]
    stops(clients, liar, "a total is not the sum of what the clients sent", stages)


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_another_total_for_one(clients: Clients, function: str) -> None:
    liar = begun(clients, function)
    liar.step(NAMES)
    liar.step(NAMES, added(by_one(0), "b"))
    liar.step(NAMES)
    stages = [COMMITTED, ADDED, CHECKED] if function == "drawn" else [PREPARED, ADDED, AGREED]
    stops(clients, liar, "has signed other totals than those that came here", stages)


def test_a_false_total_with_products_that_would_fit(clients: Clients) -> None:
    """Who adds knows what all would answer; it cannot say it for them."""
    liar = begun(clients, "drawn")
    liar.step(NAMES)
    liar.step(NAMES, added(by_one(0)))

    def another(told: Any) -> None:
        told["replies"]["b"]["said"]["product"] = bytes(PRODUCT)

    liar.step(NAMES, added(another))
    stops(clients, liar, "its signature does not fit", [COMMITTED, ADDED, CHECKED])


# Who is in a sum


ONE = "the total of 'secure.add': it is no answer"  # a sum of one is none


@pytest.mark.parametrize(("counted", "said"), [("a", ONE), ("ab", "needs 3 clients")])
def test_a_sum_of_few(clients: Clients, counted: str, said: str) -> None:
    """All but a few are said to be lost when all have answered: the few tell nothing."""
    liar = begun(clients, "whole")
    liar.step(NAMES)
    liar.step(NAMES, add_up=counted)
    stops(clients, liar, said, [PREPARED, ADDED], counted)


def test_each_alone_in_a_sum(clients: Clients) -> None:
    """Each is told that it is alone in the sum: it would tell its own mask, and of all others
    a share of theirs of pairs."""
    liar = begun(clients, "whole")
    liar.step(NAMES)
    replies = {name: liar.hear(name, Reply) for name in NAMES}
    for name in NAMES:
        liar.decide(name, DECIDED, liar.true(replies, name))
    stops(clients, liar, ONE, [PREPARED, ADDED])


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_other_members_for_one_half(clients: Clients, function: str) -> None:
    """Some are told that all are there, the others that one is away: no reply leaves."""
    liar = Adder(clients)
    for name in NAMES:
        clients.start(name, function)
    liar.joined(*NAMES)
    liar.start("a", "b", "c", "d")
    liar.decide("e", BEGUN, liar.begun(1, round=1))
    replies = {name: liar.hear(name, Reply) for name in NAMES}
    for name in NAMES:
        liar.decide(name, DECIDED, liar.true(replies, NAMES if name == "e" else "abcd"))
    stage = COMMITTED if function == "drawn" else PREPARED
    stops(clients, liar, "has signed other totals", [stage], "e")


def test_other_lists_of_who_was_lost(clients: Clients) -> None:
    """Some are told that one is in the sum, the others that it is not: nobody opens anything."""
    liar = begun(clients, "whole")
    liar.step(NAMES)
    replies = {name: liar.hear(name, Reply) for name in NAMES}
    for name in NAMES:
        liar.decide(name, DECIDED, liar.true(replies, NAMES if name in "ab" else "bcde"))
    liar.step(NAMES)
    stops(clients, liar, "has signed other totals", [PREPARED, ADDED, AGREED])


# Sums of the same documents


def test_who_is_lost_only_now(clients: Clients) -> None:
    """All masked replies are there, and one is said to be lost: it is left out, and stays hidden.
    When the sum was opened the round is to be worked again, with all: nothing is opened of that."""
    liar = begun(clients, "whole")
    liar.step(NAMES)
    liar.step(NAMES, add_up="abcd")
    liar.step("abcd")
    liar.step("abcd", added(again))
    liar.start(*NAMES, attempt=2)
    for _ in range(3):
        liar.step(NAMES)
    once = [PREPARED, ADDED, AGREED, OPENED, PREPARED, ADDED, AGREED]
    stops(clients, liar, "the difference would tell what one of them sent", once, "abcd")
    told = opened(clients.everything)
    contexts = [asked["context"] for stage, asked, _ in clients.doors["a"][0].left]
    assert told == {
        **{(contexts[0], name): {"own"} for name in "abcd"},
        (contexts[0], "e"): {"pairs"},
        (contexts[-1], "e"): {"own"},  # of e alone, which the masks of pairs hide
    }


@pytest.mark.parametrize("forgets", [False, True])
def test_who_is_lost_only_before_a_restart(clients: Clients, tmp_path: Path, forgets: bool) -> None:
    """The same with another process of each client, which has what was opened from its ledger;
    also if it is told that the first attempt ended before."""
    liar = begun(clients, "whole", folder=tmp_path)
    liar.step(NAMES)
    liar.step(NAMES, add_up="abcd")
    liar.step("abcd")
    liar.step("abcd", added(again))
    for name in NAMES:
        clients.hub.kill(name)
    until(lambda: not any(member.work.running for member in clients.members.values()))
    for name in NAMES:
        if forgets:
            agreed = loads(liar.logs[name].entry(4).content)
            again(agreed)
            liar.logs[name].truncate(3)
            liar.logs[name].append([Entry(DECIDED, dumps(agreed))])
        clients.start(name, "whole", folder=tmp_path)
    liar.start(*NAMES, attempt=2)
    for _ in range(3):
        liar.step(NAMES)
    stages = [PREPARED, ADDED, AGREED, OPENED, PREPARED, ADDED, AGREED]
    stops(clients, liar, "the difference would tell what one of them sent", stages, "abcd")


def again(told: Any) -> None:
    del told["replies"]
    told["again"] = True
