"""Others' text: what it does to none of the outputs that show it."""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedtopics import escaping
from tests.helpers.hostile import HOSTILE_WORDS, NO_WORDS

ALL = (*HOSTILE_WORDS, *NO_WORDS, "".join(NO_WORDS), "\n".join(HOSTILE_WORDS))
OUTPUTS: dict[str, Callable[[str], str]] = {
    "visible": escaping.visible,
    "sentence": escaping.as_sentence,
    "html": escaping.for_html,
    "scripts": escaping.for_scripts,
    "markdown": escaping.for_markdown,
    "csv": escaping.for_csv,
    "terminal": lambda text: escaping.for_terminal(text).replace("\n", ""),
    "json": lambda text: escaping.as_json([text]),
    "file": escaping.file_name,
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_nothing_in_any_output_is_a_command_or_hides_text(name: str) -> None:
    for text in ALL:
        for character in OUTPUTS[name](text):
            kind = unicodedata.category(character)
            assert kind not in ("Cc", "Cs", "Zl", "Zp"), hex(ord(character))
            assert kind != "Cf" or character in "\u00ad\u200c\u200d", hex(ord(character))
            assert ord(character) & 0xFFFE != 0xFFFE


@pytest.mark.parametrize(
    "text", ["naïve", "R&D — 50 %", "\u0645\u06cc\u200c\u062e", "👩\u200d🔬", "a\u00a0b", ""]
)
def test_what_prints_stays(text: str) -> None:
    assert escaping.visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jx", r"\x1b[2Jx"),
        ("a\tb\r\n", r"a\tb\r\n"),
        ("\u202eabc", r"\u202eabc"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("\uffff", r"\uffff"),
    ],
)
def test_what_does_not_print_is_an_escape(text: str, shown: str) -> None:
    assert escaping.visible(text) == shown


def test_a_sentence_is_one_line_and_not_long() -> None:
    assert escaping.as_sentence("the disk\nis full\r\n ") == "the disk is full"
    assert escaping.as_sentence("x" * 10**6) == "x" * 300 + " …"
    assert escaping.as_sentence("x" * 300) == "x" * 300
    assert len(escaping.as_sentence("\U000e0041" * 10**6)) == 302


class Reader(HTMLParser):
    said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert (tag, [key for key, _ in attrs]) == ("p", ["title"])

    def handle_data(self, data: str) -> None:
        self.said += data


def test_html_is_text() -> None:
    for text in ALL:
        reader = Reader()
        shown = escaping.for_html(text)
        reader.feed(f"<p title=\"{shown}\">{shown}</p><p title='{shown}'>")
        reader.close()
        assert reader.said == escaping.visible(text)


def test_a_script_of_another_library_does_not_end() -> None:
    for text in ALL:
        assert "<" not in json.dumps(escaping.for_scripts(text))


def test_markdown_is_one_cell_without_markup() -> None:
    for text in ALL:
        shown = escaping.for_markdown(text)
        bare = re.sub(r"\\[\\`*_\[\]<>|&~${}:#+-]", "", shown)  # what CommonMark takes as it is
        assert not re.search(r"[\\`*_\[\]<>|&~${}#]|://", bare)
        assert not re.match(r"[-+](?![\w.])", shown), "nor a list"
        assert "\n" not in shown


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_spreadsheet_computes_nothing(separator: str) -> None:
    """Whatever character the reader's country separates cells by."""
    for text in ALL:
        file = io.StringIO()
        csv.writer(file).writerow([0.5, escaping.for_csv(text), escaping.for_csv(f"tea;{text}")])
        for cells in csv.reader([file.getvalue()], delimiter=separator):
            for cell in cells:
                assert not re.match(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]", cell.lstrip('"'))
        assert escaping.for_csv(escaping.for_csv(text)) == escaping.for_csv(text)


def test_json_means_the_same() -> None:
    for text in ALL:
        assert json.loads(escaping.as_json({text: [text]}, indent=1)) == {text: [text]}


def test_a_title_leads_to_no_other_folder(tmp_path: Path) -> None:
    for title in ("../../etc", "/etc/passwd", "..", "", "C:\\x", *ALL):
        name = escaping.file_name(title)
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        assert 0 < len(name) <= 60
        (tmp_path / name).mkdir(exist_ok=True)
