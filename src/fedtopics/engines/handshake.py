"""What server and client must have in common before anything leaves the client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.values import plain_value

WIRE_VERSION = 1  # of wire.proto


@dataclass(frozen=True)
class Proposal:
    """What a server asks its clients to take part in."""

    product: str
    method: str
    method_version: int
    study: Mapping[str, Any]
    fingerprint: str
    time: float = 0.0  # the server's clock, seconds since 1970

    def offer(self, run: bytes, chunk: int = 0) -> wire.Offer:
        """Write it as an offer, with the server's clock.

        `run` is the same while a server's process lives; the client may send chunks of `chunk`
        bytes.
        """
        return wire.Offer(
            product=self.product,
            wire=WIRE_VERSION,
            method=self.method,
            method_version=self.method_version,
            study=plain_value(self.study),
            fingerprint=self.fingerprint,
            run=run,
            time=time.time(),
            chunk=chunk,
        )

    def objection(self, product: str, wire: int, methods: Mapping[str, int]) -> str:
        """Say why the other side cannot take part, with both versions and the remedy.

        `product` is its version of fedtopics, of which the last number may differ; `wire` that of
        the wire format; `methods` has the versions of its methods by name.
        """
        theirs = methods.get(self.method, 0)
        method, minor = f"the method {self.method!r}", self.product.split(".")[:2]
        versions = (
            ("fedtopics", product, self.product, product.split(".")[:2] == minor),
            ("the wire format", wire, WIRE_VERSION, wire == WIRE_VERSION),
            (method, theirs, self.method_version, theirs == self.method_version),
        )
        for what, client, server, same in versions:
            if not same:
                return (
                    f"The client has version {client or 'none'} of {what}, the server {server}; "
                    f"install fedtopics {self.product} on both sides."
                )
        return ""
