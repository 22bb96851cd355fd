"""The report of a run, written where its reader finds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtopics.errors import FedTopicsError
from fedtopics.model.shown_words import LINE_WORDS
from fedtopics.terminal import display
from fedtopics.terminal.display import say, status

if TYPE_CHECKING:
    from fedtopics.model.topic_model import TopicModel


def show_run(model: TopicModel, folder: Path, quiet: bool = False) -> None:
    """Print a run's topics and where it is, unless `quiet`, and write its report."""
    if not quiet:
        display.print_topics(model, LINE_WORDS)
        say(f"\nThe run is in {folder}, the model in {folder}/model.")
    write_run_report(folder, quiet)


def write_run_report(run: Path, quiet: bool = False) -> None:
    """Write the report of a finished run; a failure is shown, but not raised."""
    try:
        news = f"The report:             {write_report_of(run)}"
    except Exception as error:
        reason = (
            str(error)
            if isinstance(error, (FedTopicsError, OSError))
            else f"a defect of fedtopics, {type(error).__name__}."
        )
        news = f"There is no report: {reason} Try again with: {display.program_name()} report {run}"
    if not quiet:
        say(news)


def write_report_of(
    run: Path,
    page: Path | None = None,
    dated: dict[str, Any] | None = None,
    inputs: Sequence[Path | None] = (),
    **how: Any,
) -> Path:
    """Write the report of a run; `dated` are arguments of `over_time`, `how` of `summarise`."""
    from fedtopics.model.topic_model import TopicModel
    from fedtopics.report import find_run, over_time, summarise, write_report

    with status("Writing the report"):
        model_folder, facts = find_run(run)
        model = TopicModel.from_pretrained(model_folder)
        summary = summarise(model, facts, over_time=over_time(model, facts, **dated or {}), **how)
        return write_report(summary, page or _page_of(run, model_folder, how), inputs)


def _page_of(run: Path, model: Path, how: Mapping[str, Any]) -> Path:
    """Return where a report goes: into the run's folder, or next to a model without a run."""
    name = "report.html" if how.get("documents") is None else "report-with-documents.html"
    if run != model:
        return run / name
    folder = model.resolve()
    return (
        folder.parent / name
        if folder.name == "model"
        else folder.with_name(f"{folder.name}-{name}")
    )
