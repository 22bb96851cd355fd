"""Prometheus metrics of a run (serve_metrics), read from its folder whenever they are requested.

They contain no word, no name of a member and no number of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedtopics.errors import FederationError, RunError
from fedtopics.extras import require
from fedtopics.federation.run_status import read_run
from fedtopics.protocol.link import split_address
from fedtopics.transport.grpc import TRAFFIC

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True, eq=False)  # a registry tells collectors apart by their identity
class Collector:
    collect: Callable[[], Iterator[Metric]]


def collect(folder: Callable[[], Path]) -> Iterator[Metric]:
    """Yield the metrics of one run."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for direction, number in TRAFFIC.items():
        yield CounterMetricFamily(
            name=f"fedtopics_bytes_{direction}",
            documentation=f"Bytes of messages {direction} by this process.",
            value=number,
        )
    try:
        status = read_run(folder())
    except RunError:  # it has not begun yet
        return
    yield CounterMetricFamily(
        "fedtopics_refusals", "Updates and studies that were refused.", value=status.refusals
    )
    connected = sum(client.here for client in status.clients.values())
    members = GaugeMetricFamily("fedtopics_members", "Members by state.", labels=["state"])
    members.add_metric(["connected"], connected)
    members.add_metric(["away"], len(status.clients) - connected)
    yield members
    for name, text, value in (
        ("rounds", "Rounds that are done.", status.round),
        ("rounds_planned", "Rounds at most.", status.rounds),
        ("waiting_since_seconds", "When a wait for others began; 0: none.", status.waits_since),
        ("finished", "1 if the run is finished.", status.state == "finished"),
        (
            "failed",
            "1 if the run failed or was stopped.",
            status.state in ("failed", "stopped"),
        ),
    ):
        yield GaugeMetricFamily(f"fedtopics_{name}", text, value=value or 0)


@contextmanager
def serve_metrics(address: str, folder: Callable[[], Path]) -> Iterator[None]:
    """Serve a run's metrics at http://HOST:PORT/metrics while the context is open, if given."""
    if not address:
        yield
        return
    require("--metrics needs", "'fedtopics[metrics]'", ("prometheus_client", "prometheus-client"))
    from prometheus_client import CollectorRegistry, start_http_server

    host, port = split_address(address)
    registry = CollectorRegistry()
    registry.register(Collector(partial(collect, folder)))
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise FederationError(
            f"The metrics cannot be served at {address}: {error.strerror}; choose another address "
            "with --metrics."
        ) from None
    try:
        yield
    finally:
        server.shutdown()
