"""Which documents a round uses: slices, columns of rounds or times, files that grow."""

from __future__ import annotations

import datetime as dt
import json
import traceback
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedtopics import Columns, Corpus, Study
from fedtopics.errors import DataError, RunError, StudyError
from fedtopics.methods.flda.arrivals import Arrivals, ArrivalSettings, Follow

NUMBERS = ArrivalSettings()
MONTHS = ArrivalSettings(period="month", begin=date(2024, 1, 15))
CANARY = "quetzalcoatl"


def slices(size: int) -> ArrivalSettings:
    return ArrivalSettings(documents_per_round=size)


def numbered(size: int) -> Corpus:
    return Corpus.of([f"document{i}" for i in range(size)])


def with_rounds(values: Any) -> Corpus:
    """Documents with a column of rounds."""
    return Corpus.of(
        pd.DataFrame({"text": [f"document{i}" for i in range(len(values))], "round": values}),
        Columns(rounds="round"),
    )


def arrivals(corpus: Corpus, settings: ArrivalSettings = NUMBERS, **more: Any) -> Arrivals:
    return Arrivals(corpus, settings, **more)


def numbers(corpus: Corpus) -> list[int]:
    """Which documents these are."""
    return [int(text.removeprefix("document")) for text in corpus.documents.to_pylist()]


def at_least(number: int) -> Callable[[Corpus], bool]:
    return lambda corpus: len(corpus) >= number


def taken(came: Arrivals, rounds: int, least: int = 1) -> list[list[int]]:
    """Which documents each round takes."""
    return [numbers(came.take(round_, at_least(least))) for round_ in range(1, rounds + 1)]


def test_a_round_takes_so_many_more_and_the_same_if_it_is_asked_for_twice() -> None:
    came = arrivals(numbered(5), slices(2))
    assert came.once
    assert taken(came, 2) == [[0, 1], [2, 3]]
    assert numbers(came.take(2, at_least(5))) == [2, 3], "they are used already"
    assert taken(came, 4) == [[0, 1], [2, 3], [4], []]
    assert numbers(came.used()) == [0, 1, 2, 3, 4]
    # Too few documents are left to the next round.
    came = arrivals(numbered(5), slices(2))
    assert numbers(came.take(1, at_least(3))) == [0, 1], "the client says how many there are"
    assert numbers(came.used()) == []
    assert numbers(came.take(2, at_least(3))) == [0, 1, 2, 3]
    assert numbers(came.take(3, at_least(3))) == [4]
    assert numbers(came.used()) == [0, 1, 2, 3]


def test_without_anything_else_every_round_takes_all() -> None:
    came = arrivals(numbered(3))
    assert not came.once
    assert taken(came, 2, least=9) == [[0, 1, 2]] * 2
    assert numbers(came.used()) == [0, 1, 2]


@pytest.mark.parametrize(
    "values", [[2, 1, 3, 1, 2], ["2", "1", "3", "1", "2"], [2.0, 1.0, 3.0, 1.0, 2.0]]
)
def test_a_column_of_rounds(values: list[Any]) -> None:
    assert taken(arrivals(with_rounds(values)), 4) == [[1, 3], [0, 4], [2], []]


def test_a_column_of_rounds_wins_over_slices() -> None:
    assert taken(arrivals(with_rounds([2, 1, 1]), slices(1)), 2) == [[1, 2], [0]]


@pytest.mark.parametrize(
    ("period", "begin", "days"),
    [
        ("day", "2024-02-28", {"2024-02-28": 1, "2024-02-29": 2, "2024-03-01": 3}),
        ("week", "2024-01-03", {"2024-01-09": 1, "2024-01-10": 2, "2024-01-17": 3}),
        ("month", "2024-11-15", {"2024-11-01": 1, "2024-12-31": 2, "2025-01-01": 3}),
        ("quarter", "2024-08-15", {"2024-07-01": 1, "2024-12-31": 2, "2025-01-01": 3}),
        ("year", "2024-08-15", {"2024-01-01": 1, "2025-12-31": 2, "2026-01-01": 3}),
    ],
)
@pytest.mark.parametrize("kind", ["string", "date", "time", "zone"])
def test_a_column_of_times(period: Any, begin: str, days: dict[str, int], kind: str) -> None:
    settings = ArrivalSettings(period=period, begin=date.fromisoformat(begin))
    times = [dt.datetime.fromisoformat(day) + dt.timedelta(hours=23) for day in days]
    values = {
        "string": list(days),
        "date": [time.date() for time in times],
        "time": times,
        "zone": [time.replace(tzinfo=dt.UTC) for time in times],
    }[kind]
    assert list(days.values()) == [1, 2, 3]
    assert taken(arrivals(with_rounds(values), settings), 3) == [[0], [1], [2]]


