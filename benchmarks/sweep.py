"""How many topics the demo's corpora have: the sweep of docs/report.md.

make bench-sweep        # an hour; resumable
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fedtopics import Study, figures
from fedtopics.datasets import package_documentation
from fedtopics.federation.sweep import SHOWN, recommend, sweep

RESULTS = Path(__file__).parent / "results" / "sweep"
METHOD = {"max_rounds": 1000, "batch_size": 320}  # the demo's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[5, 10, 20, 50])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/demo-sweep"))
    options = parser.parse_args()
    study = Study.make(name="demo", method=METHOD)
    summary = sweep(
        study, options.topics, options.seeds, options.out, corpora=package_documentation(5),
        policies={}, on_event=_tell,
    )  # fmt: skip
    good, reasons = recommend(summary)
    RESULTS.mkdir(parents=True, exist_ok=True)
    found = {"scores": summary, "recommended": good, "reasons": reasons}
    (RESULTS / "sweep.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    chart = figures.scores_by_topics(summary, {c.name: c.title for c in SHOWN})
    (RESULTS / "sweep.svg").write_text(figures.svg(chart), encoding="utf-8")
    for row in summary:
        print(row["topics"], {c.name: round(row[c.name], 3) for c in SHOWN if row[c.name]})
    print("recommended:", good, *reasons, sep="\n")


def _tell(event: dict[str, Any]) -> None:
    if event["event"] == "model" and event["name"]:
        print(f"{event['done'] + 1} of {event['models']}: {event['name']}", flush=True)


if __name__ == "__main__":
    main()
