"""What tests of experiments share."""

from functools import partial

import pytest

from experiments.commands import group
from tests.helpers.command_line import Typed


@pytest.fixture
def experiments(typed: Typed) -> Typed:
    """Type a command of the experiments; return its exit code, and what it said."""
    return partial(typed, command=group)
