"""Whole studies over gRPC in this process: a server and its clients, each in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from fedtopics import pki
from fedtopics.engines.grpc import transport
from fedtopics.engines.grpc.connection import channel_credentials, server_credentials
from fedtopics.engines.node import Node
from fedtopics.engines.transport import Closed, Transport
from fedtopics.federation.client import GrpcParticipation
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.server import serve
from fedtopics.federation.study import Study
from fedtopics.model.topic_model import TopicModel
from fedtopics.pki import Identity
from fedtopics.secure.said import NAMES
from fedtopics.text.corpus import Corpus
from tests.helpers.background import HOST, PATIENCE, Background, KilledError, Notes, until
from tests.helpers.federation import assert_same_bits
from tests.helpers.ledgers import left

__all__ = [
    "HOST", "PATIENCE", "Background", "KilledError", "Notes", "Outcome", "Partner",
    "assert_masked_as_on_grpc", "authority",
    "comes_back", "federated", "of_client", "of_server", "partner", "until",
]  # fmt: skip

transport.FIRST_PAUSE = 0.05  # clients come back soon


def authority(folder: Path, *names: str, hosts: tuple[str, ...] = ("localhost", HOST)) -> Path:
    """Make an authority, a server and clients."""
    pki.create(folder, hosts)
    for name in names:
        pki.issue(folder, name)
    return folder


def of_server(folder: Path, check: bool = True) -> grpc.ServerCredentials:
    """Return the credentials of an authority's server."""
    return server_credentials(Identity.load(folder / "server", check_validity=check))


def of_client(folder: Path, name: str, check: bool = True) -> grpc.ChannelCredentials:
    """Return the credentials of an authority's client."""
    return channel_credentials(Identity.load(folder / "clients" / name, check_validity=check))


class Partner:
    """A client of a study, as `fedtopics client` starts it, in a thread."""

    def __init__(self, part: GrpcParticipation, events: Notes) -> None:
        self.part, self.events = part, events
        self.transport: Any = None
        take_part = part.take_part

        def taking(transport: Transport, *more: Any) -> None:
            self.transport = transport
            take_part(transport, *more)

        part.take_part = taking  # type: ignore[method-assign]
        self._work = Background(part.run)

    def result(self) -> None:
        """Wait for its end; raise what it raised."""
        self._work.result()

    def error(self) -> BaseException | None:
        """Wait for its end; return what it raised."""
        return self._work.error()

    def kill(self) -> None:
        """End it at once, without a word."""
        until(lambda: self.transport is not None)
        self.transport.stop()
        self.transport._put_in("", Closed("killed"))
        self._work.error()


def comes_back(node: Node, name: str) -> None:
    """Wait until a client that was lost can be in the server's next round."""
    back, others = node.members[name], [m for m in node.members.values() if m.name != name]
    until(lambda: back.link and back.turn > max(other.turn for other in others))


@dataclass
class Outcome:
    """What a federated study left."""

    model: TopicModel
    events: Notes
    partners: dict[str, Partner]


def partner(
    address: str, name: str, corpus: Corpus, out: Path, policy: Policy = OPEN_POLICY,
    identity: Path | None = None, **more: Any,
) -> Partner:  # fmt: skip
    """Start a client, which draws what those of a simulation draw."""
    events = Notes()
    more = {"secret_from_seed": True} | more
    part = GrpcParticipation(address, identity, corpus, policy, out, name, events.append, **more)
    return Partner(part, events)


def federated(
    plan: Study,
    corpora: Mapping[str, Corpus],
    folder: Path,
    authority: Path | None = None,
    policy: Policy = OPEN_POLICY,
    odd: GrpcParticipation | None = None,
    starts: Mapping[str, Any] | None = None,
    policies: Mapping[str, Policy] | None = None,
    seeded: bool = True,
    **how: Any,
) -> Outcome:
    """Run a study with a server and all its clients; by default without TLS.

    An odd client takes the place of the one of its name; how it ends is for the test to ask.
    `starts` are the models that clients have to start from, `policies` those of clients that have
    another one; what else is given goes to `serve`.
    """
    events, partners = Notes(), {}
    happens = how.pop("on_event", lambda event: None)
    starts = dict.fromkeys(corpora, how.get("start")) if starts is None else starts

    def begin(event: dict[str, Any]) -> None:
        events.append(event)
        happens(event)
        if event["event"] != "listening":
            return
        address = event["address"]
        for name, corpus in corpora.items():
            if odd is not None and odd.name == name:
                notes = Notes()
                odd._address, odd._on_event = address, notes.append
                partners[name] = Partner(odd, notes)
            else:
                identity = None if authority is None else authority / "clients" / name
                partners[name] = partner(
                    address, name, corpus, folder / name, (policies or {}).get(name, policy),
                    identity, start=starts.get(name), secret_from_seed=seeded,
                )  # fmt: skip

    identity = None if authority is None else Identity.load(authority / "server")
    model = serve(
        plan.with_clients(corpora), identity, f"{HOST}:0", folder / "server", on_event=begin, **how
    )
    for each in partners.values():
        if each.part is not odd:
            each.result()
    return Outcome(model, events, partners)


def assert_masked_as_on_grpc(
    model: TopicModel, there: dict[str, Path], study: Study, folder: Path
) -> None:
    """A masked study has the bits that it has over gRPC, and the same left each client.

    `there` are the folders of its clients. Digests differ, as each run has masks of its own; so
    does how long names are, as each run has a key of its own, by which words share buckets.
    """

    def facts(folder: Path) -> list[tuple[Any, ...]]:
        rows = [row[:-1] for row in left(folder / "ledger.jsonl")]
        return [row[:-1] if row[1] == NAMES else row for row in rows]

    corpora = study.corpora()
    pki = authority(folder / "pki", *corpora)
    here = federated(study, corpora, folder, pki, Policy(min_documents=10)).model
    assert_same_bits(model, here)
    for name, own in there.items():
        assert_same_bits(TopicModel.from_pretrained(own / "model"), here)
        assert facts(own) == facts(folder / name)
