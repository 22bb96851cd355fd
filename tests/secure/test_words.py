"""The vocabulary without names: the same one, and what who adds sees of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.engines.links import SERVER
from fedtopics.federation.local import LocalClients
from fedtopics.engines.messages import Message
from fedtopics.protocol.values import dumps
from fedtopics.errors import FederationError, StudyError
from fedtopics.methods.core.aggregation import Named, Payload, RunningSum
from fedtopics.methods.core.agreement import SAID
from fedtopics.methods.core.replies import Template, WordCounts
from fedtopics.pki import Signer
from fedtopics.secure import said, words
from fedtopics.secure.sum import SecureClients
from fedtopics.secure.words import COLUMNS, Words
from fedtopics.text.vocabulary import VocabularyLimits, agree
from tests.helpers.background import KilledError
from tests.helpers.hub import Hub, Port
from tests.helpers.masked import ALL, NAMES, Client, Clients, signers
from tests.helpers.programs import PROPOSAL, Federation, Half, Member, door, federation

DOCUMENTS = 100  # of each client
ALL_WORDS = VocabularyLimits()
Replies = Mapping[str, dict[str, Any]]


def reply(counts: Mapping[str, tuple[int, int]], places: int) -> dict[str, Any]:
    """What a client's half says of words with these frequencies and occurrences."""
    names = sorted(counts)
    values = np.array([(*counts[name], 1, 0) for name in names], np.int64).reshape(-1, 4)
    values[np.argsort(-values[:, 1], kind="stable")[:places], 3] = 1
    return {"words": Named(names, values), "documents": DOCUMENTS}


