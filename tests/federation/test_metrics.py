"""Metrics and health: numbers of rounds, no number of documents, no name but the study's."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedtopics.errors import FedTopicsError
from fedtopics.federation.local_http import LOOPBACK
from fedtopics.federation.metrics import Metrics
from fedtopics.federation.simulation import train
from tests.helpers.federation import study, subjects

LISTENING = {"event": "listening", "address": "x:1", "clients": ["north", "south"]}
EVENTS: list[dict[str, Any]] = [
    LISTENING,
    {"event": "training", "done": 0, "rounds": 10},
    {
        "event": "round", "round": 1, "seconds": 1.5, "documents": 41, "loss": 7.25,
        "clients": ["north"], "missing": {"south": "x"}, "bytes_sent": 100, "bytes_received": 30,
    },
    {"event": "voided", "round": 2, "reason": "x"},
    {"event": "repeated", "round": 2, "missing": {}},
    {"event": "bad reply", "client": "south", "round": 2, "reason": "x"},
    {"event": "bad reply", "client": 'evil"} 1', "round": 2, "reason": "x"},
]  # fmt: skip


def samples(metrics: Metrics) -> dict[str, float]:
    status, media, text = metrics._metrics()
    assert (status, media.partition(";")[0]) == (HTTPStatus.OK, "text/plain")
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told(*events: dict[str, Any]) -> Metrics:
    metrics = Metrics()
    for event in events:
        metrics(event)
    return metrics


def test_numbers() -> None:
    assert samples(told(*EVENTS)) == {
        "fedtopics_round": 1,
        "fedtopics_rounds": 10,
        "fedtopics_voided_sums_total": 1,
        "fedtopics_repeated_attempts_total": 1,
        "fedtopics_sent_bytes_total": 100,
        "fedtopics_received_bytes_total": 30,
        "fedtopics_round_seconds_count": 1,
        "fedtopics_round_seconds_sum": 1.5,
        "fedtopics_finished": 0,
        "fedtopics_client_present north": 1,
        "fedtopics_client_present south": 0,
        "fedtopics_refused_replies_total north": 0,
        "fedtopics_refused_replies_total south": 1,
    }


def test_no_number_is_of_documents() -> None:
    """Whatever a run tells: what is measured does not depend on what documents say."""
    before, after = Metrics(), Metrics()
    for seed, metrics in ((0, before), (1, after)):
        train(study(max_rounds=3), subjects({"east": 40, "north": 30}, seed), on_event=metrics)
    timed = re.compile("seconds|bytes")
    one, other = (
        {name: value for name, value in samples(each).items() if not timed.search(name)}
        for each in (before, after)
    )
    assert one == other
    assert one["fedtopics_round"] == 3


def get(address: str) -> tuple[int, str]:
    try:
        with urlopen(address) as answer:  # noqa: S310 - its own
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedtopics.federation import metrics as module

    addresses = []
    serving = module.serving

    def noted(*given: Any) -> Any:
        return _noting(serving(*given), addresses)

    monkeypatch.setattr(module, "serving", noted)
    with Metrics().served(LOOPBACK, 0) as metrics:
        (address,) = addresses
        assert get(f"{address}/healthz") == (200, "live\n")
        assert get(f"{address}/healthz/ready") == (503, "not ready\n")
        metrics(LISTENING)
        assert get(f"{address}/healthz/ready") == (200, "ready\n")
        metrics({"event": "reconnecting", "reason": "x", "seconds": 1.0})
        assert get(f"{address}/healthz/ready") == (503, "not ready\n")
        assert get(f"{address}/metrics")[0] == 200
        assert get(f"{address}/")[0] == 404


class _noting:  # noqa: N801 - a context manager, used as a function
    def __init__(self, inner: Any, addresses: list[str]) -> None:
        self._inner, self._addresses = inner, addresses

    def __enter__(self) -> str:
        self._addresses.append(self._inner.__enter__())
        return self._addresses[-1]

    def __exit__(self, *what: Any) -> None:
        self._inner.__exit__(*what)


def test_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtopics.extras.find_spec", lambda module: None)
    with pytest.raises(FedTopicsError, match=r"pip install 'fedtopics\[metrics\]'"):
        Metrics()
