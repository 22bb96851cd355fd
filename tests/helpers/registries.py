"""What tests register, for as long as they need it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedtopics.inference import INFERENCES
from fedtopics.methods.registry import METHODS
from fedtopics.methods.stop_rules import STOP_RULES
from fedtopics.metrics import METRICS
from fedtopics.networks import NETWORKS
from fedtopics.text.files import FORMATS

REGISTRIES = METHODS, NETWORKS, STOP_RULES, INFERENCES, METRICS, FORMATS


@contextmanager
def restored() -> Iterator[None]:
    """Forget in the end what was registered meanwhile."""
    before = [dict(registry._items) for registry in REGISTRIES]
    try:
        yield
    finally:
        for registry, items in zip(REGISTRIES, before, strict=True):
            registry._items = items  # type: ignore[assignment]
