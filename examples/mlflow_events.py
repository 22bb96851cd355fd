"""Log a study's settings, and each round's loss, seconds and bytes, to MLflow.

python examples/mlflow_events.py study.toml && mlflow ui
"""

import sys
from typing import Any

import mlflow  # pip install mlflow

from fedtopics import Study, train


def write(event: dict[str, Any]) -> None:
    """Log the study or a round; other events are ignored."""
    if event["event"] == "study":
        mlflow.log_params(event["settings"])
    elif event["event"] == "round":
        names = {"loss", "seconds", "bytes_sent", "bytes_received"} & event.keys()
        mlflow.log_metrics({name: event[name] for name in names}, step=event["round"])


with mlflow.start_run(run_name=sys.argv[1]):
    train(Study.read(sys.argv[1]), on_event=write)
