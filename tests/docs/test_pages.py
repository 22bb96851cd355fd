"""Every command and every block of README and docs runs, or is as the code has it."""

import ast
import html
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import click
import pytest
from pydantic import BaseModel

import fedtopics
from benchmarks.__main__ import benchmarks
from benchmarks.report_pictures import DIGEST, digest_of_texts
from experiments.commands import group as experiments
from fedtopics import Policy, Study
from fedtopics.cli import app
from fedtopics.methods.registry import METHODS, find_method
from tests.helpers import pages
from tests.helpers.command_line import commands, find_command
from tests.helpers.pages import DOCS, PAGES, ROOT, TUTORIALS, Block, blocks

# Commands that no test types, by page and beginning, and why. They are parsed. Tutorials have none:
# test_tutorials.py types all of them. README's Python is in test_readme.py.
ABSENT = "data that are not here"
READERS = "folders of the reader; small: "
NOT_TYPED = {
    ("", "pip install"): "would change this environment",
    ("", "make"): "of .ci/run, or of minutes and hours",
    ("README.md", "fedtopics"): "of four machines: make example NAME=federation",
    ("experiments", "python -m experiments"): f"hours, and {ABSENT}",
    ("experiments/gfedntm/algorithm-1.md", "fedtopics"): "four processes: as make example",
    ("docs/how-to/topics-over-time.md", "fedtopics join"): "waits: methods/test_flda_federation.py",
    ("docs/how-to/topics-over-time.md", "fedtopics flda"): "asks: cli/test_flda.py",
    ("docs/how-to/topics-over-time.md", "python -m experiments"): ABSENT,
    ("docs/how-to/continue-compare-merge.md", "fedtopics"): f"{READERS}cli/test_models.py",
    ("docs/how-to/deploy.md", "fedtopics status"): "of a run of the reader: cli/test_records.py",
    ("docs/how-to/forget-a-person.md", "fedtopics"): f"{READERS}federation/test_memory.py",
    ("docs/how-to/write-a-policy.md", "fedtopics"): f"{READERS}tutorials/steward.md",
    ("docs/how-to/private-study.md", "fedtopics"): f"{READERS}cli/test_privacy.py",
    ("docs/how-to/audit-and-dpia.md", "fedtopics"): f"{READERS}tutorials/steward.md",
    ("docs/how-to/python-and-bertopic.md", "fedtopics"): f"{READERS}cli/test_documents.py",
    ("docs/reference/report.md", "fedtopics"): f"{READERS}tutorials/analyst.md",
}

# Typed from begin to end by tests of their own.
ELSEWHERE = ("docs/how-to/dask.md", "docs/how-to/flare.md", "docs/how-to/flower.md")

RESULTS = sorted((ROOT / "benchmarks/results").glob("*.md"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
LAYERS = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
PYTHON = [p for p in PAGES if blocks(p, "python") and p not in (*TUTORIALS, pages.README)]
SHELL = [block for page in PAGES for block in blocks(page, "sh", "bash", "console")]
TYPED = [(block.page, command) for block in SHELL for command in block.commands()]
OTHERS = [entry for entry in TYPED if "/tutorials/" not in entry[0] and entry[0] not in ELSEWHERE]
TOML = [block for page in PAGES for block in blocks(page, "toml")]


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page: Path) -> None:
    pages.run(page)


def test_every_block_has_a_kind_that_is_tested() -> None:
    kinds = {block.kind for page in PAGES for block in blocks(page)}
    assert kinds <= {"sh", "python", "toml", "text", "ini", "json"}
    for page in PAGES:  # none that the pattern misses
        fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(page)), page


@pytest.mark.parametrize(("page", "command"), OTHERS)
def test_a_command_that_is_not_typed_says_why(page: str, command: str) -> None:
    reasons = [key for key in NOT_TYPED if page.startswith(key[0]) and command.startswith(key[1])]
    assert len(reasons) == 1


def test_reasons_are_of_commands_that_are_there() -> None:
    for page, beginning in NOT_TYPED:
        places = [where for where, command in OTHERS if command.startswith(beginning)]
        assert any(where.startswith(page) for where in places), (page, beginning)


