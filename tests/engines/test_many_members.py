"""Decisions that have something of each of five thousand clients; no stranger may say as much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedtopics.engines.decisions import ADDED
from fedtopics.engines.structures import EACH, MOST_FIELDS, fields_of
from fedtopics.engines.values import dumps, loads
from fedtopics.errors import FederationError
from fedtopics.methods.flda.topic_lists import pack_topics
from tests.helpers.federation import assert_same
from tests.helpers.programs import federation

NAMES = [f"client-{number:04}" for number in range(5000)]
TOPICS = pack_topics([{"oak": 0.5, "elm": 0.25}, {"tea": 1.0}])
REPLIES: dict[str, dict[str, Any]] = {
    "counted": {"documents": 7, "training": 6, "without_known_word": 1},
    "shares": {"theta": np.arange(20.0), "documents": 7},
    "local_topics": {
        **TOPICS, "seeds": np.zeros(2, np.int64), "occurrences": np.ones(2), "documents": 7,
    },
}  # fmt: skip


@pytest.mark.parametrize("function", REPLIES)
def test_replies_of_all_by_name(function: str) -> None:
    entry = {
        "index": 1, "missing": {}, "again": False,
        "signatures": dict.fromkeys(NAMES, bytes(72)),
        "replies": dict.fromkeys(NAMES, REPLIES[function]),
    }  # fmt: skip
    with federation(NAMES) as f:
        found = f.exchange._next(ADDED, lambda: entry, 1)
    assert found.keys() == entry.keys()
    assert_same(found["replies"][NAMES[-1]], REPLIES[function])


def test_more_for_members_is_no_more_for_strangers() -> None:
    """What comes in a message has the limit of before, however many members there are."""
    assert fields_of(3) == MOST_FIELDS + 3 * EACH
    raw = dumps(dict.fromkeys(NAMES, REPLIES["local_topics"]))
    with pytest.raises(FederationError, match="damaged body"):
        loads(raw)
    with pytest.raises(FederationError, match="damaged body"):
        loads(raw, fields=fields_of(30))
    assert len(loads(raw, fields=fields_of(len(NAMES)))) == len(NAMES)


def test_a_list_as_long_as_the_members_are_many() -> None:
    """Who adds has a limit as well."""
    with federation("abc") as f, pytest.raises(FederationError, match="a decision is damaged"):
        f.exchange._next(ADDED, lambda: {"index": 1, "missing": [None] * fields_of(3)}, 1)
