"""The order of the tests, and what they share."""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from fedtopics.terminal import display
from tests.helpers.command_line import CANARY, STUDY, Done, Refused, Typed, typist

# Files that take long, by their path. They come first: with some processes, each of which takes one
# file after the other, none is left alone with one of them in the end.
LONGEST = (
    "docs/test_tutorials.py",
    "report/test_browser.py",
    "methods/test_client_draws.py",
    "methods/test_exactness.py",
    "report/test_report.py",
    "federation/test_same_bits.py",
    "federation/test_federation.py",
    "docs/test_pages.py",
    "methods/test_continue.py",
    "methods/test_fstc.py",
    "text/test_embeddings.py",
)
TESTS = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-xdist keep that order; by itself it begins with the files of the most tests."""
    config.option.loadscopereorder = False
    # Fixtures of modules run outside the fixture of each test.
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="fedtopics-state-")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A process more than there are cores: some tests wait for others on the network."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


@pytest.fixture(autouse=True)
def _own_state_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test writes a memory into the home of whoever runs it, or reads another test's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that commands are typed in, and a terminal of a hundred columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(display, "console", display.Terminal(width=100))
    return tmp_path


@pytest.fixture
def folder(here: Path) -> Path:
    """Two clients' files and a study; the canary stands once in the north."""
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        words = np.array([f"{name}{chr(97 + i)}" for i in range(26)])
        rows = [" ".join(rng.choice(words, 8)) for _ in range(50)]
        rows[7] += f" {CANARY}" if name == "north" else ""
        (here / f"{name}.csv").write_text(
            "id,text\n" + "".join(f"{i},{row}\n" for i, row in enumerate(rows))
        )
    (here / "study.toml").write_text(STUDY)
    return here


_TRAINED: list[Path] = []


@pytest.fixture
def trained(folder: Path, typed: Typed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of that study in the folder out: trained once, and copied for each test."""
    if _TRAINED:
        shutil.copytree(_TRAINED[0], folder / "out")
    else:
        assert typed("train", "study.toml", "--out", "out")[0] == 0
        _TRAINED.append(shutil.copytree("out", tmp_path_factory.mktemp("trained") / "out"))
    return Path("out")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Type a command; return its exit code, and what it said."""
    return typist(monkeypatch, capsys)


@pytest.fixture
def done(typed: Typed) -> Done:
    """Type a command that succeeds; return what it printed."""

    def type_in(*arguments: object) -> str:
        code, printed, err = typed(*arguments)
        assert (code, err) == (0, "")
        return printed

    return type_in


@pytest.fixture
def refused(typed: Typed) -> Refused:
    """Type a command that cannot be used; return the one sentence that it ends with."""

    def type_in(*arguments: object) -> str:
        code, _, said = typed(*arguments)
        assert code == 2
        return said

    return type_in
