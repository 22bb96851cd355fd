"""A participant without a server that fails at a moment chosen, made of fedtopics' own.

    python benchmarks/faulty_peer.py STUDY --die sent1:20 --identity DIR --data FILE --out DIR

It kills itself, as the kernel would, when it adds in a round: `collected`, when it has all replies
and has told nobody; `sent0` to `sent4`, when so many others have got the total and nobody else;
`after`, when the round is done. Without --die it does nothing wrong; --pace makes it slow.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fedtopics.cli.news import PeerNews
from fedtopics.engines import exchange
from fedtopics.engines.adder import Adder
from fedtopics.engines.grpc.transport import GrpcTransport
from fedtopics.engines.messages import Message, Replicated
from fedtopics.engines.place import Attempt
from fedtopics.errors import FedTopicsError
from fedtopics.federation import peer
from fedtopics.federation.door import Door
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.pki import Identity
from fedtopics.text.corpus import Corpus
from fedtopics.text.tables import Columns

FLUSH = 0.3  # seconds for a message to leave


def die() -> None:
    """End as a process does that the kernel kills."""
    os.kill(os.getpid(), signal.SIGKILL)


class Death:
    """When it dies: a point of the adder's work in a round."""

    def __init__(self, when: str) -> None:
        self.point, _, number = when.partition(":")
        self.round = int(number or -1)
        self.others: int | None = None  # whom the next total may still go to

    def collected(self, round_: int) -> None:
        """Note that all replies of an exchange are here."""
        if round_ != self.round:
            return
        if self.point == "collected":
            die()
        if self.point.startswith("sent"):
            self.others = int(self.point.removeprefix("sent"))
            threading.Timer(FLUSH, die).start()


DEATH = Death("")


class DyingAdder(Adder):
    """Adds until its time has come."""

    def add(self, attempt: Attempt, *more: Any, **named: Any) -> dict[str, Any]:
        decided = super().add(attempt, *more, **named)
        DEATH.collected(attempt.round)
        return decided


class DyingTransport(GrpcTransport):
    """Lets so many totals out."""

    def send(self, link: str, message: Message) -> None:
        if DEATH.others is not None and isinstance(message, Replicated):
            if message.what != "Append" or not DEATH.others:
                return
            DEATH.others -= 1
        super().send(link, message)


class SlowDoor(Door):
    """Answers after a while."""

    seconds = 0.0

    def call(self, *called: Any) -> dict[str, Any]:
        time.sleep(self.seconds)
        return super().call(*called)


class Peer(Participation):
    """A part in a study with a door that is slow."""

    def consider(self, study: Study, run: bytes) -> tuple[Any, Path]:
        door, state = super().consider(study, run)
        door.__class__ = SlowDoor
        return door, state


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("study", type=Path)
    parser.add_argument("--die", default="", metavar="POINT:ROUND")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS")
    for path in ("--identity", "--data", "--policy", "--out"):
        parser.add_argument(path, type=Path, required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--secret-from-seed", action="store_true")
    return parser.parse_args()


def main() -> None:
    global DEATH
    given = parsed()
    DEATH, SlowDoor.seconds = Death(given.die), given.pace
    try:
        identity = Identity.load(given.identity)
    except FedTopicsError as error:
        sys.stderr.write(f"fedtopics: {error}\n")
        sys.exit(error.exit_code)
    name = identity.name
    corpus = Corpus.read(given.data, Columns(text=given.text))
    news = PeerNews(name)

    def tell(event: dict[str, Any]) -> None:
        news(event)
        if DEATH.point == "after" and event.get("round") == DEATH.round == event["round"]:
            die()

    study = Study.read(given.study)
    rules, seeded = Policy.read(given.policy), given.secret_from_seed
    part = Peer(name, corpus, rules, given.out, tell, secret_from_seed=seeded)
    try:
        with (
            news,
            patch.object(exchange, "Adder", DyingAdder),
            patch.object(peer, "GrpcTransport", DyingTransport),
        ):
            peer.take_part_with_peers(part, study, identity)
    except FedTopicsError as error:
        sys.stderr.write(f"fedtopics: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
