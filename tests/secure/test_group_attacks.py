"""What groups cost: who colludes reads more, and several that lie can blame another one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedtopics.methods.aggregation import Payload
from fedtopics.secure.fixed import FINE, Layout
from fedtopics.secure.groups import Search
from fedtopics.secure.masks import mask, seeds_of_pairs
from fedtopics.secure.said import ADDED, COMMITTED
from tests.helpers.masked import NINE, TEMPLATE, Client, half_of, plain_total, reply_of, sends_noise
from tests.helpers.masked_rounds import Rounds, always
from tests.helpers.programs import Half

LAYOUT = Layout.of(TEMPLATE, NINE, FINE)


def sent_in_groups(rounds: Rounds, name: str) -> tuple[Payload, list[str], Payload]:
    """What was asked and sent, of the first sum in groups, and with whom."""
    left = rounds.doors[name].left
    place = next(k for k, (_, asked, _) in enumerate(left) if len(asked.get("groups", ())) > 1)
    asked = left[place][1]
    (group,) = (group for group in asked["groups"] if name in group)
    sent = next(reply for stage, _, reply in left[place:] if stage == ADDED)
    return asked, list(group), sent["masked"]["values"]


def unmasked(rounds: Rounds, victim: str, friends: list[str]) -> bool:
    """Whether who adds reads a client's reply, by what some others know."""
    asked, _, sent = sent_in_groups(rounds, victim)
    values, context = sent.copy(), asked["context"]
    for name in friends:
        pair = rounds.doors[name]._pair
        seeds = seeds_of_pairs(name, pair, {victim: asked["keys"][victim]}, context)
        mask(values, name, seeds)
    return bool((values == LAYOUT.encode(reply_of(victim))[0]).all())


def test_two_friends_of_who_adds_read_the_third_of_their_group() -> None:
    """In the sum of all nine it takes the eight others."""
    rounds = Rounds(NINE, {"e": always})
    rounds.round("drawn")
    _, group, _ = sent_in_groups(rounds, "a")
    others = [name for name in group if name != "a"]
    assert len(others) == 2
    assert unmasked(rounds, "a", others)
    assert not any(unmasked(rounds, "a", [name]) for name in others)
    assert not unmasked(rounds, "a", [name for name in NINE if name not in group])


def test_no_two_groups_of_the_same_documents_overlap() -> None:
    """Of sums of the same documents, none and no difference of two is of fewer than three."""
    rounds = Rounds(NINE, {"e": always})
    for number in range(1, 4):
        rounds.round("whole", number=number)
    opened = {frozenset(of) for name in NINE for of in rounds.doors[name]._door.sums.values()}
    assert {len(of) for of in opened} == {3, 9}
    for one, other in combinations(opened, 2):
        assert not one & other or len(one ^ other) >= 3


def test_two_that_collude_can_have_another_one_named() -> None:
    """Each lies where it is beside the same one: as if that one always did."""
    target = "a"

    def beside(client: Client, reply: Payload) -> Payload:
        groups = client.made[-1][1]["groups"]
        own = next(group for group in groups if client.name in group)
        lies = target in own and (len(groups) > 1 or client.name == "b")
        return sends_noise(client, reply) if lies else reply

    rounds = Rounds(NINE[:6], {})
    for name in "bc":
        rounds.doors[name]._changes = {COMMITTED: beside}
    for number in range(1, 12):
        rounds.round("drawn", number=number)
    assert rounds.named() == {target}


# The median of groups


def groups_of(number: int, anew: bool) -> list[list[str]]:
    return [list(group) for group in Search(NINE, number, always=True).groups(NINE, anew)]


def in_groups(x: list[float]) -> Rounds:
    """Rounds in which e says this, with its documents."""
    rounds = Rounds(NINE, {}, robust="median")
    said = lambda **_: reply_of("e") | {"x": np.array(x)}  # noqa: E731
    rounds.doors["e"]._door._half = Half({"drawn": said, "whole": said})
    return rounds


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_the_median_of_groups(function: str) -> None:
    rounds = Rounds(NINE, {}, robust="median")
    (total,), _ = rounds.round(function)
    sums = [plain_total(group) for group in groups_of(1, function == "drawn")]
    means = [each["x"] / each["documents"] for each in sums]
    assert total["documents"] == 450
    np.testing.assert_allclose(total["x"], np.median(means, axis=0) * 450, rtol=1e-12)
    np.testing.assert_array_equal(total["n"], plain_total(NINE)["n"])  # counts are sums


@pytest.mark.parametrize("function", ["drawn", "whole"])
@pytest.mark.parametrize("lie", [900.0, -900.0])
def test_who_lies_within_bounds_moves_the_median_between_other_groups(
    function: str, lie: float
) -> None:
    (total,), _ = in_groups([lie] * 3).round(function)
    groups = groups_of(1, function == "drawn")
    others = [plain_total(group) for group in groups if "e" not in group]
    means = np.array([each["x"] / each["documents"] for each in others]) * 450
    assert (total["x"] >= means.min(0) - 1e-6).all()
    assert (total["x"] <= means.max(0) + 1e-6).all()
    added = Rounds(NINE, {})
    added.doors["e"]._door._half = in_groups([lie] * 3).doors["e"]._door._half
    (moved,), _ = added.round(function)
    assert abs(moved["x"] - plain_total(NINE)["x"]).max() > 890


def test_each_one_in_two_rounds_has_other_groups() -> None:
    assert groups_of(1, anew=True) != groups_of(2, anew=True)
    assert groups_of(1, anew=False) == groups_of(2, anew=False)
    assert half_of("a").published == ("drawn", "whole", "again")
