"""How a run stands, for Prometheus and for health checks: a callback that serves what it was told.

Rounds, seconds, bytes, and who is there; no number is of documents, and no label but the names of
the study's clients.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

from fedtopics.extras import require
from fedtopics.federation.local_http import TEXT, Page, serving
from fedtopics.federation.run_status import RunStatus

if TYPE_CHECKING:
    from prometheus_client import Metric

Event = Mapping[str, Any]
PREFIX = "fedtopics_"
NUMBERS = {  # of a run's status
    "round": ("round", "The last round that is done."),
    "rounds": ("rounds", "Rounds in all, unless a rule stops before; 0 before training."),
}
COUNTS = {
    "voided_sums": ("voided", "Masked sums of which nothing follows."),
    "repeated_attempts": ("repeated", "Attempts at rounds that were worked again."),
    "sent_bytes": ("bytes_sent", "Bytes sent in rounds."),
    "received_bytes": ("bytes_received", "Bytes received in rounds."),
}


class Metrics:
    """What a run's events come to, served at ``/metrics``; ``/healthz`` and ``/healthz/ready``.

    Use it as `on_event`. FedTopicsError if prometheus-client is not installed.
    """

    def __init__(self) -> None:
        require(
            "--metrics needs", "'fedtopics[metrics]'", ("prometheus_client", "prometheus-client")
        )
        self._status = RunStatus()
        self._lock = threading.Lock()  # events come from two threads, requests from others

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        with self._lock:
            self._status.take(event)

    @contextmanager
    def served(self, host: str, port: int) -> Iterator[Self]:
        """Serve them, in a with statement; InputError if the address cannot be listened on."""
        pages: dict[str, Page] = {
            "/metrics": self._metrics, "/healthz": self._live, "/healthz/ready": self._ready
        }  # fmt: skip
        with serving(host, port, pages):
            yield self

    def collect(self) -> Iterator[Metric]:
        """Yield what there is now, as a registry of prometheus-client asks for it."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            SummaryMetricFamily,
        )

        with self._lock:
            status = self._status
            for name, (what, meaning) in NUMBERS.items():
                yield GaugeMetricFamily(PREFIX + name, meaning, getattr(status, what))
            for name, (what, meaning) in COUNTS.items():
                yield CounterMetricFamily(PREFIX + name, meaning, getattr(status, what))
            yield SummaryMetricFamily(
                f"{PREFIX}round_seconds", "Seconds of rounds.", status.counted, status.seconds
            )
            over = int(status.state == "finished")
            yield GaugeMetricFamily(f"{PREFIX}finished", "1 if the model is there.", over)
            here = "1 if the client was there, or in the last round."
            present = GaugeMetricFamily(f"{PREFIX}client_present", here, labels=["client"])
            replies = "Replies that could not be used, or for which the client was sent away."
            refused = CounterMetricFamily(f"{PREFIX}refused_replies", replies, labels=["client"])
            for name, client in status.clients.items():
                present.add_metric([name], int(client.here))
                refused.add_metric([name], client.refused)
            yield from (present, refused)

    def _metrics(self) -> tuple[HTTPStatus, str, str]:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry).decode()

    def _live(self) -> tuple[HTTPStatus, str, str]:
        return HTTPStatus.OK, TEXT, "live\n"

    def _ready(self) -> tuple[HTTPStatus, str, str]:
        with self._lock:
            ready = self._status.ready
        if ready:
            return HTTPStatus.OK, TEXT, "ready\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, "not ready\n"