def test_what_is_older_than_the_beginning_is_of_round_1() -> None:
    times = ["2023-12-31", "1969-07-20", "2024-01-01 10:00", "2024-02-01T00:00:00"]
    assert taken(arrivals(with_rounds(times), MONTHS), 2) == [[0, 1, 2], [3]]
    zones = ["2024-02-01T10:00:00.5Z", "2024-01-31 23:59:59+02:00", "2024-03-01"]
    assert taken(arrivals(with_rounds(zones), MONTHS), 3) == [[1], [0], [2]], "as days are named"
    assert taken(arrivals(with_rounds([-3, 0, 1, 2])), 2) == [[0, 1, 2], [3]]


ROUNDS = "must contain numbers of rounds, 1 or more; for times, set period."
TIMES = "must contain dates or times such as 2024-05-31."
MISSING = "is empty in {} rows; fill it in, or leave these rows out."
DAY = dt.date(2024, 2, 1)


@pytest.mark.parametrize(
    ("values", "settings", "message"),
    [
        (["1", CANARY], NUMBERS, ROUNDS),
        (["1", " ", ""], NUMBERS, MISSING.format("2 of 3")),
        (["1", 2.5, CANARY], NUMBERS, ROUNDS),
        ([1.5, 2.0], NUMBERS, ROUNDS),
        ([[1], [2]], NUMBERS, ROUNDS),
        ([DAY, DAY], NUMBERS, ROUNDS),
        ([dt.datetime(2024, 2, 1), dt.datetime(2024, 2, 2)], NUMBERS, ROUNDS),
        (["2024-02-01", "2024-02-02"], NUMBERS, ROUNDS),
        (["2024-02-01", CANARY], MONTHS, TIMES),
        (["2024-02-01", "1.2.2024"], MONTHS, TIMES),
        (["2024-02-01", "2024-13-01"], MONTHS, TIMES),
        ([2023, 2024], MONTHS, TIMES),
        ([2023.5, 2024.0], MONTHS, TIMES),
        ([1, None, None], NUMBERS, MISSING.format("2 of 3")),
        ([DAY, None], MONTHS, MISSING.format("1 of 2")),
    ],
)
def test_a_column_of_no_rounds(values: list[Any], settings: ArrivalSettings, message: str) -> None:
    with pytest.raises(DataError) as error:
        arrivals(with_rounds(values), settings)
    assert str(error.value) == f"the column of rounds {message}"
    assert CANARY not in "".join(traceback.format_exception(error.value))


def test_period_and_begin_go_together() -> None:
    for half in ({"period": "month"}, {"begin": "2024-01-01"}):
        with pytest.raises(
            StudyError, match="period and begin belong together; give both or neither"
        ):
            Study.make(method={"name": "flda", **half})
    method = Study.make(method={"name": "flda", "period": "week", "begin": "2024-01-01"}).method
    assert (method.period, method.begin) == ("week", date(2024, 1, 1))


def test_a_client_that_is_begun_anew_goes_on(tmp_path: Path) -> None:
    state = tmp_path / "deep" / "arrivals.jsonl"
    whole = arrivals(numbered(7), slices(2))
    assert taken(arrivals(numbered(7), slices(2), folder=state.parent), 2) == taken(whole, 2)
    again = arrivals(numbered(7), slices(2), folder=state.parent)
    assert numbers(again.used()) == [0, 1, 2, 3]
    assert taken(again, 3) == taken(whole, 3) == [[0, 1], [2, 3], [4, 5]]
    assert [json.loads(line)["round"] for line in state.read_text().splitlines()] == [1, 2, 3], (
        "a round that is asked for twice is written once"
    )