@pytest.mark.parametrize(("page", "command"), OTHERS)
def test_a_command_is_one_that_the_program_takes(page: str, command: str) -> None:
    program, *arguments = shlex.split(command.partition(" >")[0])
    if program == "fedtopics":
        parse(arguments)
    elif program == "make":
        made(arguments)
    elif program == "pip":
        extras = re.fullmatch(r"(?:fedtopics|\.)(?:\[([\w,]+)\])?", arguments[-1])
        assert extras
        assert set((extras[1] or "neural").split(",")) <= set(EXTRAS)
    elif arguments[:2] == ["-m", "experiments"]:
        parse(arguments[2:], experiments)
    else:
        assert program in EXTRAS


def made(words: list[str]) -> None:
    """Look for a target of the Makefile, and for what it is given by NAME."""
    given = dict(word.split("=") for word in words if "=" in word)
    targets = [word for word in words if "=" not in word]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in targets)
    assert given.keys() <= {"NAME", "SUITE", "QUICK", "DATA", "OPTIONS"}
    allowed = {
        "bench": {*benchmarks(), "all", "list"},
        "experiment": {*experiments.commands},
        "example": {path.stem for path in (ROOT / "examples").glob("*.sh")},
        "stress": {"exhaustive", "faults", "fuzz", "world"},
    }
    for target in allowed.keys() & {*targets}:
        assert given.get("NAME", "list") in allowed[target] | {"list"}


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda page: page.stem)
def test_what_make_is_told_within_a_sentence_is_there(page: Path) -> None:
    for words in re.findall(r"`make ([^`]+)`", page.read_text(encoding="utf-8")):
        made(shlex.split(words.replace("\n", " ")))


def parse(words: list[str], program: click.Command = app) -> None:
    """Let click read a command's options and arguments, without running it."""
    command, rest = find_command(words, program)
    assert not isinstance(command, click.Group), words
    command.make_context(" ".join(words), rest)


def test_parsing_finds_what_is_wrong() -> None:
    parse(["sweep", "study.toml", "--topics", "5,10"])
    for wrong in (["sweep", "study.toml", "--topics", "ten"], ["topics"], ["train", "a", "--no"]):
        with pytest.raises(click.UsageError):
            parse(wrong)


def mentioned() -> list[tuple[str, str]]:
    """Commands within sentences and tables: `fedtopics topics MODEL [--words N]`."""
    spans = []
    for page in PAGES:
        prose = pages.FENCE.sub("", page.read_text(encoding="utf-8"))
        texts = re.findall(r"`fedtopics ((?:[^`\n]|\n(?!\n))+)`", prose)
        spans += [(page.name, text.replace("\n", " ")) for text in texts]
    return spans


@pytest.mark.parametrize(("page", "text"), mentioned(), ids=" ".join)
def test_a_command_within_a_sentence_exists(page: str, text: str) -> None:
    command, rest = find_command(text.split())
    assert command is not app
    options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(rest))) <= options


@pytest.mark.parametrize("block", TOML, ids=str)
def test_toml_is_a_study_or_a_policy(block: Block) -> None:
    given = tomllib.loads(block.text)
    if "project" in given:  # the pyproject.toml of a package
        return
    if given.keys() <= Policy.model_fields.keys():
        Policy(**given)
    else:
        Study.make(**given)


DOTTED = re.compile(r"(?<![\w.-])fedtopics(?:\.\w+)+(?!\w*/)")
FILE = re.compile(
    r"`((?:src|docs|tests|benchmarks|experiments|examples|engines|networks|methods|cli)/[\w./-]+\.\w+)`"
)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = re.sub(r"(?m)^\[project.*|local/fedtopics.toml", "", page.read_text(encoding="utf-8"))
    for name in DOTTED.findall(text):
        resolve_name(name)
    for file in FILE.findall(text):
        assert (ROOT / file).exists() or (ROOT / "src/fedtopics" / file).exists(), file


