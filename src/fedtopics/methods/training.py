"""The loop of every method: a method says how a state begins, steps, and becomes a model.

All else stands here once: resuming, checkpoints, the best state, events, stop rules, and the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.methods.agreement import Agreement, reach_agreement
from fedtopics.methods.base import Checkpoint, Clients, Run
from fedtopics.methods.events import RoundEnded, RoundFacts, RoundReport, Stopped, Validation
from fedtopics.methods.plan import Plan
from fedtopics.methods.settings import TopicSettings
from fedtopics.methods.stop_rules import Progress, why_stop
from fedtopics.model.topic_model import TopicModel

Settings = TypeVar("Settings", bound=TopicSettings)
State = TypeVar("State")
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Step(Generic[State]):
    """What a round comes to.

    Parameters
    ----------
    state : State
    facts : RoundFacts
    change : float
        Of what is trained, relative to its norm; infinite where it is not measured.
    idle, coherence, coherence_before
        As of `Progress`.
    files : mapping of name to plain data
        Kept in the run's folder.
    """

    state: State
    facts: RoundFacts
    change: float = np.inf
    idle: int = 0
    coherence: float = np.nan
    coherence_before: float = np.nan
    files: Mapping[str, Any] = field(default_factory=dict)

    def progress(self, round_: int, **more: Any) -> Progress:
        """Return what stop rules are asked with."""
        own = {name: getattr(self, name) for name in ("change", "idle", "coherence")}
        own |= {"loss": self.facts.get("loss", np.nan), "coherence_before": self.coherence_before}
        return Progress(round_, **own, **more)


class Rounds(Protocol[State]):
    """What can be repeated round after round: an exchange with the clients, and a step."""

    @property
    def stops(self) -> Mapping[str, float]:
        """Stop rules by name, with their numbers."""

    def exchange(self, agreement: Agreement, state: State, round_: int) -> Any:
        """Ask the clients; asked again, if one of them is lost meanwhile, it changes nothing."""

    def step(self, agreement: Agreement, state: State, found: Any, round_: int) -> Step[State]:
        """Make a new state of what the exchange found."""


def iterate(
    agreement: Agreement,
    rounds: Rounds[State],
    state: State,
    numbers: Iterable[int],
    ends: Callable[[Step[State], int, RoundReport], bool] | None = None,
) -> State:
    """Go through rounds; return the last state.

    Parameters
    ----------
    agreement : Agreement
    rounds : Rounds
    state : State
        To begin with.
    numbers : iterable of int
        Of the rounds.
    ends : function (step, number, report) -> bool, optional
        Asked after each round, whether it is the last; by default the stop rules say so.
    """
    for number in numbers:
        found, report = agreement.round(number, partial(rounds.exchange, agreement, state, number))
        step = rounds.step(agreement, state, found, number)
        state = step.state
        if ends is not None:
            last = ends(step, number, report)
        else:
            last = bool(why_stop(step.progress(number), rounds.stops))
        if last:
            break
    return state


@dataclass
class Course:
    """How far a training is: its last round, and its best state on documents held back."""

    round: int
    stopped: bool = False
    best: Arrays = field(default_factory=dict)
    best_loss: float = np.inf
    waited: int = 0

    @classmethod
    def resumed(cls, saved: Checkpoint) -> Course:
        """Go on where a checkpoint was written."""
        best = {n.removeprefix("best/"): a for n, a in saved.arrays.items() if n[:5] == "best/"}
        numbers = saved.numbers
        return cls(
            saved.round,
            bool(numbers.get("stopped", 0)),
            best,
            numbers.get("best_loss", np.inf),
            int(numbers.get("waited", 0)),
        )

    def checkpoint(self, state: Arrays) -> Checkpoint:
        """Add it to a state's arrays."""
        best = {f"best/{name}": array for name, array in self.best.items()}
        numbers = {
            "best_loss": self.best_loss,
            "waited": self.waited,
            "stopped": int(self.stopped),
        }
        return Checkpoint(self.round, {**state, **best}, numbers)


