"""Arguments and options that several commands have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fedtopics.methods.events import OnEvent

FOLDER = click.Path(path_type=Path)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
vocabulary_option = click.option(
    "--vocabulary",
    type=click.Choice(["keep", "agree"]),
    help="The model's own words, or such as clients agree on anew.  [default: keep, if the study "
    "has its method and rules of text]",
)
tracked_option = click.option(
    "--track",
    multiple=True,
    type=click.Choice(["tensorboard", "mlflow"]),
    help="Write the run's numbers there as well; can be given twice.",
)


@contextmanager
def tracked(names: Sequence[str], folder: Path, shown: OnEvent) -> Iterator[OnEvent]:
    """Give a callback for a run's display and its trackers, which write below the run's folder.

    MLflow writes there unless MLFLOW_TRACKING_URI says where.
    """
    if not names:
        yield shown
        return
    from fedtopics.federation.tracking import MLflow, TensorBoard, Tracker, tell_all

    def complain(message: str) -> None:
        click.echo(f"fedtopics: {message}", err=True)

    trackers: list[Tracker] = []
    for name in dict.fromkeys(names):
        if name == "tensorboard":
            trackers.append(TensorBoard(folder / "tensorboard", complain))
            continue
        own = f"sqlite:///{(folder / 'mlflow' / 'mlflow.db').absolute()}"
        uri = None if os.environ.get("MLFLOW_TRACKING_URI") else own
        trackers.append(MLflow(tracking_uri=uri, on_failure=complain))
    with ExitStack() as stack:
        for tracker in trackers:
            stack.enter_context(tracker)
        yield tell_all(shown, *trackers)
