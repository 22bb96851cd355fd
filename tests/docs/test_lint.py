"""The prose linter finds what readers stumble over, and nothing in plain sentences."""

import sys

import pytest

from tests.helpers.pages import DOCS

sys.path.insert(0, str(DOCS / "_site"))
import generated
import lint

LONG = "A sentence " + "of more words " * 9 + "ends here."
CELL = "| name | " + "word " * 26 + "|\n| --- | --- |"


@pytest.mark.parametrize(
    ("page", "findings"),
    [
        ("The server sums updates. Each member checks them.\n", []),
        ("Whoever adds is\ntold the sum.\n", [(1, "Whoever adds"), (1, "is told")]),
        ("Text.\n\n```sh\nwhoever adds\n```\n\nIt is the `adder`.\n", []),
        (f"Text.\n\n{LONG}\n", [(3, "a sentence of 31 words")]),
        (f"Text.\n\n{CELL}\n", [(3, "a cell of 26 words")]),
    ],
)
def test_pages(page: str, findings: list[tuple[int, str]]) -> None:
    reported = sorted(set(lint.of_page(page)))
    assert {line for line, _ in reported} == {line for line, _ in findings}
    for line, words in findings:
        assert any(at == line and words in finding for at, finding in reported), words


def test_code() -> None:
    code = '"""Nothing leaves here."""\nname = "adder"\nword = 1  # goes on with it\n'
    assert {line for line, _ in lint.of_code(code)} == {1, 3}


def test_the_reference_is_that_of_the_code() -> None:
    for page in [DOCS.parent / "README.md", *sorted(DOCS.glob("*/*.md"))]:
        assert generated.filled(text := page.read_text("utf-8")) == text, "run make generate"
    for path, schema in generated.schemas().items():
        assert path.read_text("utf-8") == schema, "run make generate"
