"""A client that does wrong on purpose, made of fedtopics' own: it spoils some of its replies.

    python benchmarks/faulty_client.py nan --spoil 20:forward --spoil 40:loss ...

The other options are those of ``fedtopics client``. What is spoiled is a function's reply in a
round; with a round of 0, in every round.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from fedtopics.cli.news import ClientNews
from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.grpc import transport as grpc_transport
from fedtopics.engines.grpc.frames import CHUNK_TAG, Stream
from fedtopics.engines.grpc.transport import GrpcTransport
from fedtopics.engines.messages import Accept, Message, Reply
from fedtopics.errors import FedTopicsError
from fedtopics.federation import client as client_module
from fedtopics.federation.client import GrpcParticipation
from fedtopics.federation.door import Door
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.methods.core.aggregation import Rows
from fedtopics.methods.core.interfaces import Moment
from fedtopics.pki import Identity
from fedtopics.text.corpus import Corpus
from fedtopics.text.tables import Columns

CANARY = "aubergine"  # stands for a document's word in an error; no output may have it
FAULTS = (
    "raise", "nan", "shape", "digest", "signature", "accept", "large", "frame", "old", "slow",
    "late-raise",
)  # fmt: skip
OTHER = "0" * 16  # a study's fingerprint


class Fault:
    """What goes wrong, and when.

    Parameters
    ----------
    kind : str
        One of `FAULTS`.
    when : mapping of round to function
        Round 0 stands for all rounds, function "" for all functions.
    seconds : float
        How long it waits first.
    """

    def __init__(self, kind: str, when: Mapping[int, str], seconds: float) -> None:
        self.kind = kind
        self.seconds = seconds
        self.on_wire = False  # whether the next reply is spoiled on its way
        self._when = when

    def due(self, function: str, round_: int) -> bool:
        """Whether this call's reply is to be spoiled."""
        wanted = self._when.get(round_, self._when.get(0))
        return wanted is not None and wanted in ("", function)

    def spoil(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Do wrong with a reply, or see to it that it goes wrong later."""
        time.sleep(self.seconds)
        if self.kind in ("raise", "late-raise"):
            raise KeyError(CANARY)
        if self.kind == "slow":
            return reply
        if self.kind == "large":
            return reply | {"padding": np.zeros(1 << 18)}  # two megabytes
        if self.kind in ("nan", "shape"):
            changed, _ = _changed(reply, self.kind)
            return dict(changed)
        self.on_wire = True
        return reply


def _changed(value: Any, kind: str) -> tuple[Any, bool]:
    """Return a payload with its first array made wrong, and whether there was one."""
    if isinstance(value, Mapping):
        copy = dict(value)
        for key, entry in value.items():
            copy[key], done = _changed(entry, kind)
            if done:
                return copy, True
    if isinstance(value, Rows):
        return Rows(value.index, _changed(value.values, kind)[0], value.n_rows), True
    if isinstance(value, np.ndarray) and value.size:
        if kind == "shape":
            return value[..., :-1], True
        changed = value.copy()
        changed.flat[0] = np.nan
        return changed, True
    return value, False


class FaultyDoor(Door):
    """A client's door, some of whose replies are spoiled behind it."""

    fault: Fault

    def call(self, function: str, payload: Mapping[str, Any], moment: Moment) -> dict[str, Any]:
        reply = super().call(function, payload, moment)
        due = self.fault.due(function, int(payload.get("round", 0)))
        return self.fault.spoil(reply) if due else reply


class FaultyTransport(GrpcTransport):
    """A transport that spoils a message before it is sent."""

    fault: Fault

    def send(self, link: str, message: Message) -> None:
        kind = self.fault.kind
        if isinstance(message, Accept) and kind == "accept":
            message = replace(message, fingerprint=OTHER)
        if isinstance(message, Reply) and self.fault.on_wire and kind != "frame":
            self.fault.on_wire = False
            if kind == "digest":
                message = replace(message, digest=bytes(32))
            elif kind == "signature":
                message = replace(message, signature=message.signature[:-1] + b"?")
            elif kind == "old":
                message = replace(message, index=message.index - 1)
        super().send(link, message)


class FaultyStream(Stream):
    """A stream that spoils a frame on its way."""

    fault: Fault

    async def send(self, frame: wire.Frame, chunks: Iterable[bytes] = ()) -> None:
        reply = frame.HasField("message") and frame.message.kind == Reply.kind
        if reply and self.fault.on_wire and self.fault.kind == "frame":
            self.fault.on_wire = False
            chunks = [CHUNK_TAG + bytes(5 << 20)]  # more than gRPC takes at once
        await super().send(frame, chunks)


class FaultyParticipation(GrpcParticipation):
    """A client's part in a study, with a fault."""

    def consider(self, study: Study, run: bytes) -> tuple[Any, Path]:
        door, state = super().consider(study, run)
        door.__class__ = FaultyDoor
        return door, state


def spoil_everything(fault: Fault) -> ExitStack:
    """Put the fault where it belongs, as long as the returned context lasts."""
    FaultyDoor.fault = FaultyTransport.fault = FaultyStream.fault = fault
    stack = ExitStack()
    stack.enter_context(patch.object(client_module, "GrpcTransport", FaultyTransport))
    stack.enter_context(patch.object(grpc_transport, "Stream", FaultyStream))
    return stack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--spoil", action="append", default=[], metavar="ROUND:FUNCTION")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--server", required=True)
    for path in ("--identity", "--data", "--policy", "--out"):
        parser.add_argument(path, type=Path, required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--secret-from-seed", action="store_true")
    given = parser.parse_args()
    when = {int(r): f for r, _, f in (entry.partition(":") for entry in given.spoil)}
    fault = Fault(given.fault, when, given.seconds)
    name = Identity.load(given.identity).name
    corpus = Corpus.read(given.data, Columns(text=given.text))
    news = ClientNews(name)
    part = FaultyParticipation(
        given.server, given.identity, corpus, Policy.read(given.policy), given.out, on_event=news,
        secret_from_seed=given.secret_from_seed,
    )  # fmt: skip
    try:
        with news, spoil_everything(fault):
            part.run()
    except FedTopicsError as error:
        sys.stderr.write(f"fedtopics: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
