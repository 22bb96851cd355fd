"""An attempt without masks, where nobody can say who lies and policies allow it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedtopics.errors import FederationError
from fedtopics.federation.ledger import summarise_ledger
from fedtopics.secure.said import CLEAR
from tests.helpers.masked import NAMES, assert_total, left_of, masked
from tests.helpers.masked_rounds import CLEARS, Rounds, always, lies
from tests.helpers.programs import POLICY

SEEN = "drawn", "whole"  # functions whose replies leave as they are


def seen_of(rounds: Rounds, name: str) -> list[str]:
    return [stage for stage in rounds.doors[name].stages() if stage in SEEN]


@pytest.mark.parametrize("function", SEEN)
@pytest.mark.parametrize("names", ["abc", "abcd", NAMES])
def test_who_lies_is_named(function: str, names: str) -> None:
    if names == "abc":
        rounds = Rounds(names, {"b": always}, CLEARS)
        with pytest.raises(FederationError, match="needs 3 clients"):
            rounds.round(function)
    else:
        rounds = Rounds(names, {"b": always}, CLEARS)
        (total,), report = rounds.round(function)
        assert_total(total, names.replace("b", ""))
        assert report["missing"].keys() == {"b"}
    assert rounds.named() == {"b"}
    assert len(rounds.notes.of("voided")) == 2
    assert rounds.notes.of("in the clear")[0]["clients"] == [*names]


def test_one_attempt_of_drawn_documents_is_in_the_clear() -> None:
    """When who lies is left out the next one has masks again, and other documents."""
    rounds = Rounds(NAMES, {"b": always}, CLEARS)
    rounds.round("drawn", "drawn")
    assert seen_of(rounds, "a") == ["drawn"]
    masked_again = ["secure.commit", "secure.add"] * 2 + ["secure.check"]
    assert rounds.doors["a"].stages()[-5:] == masked_again


def test_the_same_documents_stay_in_the_clear() -> None:
    """A sum of them without who lies would tell no more than their replies did."""
    rounds = Rounds(NAMES, {"b": always}, CLEARS)
    rounds.round("whole")
    assert seen_of(rounds, "a") == ["whole", "whole"]
    assert rounds.over("a") == {"whole 1": NAMES, CLEAR: "acde"}


def test_the_next_round_has_masks() -> None:
    rounds = Rounds(NAMES, {"b": lambda attempt: attempt <= 2}, CLEARS)
    rounds.round("drawn")
    before = len(rounds.doors["a"].stages())
    rounds.round("drawn", number=2)
    assert rounds.doors["a"].stages()[before:] == ["secure.commit", "secure.add", "secure.check"]


def test_who_lies_in_three_rounds_is_excluded() -> None:
    rounds = Rounds(NAMES, {"b": always}, CLEARS)
    for number in range(1, 5):
        (total,), _ = rounds.round("drawn", number=number)
        assert_total(total, "acde")
    assert [note["client"] for note in rounds.notes.of("excluded")] == ["b"]
    assert len(rounds.notes.of("in the clear")) == 3


def test_at_most_three_rounds_are_in_the_clear() -> None:
    """Who lies where it is masked alone would have all others' replies seen, round by round."""
    rounds = Rounds(NAMES, {"b": always}, CLEARS)
    rounds.doors["b"]._changes = {
        stage: change for stage, change in rounds.doors["b"]._changes.items() if stage not in SEEN
    }
    for number in range(1, 4):
        (total,), _ = rounds.round("drawn", number=number)
        assert_total(total, NAMES)
    with pytest.raises(FederationError, match="which a, b, c, d, e did not allow"):
        rounds.round("drawn", number=4)
    assert seen_of(rounds, "a") == ["drawn"] * 3


def test_nothing_leaves_unmasked_by_default() -> None:
    rounds = Rounds(NAMES, {"b": always})
    with pytest.raises(FederationError, match="clear_attempt = true in a policy does"):
        rounds.round("drawn")
    assert all(seen_of(rounds, name) == [] for name in NAMES)
    assert not POLICY.clear_attempt


def test_whose_policy_does_not_allow_it_is_left_out_of_drawn_documents() -> None:
    rounds = Rounds(NAMES, {"b": always}, dict.fromkeys(NAMES, CLEARS) | {"e": POLICY})
    (total,), report = rounds.round("drawn")
    assert_total(total, "acd")
    assert seen_of(rounds, "e") == []
    assert report["missing"]["e"] == "its policy allows no attempt in the clear"
    assert rounds.named() == {"b"}


def test_the_others_replies_would_tell_that_of_who_does_not_allow_it() -> None:
    """The sum over all was opened: less what the others send, it is the last one's reply."""
    rounds = Rounds(NAMES, {"b": always}, dict.fromkeys(NAMES, CLEARS) | {"e": POLICY})
    with pytest.raises(FederationError, match="which e did not allow"):
        rounds.round("whole")
    assert all(seen_of(rounds, name) == [] for name in NAMES)


def test_too_few_allow_it() -> None:
    policies = dict.fromkeys(NAMES, POLICY) | dict.fromkeys("ab", CLEARS)
    rounds = Rounds(NAMES, {"b": always}, policies)
    with pytest.raises(FederationError, match="which c, d, e did not allow"):
        rounds.round("drawn")


def test_the_ledger_says_what_left_unmasked(tmp_path: Path) -> None:
    rounds = Rounds(NAMES, {"b": always}, CLEARS, tmp_path)
    rounds.round("drawn")
    rows = {row["function"]: row for row in summarise_ledger(tmp_path / "a.jsonl")}
    assert not rows["drawn"]["masked"]
    assert rows[CLEAR]["replies"] == 1
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    drawn = [line for line in lines if line["function"] == "drawn" and line["what"] == "left"]
    assert [line.get("masked", False) for line in drawn].count(False) == 1


def test_a_restart_does_not_forget_how_often(tmp_path: Path) -> None:
    rounds = Rounds(NAMES, {"b": always}, CLEARS, tmp_path)
    for number in range(1, 4):
        rounds.round("drawn", number=number)
    again = Rounds(NAMES, {}, CLEARS, tmp_path)
    assert len({turn for turn, called in again.doors["a"]._door.sums if called == CLEAR}) == 3


@pytest.mark.parametrize("function", SEEN)
def test_between_machines(function: str) -> None:
    with masked(NAMES, function, odd={"b": lies()}, policy=CLEARS) as (f, clients, members):
        (((total,), report),) = f.lead(f.program).result()  # type: ignore[attr-defined]
        assert_total(total, "acde")
        assert "b" in report["missing"]
        assert [note["client"] for note in f.notes.of("bad reply")] == ["b"]
        for name in "acde":
            (((mine,), _),) = members[name].work.result()
            assert_total(mine, "acde")
            assert CLEAR in left_of(clients, name)
            assert members[name].notes.of("in the clear")
