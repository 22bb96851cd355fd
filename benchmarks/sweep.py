"""How many topics the demo's corpora have: the sweep of docs/reference/report.md, an hour."""

import json
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, arguments, made_up_clients
from fedtopics import Study
from fedtopics.datasets import package_documentation
from fedtopics.federation.sweep import SHOWN_CRITERIA, recommend, sweep

METHOD = {"name": "gfedntm", "max_rounds": 1000, "batch_size": 320}  # the demo's


def main() -> None:
    given = arguments(__doc__, topics=(5, 10, 20, 50), seeds=3)
    method = METHOD
    topics = given.topics
    seeds = given.seeds
    out = ROOT / "runs/demo-sweep"
    if given.quick:
        method = METHOD | {"max_rounds": 2}
        topics = [3, 5]
        seeds = 1
        out = given.folder / "runs"
    corpora = made_up_clients(3) if given.quick else package_documentation(5)
    study = Study.make(name="demo", method=method)
    summary = sweep(study, topics, seeds, out, corpora=corpora, policies={}, on_event=tell)
    best, reasons = recommend(summary)
    content = {"scores": summary, "recommended": best, "reasons": reasons}
    path = Path(given.folder) / "sweep.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for row in summary:
        print(row["topics"], {c.name: round(row[c.name], 3) for c in SHOWN_CRITERIA if row[c.name]})
    print("recommended:", best, *reasons, sep="\n")


def tell(event: dict[str, Any]) -> None:
    if event["event"] == "model" and event["name"]:
        print(f"{event['done'] + 1} of {event['models']}: {event['name']}", flush=True)