def test_pictures_show_the_report_as_it_is() -> None:
    """If this fails: make generate."""
    assert DIGEST.read_text("utf-8").strip() == digest_of_texts(), "make generate"


def test_the_table_of_contents_has_every_page() -> None:
    contents = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert page.name == "README.md" or f"]({page.relative_to(DOCS)})" in contents


def test_the_rooms_are_those_of_the_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "src/fedtopics").glob("*/__init__.py")}
    assert sorted(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == sorted(packages)
    drawn = [
        set(re.findall(r"[a-z]+", line))
        for line in blocks(ROOT / "CONTRIBUTING.md", "text")[0].text.splitlines()
    ]
    floors = [set(re.findall(r"\w+", layer)) & packages for layer in LAYERS]
    assert [floor for floor in drawn if floor] == [floor for floor in floors if floor]


if find_spec("zensical") is None:
    pytest.skip("zensical is missing", allow_module_level=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's folder; a warning, as of a link that leads nowhere, would fail."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(DOCS / "_site" / "build.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


class Tags(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.said: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(given["href"])
        self.loaded += [given[name] for name in given.keys() & {"src", "srcset", "data", "poster"}]

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.said).split())


def test_every_page_is_there(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (
            page.name == "README.md"
            or (site / page.relative_to(DOCS).with_suffix(".html")).is_file()
        )
    assert "Topic models across organisations" in Tags(site / "index.html").text
    assert (site / "CHANGELOG.html").is_file()
    assert (site / "benchmarks/results/faults.html").is_file()
    assert not (site / "_site").exists()


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        for address in Tags(page).loaded:
            assert not re.match(r"(\w+:)?//", address), (page, address)
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"""(@import|url\()\s*["']?(https?:)?//""", text), sheet


def words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text))


def test_the_reference_has_every_option(site: Path) -> None:
    text = Tags(site / "reference/commands.html").text
    for name, command in commands():
        section = text.partition(f"Usage: {name} ")[2].partition("Usage: ")[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[0] in section, (name, parameter)


def test_the_reference_has_every_key_of_a_study(site: Path) -> None:
    text = Tags(site / "reference/study.html").text
    for method in METHODS.names:
        section = text.partition(f'[method] name = "{method}"¶')[2].partition("¶")[0]
        for key, field in type(Study.make(method={"name": method}).method).model_fields.items():
            group = isinstance(field.default, BaseModel)
            assert key == "embedding" or f" {key}{'.' if group else ' '}" in section, (method, key)
            assert group or " ".join(str(field.description).split()) in section


def test_the_reference_says_what_leaves(site: Path) -> None:
    text = words(Tags(site / "reference/clients.html").text)
    for method in METHODS.names:
        for function in find_method(method).client.functions().values():
            assert words(function.data_sent) in text, (method, function.name)


@pytest.mark.parametrize("name", ["GuidedLDA", "ShortTextClustering", "TopicEstimator"])
def test_the_reference_has_the_defaults_of_the_code(site: Path, name: str) -> None:
    page = (site / "reference/python.html").read_text(encoding="utf-8")
    section = page.partition(f'id="fedtopics.{name}"')[2].partition("</table>")[0]
    rows = [
        [html.unescape(re.sub("<[^>]+>", "", cell)).strip() for cell in row.split("</td>")]
        for row in section.split("</tr>")[1:-1]
    ]
    shown = {row[0]: ast.literal_eval(row[3]) for row in rows if row[3] != "required"}
    given = inspect.signature(getattr(fedtopics, name)).parameters
    shown.pop("**others", None)
    assert shown == {key: given[key].default for key in shown}
    assert len(shown) > 2


def test_lists_are_lists(site: Path) -> None:
    """GitHub makes a list without an empty line before it; Python-Markdown does not."""
    for page in site.rglob("*.html"):
        text = re.sub(r"(?s)<(pre|code)\b.*?</\1>", "", page.read_text(encoding="utf-8"))
        assert not re.search(r"<p>[^<]*\n(- |\d+\. |\| )", text), page
