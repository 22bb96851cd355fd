"""Files as people have them: every row is a document, or one error names the row."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtopics import Columns, Corpus
from fedtopics.errors import DataError
from fedtopics.text import readers
from fedtopics.text.readers import SEPARATORS, text_files
from tests.helpers.documents import CANARY, columns_of, texts, write

ROWS = [(f"w{i}", f"dr {i}", f"the oaks, number {i}") for i in range(120)]


def as_csv(separator: str, end: str = "\r\n", name: str = "text") -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=separator, lineterminator=end).writerows(
        [("ward", "person", name), *ROWS]
    )
    return file.getvalue()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_the_header_has_the_separator(
    separator: str, suffix: str, end: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"north.{suffix}", as_csv(separator, end))
    corpus: Any = Corpus.read(path, Columns(person="person"))
    assert columns_of(corpus) == {
        "documents": [text for *_, text in ROWS],
        "ids": [str(row) for row in range(120)],
        "persons": [person for _, person, _ in ROWS],
    }
    assert corpus.source == f"column 'text' of {path}, separated by {json.dumps(separator)}"
    assert repr(corpus).endswith(f"{corpus.source})")
    assert corpus.first_words == [4, 4, 4]


@pytest.mark.parametrize("said", ["sep=;", "SEP=;", '"sep=;"'])
def test_excels_first_line_says_the_separator(said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"{said}\r\ntext,full;id\r\noak, elm;1\r\n")
    assert texts(path, Columns(text="text,full")) == ["oak, elm"]


def test_two_separators_that_fit(tmp_path: Path) -> None:
    content = "id,nr;text\n1,2;oak\n3,4;elm\n"
    path = write(tmp_path / "a.csv", content)
    with pytest.raises(DataError, match=r'separated by "," or by ";"; .* such as sep=;$'):
        Corpus.read(path)
    assert texts(write(path, f"sep=;\n{content}")) == ["oak", "elm"]
    assert texts(write(tmp_path / "a.tsv", "id,nr\ttext\n1,2\toak\n")) == ["oak"]


def test_rows_decide_where_the_header_has_two(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ward, room;text\nw0;the oaks, and elms\nw1;firs\n")
    assert texts(path) == ["the oaks, and elms", "firs"]


@pytest.mark.parametrize(
    "first", [CANARY, f"{CANARY} has an oak.", "comment", f"{CANARY};oak", "Anna Schmidt, 7 b, oak"]
)
def test_a_first_line_that_may_be_a_document(first: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"{first}\n{first}\n{first}\n")
    says = "first line may be a doc|the first row may be a document"
    with pytest.raises(DataError, match=says) as error:
        Corpus.read(path)
    assert CANARY not in str(error.value)
    assert "Anna" not in str(error.value)


def test_a_column_that_the_user_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "comment\noak\n\nelm\n")
    with pytest.raises(
        DataError, match=r"a\.csv has one column, .* add the word text as first line"
    ):
        Corpus.read(path)
    assert texts(path, Columns(text="comment")) == ["oak", "", "elm"]
    assert texts(write(path, "text\ncomment\noak\n\nelm\n")) == ["comment", "oak", "", "elm"]
    with pytest.raises(DataError, match=r"no column 'nowhere' in .*a\.csv; it has: text\."):
        Corpus.read(path, Columns(text="nowhere"))


@pytest.mark.parametrize("header", ["ward;person;comment", "w0;dr. who;the oaks fell", "a;b;c"])
def test_columns_of_which_none_is_called_text(header: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"{header}\nw1;x;y\n")
    with pytest.raises(DataError, match="It is not clear which column") as error:
        Corpus.read(path)
    assert ("it has: ward, person, comment" in str(error.value)) is header.startswith("ward;person")
    assert "oaks" not in str(error.value)
    assert texts(path, Columns(text=header.split(";")[2])) == ["y"]


def test_lines_without_anything(tmp_path: Path) -> None:
    two = "id,text\n\n1,oak\n   \n2,\n3,elm\n\n \n"
    assert texts(write(tmp_path / "a.csv", two)) == ["oak", "", "elm"]
    for end in "\n", "\r\n":
        one = end.join(["text", "oak", "", "  ", "elm", ""])
        assert texts(write(tmp_path / "b.csv", one)) == ["oak", "", "  ", "elm"]
    assert texts(write(tmp_path / "c.jsonl", '\n{"text": "oak"}\n \n{"text": ""}\n')) == ["oak", ""]


CELLS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(rows=st.lists(CELLS, min_size=1, max_size=9))
def test_a_column_that_csv_writes(
    rows: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of several columns, test_formats has the same."""
    file = io.StringIO()
    csv.writer(file).writerows([("text",), *((text,) for text in rows)])
    assert texts(write(tmp_path_factory.mktemp("csv") / "a.csv", file.getvalue())) == rows


