"""Links over gRPC in place of a hub's, for the programs of the tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from fedtopics.engines.grpc.transport import Address, GrpcTransport, Listening
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.links import SERVER
from tests.helpers.background import HOST
from tests.helpers.federation import assert_same
from tests.helpers.programs import PROPOSAL, RULES, Federation, Half, Program, federation


class Sockets:
    """Transports of a server, and of clients by the credentials that they have."""

    def __init__(
        self, server: grpc.ServerCredentials | None = None,
        clients: Mapping[str, grpc.ChannelCredentials] | None = None, host: str = "localhost",
    ) -> None:  # fmt: skip
        listening = Listening(f"{HOST}:0", server)
        self._server = GrpcTransport(listening, (), 3, lambda _: None, unannounced={})
        self._clients = clients or {}
        self._host = host

    @property
    def port(self) -> int:
        return self._server.port

    def listen(self) -> GrpcTransport:
        return self._server

    def port_of(self, name: str) -> GrpcTransport:
        address = Address(f"{self._host}:{self.port}", self._clients.get(name), SERVER)
        return GrpcTransport(None, [address], 1, lambda _: None)

    def kill(self, name: str) -> None:
        """Nobody is left behind: all programs have ended."""


@contextmanager
def offering(
    names: Sequence[str], credentials: grpc.ServerCredentials | None = None,
    proposal: Proposal = PROPOSAL, **more: Any,
) -> Iterator[Federation]:  # fmt: skip
    """Start a server that listens."""
    hub: Any = Sockets(credentials, more.pop("clients", None))
    with federation(names, RULES, hub, proposal=proposal, **more) as f:
        yield f


def together(halves: Mapping[str, Half], program: Program, engine: str) -> Any:
    """Execute a program at a server and all clients; all end with the same."""
    hub: dict[str, Any] = {"hub": Sockets()} if engine == "grpc" else {}
    with federation("".join(sorted(halves)), **hub) as f:
        work = f.lead(program)
        members = [f.member(name, half, program) for name, half in halves.items()]
        found = work.result()
        for member in members:
            assert_same(bare(member.work.error() or member.work.result()), bare(found))
    return found


def bare(found: Any) -> Any:
    """A result without what each participant measures itself."""
    return found[0] if isinstance(found, tuple) else found
