"""How a run stands, by its events, as they happen or as its folder has them.

Of clients, those are named that the study names: what others call themselves is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedtopics.federation.progress import duration

State = Literal["waiting", "training", "finished"]
GONE = ("lost", "declined", "refused", "excluded")  # events of clients that are away then
WHERE = {
    "waiting": "before the first round",
    "training": "training",
    "finished": "finished: the model is there",
}


@dataclass
class Standing:
    """How a client of the study stands."""

    state: str = "not connected"
    here: bool = False
    rounds: int = 0  # in which its reply counted
    refused: int = 0  # its replies that could not be used

    def change(self, here: bool, state: str) -> None:
        """Note that it came or went."""
        self.here, self.state = here, state


@dataclass
class RunStatus:
    """How a run stands; `take` has it follow the events."""

    clients: dict[str, Standing] = field(default_factory=dict)
    name: str = ""  # of the study
    method: str = ""
    state: State = "waiting"
    trouble: str = ""  # what it waits for, or why it stopped before the last round
    awaited: set[str] = field(default_factory=set)  # clients that a round waits for
    round: int = 0  # the last one that is done
    rounds: int = 0  # in all, unless a rule stops before; 0 before training
    seconds: float = 0.0  # of all rounds
    counted: int = 0  # rounds of which these are
    bytes_sent: int = 0
    bytes_received: int = 0
    voided: int = 0  # masked sums of which nothing follows
    repeated: int = 0  # attempts at rounds
    topics: list[list[str]] | None = None  # of methods whose rounds tell them
    updated: float | None = None  # when the last event was, seconds since 1970

    @property
    def pace(self) -> float | None:
        """Seconds a round."""
        return self.seconds / self.counted if self.counted else None

    @property
    def left(self) -> float | None:
        """Seconds until all rounds are done; None if they are, or if it is not known yet."""
        if self.state != "training" or self.pace is None or self.round >= self.rounds:
            return None
        return self.pace * (self.rounds - self.round)

    def take(self, event: Mapping[str, Any]) -> None:
        """Take an event in."""
        kind = event["event"]
        self.updated = event.get("time", self.updated)
        if kind in ("started", "resumed"):
            self.state, self.trouble, self.round, self.rounds = "waiting", "", 0, 0
            for client in self.clients.values():
                client.change(False, "not connected")
        elif kind == "study":
            self.name = event["name"]
            self.method = event["settings"].get("method.name", self.method)
        elif kind == "listening":
            self._name(event["clients"])
        elif kind == "offer":
            self._name(event["study"].clients)
        elif kind == "training":
            self.state, self.round, self.rounds = "training", event["done"], event["rounds"]
        elif kind == "round":
            self._take_round(event)
        elif kind in ("finished", "model"):
            self.state, self.trouble = "finished", ""
        else:
            self._take_news(kind, event)

    def _name(self, names: Iterable[str]) -> None:
        for name in names:
            self.clients.setdefault(name, Standing())

    def _take_round(self, event: Mapping[str, Any]) -> None:
        self.trouble, self.round = "", event["round"]
        self.seconds += event["seconds"]
        self.counted += 1
        self.bytes_sent += event.get("bytes_sent", 0)
        self.bytes_received += event.get("bytes_received", 0)
        for name in self._known(event.get("clients", ())):
            self.clients[name].rounds += 1
            self.clients[name].change(True, "in the last round")
        for name in self._known(event.get("missing", {})):
            self.clients[name].change(False, f"not in the last round: {event['missing'][name]}")
        if "topics" in event:
            self.topics = [list(topic["words"]) for topic in event["topics"]]

    def _take_news(self, kind: str, event: Mapping[str, Any]) -> None:
        """Take in what concerns clients, and what goes wrong."""
        client = self.clients.get(str(event.get("client")))
        reason = event.get("reason", "")
        if kind == "voided":
            self.voided += 1
        elif kind == "repeated":
            self.repeated += 1
        elif kind == "waiting":
            self.awaited = set(event["missing"])
            self.trouble = f"round {event['round']} waits for {', '.join(event['missing'])}"
            for name in self._known(event["clients"]):
                self.clients[name].change(True, "ready")
            for name in self._known(event["missing"]):
                self.clients[name].change(False, event["missing"][name])
        elif kind == "no majority":
            self.trouble = f"no majority without {', '.join(event['missing'])}"
        elif kind == "stopped":
            self.trouble = f"stopped after round {event['round']}: {reason}"
            self.rounds = event["round"]
        elif kind == "reconnecting":
            self.trouble = str(reason)
        elif client is not None and kind in ("bad reply", "excluded"):
            client.refused += 1
        if client is not None and kind in GONE:
            gone = "not connected" if kind == "lost" else kind
            client.change(False, f"{gone}: {reason}" if reason else gone)
        elif client is not None and kind in ("joined", "ready"):
            client.change(True, "ready" if kind == "ready" else "connected")
            if kind == "ready" and event["client"] in self.awaited:
                self.awaited.remove(event["client"])
                self.trouble = self.trouble if self.awaited else ""

    def _known(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.clients]

    def plain(self) -> dict[str, Any]:
        """Return it as plain data, for scripts."""
        return {
            "study": self.name,
            "method": self.method,
            "state": self.state,
            "trouble": self.trouble,
            "round": self.round,
            "rounds": self.rounds,
            "seconds_a_round": self.pace,
            "seconds_left": self.left,
            "clients": {
                name: {"here": c.here, "state": c.state, "rounds": c.rounds, "refused": c.refused}
                for name, c in self.clients.items()
            },
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "voided": self.voided,
            "repeated": self.repeated,
            "updated": self.updated,
        }

    def told(self, running: bool | None, now: float) -> list[str]:
        """Say it in a few lines, for people."""
        lines = [f"{self.name}: {WHERE[self.state]}" if self.name else WHERE[self.state]]
        if self.rounds:
            each = "" if self.pace is None else f", {self.pace:.2f} s a round"
            left = None if running is False else self.left
            most = "" if left is None else f", at most {duration(left)} left"
            lines.append(f"round {self.round:,} of {self.rounds:,}{each}{most}")
        if self.trouble:
            lines.append(self.trouble)
        if self.updated is not None:
            lines.append(f"the last news is {duration(max(now - self.updated, 0))} old")
        if running is False and self.state != "finished":
            lines.append(
                "no process works with it now; the same command goes on, a server's with --resume"
            )
        return lines
