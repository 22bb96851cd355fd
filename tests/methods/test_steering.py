"""Single numbers that a training goes on by: a loss, of which one of five clients says anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from fedtopics.federation.simulation import train
from fedtopics.methods.replies import Field
from fedtopics.methods.robust import Robust, Rule
from fedtopics.methods.stop_rules import Progress, improves, why_stop
from fedtopics.methods.training import TrainingStatus
from tests.helpers.bent import Reply, bend_replies
from tests.helpers.federation import study as small_study
from tests.helpers.federation import subjects

TEMPLATE = {"loss": Field(steers="gain")}
HONEST = {"a": (30, 90.0), "b": (60, 110.0), "c": (20, 70.0), "d": (40, 120.0)}
LEARNED = {"a": 0.1, "b": 0.15, "c": 0.2, "d": 0.12}  # of the loss
ROBUST: list[Rule] = ["clip", "trimmed-mean", "median", "centred-clip"]
Lie = Callable[[int, float], float]


def losses(validation: int, rng: np.random.Generator) -> dict[str, float]:
    """What honest clients lose a document: less until some thirtieth validation, with noise."""
    left = np.exp(-validation / 8)
    return {
        name: level * (1 - LEARNED[name] * (1 - left) + 0.001 * rng.normal())
        for name, (_, level) in HONEST.items()
    }


def validations(rule: Rule, lie: Lie | None) -> Iterator[tuple[float, float]]:
    """The loss of each validation, as it is and as honest clients alone have it."""
    robust, rng, last = Robust(rule, lambda _: None), np.random.default_rng(0), 100.0
    for number in range(1, 1000):
        total = robust.sum("validate", TEMPLATE, 1, 50 * number)
        said = {n: (HONEST[n][0], loss) for n, loss in losses(number, rng).items()}
        documents = sum(n for n, _ in said.values())
        honest = sum(n * loss for n, loss in said.values()) / documents
        if lie is not None:
            said["liar"] = (40, lie(number, last))
        for name, (n, loss) in said.items():
            total.add(name, {"loss": n * loss, "documents": n})
        found = total.total()["loss"]
        last = found / sum(n for n, _ in said.values())
        yield last, honest


def stops_after(rule: Rule, lie: Lie | None) -> tuple[int, float]:
    """The last validation, and what honest clients lose by the model that is kept."""
    status, kept = TrainingStatus(0), np.inf
    for number, (loss, honest) in enumerate(validations(rule, lie), start=1):
        if improves(loss, status.best_loss):
            status.best_loss, status.waited, kept = loss, 0, honest
        else:
            status.waited += 1
        progress = Progress(number, validations_without_gain=status.waited)
        if why_stop(progress, {"patience": 5}):
            break
    return number, kept


LIES: dict[str, Lie] = {
    "nothing once, then much": lambda number, _: 0.0 if number == 1 else 1e6,
    "little once, then much": lambda number, _: 60.0 if number == 2 else 100.0 + number,
    "more and more": lambda number, _: 100.0 * number,
    "less and less": lambda number, _: 100.0 * 0.98**number,
    "a little less each time": lambda number, _: 100.0 - 0.02 * number,
    "always less than before": lambda number, last: last * (1 - 3e-3) if number > 1 else 1000.0,
    "up and down": lambda number, _: 100.0 + 90.0 * (-1) ** number,
}


@pytest.mark.parametrize("rule", ROBUST)
@pytest.mark.parametrize("lie", LIES)
def test_one_liar_of_five_decides_neither_when_training_ends_nor_what_is_kept(
    lie: str, rule: Rule
) -> None:
    honest, best = stops_after(rule, None)
    assert 15 < honest < 45
    found, kept = stops_after(rule, LIES[lie])
    assert 25 < found < honest + 30
    assert kept < best * 1.01


@pytest.mark.parametrize(("aim", "first"), [("to end", 40.0), ("to go on", 1e4)])
def test_who_knows_what_all_others_say_gains_little_by_it(aim: str, first: float) -> None:
    """It tries what each number comes to: as late and little a gain as can be, or none.

    Neither makes a training much longer or shorter.
    """
    robust, rng, status = (
        Robust("clip", lambda _: None),
        np.random.default_rng(0),
        TrainingStatus(0),
    )
    tried = first * np.concatenate([[0.0, 2.0], np.linspace(0.8, 1.05, 31)])
    for number in range(1, 1000):
        numbers = {n: (HONEST[n][0], loss) for n, loss in losses(number, rng).items()}

        def come_to(said: float, numbers: Any = numbers, robust: Robust = robust) -> float:
            total = robust.sum("validate", TEMPLATE, 1, 1)
            for name, (n, loss) in (numbers | {"liar": (40, said)}).items():
                total.add(name, {"loss": n * loss, "documents": n})
            return float(total.total()["loss"]) / 190

        means = {x: come_to(x, robust=deepcopy(robust)) for x in (first, *tried.tolist())}
        gains = [x for x in means if improves(means[x], status.best_loss)]
        none = [x for x in means if x not in gains]
        if number == 1:
            choice = first
        elif aim == "to end":
            choice = max(none or gains, key=lambda x: means[x])
        else:
            late = status.waited == 4
            choice = max((gains or none) if late else (none or gains), key=lambda x: means[x])
        loss = come_to(choice)
        if improves(loss, status.best_loss):
            status.best_loss, status.waited = loss, 0
        else:
            status.waited += 1
        if status.waited == 5:
            break
    honest, _ = stops_after("clip", None)
    assert 20 < number < 2 * honest


def test_without_a_rule_one_liar_ends_a_training_or_keeps_it_running() -> None:
    assert stops_after("none", LIES["nothing once, then much"])[0] == 6
    assert stops_after("none", lambda number, _: 1e6 * 0.99**number)[0] > 500


def test_who_says_what_others_do_is_added_up_to_the_bit() -> None:
    for rule in ROBUST:
        robust = Robust(rule, lambda _: None)
        for level in (1.0, 0.9, 0.85, 0.84):
            numbers = {n: k * loss * level for n, (k, loss) in HONEST.items()}
            total = robust.sum("validate", TEMPLATE, 1, 1)
            for name, number in numbers.items():
                total.add(name, {"loss": number, "documents": HONEST[name][0]})
            assert total.total()["loss"] == sum(numbers.values())


def test_a_loss_is_at_most_three_times_the_median_one_and_at_least_a_third() -> None:
    for steers in ("level", "gain"):
        said = {"a": 10.0, "b": 12.0, "c": 14.0, "d": 500.0, "e": 1.0}
        total = Robust("clip", lambda _: None).sum("ask", {"loss": Field(steers=steers)}, 1, 1)
        for name, mean in said.items():
            total.add(name, {"loss": 2 * mean, "documents": 2})
        total.add("f", {"loss": 0.0, "documents": 0})  # has nothing to say
        assert total.total()["loss"] == pytest.approx(2 * (36 + 36 + 4))


def asked(robust: Robust, **means: float) -> float:
    """The mean of a validation of so much at each client, of a document each."""
    total = robust.sum("validate", TEMPLATE, 1, 1)
    for name, mean in means.items():
        total.add(name, {"loss": mean, "documents": 1})
    return float(total.total()["loss"]) / len(means)


def test_who_denies_alone_what_most_gain_counts_as_at_the_best_validation() -> None:
    robust = Robust("clip", lambda _: None)
    assert asked(robust, a=10.0, b=10.0, c=10.0, d=10.0) == 10.0
    assert asked(robust, a=9.0, b=9.0, c=10.0, d=10.0) == 9.5  # half of them
    assert asked(robust, a=8.0, b=8.0, c=9.0, d=15.0) == 8.75, "not 10"
    assert asked(robust, a=8.0, b=8.0, c=9.1, d=15.0) == 10.025, "no gain, of most neither"
    assert asked(robust, a=7.0, b=7.0, c=8.0, d=9.0) == 7.75


def test_what_few_gain_counts_some_times() -> None:
    """The rest has learned already, or will: but it does not wait for ever."""
    robust = Robust("clip", lambda _: None)
    asked(robust, a=10.0, b=10.0, c=10.0, d=10.0)
    alone = [asked(robust, a=10.0, b=10.0, c=10.0, d=9.8 - 0.1 * n) for n in range(12)]
    assert alone[:10] == pytest.approx([(39.8 - 0.1 * n) / 4 for n in range(10)])
    assert alone[10:] == pytest.approx([alone[9]] * 2)
    assert asked(robust, a=9.0, b=9.0, c=9.0, d=8.0) == 8.75
    assert asked(robust, a=9.0, b=9.0, c=9.0, d=7.0) == 8.5, "again, as most had gained"


def test_of_two_clients_nobody_knows_who_lies() -> None:
    total = Robust("clip", lambda _: None).sum("validate", TEMPLATE, 1, 1)
    for name, loss in (("a", 1.0), ("b", 1e9)):
        total.add(name, {"loss": loss, "documents": 1})
    assert total.total()["loss"] == 1.0 + 1e9


def test_a_loss_that_only_informs_is_a_sum() -> None:
    total = Robust("clip", lambda _: None).sum("gradients", {"loss": Field()}, 1, 1)
    for name, loss in zip("abcd", (1.0, 2.0, 3.0, 1e9), strict=True):
        total.add(name, {"loss": loss, "documents": 1})
    assert total.total()["loss"] == 6.0 + 1e9


@pytest.mark.parametrize("robust", ["none", "clip"])
def test_a_study_of_five_ends_when_four_have_learned(
    robust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The liar says that nothing was lost before the first round that counts, then too much."""

    def bend(function: str, reply: Reply) -> Reply:
        if function != "validate":
            return reply
        said.append(1)
        return reply | {"loss": 0.0 if len(said) == 1 else reply["loss"] * 1.5}

    said: list[int] = []
    bend_replies(monkeypatch, "e", bend)
    method = {"validation_share": 0.25, "validate_every": 5, "patience": 2, "max_rounds": 60}
    plan = small_study(learning_rate=0.02, **method)
    plan = plan.model_copy(
        update={"federation": plan.federation.model_copy(update={"robust": robust})}
    )
    events: list[dict[str, Any]] = []
    train(plan, subjects(dict.fromkeys("abcde", 40)), on_event=events.append)
    rounds = max(event["round"] for event in events if event["event"] == "round")
    assert rounds == 15 if robust == "none" else rounds >= 30
