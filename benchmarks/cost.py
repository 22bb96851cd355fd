"""What a topic model costs in rounds and bytes until it is so good: LDA and networks, federated.

Each model is trained with more and more rounds until its topics have the wanted similarity to the
true ones (TSS). Bytes are those that left by a client's ledger, and those that the server sent it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, measured, table, write
from benchmarks.federated import NAMES, events_of, prepare, run
from experiments.gfedntm.figure3 import RECIPES
from fedtopics import TopicModel
from fedtopics.datasets import SyntheticClients, synthetic_lda
from fedtopics.federation.ledger import summarise_ledger
from fedtopics.metrics import topic_similarity

WANTED = 44.0  # TSS of 50
ROUNDS = {
    "lda": (1, 2, 5, 10, 20),
    "ntm": (1, 50, 200, 1000),
    "prodlda-mixtures": (1, 50, 200, 1000),
    "prodlda": (200, 500, 1000),  # after 2,000, all of its rounds, it has 38.5
}
QUICK = {"lda": (1,)}
SMALL = {"n_clients": 2, "n_words": 400, "n_documents": 60, "lengths": (30, 60)}
STUDY = """name = "cost"
checkpoint_every = 1000000
aggregation = "plain"
[method]
n_components = 50
coherence = "nothing"
{method}
[vocabulary]
max_document_share = 1.0
min_document_frequency = 1
"""


def study(model: str, rounds: int) -> str:
    method = {"name": "gfedntm", **RECIPES[model].method, "max_rounds": rounds}
    return STUDY.format(method="\n".join(f"{k} = {json.dumps(v)}" for k, v in method.items()))


def summarise(out: Path, drawn: SyntheticClients) -> dict[str, Any]:
    model = TopicModel.from_pretrained(out / "model")
    words = [f"w{number}" for number in range(len(drawn.words))]  # as `tokenised` calls them
    tss = topic_similarity(drawn.beta, model.beta, words, model.vocabulary.words)
    lines = summarise_ledger(out / NAMES[0] / "ledger.jsonl")
    ledger = {row["function"]: row["bytes"] for row in lines}
    once = sum(ledger.get(name, 0) for name in ("vocabulary", "counted", "projections"))
    end = sum(ledger.get(name, 0) for name in ("shares", "word_sums", "pairs"))
    rounds = [event for event in events_of(out) if event["event"] == "round"]
    received = sum(event["bytes_sent"] for event in rounds) / len(NAMES)
    sent = sum(ledger.values()) - once - end
    return {"tss": tss, "once": once, "rounds_out": sent, "rounds_in": received, "end": end}


def cells_of(row: dict[str, Any]) -> list[str]:
    sizes = [f"{row[part] / 1e6:,.1f}" for part in ("once", "rounds_out", "rounds_in", "end")]
    return [RECIPES[row["model"]].title, f"{row['rounds']:,}", f"{row['tss']:.2f}", *sizes]


def main() -> None:
    given = arguments(__doc__)
    small: dict[str, Any] = SMALL if given.quick else {}
    drawn = synthetic_lda(n_validation=1, **small)
    bags = dict(zip(NAMES, (docs.counts for docs in drawn.training.values()), strict=False))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), bags)

        def measure(task: dict[str, Any]) -> dict[str, Any]:
            return summarise(run(Path(folder), study(**task), names=tuple(bags)), drawn)

        for model, numbers in (QUICK if given.quick else ROUNDS).items():
            for rounds in numbers:
                rows += measured(given, [{"model": model, "rounds": rounds}], measure)
                if rows[-1]["tss"] >= WANTED:
                    break
    head = "model | rounds | TSS | out, before | out, rounds | in, rounds | out, at the end"
    write(given, [
        f"To a TSS of {WANTED:g} of 50, five clients of 10,000 documents, 5,000 words, 50 topics, "
        "seed 0. MB of one client. Command: `make bench NAME=cost`.", "",
        *table(head, map(cells_of, rows)),
    ])  # fmt: skip
