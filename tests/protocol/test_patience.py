"""How a member waits for a server that is away."""

from typing import Any
from unittest.mock import Mock

import pytest

from fedtopics.contract.events import Event, Reconnecting
from fedtopics.errors import FederationError
from fedtopics.protocol import exchange
from fedtopics.protocol.exchange import Patience
from fedtopics.protocol.link import LinkError

AWAY = "cannot reach host:1: Connection refused"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(exchange, "time", clock)
    return clock


def test_pauses_double_and_the_end_has_a_sentence(clock: Clock) -> None:
    events: list[Event] = []
    sentence = (
        rf"^The server did not answer for 60 seconds: {AWAY}; "
        r"start the same command again to resume the run\.$"
    )
    with pytest.raises(FederationError, match=sentence):
        Patience(60, events.append)(Mock(side_effect=LinkError(AWAY)))
    assert clock.now == pytest.approx(60)
    pauses = [event.seconds for event in events if isinstance(event, Reconnecting)]
    assert len(pauses) == len(events)
    for pause, expected in zip(pauses[:-1], [0.5, 1, 2, 4, 8, 10, 10, 10, 10, 10], strict=False):
        assert 0.75 * expected <= pause <= 1.25 * expected


def test_a_refusal_is_not_tried_again(clock: Clock) -> None:
    refused = Mock(side_effect=FederationError("These are other bytes than before."))
    with pytest.raises(FederationError, match=r"^These are other bytes than before\.$"):
        Patience(60, lambda event: None)(refused)
    assert clock.now == 0


def test_who_is_waited_for_is_shown_soon_then_rarely_and_a_refusal_at_once(clock: Clock) -> None:
    events: list[Any] = []
    patience = Patience(3600, events.append)
    away = {"west": "not connected yet"}
    for _ in range(700):
        patience.waits_for(away, 0.0)
        clock.sleep(1)
    assert [event.seconds for event in events] == [5, 15, 35, 75, 155, 315, 635]
    assert [event.left for event in events][:2] == [3595, 3585]
    for _ in range(2):
        patience.waits_for({"west": "ended: its policy refuses (max_rounds)"}, 0.0)
    assert len(events) == 8
    clock.sleep(3000)
    with pytest.raises(FederationError, match=r"^west did not answer for 3,600 seconds; start the"):
        patience.waits_for(away, 0.0)
    patience.waits_for(away, 0.0, server_ends=True)
    assert events[-1].left is None


def test_a_server_gives_only_names_of_members_and_short_states(clock: Clock) -> None:
    events: list[Any] = []
    lies = {"west": "refused: \x1b[2J\nerror: " + 1000 * "a", "\x1b]0;me": "connected"}
    Patience(60, events.append, ["east", "west"]).waits_for(lies, -5.0)
    assert events[0].clients == {"west": "refused: \\x1b[2J error: " + 79 * "a"}


def test_people_who_approve_have_no_deadline(clock: Clock) -> None:
    patience = Patience(60, lambda event: None)
    clock.now = 10_000
    patience.waits_for({"west": "waits for approval since 2026-11-30 12:00 UTC"}, since=1)
    with pytest.raises(FederationError, match=r"^west did not answer for 60 seconds"):
        patience.waits_for({"west": "not connected yet"}, since=1)