class Program(ABC, Generic[Settings, State]):
    """What a server executes of a method.

    Parameters
    ----------
    plan : Plan

    Raises
    ------
    StudyError
        If the training cannot start from what the plan has for it.
    """

    saves_every_round = False  # because clients keep states of rounds as well

    def __init__(self, plan: Plan[Settings]) -> None:
        self.plan = plan
        self.settings = plan.settings

    @abstractmethod
    def first_state(self, agreement: Agreement, run: Run) -> State:
        """Return the state before the first round."""

    @abstractmethod
    def exchange(self, agreement: Agreement, state: State, round_: int) -> Any:
        """Ask the clients for a round; as of `Rounds`."""

    @abstractmethod
    def step(self, agreement: Agreement, state: State, found: Any, round_: int) -> Step[State]:
        """Make a new state of what the exchange found."""

    @abstractmethod
    def model(self, agreement: Agreement, state: State, rounds: int, run: Run) -> TopicModel:
        """Make the model of the last state, after so many rounds, with the last exchanges."""

    @abstractmethod
    def save(self, state: State) -> Arrays | None:
        """Turn a state into named arrays; None where a run cannot go on from it."""

    @abstractmethod
    def load(self, agreement: Agreement, arrays: Arrays) -> State:
        """Turn back."""

    def validate(self, agreement: Agreement, state: State, round_: int) -> tuple[float, int] | None:
        """Return the mean loss of documents held back and their number, if it is time for it."""
        return None

    def best(self, state: State) -> Arrays:
        """Copy what makes the model."""
        return {}

    def with_best(self, state: State, best: Arrays) -> State:
        """Return the state whose copy it is."""
        return state

    @property
    def stops(self) -> Mapping[str, float]:
        """Stop rules by name, with their numbers."""
        return {**self.settings.stops, **self.settings.stop_when}

    @property
    def first_round(self) -> int:
        """Rounds of the model that is trained further; 0 for a new one."""
        return 0 if self.plan.start is None else self.plan.start.rounds

    @property
    def last_round(self) -> int:
        """Number of the last round, if no rule stops before it."""
        start = self.plan.start
        once = start is not None and start.once and start.continued is not None
        return self.first_round + (1 if once else self.settings.max_rounds)

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Agree with the clients on what all of them work on: the words."""
        return reach_agreement(clients, run, self.plan, self.settings.n_components)

    def train(self, clients: Clients, run: Run) -> TopicModel:
        """Go through the rounds; return the model."""
        agreement = self.agree(clients, run)
        saved = run.restore()
        if saved is None:
            course, state = Course(self.first_round), self.first_state(agreement, run)
            if self.saves_every_round:
                self._save(run, course, state)
        else:
            course, state = Course.resumed(saved), self.load(agreement, saved.arrays)
        last = course.round if course.stopped else self.last_round
        ends = partial(self._ends, agreement, run, course)
        state = iterate(agreement, self, state, run.rounds(course.round, last), ends)
        if course.best:
            state = self.with_best(state, course.best)
        # One round more, so that all that the model says is of the same clients.
        work = partial(self.model, agreement, state, course.round, run)
        return clients.round(course.round + 1, work)[0]

    def _ends(
        self,
        agreement: Agreement,
        run: Run,
        course: Course,
        step: Step[State],
        round_: int,
        report: RoundReport,
    ) -> bool:
        """Write a round down; say whether it is the last."""
        course.round = round_
        loss = step.facts.get("loss", 0.0)
        if not np.isfinite(loss):
            raise StudyError(f"The loss of round {round_} is no number; lower learning_rate.")
        for name, content in step.files.items():
            run.keep(name, content)
        run.event(RoundEnded(round_, step.facts, report))
        self._validate(agreement, run, course, step.state)
        waited = {"validations_without_gain": course.waited, "best_loss": course.best_loss}
        reason = why_stop(step.progress(round_, **waited), self.stops)
        course.stopped = bool(reason)
        if self.saves_every_round or reason or run.due(round_):
            self._save(run, course, step.state)
        if reason:
            run.event(Stopped(round_, reason))
        return course.stopped

    def _validate(self, agreement: Agreement, run: Run, course: Course, state: State) -> None:
        found = self.validate(agreement, state, course.round)
        if found is None:
            return
        loss, documents = found
        run.event(Validation(course.round, loss, documents))
        if loss < course.best_loss:
            course.best, course.best_loss, course.waited = self.best(state), loss, 0
        else:
            course.waited += 1

    def _save(self, run: Run, course: Course, state: State) -> None:
        saved = self.save(state)
        if saved is not None:
            run.checkpoint(course.checkpoint(saved))
