"""The training loop of all methods: resuming, checkpoints, validation, events and stop rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract import events
from fedtopics.contract.interfaces import Checkpoint, Clients, Run
from fedtopics.errors import RunError, StudyError
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.plan import Plan, Settings
from fedtopics.methods.core.settings import STOP_RULES, TrainingProgress
from fedtopics.methods.core.vocabulary_agreement import reach_agreement
from fedtopics.model.topics import Topics
from fedtopics.threads import small_products

State = TypeVar("State")
Value = TypeVar("Value")
Arrays = dict[str, NDArray[Any]]
NEVER: Mapping[str, float] = {}
GAIN = 1e-3  # least gain in validation loss; else a client could claim a tiny gain each time


@dataclass(frozen=True)
class RoundResult(Generic[State]):
    state: State
    facts: events.RoundFacts  # for the round's event: with documents and loss if available
    change: float = np.inf  # see `TrainingProgress`
    reason: str = ""  # the method's own reason to end the training here, if any
    files: Mapping[str, Any] = field(default_factory=dict)  # plain data for the run's folder

    def why_stop(self, round_: int, rules: Mapping[str, float], **more: Any) -> str:
        progress = TrainingProgress(round_, self.facts.get("loss", np.nan), self.change, **more)
        reasons = (STOP_RULES.find(name)(progress, limit) for name, limit in rules.items())
        return self.reason or next(filter(None, reasons), "")


class TrainingRounds(Protocol[State]):
    """The work of each round of a training: an exchange with the clients, and a step."""

    def exchange(self, agreement: Agreement, state: State, round_: int) -> Any:
        """Call the clients, without side effects: if a client is lost, the exchange is repeated."""

    def step(
        self, agreement: Agreement, state: State, reply: Any, round_: int
    ) -> RoundResult[State]:
        """Return the next state and what is known of the round, from the reply of `exchange`."""


def iterate(
    agreement: Agreement,
    rounds: TrainingRounds[State],
    state: State,
    numbers: Iterable[int],
    stops: Mapping[str, float] = NEVER,
    ends: Callable[[RoundResult[State], int, events.RoundReport], bool] | None = None,
) -> State:
    """Run the rounds with these numbers until `ends` returns True, or else a stop rule applies."""
    for number in numbers:
        reply, report = agreement.round(number, partial(rounds.exchange, agreement, state, number))
        step = rounds.step(agreement, state, reply, number)
        state = step.state
        over = step.why_stop(number, stops) if ends is None else ends(step, number, report)
        if over:
            break
    return state


@dataclass
class TrainingStatus:
    round: int
    stopped: bool = False
    best: Arrays = field(default_factory=dict)
    best_loss: float = np.inf
    waited: int = 0  # number of validations since the best loss

    @classmethod
    def resumed(cls, saved: Checkpoint) -> TrainingStatus:
        return cls(
            round=saved.round,
            stopped=bool(saved.numbers.get("stopped", 0)),
            best=without_prefix("best", saved.arrays),
            best_loss=saved.numbers.get("best_loss", np.inf),
            waited=int(saved.numbers.get("waited", 0)),
        )

    def checkpoint(self, state: Arrays) -> Checkpoint:
        return Checkpoint(
            self.round,
            {**state, **with_prefix("best", self.best)},
            {"best_loss": self.best_loss, "waited": self.waited, "stopped": int(self.stopped)},
        )


def with_prefix(prefix: str, arrays: Mapping[str, Value]) -> dict[str, Value]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def without_prefix(prefix: str, arrays: Mapping[str, Value]) -> dict[str, Value]:
    return {
        name.removeprefix(f"{prefix}/"): array
        for name, array in arrays.items()
        if name.startswith(f"{prefix}/")
    }


class Trainer(Protocol):
    def train(self, clients: Clients, run: Run) -> Topics:
        """Train a model with these clients; an interrupted run is resumed."""


class Program(ABC, Generic[Settings, State]):
    """A method as each participant executes it, from the same totals and so with the same result.

    A subclass defines the first state, the rounds and the model; the other methods are optional.
    """

    saves_every_round = False  # because clients keep states too
    trains_encoder = False  # whether matrices are large enough for several threads
    starts_from_any_number = False  # whether the start may have another number of topics

    def __init__(self, plan: Plan[Settings]) -> None:
        self.plan = plan
        self.settings = plan.settings
        start = plan.start
        self.continued = None if start is None else start.continued  # models
        self.added = None if start is None else start.added
        self.numbers: dict[str, float] = {}  # scores of the numbers of topics that were tried
        self.candidates: tuple[int, ...] = getattr(plan.settings, "candidates", ())
        if self.continued is None and not plan.settings.trains:
            raise StudyError(
                "trains = false compares groups in a model of the same method and text; name it "
                "with --from, or leave trains out."
            )
        if start is not None and not self.starts_from_any_number and not self.candidates:
            start.check_number(plan.settings.n_components)

    @abstractmethod
    def first_state(self, agreement: Agreement, run: Run) -> State:
        """Return the state before the first round."""

    def rounds(self, agreement: Agreement) -> TrainingRounds[State]:
        """Return the work of a round: by default the program itself, with `exchange` and `step`."""
        return cast("TrainingRounds[State]", self)

    @abstractmethod
    def model(self, agreement: Agreement, state: State, rounds: int, run: Run) -> Topics:
        """Make the model from the last state after `rounds` rounds, with the last exchanges."""

    def made(
        self, inference: Any, weights: dict[str, Any], rounds: int, shared: Any = None, **info: Any
    ) -> Callable[..., Topics]:
        """Return a function that makes the model from vocabulary, shares and sums."""
        about: Any = {"method": self.settings.method_name, "rounds": rounds, "seed": self.plan.seed}
        about |= {"numbers": self.numbers} if self.numbers else {}
        return partial(
            Topics,
            inference=inference,
            weights=weights,
            shared=shared or {},
            text=self.plan.text,
            info=about | info,
        )

    def note(self, run: Run, tried: events.Candidate) -> None:
        """Keep the score of a number of topics for the model."""
        self.numbers[str(tried.n_components)] = tried.score
        run.keep("numbers", self.numbers)
        run.event(tried)

    def save(self, state: State) -> Arrays | None:
        """Return a state as named arrays, or None if that is impossible."""
        return cast(Arrays, state)

    def load(self, agreement: Agreement, arrays: Arrays) -> State:
        """Return the state that `save`, or `best`, returned as arrays."""
        return cast(State, arrays)

    def validate(self, agreement: Agreement, state: State, round_: int) -> tuple[float, int] | None:
        """Return mean loss and number of held-out documents; None in rounds without validation."""
        return None

    def best(self, state: State) -> Arrays:
        """Copy the arrays that determine the model, if the method validates."""
        return {}

    @property
    def stops(self) -> Mapping[str, float]:
        return {**self.settings.stops, **self.settings.stop_when}

    @property
    def rounds_before(self) -> int:
        return 0 if self.plan.start is None else self.plan.start.rounds

    @property
    def last_round(self) -> int:
        if not self.settings.trains:
            return self.rounds_before
        return self.rounds_before + (1 if self.added is not None else self.settings.max_rounds)

    def _last_round(self, agreement: Agreement) -> int:
        """Return the last round; the method's own number falls to what policies allow."""
        persons = agreement.persons.values()
        is_set = "max_rounds" in self.settings.model_fields_set
        if is_set or not (self.settings.draws and agreement.clients.apart and persons):
            return self.last_round
        return min(
            self.last_round,
            self.rounds_before + (sum(persons) if agreement.clients.hidden else min(persons)) // 2,
        )

    def agree(self, clients: Clients, run: Run) -> Agreement:
        return reach_agreement(
            clients, run, self.plan, min(self.candidates or [self.settings.n_components])
        )

    def train(self, clients: Clients, run: Run) -> Topics:
        with nullcontext() if self.trains_encoder else small_products():
            return self._train(clients, run)

    def _train(self, clients: Clients, run: Run) -> Topics:
        agreement = self.agree(clients, run)
        saved = run.restore()
        if saved is None:
            status = TrainingStatus(self.rounds_before)
            state = self.first_state(agreement, run)
            if self.saves_every_round:
                self._save(run, status, state)
        else:
            status = TrainingStatus.resumed(saved)
            self.numbers = run.recall("numbers") or {}
            try:
                state = self.load(agreement, saved.arrays)
            except (LookupError, RuntimeError, TypeError, ValueError):
                raise RunError(
                    f"The checkpoint of round {saved.round} does not fit this study; delete it to "
                    "resume from the previous checkpoint, or start a new run."
                ) from None
        last = status.round if status.stopped else self._last_round(agreement)
        state = iterate(
            agreement,
            self.rounds(agreement),
            state,
            run.rounds(status.round, last),
            ends=partial(self._finish_round, agreement, run, status),
        )
        if status.best:
            state = self.load(agreement, status.best)
        # One more round, so that all descriptions of the model come from the same clients.
        model, report = agreement.clients.round(
            status.round + 1, partial(self.model, agreement, state, status.round, run)
        )
        if missing := report.get("missing"):
            run.event(events.LeftOut(status.round + 1, missing))
        return model

    def _finish_round(
        self,
        agreement: Agreement,
        run: Run,
        status: TrainingStatus,
        step: RoundResult[State],
        round_: int,
        report: events.RoundReport,
    ) -> bool:
        """Report a round, validate and save its state; return whether the training ends here."""
        status.round = round_
        if not np.isfinite(step.facts.get("loss", 0.0)):
            fields = type(self.settings).model_fields
            rates = " or ".join(name for name in fields if name.endswith("learning_rate"))
            advice = f"lower {rates}" if rates else "check for values that are not numbers"
            raise StudyError(f"The loss of round {round_} is not finite; {advice}.")
        for name, content in step.files.items():
            run.publish(name, content)
        run.event(events.RoundEnded(round_, step.facts, report))
        if (validation := self.validate(agreement, step.state, round_)) is not None:
            held_out, documents = validation
            run.event(events.Validation(round_, held_out, documents))
            if status.best_loss - held_out > GAIN * abs(held_out):
                status.best = self.best(step.state)
                status.best_loss = held_out
                status.waited = 0
            else:
                status.waited += 1
        reason = step.why_stop(
            round_, self.stops, validations_without_gain=status.waited, best_loss=status.best_loss
        )
        status.stopped = bool(reason)
        if self.saves_every_round or reason or run.due(round_):
            self._save(run, status, step.state)
        if reason:
            run.event(events.Stopped(round_, reason))
        return status.stopped

    def _save(self, run: Run, status: TrainingStatus, state: State) -> None:
        if (saved := self.save(state)) is not None:
            run.checkpoint(status.checkpoint(saved))
