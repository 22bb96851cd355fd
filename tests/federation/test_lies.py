"""An adder that lies: clients do not answer, say in which round, and nothing leaves any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fedtopics.engines.decisions import ADDED, BEGUN
from fedtopics.engines.grpc.frames import HEAD, Head
from fedtopics.engines.grpc.transport import GrpcTransport, Listening
from fedtopics.engines.messages import Reply
from fedtopics.protocol.values import dumps, loads
from fedtopics.methods.core.aggregation import Named, Rows
from fedtopics.pki import Identity, Signer
from tests.helpers.background import HOST, until
from tests.helpers.federation import subjects
from tests.helpers.grpc_federation import authority, partner
from tests.helpers.liars import POLICY, SIZES, Liar, Scene, planned, stops, times


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(planned(), tmp_path)
    yield found
    for client in found.clients:
        found.hub.kill(client.part.name)


# What is said when an attempt begins

OTHER_BEGINNINGS: dict[str, dict[str, Any]] = {
    "another round": {"round": 7},
    "a round again": {"round": 0},
    "a turn too far": {"turn": 3},
    "a turn again": {"turn": 1},
    "an attempt too far": {"attempt": 2},
    "nobody": {"members": []},
    "one client three times": {"members": ["north"] * 3},
    "clients that are none": {"members": ["north", "x", "y"]},
    "members that are no names": {"members": 7},
    "certificates of nobody": {"certificates": {}},
    "a field less": {},
}


@pytest.mark.parametrize("case", OTHER_BEGINNINGS)
def test_an_attempt_begins_otherwise(scene: Scene, case: str) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    begun = liar.begun(2, **OTHER_BEGINNINGS[case])
    if case == "a field less":
        del begun["members"]
    liar.decide("north", BEGUN, begun)
    stops(client, liar, 1, left=2)


@pytest.mark.parametrize(
    ("kind", "content"),
    [(BEGUN, b""), (BEGUN, 7), (ADDED, b"\xff" * 80), ("call", None), ("", [1])],
)
def test_decisions_that_are_none(scene: Scene, kind: str, content: Any) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.decide("north", kind, content)
    stops(client, liar, 1, left=2)


def test_decisions_again(scene: Scene) -> None:
    """An entry that was taken is not taken again, at another index."""
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.begin(2, "north")
    liar.hear("north", Reply)
    entry = liar.logs["north"].entry(3)
    liar.decide("north", entry.kind, entry.content)
    stops(client, liar, 1, left=3)


# What is said of replies


def test_a_round_for_itself(scene: Scene) -> None:
    """All but one are said to be lost: a sum of one would be next."""
    liar, client = scene.liar("north"), scene.client()
    liar.joined("north")
    liar.begin(1, "north")
    reply = liar.hear("north", Reply)
    added = liar.added("north", {"north": reply}, missing={"south": "lost", "west": "lost"})
    liar.decide("north", ADDED, added | {"total": reply.reply})
    message = stops(client, liar, 0, left=1, said="sums over at least 3 clients, this one is over")
    assert "'north'" in message


def test_who_is_lost_later_is_gone(scene: Scene) -> None:
    """After a round's first exchange nobody is left out of it: sums are of the same clients."""
    liar, client = scene.liar("north"), scene.client(policy=POLICY.model_copy(
        update={"min_clients": 2}))  # fmt: skip
    liar.joined("north")
    liar.begin(1, "north")
    liar.exchange("north")
    reply = liar.hear("north", Reply)
    added = liar.added("north", {"north": reply}, one_by_one=True, missing={"west": "lost"})
    liar.decide("north", ADDED, added)
    stops(client, liar, 0, left=2)