def test_the_state_holds_no_document(tmp_path: Path) -> None:
    arrivals(Corpus.of(["a b", CANARY]), slices(2), folder=tmp_path).take(1, at_least(1))
    assert CANARY not in (tmp_path / "arrivals.jsonl").read_text()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What a client of two rounds has written."""
    taken(arrivals(numbered(7), slices(2), folder=tmp_path), 2)
    return tmp_path / "arrivals.jsonl"


def test_half_a_line_at_the_end_of_the_state_is_cut(state: Path) -> None:
    whole = state.read_bytes()
    state.write_bytes(whole + b'{"round": 3, "docu')
    again = arrivals(numbered(7), slices(2), folder=state.parent)
    assert state.read_bytes() == whole
    assert numbers(again.take(3, at_least(1))) == [4, 5]


@pytest.mark.parametrize(
    "damage", [b"{", b"3", b"[]", b'{"round": 3}', b'{"round": "x", "documents": [1]}', b"\xff"]
)
def test_a_damaged_state(damage: bytes, state: Path) -> None:
    state.write_bytes(state.read_bytes() + damage + b"\n")
    says = f"^{state} is damaged; delete it, so that the next round uses all documents again.$"
    with pytest.raises(RunError, match=says):
        arrivals(numbered(7), slices(2), folder=state.parent)


class Growing:
    """A file to which a test adds, and a client that follows it."""

    def __init__(self, path: Path, folder: Path | None = None, **columns: str) -> None:
        self.path = path
        self.reasons: list[str] = []
        self.follow = Follow(path, Columns(**columns), self.reasons.append)
        self.came = arrivals(self.follow(), growing=self.follow, folder=folder)

    def add(self, content: str, coding: str = "utf-8") -> Growing:
        with self.path.open("a", encoding=coding) as file:
            file.write(content)
        return self

    def there(self) -> list[int]:
        return numbers(self.follow())

    def take(self, round_: int, least: int = 1) -> list[int]:
        return numbers(self.came.take(round_, at_least(least)))


@pytest.mark.parametrize(
    ("name", "parts", "coding"),
    [
        ("a.csv", ["text", ",id\n", "document0,a\ndocum", "ent1,b", "\n"], "utf-8"),
        ("a.jsonl", ["", '{"text": "document0"', '}\n{"text": "docu', 'ment1"', "}\n"], "utf-8"),
        ("a.csv", ["\ufefftext", ",id\n", "document0,a\ndocum", "ent1,b", "\n"], "utf-16-le"),
    ],
)
def test_a_document_is_there_when_it_is_whole(
    name: str, parts: list[str], coding: str, tmp_path: Path
) -> None:
    grown = Growing(tmp_path / name)
    assert grown.there() == []
    assert [grown.add(part, coding).there() for part in parts] == [[], [], [0], [0], [0, 1]]
    assert grown.came.once
    assert grown.reasons == []


def test_a_document_whose_quote_is_open_is_there_when_it_ends(tmp_path: Path) -> None:
    grown = Growing(tmp_path / "a.csv").add('text,id\n"document0",a\n"document1, ""2""\n')
    assert grown.there() == [0]
    reason = f"The last row of {grown.path} has an open quote; it is read when that ends."
    assert grown.reasons == [reason]
    assert grown.add('document3,c\nmore ""').there() == [0]
    whole = grown.add('end""",b\ndocument4,c\n').follow().documents.to_pylist()
    assert whole == ["document0", 'document1, "2"\ndocument3,c\nmore "end"', "document4"]
    assert grown.reasons == [reason, reason]


def test_rounds_of_a_csv_that_grows(tmp_path: Path) -> None:
    grown = Growing(tmp_path / "a.csv").add("text,id\ndocument0,a\ndocument1,b\ndoc")
    assert grown.take(1) == [0, 1]
    assert grown.take(2) == []
    assert grown.add("ument2,c\n").take(3, least=2) == [2]
    assert grown.take(4, least=2) == [2]
    assert grown.add("document3,d\n").take(5, least=2) == [2, 3]
    assert grown.add("document4,e\n").take(1) == [0, 1]
    assert numbers(grown.came.used()) == [0, 1, 2, 3]


def test_a_folder_that_grows(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    grown = Growing(folder, tmp_path)
    assert grown.there() == []
    folder.mkdir()
    assert grown.there() == []
    (folder / "m.txt").write_text("document0")
    (folder / "n.txt").write_text("document1")
    assert grown.take(1) == [0, 1]
    (folder / "a.txt").write_text("document2")
    (folder / "z").mkdir()
    (folder / "z" / "a.txt").write_text("document3")
    assert grown.take(2) == [2, 3]
    assert grown.take(1) == [0, 1]
    assert numbers(grown.came.used()) == [2, 0, 1, 3], "as the folder has them"
    (folder / "m.txt").unlink()
    again = Growing(folder, tmp_path)
    assert again.take(1) == [1]
    assert again.take(2) == [2, 3]
    assert again.take(3) == []


@pytest.mark.parametrize(
    ("name", "first", "spoilt"),
    [
        ("a.csv", b"text,id\ndocument0,a\n", b"text,id\n\xff\xfe quetzalcoatl,1\n"),
        ("a.jsonl", b'{"text": "document0"}\n', b'{"text": "document0"}\nquetzalcoatl\n'),
        ("a.txt/b.txt", b"document0", b"\xff\xfe quetzalcoatl"),
    ],
)
def test_what_cannot_be_read_is_told_and_read_later(
    name: str, first: bytes, spoilt: bytes, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(first)
    grown = Growing(tmp_path / name.partition("/")[0])
    assert grown.take(1) == [0]
    path.write_bytes(spoilt)
    assert grown.there() == [0]
    assert grown.take(1) == [0]
    assert len(grown.reasons) == 2
    reason = grown.reasons[0]
    assert str(path) in reason
    assert CANARY not in reason
    path.write_bytes(first)
    assert grown.there() == [0]
    assert len(grown.reasons) == 2


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    grown = Growing(tmp_path / "a.csv", text="body").add("text,id\ndocument0,a\n")
    assert grown.there() == []
    assert grown.reasons == [f"There is no column 'body' in {grown.path}; it has: text, id."]


def test_a_file_that_shrank(tmp_path: Path) -> None:
    grown = Growing(tmp_path / "a.csv").add("text,id\ndocument0,a\ndocument1,b\n")
    assert grown.take(1) == [0, 1]
    grown.path.write_text("text,id\ndocument7,a\n")
    says = "^the file has 1 documents, but rounds have already used 2; only add rows at its end.$"
    with pytest.raises(DataError, match=says):
        grown.came.take(2, at_least(1))
