"""When documents are from, where a file says so: each topic's share by period, by sums alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError
from fedtopics.federation.study_tables import ClientData
from fedtopics.model.over_time import Unit
from fedtopics.model.topic_model import TopicModel
from fedtopics.report.run import RunFacts
from fedtopics.text.corpus import Corpus
from fedtopics.text.tables import Columns, find_column, read_table

LONGEST: dict[Unit, int] = {"week": 100, "month": 800, "quarter": 2200}  # days that are cut so
Rows = list[dict[str, Any]]


def over_time(
    model: TopicModel, run: RunFacts, own: Path | None = None, columns: Columns | None = None,
    time: str | None = None,
) -> Rows | None:  # fmt: skip
    """Return each topic's share by period, of one's own file, or of a simulation's clients.

    Parameters
    ----------
    own : path, optional
        A file of documents, with these `columns`.
    time : str, optional
        Its column of times. Of a simulation's clients it is what their tables say.

    Returns
    -------
    list of dict, or None
        As of `TopicModel.topics_over_time`; None where there is no time.

    Raises
    ------
    DataError
        If there is no such column, or what is there are no times.
    """
    if own is not None:
        corpora = {"": Corpus.read(own, columns)} if time else {}
        times = {"": times_of(own, time)} if time else {}
    else:
        tables = _tables(run, time)
        corpora = {name: table.read(name) for name, table in tables.items()}
        times = {name: times_of(t.data, t.time) for name, t in tables.items() if t.data and t.time}
    if not corpora:
        if time:
            raise DataError(
                f"There are no documents whose column {time!r} could be read; name their file with "
                "--with-documents."
            )
        return None
    return model.topics_over_time(corpora, times, by=_unit([*times.values()])) or None


def _tables(run: RunFacts, time: str | None) -> dict[str, ClientData]:
    """Return where the documents of a simulation's clients are; nothing of other runs."""
    tables: Mapping[str, Any] = run.study.get("clients", {}) if run.place == "simulation" else {}
    try:
        read = {name: ClientData(**table) for name, table in tables.items()}
    except (TypeError, ValueError):
        raise StudyError("The study's tables of clients are damaged; mend them.") from None
    dated = {n: t.model_copy(update={"time": time or t.time}) for n, t in read.items()}
    return {name: table for name, table in dated.items() if table.time and table.data}


def times_of(path: Path, column: str) -> NDArray[Any]:
    """Return the times of a file's documents, in their order; DataError if there is no column."""
    table = read_table(path)
    found = find_column(table, column, (), str(path))
    return np.asarray(table.column(found).to_pylist())


def _unit(times: Sequence[NDArray[Any]]) -> Unit | None:
    """Return the period in which the times are seen, by how far apart they are."""
    try:
        days = np.concatenate([each.astype("datetime64[D]") for each in times])
    except (TypeError, ValueError):
        return None  # numbers, or what `topics_over_time` refuses
    reach = int((days.max() - days.min()).astype(int)) if len(days) else 0
    return next((unit for unit, most in LONGEST.items() if reach <= most), "year")