def rows(change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Change what is counted of words."""

    def changed(total: dict[str, Any]) -> dict[str, Any]:
        known = total["counts"]
        return {"counts": Rows(known.index, change(known.values), known.n_rows)}

    return changed


OTHER_TOTALS: dict[str, Callable[[dict[str, Any]], dict[str, Any]] | dict[str, Any]] = {
    "NaN": {"bound": np.nan},
    "NaN in rows": lambda total: {"counts": times(total["counts"], np.nan)},
    "fewer documents than its own": {"documents": 1},
    "no documents": {"documents": 0},
    "negative documents": {"documents": -512},
    "documents that are no number": {"documents": "many"},
    "more documents than were announced": {"documents": 121},
    "more of a word than all have counted": rows(lambda values: values * 100),
    "less than nothing of a word": rows(lambda values: -values),
    "another shape": {"counts": Rows(np.array([0]), np.ones((1, 9)), 3)},
    "one field more": {"topics": np.ones((2, 2))},
}
OTHER_WORDS: dict[str, dict[str, Any]] = {
    "nothing": {"total": None},
    "another exchange": {"index": 3},
    "no signatures": {"signatures": 3},
    "strangers are missing": {"missing": {"x": "lost"}},
}


@pytest.mark.parametrize("case", [*OTHER_TOTALS, *OTHER_WORDS])
def test_a_total_that_cannot_be_or_other_words_about_it(scene: Scene, case: str) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.begin(2, "north")
    added = liar.added("north", {"north": liar.hear("north", Reply)})
    if case in OTHER_TOTALS:
        change = OTHER_TOTALS[case]
        changed = change(added["total"]) if callable(change) else change
        added |= {"total": added["total"] | changed}
    liar.decide("north", ADDED, added | OTHER_WORDS.get(case, {}))
    stops(client, liar, 1, left=3)


@pytest.mark.parametrize("fewer", [False, True])
def test_counts_by_word_below_the_own(scene: Scene, fewer: bool) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.joined("north")
    liar.begin(1, "north")
    added = liar.added("north", {"north": liar.hear("north", Reply)})
    words = added["total"]["words"]
    other = words.names[1:] if fewer else words.names
    counts = words.values[1:] if fewer else words.values // 9
    total = added["total"] | {"words": Named(other, counts)}
    liar.decide("north", ADDED, added | {"total": total})
    stops(client, liar, 0, left=1)


# An adder that lies to clients that sign, were restarted, or read frames


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("pki") / "pki", *SIZES, "east")


@pytest.fixture
def signed(scene: Scene, signers: Path) -> Scene:
    """The same with certificates."""
    for name in SIZES:
        scene.identities[name] = Signer(Identity.load(signers / "clients" / name))
    return scene


# With certificates


def test_honest_words_are_believed(signed: Scene) -> None:
    """The liar's friends sign; as long as it does not lie, the client goes on."""
    liar, client = signed.liar("north"), signed.client()
    liar.agree("north")
    for turn in (2, 3, 4):
        liar.begin(turn, "north")
        liar.exchange("north")
    assert client.work.running
    until(lambda: len(client.left) == 5)


def test_different_totals_to_two_clients(signed: Scene) -> None:
    """Each signs what came; the next exchange has both signatures."""
    names = "north", "south"
    liar = signed.liar(*names)
    clients = [signed.client(name) for name in names]
    liar.agree(*names)
    liar.begin(2, *names)
    replies = {name: liar.hear(name, Reply) for name in names}
    added = liar.added("north", replies)
    other = added["total"] | {"bound": added["total"]["bound"] * 1.5}
    liar.decide("north", ADDED, added)
    liar.decide("south", ADDED, added | {"total": other})
    liar.begin(3, *names)
    liar.exchange(*names)
    for client, other in zip(clients, reversed(names), strict=True):
        message = stops(client, liar, 2, left=4)
        assert f"{other!r} has signed other totals than those that came here" in message


@pytest.mark.parametrize("forged", [b"forged", "of north", "of another time"])
def test_a_forged_signature(signed: Scene, forged: Any) -> None:
    liar, client = signed.liar("north"), signed.client()
    liar.agree("north")
    liar.begin(2, "north")
    added = liar.added("north", {"north": liar.hear("north", Reply)})
    if forged == "of north":
        forged = added["signatures"]["north"]
    elif forged == "of another time":
        forged = loads(liar.logs["north"].entry(3).content)["signatures"]["south"]
    added["signatures"]["south"] = forged
    liar.decide("north", ADDED, added)
    stops(client, liar, 1, left=3)


@pytest.mark.parametrize("whose", ["east", "nobody", "theirs"])
def test_anothers_certificate(signed: Scene, signers: Path, whose: str, tmp_path: Path) -> None:
    """Members are clients of the study by certificates of the authority, or nothing leaves."""
    liar, client = signed.liar("north"), signed.client()
    shown = {"east": (signers / "clients/east/client.crt"), "nobody": None}
    if whose == "theirs":
        shown["theirs"] = authority(tmp_path / "theirs", "west") / "clients/west/client.crt"
    path = shown[whose]
    liar.joined("north")
    begun = liar.begun(1)
    begun["certificates"]["west"] = b"" if path is None else path.read_bytes()
    liar.decide("north", BEGUN, begun)
    stops(client, liar, 0, left=0)


# A client that was restarted


def killed_in_round_3(scene: Scene) -> tuple[Any, int]:
    """Kill a client in its third round; return who lies to it, and how much it has sent."""
    liar, first = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.begin(2, "north")
    liar.exchange("north")
    liar.begin(3, "north")
    liar.hear("north", Reply)
    scene.hub.kill("north")
    first.work.error()
    return liar, len(first.left)


def test_an_old_log_after_a_restart(scene: Scene) -> None:
    """The ledger knows what was answered: nothing older is answered, and nothing else instead."""
    liar, before = killed_in_round_3(scene)

    liar.logs["north"].truncate(3)  # as if nothing had been decided since
    second = scene.client()
    liar.joined("north")
    liar.decide("north", BEGUN, liar.begun(2))
    message = stops(second, liar, 1, left=before, calls=1)
    assert "is past; a run does not go back" in message


def test_another_total_after_a_restart(scene: Scene) -> None:
    """The same exchange is asked again, from another state: it would be another question."""
    liar, before = killed_in_round_3(scene)

    log = liar.logs["north"]
    other = loads(log.entry(5).content)
    other["total"]["counts"] = times(other["total"]["counts"], 0.9)
    log.truncate(4)
    second = scene.client()
    liar.joined("north")
    liar.decide("north", ADDED, other)
    liar.decide("north", BEGUN, liar.begun(3))
    stops(second, liar, 2, left=before, calls=1)


# Frames


def test_no_frame_asks_for_anything(scene: Scene, tmp_path: Path) -> None:
    """Kinds that do not exist, or other fields of those that do, end the connection."""
    plan = scene.plan
    transport = GrpcTransport(Listening(f"{HOST}:0", None), (), 3, lambda _: None)
    liar = Liar.of(plan, transport)
    client = partner(f"{HOST}:{transport.port}", "north", subjects(SIZES)["north"],
                     tmp_path / "north", POLICY, secret_from_seed=False)  # fmt: skip
    liar.agree("north")
    for kind, body in (
        ("call", {"function": "vocabulary", "payload": {}}),
        ("prepare", {"function": "adopt", "words": ["oak"], "total": 1, "length": 1.0}),
        ("waiting", {"function": "vocabulary"}),
        ("replicated", {"message": {"type": "Call"}, "contents": []}),
        ("offer", {"study": {}}),
    ):
        liar.gone.clear()
        raw = dumps({"kind": kind, **body})
        frame = HEAD + msgspec.msgpack.encode(Head(kind, len(raw), raw))
        link = liar.links["north"]
        transport._loop.call_soon_threadsafe(transport._put, link, [frame])

        def back(link: str = link) -> bool:
            liar.take()
            return liar.links["north"] != link

        until(back)
    assert len(client.events.of("call")) == 2
    for turn in (2, 3):  # and it goes on
        liar.begin(turn, "north")
        liar.exchange("north")
    client.kill()
    transport.stop()
    ledger = (tmp_path / "north/ledger.jsonl").read_text()
    assert ledger.count('"what": "left"') == 4
