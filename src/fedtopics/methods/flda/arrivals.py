"""Which documents a round uses: all, a fixed number, those that a column assigns, or new ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from fedtopics import files
from fedtopics.errors import DataError, RunError
from fedtopics.text.columns import Column
from fedtopics.text.corpus import Corpus
from fedtopics.text.growing import Follow
from fedtopics.text.times import PERIODS, Unit

Key = int | str


class ArrivalSettings(BaseModel, extra="forbid", frozen=True):
    """Which documents belong to which round."""

    documents_per_round: int | None = Field(
        None,
        ge=1,
        description="each round uses this many further documents, in order; by default it uses "
        "all, unless clients name a column of rounds or follow growing data",
    )
    period: Unit | None = Field(
        None,
        description='a round is a "day", "week", "month", "quarter" or "year" of the times in the '
        "column of rounds; by default that column contains numbers of rounds",
    )
    begin: date | None = Field(None, description="any day in the first round; required with period")

    @model_validator(mode="after")
    def _begins(self) -> ArrivalSettings:
        if (self.period is None) != (self.begin is None):
            raise ValueError("period and begin belong together; give both or neither")
        return self


class Arrivals:
    """A client's documents and the round that used each, recorded in `folder` for a restart."""

    def __init__(
        self,
        corpus: Corpus,
        settings: ArrivalSettings,
        folder: Path | None = None,
        growing: Follow | None = None,
    ) -> None:
        self._corpus = corpus
        self._growing = growing
        self._state = None if folder is None else folder / "arrivals.jsonl"
        self._rounds = _rounds(corpus, settings) if self._growing is None else None
        self._used: dict[Key, int] = {} if self._state is None else _read_state(self._state)

    @property
    def once(self) -> bool:
        """Whether each document belongs to only one round; otherwise every round takes all."""
        return self._growing is not None or self._rounds is not None

    def take(self, round_: int, is_enough: Callable[[Corpus], bool]) -> Corpus:
        """Return a round's documents; if they are not enough, they stay unused."""
        if not self.once:
            return self._corpus
        keys = self._keys()
        rows = [row for row, key in enumerate(keys) if self._used.get(key) == round_]
        if not rows:
            arrived = np.ones(len(keys), bool) if self._rounds is None else self._rounds <= round_
            rows = [row for row in np.flatnonzero(arrived).tolist() if keys[row] not in self._used]
            if is_enough(self._corpus.take(rows)):
                used = [keys[row] for row in rows]
                if self._state is not None:
                    files.make_folder(self._state.parent)
                    with files.open_private(self._state, "a", encoding="utf-8") as file:
                        file.write(json.dumps({"round": round_, "documents": used}) + "\n")
                self._used |= dict.fromkeys(used, round_)
        return self._corpus.take(rows)

    def used(self) -> Corpus:
        """Return the documents of all rounds so far, in order."""
        return (
            self._corpus.take([row for row, key in enumerate(self._keys()) if key in self._used])
            if self.once
            else self._corpus
        )

    def _keys(self) -> Sequence[Key]:
        """Return the key of each current document."""
        if self._growing is not None:
            self._corpus = self._growing()
            if self._growing.by_name:
                return list(self._corpus.ids.to_pylist())
            if len(self._corpus) < len(self._used):
                raise DataError(
                    f"the file has {len(self._corpus):,} documents, but rounds have already used "
                    f"{len(self._used):,}; only add rows at its end."
                )
        return range(len(self._corpus))


def _read_state(path: Path) -> dict[Key, int]:
    if not path.exists():
        return {}
    files.cut_torn_line(path)
    try:
        lines = [json.loads(line) for line in files.read_text(path).splitlines()]
        return {key: int(line["round"]) for line in lines for key in line["documents"]}
    except (ValueError, LookupError, TypeError):
        raise RunError(
            f"{path} is damaged; delete it, so that the next round uses all documents again."
        ) from None


def _rounds(corpus: Corpus, settings: ArrivalSettings) -> NDArray[np.int64] | None:
    """Return the round of each document; None if every round takes all."""
    if corpus.rounds is None:
        size = settings.documents_per_round
        return None if size is None else np.arange(len(corpus)) // size + 1
    column = Column([corpus.rounds], "the column of rounds").values()
    if column.null_count:
        raise DataError(
            f"the column of rounds is empty in {column.null_count:,} of {len(column):,} rows; "
            "fill it in, or leave these rows out."
        )
    if settings.period is None or settings.begin is None:
        return _cast(column, pa.int64(), "numbers of rounds, 1 or more; for times, set period")
    days = _cast(column, pa.date32(), "dates or times such as 2024-05-31").astype("datetime64[D]")
    periods = _count_periods(days, settings.period, np.datetime64(settings.begin, "D"))
    return np.maximum(periods, 0) + 1  # older documents belong to the first round


def _cast(column: pa.ChunkedArray, kind: pa.DataType, wanted: str) -> NDArray[Any]:
    times = kind == pa.date32()
    misfit = pa.types.is_integer if times else pa.types.is_temporal
    try:
        if misfit(column.type):  # Arrow would count from 1970
            raise pa.ArrowInvalid
        if times and not pa.types.is_temporal(column.type):
            column = pc.utf8_slice_codeunits(
                column, 0, len("2024-05-31")
            )  # without time and time zone
        return np.asarray(column.cast(kind, safe=not times).to_numpy())
    except pa.ArrowException:
        # Arrow's own message quotes the value, so it is dropped.
        raise DataError(f"the column of rounds must contain {wanted}.") from None


def _count_periods(days: NDArray[Any], period: Unit, begin: np.datetime64) -> NDArray[np.int64]:
    unit, step = PERIODS[period]
    if unit == "D":  # weeks begin with the day that was given
        return np.asarray((days - begin).astype(np.int64) // step)
    first = begin.astype("datetime64[M]").astype(np.int64) // step
    return np.asarray(days.astype("datetime64[M]").astype(np.int64) // step - first)
