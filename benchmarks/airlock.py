"""Carryings and seconds of a study whose messages are files, and whether its model is the same.

Three clients hold the documents in equal parts, drawn at random; policies are the defaults, the
vocabulary has 5,000 words at most. A carrying takes a file of each member to the relay, and the
relay's file back. A turn is one start of a member's `fedtopics step`, without the start of Python;
the same study over a connection in one process stands beside it.
"""

import statistics
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.common import Row
from benchmarks.quality import prepare
from benchmarks.steps import NAMES, WORDS, clients_of, play
from fedtopics import Policy, Study
from fedtopics.methods.core.plan import fingerprint_of
from tests.helpers.by_folders import Carried
from tests.helpers.grpc_federation import federated

FACTS = """20 topics, seed 0, one thread. {}. \
Command: `OMP_NUM_THREADS=1 make bench NAME=airlock DATA=folder`."""
HEAD = """documents | method | same bits | steps | carryings | carryings / step | MB to the relay \
| MB back | a turn, median s | all turns, s | connected, s"""


class Timed(Carried):
    """Measures turns and bytes."""

    def __init__(self, *of_carried: object) -> None:
        super().__init__(*of_carried)  # type: ignore[arg-type]
        self.seconds: list[float] = []
        self.sizes = {"to": 0, "back": 0}

    def turn(self, name: str) -> str:
        began = perf_counter()
        waits = super().turn(name)
        if name in self.corpora:
            self.seconds.append(perf_counter() - began)
        return waits

    def carry(self) -> int:
        before = {path: path.stat().st_size for path in self._copies()}
        n_copied = super().carry()
        for path in self._copies() - before.keys():
            self.sizes["to" if path.parent.parent.name == self.relay else "back"] += (
                path.stat().st_size
            )
        return n_copied

    def _copies(self) -> set[Path]:
        return {path for name in self.folders for path in self.inbox(name).iterdir()}


def measure(data: Path, work: Path, documents: str, method: str) -> Row:
    corpora = clients_of(prepare(data, work, documents)[0], 3)
    plan = Study.make(
        method={"name": method, "n_components": 20}, vocabulary=WORDS, aggregation="secure"
    )
    with tempfile.TemporaryDirectory() as folder:
        scene = Timed(plan, corpora, Path(folder) / "carried", dict.fromkeys(corpora, Policy()))
        scene.run()
        began = perf_counter()
        connected = federated(plan, corpora, Path(folder) / "connected", Policy(), keys=scene.keys)
        seconds = perf_counter() - began
        record = Path(folder) / "carried" / NAMES[0] / "run/ledger.jsonl"
        steps = 1 + record.read_text("utf-8").count('"what": "received"')
    models = {fingerprint_of(model) for model in [*scene.models.values(), connected.model]}
    return {
        "same": len(models) == 1,
        "steps": steps,
        "carryings": scene.carryings,
        "sizes": scene.sizes,
        "turn": statistics.median(scene.seconds),
        "turns": sum(scene.seconds),
        "connected": seconds,
    }


def cells_of(row: Row) -> list[str]:
    return [
        row["documents"],
        row["method"],
        "yes" if row["same"] else "no",
        str(row["steps"]),
        str(row["carryings"]),
        f"{row['carryings'] / row['steps']:.2f}",
        *(f"{size / 1e6:.1f}" for size in row["sizes"].values()),
        *(f"{row[name]:.2f}" for name in ("turn", "turns", "connected")),
    ]


def main() -> None:
    play(__doc__, measure, FACTS, HEAD, cells_of)