@settings(derandomize=True, deadline=None, max_examples=50)
@given(content=st.text(st.sampled_from('ab,;"\n\r\t|'), max_size=40))
def test_any_text_is_read_whole_or_refused(
    content: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(tmp_path_factory.mktemp("any") / "a.csv", f"text,id\n{content}")
    try:
        documents = texts(path)
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert len(documents) <= len(content.replace("\r\n", "\n").splitlines())


def test_columns_of_json_that_nobody_needs(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 7, "text": "oak", "score": 1, "category": ["a"]},
        {"id": "x7", "text": "elm", "score": "high", "more": {"a": [1, "b"]}},
        {"id": 2.5, "text": float("nan"), "score": float("nan"), "category": "b"},
    ]
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    corpus = Corpus.read(path)
    # Identifiers are as they are written, and a column happens to be called category.
    assert columns_of(corpus) == {"documents": ["oak", "elm", ""], "ids": ["7", "x7", "2.5"]}
    labels: Any = Corpus.read(path, Columns(label="score")).labels
    assert labels.to_pylist() == ["1", "high", None]
    with pytest.raises(DataError, match=r"Row 1 of column 'category' of .*a\.jsonl is of type"):
        Corpus.read(path, Columns(label="category"))


def test_which_files_of_a_folder_are_documents(tmp_path: Path) -> None:
    given = {"a.txt": "", "b.TXT": "two\nlines", "deep/c.Txt": "drei Äpfel"}
    for name in (
        *reversed(given),
        "__MACOSX/a.txt",
        "._a.txt",
        ".hidden/b.txt",
        "Thumbs.db",
        "desktop.ini",
        ".DS_Store",
        "d.docx",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, given.get(name, "oak"))
    corpus = Corpus.read(tmp_path)
    assert columns_of(corpus) == {"documents": [*given.values()], "ids": [*given]}
    not_read = "(not read: 7 hidden or not .txt)"
    assert corpus.source == f"3 .txt files of {tmp_path} {not_read}"
    assert len(text_files(tmp_path)[0]) == 3


def test_links_in_a_folder(tmp_path: Path) -> None:
    """Linked folders are read, once in a circle; names that are not UTF-8 are escaped."""
    folder = tmp_path / "near"
    for place in (folder, tmp_path / "far"):
        place.mkdir()
    far = write(tmp_path / "far" / "a.txt", "oak")
    write(Path(os.fsdecode(os.fsencode(folder) + b"/K\xf6ln.txt")), "elm")
    (far.parent / "up").symlink_to(folder)
    links = {"link": far.parent, "b.txt": far, ".c.txt": far, ".d": far.parent, "e.txt": "none.txt"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    corpus = Corpus.read(folder)
    assert columns_of(corpus) == {
        "documents": ["elm", "oak", "oak"],
        "ids": [r"K\xf6ln.txt", "b.txt", "link/a.txt"],
    }
    not_read = "(not read: 2 hidden or not .txt, 1 linked to nothing)"
    assert corpus.source == f"3 .txt files of {folder} {not_read}"


def test_a_folder_without_documents_says_what_it_has(tmp_path: Path) -> None:
    write(tmp_path / ".a.txt", "oak")
    with pytest.raises(DataError, match=r"no \.txt file \(not read: 1 hidden or not \.txt\);"):
        Corpus.read(tmp_path)


def test_what_is_closed_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file nor a folder in a folder, which would be left out."""

    def closed(path: Any, *_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "letters.csv").write_text("text\noak\n")
    monkeypatch.setattr(readers, "open_file", closed)
    monkeypatch.setattr(os, "scandir", closed)
    for path in (tmp_path, tmp_path / "letters.csv"):
        with pytest.raises(DataError, match=f"{path.name} cannot be opened: Permission denied"):
            Corpus.read(path)
