"""Settings that must be made before anything imports torch, and what all tests share."""

from __future__ import annotations

import os

import pytest

# The tests' matrices are tiny: two threads would wait for each other longer than they compute,
# above all on a machine that is busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Files with few tests that take long. They come first: with some processes, each of which takes one
# file after the other, none is left alone with one of them in the end.
LONGEST = (
    "test_tutorials.py",
    "test_site.py",
    "test_exactness.py",
    "test_browser.py",
    "test_continue.py",
    "test_estimators.py",
    "test_gfedntm.py",
    "test_lda.py",
    "test_embeddings.py",
    "test_cli.py",
    "test_models.py",
    "test_fine_tuning.py",
    "test_figure3.py",
    "test_amwmd.py",
    "test_fstc.py",
    "test_federation.py",
    "test_readme.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-xdist keep that order; by itself it begins with the files of the most tests."""
    config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A process more than there are cores: some tests wait for others on the network."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests by file, the longest first."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports that commands write have no figures, which take a second to draw."""
    monkeypatch.setattr("fedtopics.model.figures.available", lambda: False)
