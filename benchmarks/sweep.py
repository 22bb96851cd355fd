"""How many topics the demo's corpora have: the sweep of docs/report.md.

make bench-sweep        # an hour; resumable
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedtopics import Study
from fedtopics.datasets import package_documentation
from fedtopics.federation.sweep import SHOWN, chart_of, recommend, sweep
from quick import made_up_clients, parser_of, results_of

METHOD = {"max_rounds": 1000, "batch_size": 320}  # the demo's


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[5, 10, 20, 50])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/demo-sweep"))
    options = parser.parse_args()
    results, method = results_of("sweep", options.quick) / "sweep", METHOD
    if options.quick:
        options.topics, options.seeds, options.out = [3, 5], 1, results.with_name("runs")
        method = METHOD | {"max_rounds": 5}
    corpora = made_up_clients() if options.quick else package_documentation(5)
    summary = sweep(
        Study.make(name="demo", method=method), options.topics, options.seeds, options.out,
        corpora=corpora, policies={}, on_event=_tell,
    )  # fmt: skip
    good, reasons = recommend(summary)
    results.mkdir(parents=True, exist_ok=True)
    found = {"scores": summary, "recommended": good, "reasons": reasons}
    (results / "sweep.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (results / "sweep.svg").write_text(chart_of(summary), encoding="utf-8")
    for row in summary:
        print(row["topics"], {c.name: round(row[c.name], 3) for c in SHOWN if row[c.name]})
    print("recommended:", good, *reasons, sep="\n")


def _tell(event: dict[str, Any]) -> None:
    if event["event"] == "model" and event["name"]:
        print(f"{event['done'] + 1} of {event['models']}: {event['name']}", flush=True)


if __name__ == "__main__":
    main()
