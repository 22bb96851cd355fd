"""What tests register, for as long as they need it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedtopics.inference import INFERENCES
from fedtopics.methods.core.settings import STOP_RULES
from fedtopics.methods.registry import METHODS
from fedtopics.metrics import METRICS
from fedtopics.networks import NETWORKS
from fedtopics.text.tables import FORMATS

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


def install(folder: Path, name: str, value: str) -> None:
    """Lay out what pip leaves of a package with a network."""
    info = folder / "somebodys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[fedtopics.networks]\n{name} = {value}\n")
