"""Pages in a browser; where there is none, tests that ask for it are skipped."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.report_runs import Reported, reported


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.helpers.browser import launched

    with launched() as browser:
        yield browser


@pytest.fixture
def opening(browser: Any) -> Iterator[Any]:
    from tests.helpers.browser import opener

    with opener(browser) as opening:
        yield opening


@pytest.fixture
def demo(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return reported("demo", tmp_path_factory)
