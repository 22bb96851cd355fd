"""Rounds with secure aggregation, over plain ones and over one process: seconds and bytes.

Five members and a server, each a process with one thread, in one run on one machine; then the same
with a delay of 50 ms a call, through a relay of bytes, which counts them.
"""

import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Row, arguments, bag_of_words, grid, measured, table, versions, write
from benchmarks.federated import NAMES, ONE_WAY, prepare, run, start

WORDS = 5_000
TOPICS = 50
EACH = 2_000
ROUNDS = 15
METHODS = {
    "NMF": 'name = "nmf"',
    "LDA": 'name = "lda"\nlearning = "stochastic"\nbatch_size = 256',
    "ProdLDA": 'name = "gfedntm"\nnorm = "server"\nhidden = [100, 100]\nbatch_size = 256',
}
STUDY = """name = "rounds"
checkpoint_every = 1000000
aggregation = "{kind}"
[method]
n_components = {topics}
max_rounds = {rounds}
coherence = "nothing"
{method}
[vocabulary]
max_words = {words}
min_persons_per_word = 1
max_document_share = 1.0
"""
ALONE = '\n[clients.{name}]\ndata = "{name}.parquet"\npolicy = "{name}.toml"\ntokens = "words"\n'
HEAD = """method | one process, ms | plain, ms | secure, ms | secure / plain \
| secure / one process | with the delay: plain, ms | secure, ms | secure / plain \
| up, plain, MB | secure, MB | down, plain, MB | secure, MB"""


def seconds_of(events: Path) -> float:
    """Return the median seconds of a round, without the first."""
    lines = map(json.loads, events.read_text("utf-8").splitlines())
    rounds = [event["seconds"] for event in lines if event["event"] == "round"]
    return float(statistics.median(rounds[1:]))


def alone(folder: Path, study: str, names: Sequence[str]) -> Path:
    """Train in one process; return the run's folder."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    text = study + "".join(ALONE.format(name=name) for name in names)
    (folder / "alone.toml").write_text(text)
    if code := start(folder, "train", "alone.toml", "--out", str(out)).wait():
        raise SystemExit(f"fedtopics train ended with {code}.")
    return out


def measure(folder: Path, names: Sequence[str], words: int, method: str, rounds: int) -> Row:
    """Return milliseconds and megabytes of a round of a member, for each kind of run."""
    topics = TOPICS if len(names) == len(NAMES) else 4
    sizes = {"topics": topics, "words": words, "rounds": rounds, "method": METHODS[method]}
    study = {kind: STUDY.format(kind=kind, **sizes) for kind in ("plain", "secure")}
    events = alone(folder, study["plain"], names) / "events.jsonl"
    row: dict[str, Any] = {"alone": 1e3 * seconds_of(events)}
    for kind, text in study.items():
        for delayed in (False, True) if len(names) == len(NAMES) else (True,):
            out = run(folder, text, delayed, names)
            events = out / names[0] / "state" / "events.jsonl"
            row[kind + " delayed" * delayed] = 1e3 * seconds_of(events)
        traffic = json.loads((out / "traffic.json").read_text())
        row[f"{kind} MB"] = [size / 1e6 / len(names) / rounds for size in traffic]
    return row


def cells_of(row: dict[str, Any]) -> list[str]:
    plain, secure, late, later = (
        row.get(name, np.nan) for name in ("plain", "secure", "plain delayed", "secure delayed")
    )
    cells = [row["method"], *(f"{ms:.0f}" for ms in (row["alone"], plain, secure))]
    cells += [f"{secure / plain:.2f}", f"{secure / row['alone']:.2f}"]
    cells += [f"{late:.0f}", f"{later:.0f}", f"{later / late:.2f}"]
    pairs = zip(row["plain MB"], row["secure MB"], strict=True)
    return cells + [f"{size:.2f}" for pair in pairs for size in pair]


def main() -> None:
    given = arguments(__doc__)
    methods, rounds, words = (["LDA"], 3, 200) if given.quick else (METHODS, ROUNDS, WORDS)
    names = NAMES[:3] if given.quick else NAMES  # without the delay only all
    documents = 60 if given.quick else EACH
    bag = bag_of_words(documents * len(names), words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, {n: bag[i * documents : (i + 1) * documents] for i, n in enumerate(names)})
        tasks = grid(method=methods, rounds=[rounds])
        rows = measured(given, tasks, lambda task: measure(folder, names, words, **task))
    used = ", ".join(f"{k} {v}" for k, v in versions("fedtopics", "grpcio", "numpy").items())
    write(
        given,
        [
            f"{len(names)} members of {documents:,} documents and a server, each a process with "
            f"one thread, gRPC over loopback; {words:,} words, {TOPICS} topics, seed 0. "
            f"Milliseconds are medians of {rounds - 1} rounds; the delay is {2e3 * ONE_WAY:g} ms "
            "there and back. Megabytes are those of one member in a round, what comes before the "
            f"first and after the last shared out among the {rounds}. {used}. Command: `make bench "
            "NAME=secure-rounds`.",
            "",
            *table(HEAD, map(cells_of, rows)),
        ],
    )