def made_up(
    kind: str, clients: Sequence[str], limits: VocabularyLimits, n: int = 300, seed: int = 0
) -> Replies:
    """Counts of words: of one distribution, of subjects of one's own, or with many ties."""
    rng = np.random.default_rng(seed)
    replies = {}
    for name in clients:
        own = [f"common{i:04}" for i in range(n)]
        if kind == "subjects":
            own = own[:40] + [f"{name}word{i:04}" for i in range(n)]
        weights = np.full(len(own), 1.0) if kind == "ties" else 1 / np.arange(1, len(own) + 1)
        occurrences = rng.poisson(weights / weights.sum() * 10 * len(own))
        frequency = [min(k, DOCUMENTS, 1 + int(rng.integers(max(k, 1)))) for k in occurrences]
        counted = zip(own, frequency, occurrences.tolist(), strict=True)
        counts = {word: (f, k) for word, f, k in counted if f >= 2}
        replies[name] = reply(counts, limits.max_words // len(clients))
    return replies


def template(limits: VocabularyLimits, clients: Sequence[str]) -> Template:
    return {"words": WordCounts(limits.max_words // len(clients)), "documents": SAID}


def plain(replies: Replies) -> dict[str, Any]:
    """What replies come to."""
    total = RunningSum()
    for each in replies.values():
        total.add(each)
    return total.total()


def assert_same(found: Payload, replies: Replies, limits: VocabularyLimits) -> None:
    """The agreed vocabulary is that of these replies, and nothing else is there."""
    total = plain(replies)
    names, values = total["words"].names, total["words"].values
    expected = agree(names, values, total["documents"], limits)
    again = agree(found["words"].names, found["words"].values, found["documents"], limits)
    assert found["documents"] == total["documents"]
    assert found["words"].names == sorted(expected.words)
    rows = [names.index(word) for word in found["words"].names]
    np.testing.assert_array_equal(found["words"].values, values[rows])
    assert again.plain() == expected.plain()


def half(each: dict[str, Any]) -> Half:
    size = {"documents": each["documents"]}
    return Half({"vocabulary": lambda places: each, "size": lambda: size})


def summed(
    replies: Replies, limits: VocabularyLimits, liar: str = "", claims: int = 0
) -> tuple[dict[str, Any], dict[str, Client]]:
    """The masked sum of all in this process; and their doors.

    Somebody may claim so many occurrences for each bucket besides its own.
    """
    doors = {n: Client(door(n, half(each)), n, lambda _: b"") for n, each in replies.items()}
    if liar:
        counting = doors[liar]._words
        counting._sums[words.TABLE] = lambda known: {
            name: numbers + claims * (name == "occurrences") + (name == "clients") * (numbers == 0)
            for name, numbers in counting._table(known).items()
        }
    clients = SecureClients(LocalClients(doors), {}, limits=limits)
    places = limits.max_words // len(replies)
    return clients.sum("vocabulary", template(limits, list(replies)), places=places), doors


LIMITS = {
    "all": ALL_WORDS,
    "few": VocabularyLimits(max_words=40),
    "two": VocabularyLimits(max_words=2),
    "of two clients": VocabularyLimits(min_clients=2, max_words=60),
    "of all clients": VocabularyLimits(min_clients=3, max_document_share=0.8),
    "seldom": VocabularyLimits(max_document_share=0.03, max_words=100),
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("kind", ["alike", "subjects", "ties"])
def test_the_same_vocabulary(kind: str, limits: VocabularyLimits) -> None:
    for clients, seed in ("abc", 1), (NAMES, 2):
        replies = made_up(kind, clients, limits, seed=seed)
        assert_same(summed(replies, limits)[0], replies, limits)


def test_no_word_that_the_limits_leave() -> None:
    limits = VocabularyLimits(min_clients=2)
    replies = made_up("subjects", "abc", limits)
    apart = {n: reply({f"{n}{i}": (3, 5) for i in range(50)}, 0) for n in replies}
    found, _ = summed(apart, limits)
    with pytest.raises(StudyError, match="lower min_clients or raise"):
        agree(found["words"].names, found["words"].values, found["documents"], limits)


# Between machines


class Overhearing(Hub):
    """Keeps what comes to the server."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[bytes] = []

    def carry(self, port: Port, link: str, message: Message) -> None:
        if port.name != SERVER:
            self.heard.append(dumps(message))
        super().carry(port, link, message)


@contextmanager
def study(
    replies: Replies, limits: VocabularyLimits, odd: Mapping[str, Any] | None = None,
    size: bool = False, folder: Path | None = None,
) -> Iterator[tuple[Federation, Clients, dict[str, Member], Any]]:  # fmt: skip
    """Agree on words over a hub, then count documents if it is said; the program is all's."""
    names = list(replies)
    clients = Clients(names)
    clients.hub = Overhearing()
    places = limits.max_words // len(names)

    def program(engine: Any) -> dict[str, Any]:
        masked = SecureClients(engine, {}, engine._notify, limits)

        def work() -> dict[str, Any]:
            found = masked.sum("vocabulary", template(limits, names), places=places)
            return found | ({"size": masked.sum("size", {"documents": SAID})} if size else {})

        return masked.round(0, work)[0]

    known = clients.identities | {SERVER: Signer(signers()[""])}
    proposed = replace(PROPOSAL, study={"clients": names})
    with federation(names, ALL, clients.hub, signatures=known, proposal=proposed) as f:
        members = {}
        for name in names:
            wrap = clients.wrap(name, **(odd or {}).get(name, {}))
            ledger = None if folder is None else folder / name / "ledger.jsonl"
            members[name] = f.member(name, half(replies[name]), program, ledger, wrap=wrap)
        yield f, clients, members, program


def known_words(clients: Clients, name: str) -> tuple[Words, list[str]]:
    """What a client knows at the end: all that is public, and the list of names."""
    client = clients.doors[name][0]
    asked = next(asked for stage, asked, _ in reversed(client.made) if stage == said.CHOSEN)
    return asked["words"], client._words._list(asked["words"])


def test_who_adds_hears_the_agreed_words_alone() -> None:
    limits = VocabularyLimits(max_words=60, min_clients=2)
    replies = made_up("subjects", "abc", limits)
    with study(replies, limits) as (f, clients, members, program):
        found = f.lead(program).result()
        assert_same(found, replies, limits)
        for member in members.values():
            assert_same(member.work.result(), replies, limits)
        heard = b"".join(clients.hub.heard)  # type: ignore[attr-defined]
        known, named = known_words(clients, "a")
        for name in replies:
            assert known_words(clients, name)[1] == named
        places = {}
        for name in replies:
            client = clients.doors[name][0]._words
            places |= zip(client._own.names, client._places(known).tolist(), strict=True)
    total = plain(replies)["words"]
    agreed = set(found["words"].names)
    assert len(agreed) < len(named) < 2 * limits.max_words < len(total.names)
    for word in total.names:
        assert (word.encode() in heard) == (word in agreed)
    # A word of one client leaves, for the others, only if it shares its bucket with another one.
    passing = set(known.passing().tolist())
    for word, counts in zip(total.names, total.values, strict=True):
        assert (word in named) == (places[word] in passing)
        if word in named:
            assert known.table["clients"][places[word]] >= 2
        assert word in named or word not in agreed
        # A bucket never says less than is true of a word in it.
        assert (counts <= [known.table[name][places[word]] for name in COLUMNS]).all()


# Who is lost


def dies(stage: str, time: int = 1) -> dict[str, Any]:
    """A client that is lost when it has its answer to a stage ready for the so manieth time."""
    times = 0

    def change(client: Client, reply: Payload) -> Payload:
        nonlocal times
        times += 1
        client._maybe_die(times == time)
        return reply

    return {"changes": {stage: change}}


SUM = said.PREPARED, said.ADDED, said.AGREED, said.OPENED
ONCE = [(stage, 1) for stage in (said.KEY, said.SAME, said.NAMES, said.LISTED, said.CHOSEN)]
LATE = {(said.OPENED, 3), (said.CHOSEN, 1)}  # who is lost then is in the sum


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize(
    "when", [*ONCE, *((stage, time) for stage in SUM for time in (1, 2, 3))], ids=str
)
def test_who_is_lost(when: tuple[str, int]) -> None:
    """Two of five: the agreement goes on, or is worked again from what was opened."""
    lost = "bd"
    replies = made_up("subjects", NAMES, ALL_WORDS, n=60)
    odd = {name: dies(*when) for name in lost}
    with study(replies, ALL_WORDS, odd) as (f, _, members, program):
        found = f.lead(program).result()
        left = {n: each for n, each in replies.items() if n not in lost or when in LATE}
        assert_same(found, left, ALL_WORDS)
        for name, member in members.items():
            if name in lost:
                assert isinstance(member.work.error(), KilledError)
            else:
                assert_same(member.work.result(), left, ALL_WORDS)


# Who lies


def zeros(part: bytes) -> bytes:
    return bytes(len(part))


def says(stage: str, **parts: Callable[[bytes], bytes]) -> dict[str, Any]:
    """A client whose signed answer has other parts."""

    def change(client: Client, reply: Payload) -> Payload:
        true = said.parts_of(reply["said"])
        return {"said": client.signed(stage, true | {n: of(true[n]) for n, of in parts.items()})}

    return {"changes": {stage: change}}


@pytest.mark.parametrize(
    ("stage", "part", "other"),
    [(said.LISTED, "digest", bytes(32)), (said.CHOSEN, "words", b"secret\nwords")],
)
def test_who_says_other_words_is_named(stage: str, part: str, other: bytes) -> None:
    replies = made_up("subjects", "abc", ALL_WORDS, n=60)
    odd = {"b": says(stage, **{part: lambda _: other})}
    with study(replies, ALL_WORDS, odd) as (f, _, _, program):
        assert_same(f.lead(program).result(), replies, ALL_WORDS)
        (bad,) = f.notes.of("bad reply")
        assert bad["client"] == "b"
        assert bad["reason"] == f"it said other words in {stage!r} than most clients"


def test_names_that_nobody_can_read_are_left_out() -> None:
    limits = VocabularyLimits(max_words=60)
    replies = made_up("subjects", "abc", limits)
    with study(replies, limits, {"b": says(said.NAMES, names=zeros)}) as (f, _, _, program):
        names = f.lead(program).result()["words"].names
        assert not [name for name in names if name.startswith("bword")]
        assert [name for name in names if name.startswith("cword")]


def ends(replies: Replies, odd: Mapping[str, Any]) -> str:
    with study(replies, ALL_WORDS, odd) as (f, clients, members, program):
        error = f.lead(program).error()
        assert isinstance(error, FederationError)
        for member in members.values():
            assert isinstance(member.work.error(), (FederationError, KilledError))
        for name in replies:  # nothing that was made of its words has left
            assert not {said.ADDED, said.NAMES} & set(clients.doors[name][0].stages())
        return str(error)


def test_who_has_another_key() -> None:
    replies = made_up("subjects", "abc", ALL_WORDS, n=60)
    error = ends(replies, {"b": says(said.SAME, same=zeros)})
    assert "3 times ('b' said another key of words than most clients)" in error


def test_who_seals_another_part_for_one_client() -> None:
    replies = made_up("subjects", "abc", ALL_WORDS, n=60)
    odd = {"b": says(said.KEY, sealed=lambda part: part[: -words.SEALED] + zeros(part[-60:]))}
    assert "3 times ('c' said another key of words than most clients)" in ends(replies, odd)


def test_who_claims_all_buckets_reads_few_names() -> None:
    """As many pass as without the lie, by what is true of them."""
    limits = VocabularyLimits(max_words=40)
    replies = made_up("subjects", "abc", limits)
    found, doors = summed(replies, limits, "b", claims=2000)
    assert_same(found, replies, limits)
    known = next(asked["words"] for stage, asked, _ in doors["b"].made if stage == said.NAMES)
    assert (known.table["clients"] > 0).all()
    assert len(known.passing()) <= 2 * 2 * (40 + 10 + words.SPARE)
    read = doors["b"]._words._list(known)
    assert len(read) < len(plain(replies)["words"].names) / 4


def test_who_seals_nothing_has_no_part_in_the_key() -> None:
    replies = made_up("subjects", "abc", ALL_WORDS, n=60)
    with study(replies, ALL_WORDS, {"b": says(said.KEY, sealed=zeros)}) as (f, _, _, program):
        assert_same(f.lead(program).result(), replies, ALL_WORDS)


# A study
