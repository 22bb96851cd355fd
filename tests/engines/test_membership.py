"""Who may take part: names, strangers, second processes, those who come back, and fuzz."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from fedtopics.engines import log_messages
from fedtopics.engines.decisions import ADDED
from fedtopics.engines.messages import (
    Accept,
    Announced,
    Done,
    Failure,
    Message,
    Offer,
    Refusal,
    Replicated,
    Reply,
    Waiting,
    Welcome,
)
from fedtopics.protocol.structures import EACH, MOST_FIELDS, fields_of
from fedtopics.protocol.values import dumps, loads
from fedtopics.errors import FederationError
from fedtopics.methods.flda.topic_lists import pack_topics
from tests.helpers.background import until
from tests.helpers.federation import assert_same
from tests.helpers.hub import Hub, Port
from tests.helpers.programs import RULES, adding, federation, honest, rounds

CANARY = "quetzalcoatl"
NO = Refusal("The study has ended.", again=False)


def answered(port: Port, accept: Accept) -> str:
    """Accept an offer by hand; return why that is refused."""
    found: list[str] = []

    def refused() -> bool:
        for link, what in port.receive(0.02):
            if isinstance(what, Offer):
                port.send(link, accept)
            if isinstance(what, Refusal):
                found.append(what.reason)
        return bool(found)

    port.start()
    until(refused)
    port.stop()
    return found[0]


def accept(name: str = "a", fingerprint: str = "f00d", process: bytes = b"other") -> Accept:
    return Accept(name, fingerprint, process, 1, b"", b"")


def test_a_second_client_of_a_name_is_refused_while_the_first_lives() -> None:
    with federation() as f:
        a = f.hand("a")
        assert answered(Port(f.hub, "second"), accept()) == (
            "A client named 'a' is connected already, from another process; stop it first, or "
            "give each client an identity of its own."
        )
        assert f.node.members["a"].link
        a.node.stop()
        until(lambda: not f.node.members["a"].link)
        f.hand("a")


def test_strangers_are_refused() -> None:
    with federation() as f:
        assert answered(Port(f.hub, "x"), accept("nobody")) == (
            "The study has no client named 'nobody'; name the client in the study under "
            "[clients], or give it a certificate with a name that is there."
        )
        assert answered(Port(f.hub, "x"), accept(fingerprint="beef")) == (
            "The client joins the study beef, this server runs f00d; restart the client."
        )
        assert not any(member.link for member in f.node.members.values())
        news = [f.node.inbox.get()[1] for _ in range(f.node.inbox.qsize())]
        assert [note.status for note in news] == ["refused"] * 2


def test_what_a_stranger_is_called_is_a_short_line_for_who_adds() -> None:
    with federation() as f:
        answered(Port(f.hub, "x"), accept("\x1b[2J\n" + 10**6 * "x"))
        told = f.node.inbox.get()[1]
        for text in (told.client, told.reason):
            assert text.isprintable()
            assert len(text) < 320
        assert told.client.startswith(r"\x1b[2J xxx")


def test_a_name_is_vouched_for_by_the_transport() -> None:
    with federation(hub=Hub(vouches=True)) as f:
        reason = answered(Port(f.hub, "b"), accept("a"))
        assert reason == "The client calls itself 'a', and its certificate is of 'b'."
        assert "no client named 'x'" in answered(Port(f.hub, "x"), accept("a"))


def test_a_restarted_process_is_lost_for_the_attempt_alone() -> None:
    """What it answered before does not count; in the next attempt it is there."""
    with federation() as f:
        work = f.lead(rounds(1, 2, before=lambda n: n == 2 and f.waits("b", 2)))
        honest(f, rounds(1, 2))
        b = f.hand("b")
        b.begun(1)
        b.node.stop()
        again = f.member("b", adding(10.0), rounds(1, 2))
        (first, report), (second, _) = work.result()
        assert (first, second) == (101, 111)
        assert report["missing"] == {"b": "it was restarted"}
        again.work.result()


@pytest.mark.parametrize("seed", range(3))
def test_no_message_of_a_member_ends_the_server(seed: int) -> None:
    """Nonsense of each kind, in any order: the round of the others is as it would be."""
    rng = random.Random(seed)  # noqa: S311 - b may be in a round, and says nothing of use

    def drawn(hint: Any) -> Any:
        texts = ["", "a", "b", CANARY, "policy"]
        choices: dict[Any, list[Any]] = {
            int: [0, 1, 2, -1, 2**40, -(2**63)], str: texts, bytes: [b"", b"x" * 32],
            float: [0.0, -1.0, float("nan")], bool: [True, False],
        }  # fmt: skip
        if hint in choices:
            return rng.choice(choices[hint])
        if getattr(hint, "__origin__", None) is tuple:
            return tuple(drawn(get_args(hint)[0]) for _ in range(rng.randrange(3)))
        if hint in kinds:
            return hint(**{name: drawn(of) for name, of in get_type_hints(hint).items()})
        return {"x": np.ones(1), "documents": 1} if "dict" in str(hint) else None

    kinds = [*get_args(log_messages.Message), log_messages.Entry]
    with federation(rules=replace(RULES, gather=2.0, deadline=3.0)) as f:
        work = f.lead(rounds(1, 2, 3))
        honest(f, rounds(1, 2, 3))
        b = f.hand("b")
        port: Port = f.hub._ports["b"]
        for _ in range(300):
            kind = rng.choice([*kinds[:-1], Waiting, Announced, Failure, Done, Reply])
            message: Any = kind(**{name: drawn(of) for name, of in get_type_hints(kind).items()})
            with f.hub.lock:
                for link in list(port.ends):
                    port.send(link, said(message))
        found = work.result()
        assert all(report["clients"][0] == "a" for _, report in found)
        assert f.node._thread.is_alive()
        b.node.stop()


def said(message: Any) -> Message:
    return message if isinstance(message, Message) else Replicated.of(message)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("kind", ["an offer", "a welcome", "a refusal"])
def test_who_is_offered_a_study_cannot_end_it_with_what_a_server_says(
    kind: str, joined: bool
) -> None:
    with federation(rules=replace(RULES, min_clients=2, gather=2.0)) as f:
        work = f.lead(rounds(1))
        port = Port(f.hub, "b")
        port.start()
        sent: list[str] = []

        def spoken() -> bool:
            for link, what in port.receive(0.02):
                if isinstance(what, Offer) and joined and not sent:
                    port.send(link, accept("b"))
                if isinstance(what, (Offer, Welcome)[joined]) and not sent:
                    offer = Offer("1", 1, "lda", 1, {}, "beef", "", b"", 0.0, b"")
                    said = {"an offer": offer, "a welcome": Welcome("a"), "a refusal": NO}
                    port.send(link, said[kind])
                    sent.append(link)
            return bool(sent)

        until(spoken)
        port.stop()
        honest(f, rounds(1))
        ((total, _),) = work.result()
        assert total == 101


# Decisions that have something of each of five thousand clients; no stranger may say as much


NAMES = [f"client-{number:04}" for number in range(5000)]
TOPICS = pack_topics([{"oak": 0.5, "elm": 0.25}, {"tea": 1.0}])
REPLIES: dict[str, dict[str, Any]] = {
    "counted": {"documents": 7, "training": 6, "without_known_word": 1},
    "shares": {"theta": np.arange(20.0), "documents": 7},
    "local_topics": {
        **TOPICS, "seeds": np.zeros(2, np.int64), "occurrences": np.ones(2), "documents": 7,
    },
}  # fmt: skip


@pytest.mark.parametrize("function", REPLIES)
def test_replies_of_all_by_name(function: str) -> None:
    entry = {
        "index": 1, "missing": {}, "again": False,
        "signatures": dict.fromkeys(NAMES, bytes(72)),
        "replies": dict.fromkeys(NAMES, REPLIES[function]),
    }  # fmt: skip
    with federation(NAMES) as f:
        found = f.exchange._next(ADDED, lambda: entry, 1)
    assert found.keys() == entry.keys()
    assert_same(found["replies"][NAMES[-1]], REPLIES[function])


def test_more_for_members_is_no_more_for_strangers() -> None:
    """What comes in a message has the limit of before, however many members there are."""
    assert fields_of(3) == MOST_FIELDS + 3 * EACH
    raw = dumps(dict.fromkeys(NAMES, REPLIES["local_topics"]))
    with pytest.raises(FederationError, match="damaged body"):
        loads(raw)
    with pytest.raises(FederationError, match="damaged body"):
        loads(raw, fields=fields_of(30))
    assert len(loads(raw, fields=fields_of(len(NAMES)))) == len(NAMES)


def test_a_list_as_long_as_the_members_are_many() -> None:
    """Who adds has a limit as well."""
    with federation("abc") as f, pytest.raises(FederationError, match="a decision is damaged"):
        f.exchange._next(ADDED, lambda: {"index": 1, "missing": [None] * fields_of(3)}, 1)
