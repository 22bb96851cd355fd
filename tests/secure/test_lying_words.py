"""A client that lies where masked words are counted: what of it is found, and that nothing ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedtopics.engines.local import LocalClients
from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import Named, Payload
from fedtopics.methods.core.replies import Announced, WordCounts
from fedtopics.secure.field import PRIME
from fedtopics.secure.fixed import Layout
from fedtopics.secure.said import SAME
from fedtopics.secure.sum import SecureClients
from fedtopics.text.vocabulary import VocabularyLimits
from tests.helpers.background import Notes
from tests.helpers.masked import NAMES, Change, Client
from tests.helpers.programs import POLICY, Half, door

WORDS = [f"word{number:02}" for number in range(40)]
LIMITS = VocabularyLimits(max_words=20, max_document_share=1.0)
TEMPLATE = {"documents": Announced({}), "words": WordCounts(4)}


def reply_of(name: str) -> dict[str, Any]:
    """Each has all words, of 10 documents, one oftener than the next one."""
    occurrences = np.arange(60, 20, -1)
    columns = [np.full(40, 10), occurrences, np.ones(40), np.arange(40) < 4]
    return {"documents": 10, "words": Named(WORDS, np.stack(columns, 1).astype(np.int64))}


class Counted:
    """The masked counts of some clients, of which one may add to a field of a sum."""

    def __init__(
        self,
        names: str,
        liar: str,
        fields: set[str],
        lie: Mapping[str, int],
        changes: Mapping[str, Mapping[str, Change]] | None = None,
    ) -> None:
        halves = {name: Half({"vocabulary": lambda **_: reply_of("")}) for name in names}
        doors = {
            n: Client(door(n, halves[n], None, POLICY), n, bytes, changes=(changes or {}).get(n))
            for n in names
        }
        honest = doors[liar]._encoded

        def lying(layout: Layout) -> Any:
            values = honest(layout)
            for field, number in lie.items() if layout._parts.keys() == fields else ():
                start = layout._parts[field].start
                values[start] = np.uint64((int(values[start]) + number) % PRIME)
            return values

        doors[liar]._encoded = lying  # type: ignore[method-assign]
        self.notes = Notes()
        engine = LocalClients(doors, notify=self.notes)
        clients = SecureClients(engine, {}, self.notes, LIMITS)
        work = lambda: clients.sum("vocabulary", TEMPLATE)  # noqa: E731
        self.found, self.report = clients.round(0, work)


def test_who_says_another_key_of_words_three_times_is_left_out() -> None:
    def another(client: Client, reply: Payload) -> Payload:
        return {"said": client.signed(SAME, reply["said"] | {"same": bytes(32)})}

    counted = Counted(NAMES, "b", set(), {}, changes={"b": {"secure.same": another}})
    assert counted.report["missing"].keys() == {"b"}
    np.testing.assert_array_equal(counted.found["words"].values[:, 2], np.full(20, 4))
    assert len(counted.notes.of("voided")) == 3


SIZES = {"documents", "occurrences", "words"}
OF_LIST = {"documents", "frequency", "occurrences", "clients", "first"}


@pytest.mark.parametrize("lie", [{"occurrences": -1620 * 4 - 1}, {"words": -161}])
def test_who_lowers_a_size_ends_nothing(lie: Mapping[str, int]) -> None:
    """Others say that they have more than all are said to: none of the sizes is believed."""
    counted = Counted(NAMES, "b", SIZES, lie)
    assert counted.found["words"].names == WORDS[:20]
    np.testing.assert_array_equal(
        counted.found["words"].values, 5 * reply_of("")["words"].values[:20]
    )
    assert "said more than all together did" in counted.notes.of("voided")[0]["reason"]


@pytest.mark.parametrize(
    ("fields", "lie"),
    [(SIZES, {"documents": -512}), (SIZES, {"words": -512}), (OF_LIST, {"occurrences": 10**10})],
)
def test_who_says_what_cannot_be(fields: set[str], lie: Mapping[str, int]) -> None:
    with pytest.raises(FederationError, match="was void 3 times"):
        Counted(NAMES, "b", fields, lie)


def test_the_counts_of_a_list_are_those_of_words() -> None:
    """No number is too large by itself: a client has more first words than there are places."""
    with pytest.raises(FederationError, match="counts of words that cannot be"):
        Counted(NAMES, "b", OF_LIST, {"first": 1})
