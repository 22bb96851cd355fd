"""Follow a run in TensorBoard or MLflow: callbacks that read its events.

They write numbers alone: of a list, as of clients or topics, how many it has; no word, no document,
no client's name. The study's settings become hyperparameters. A tracker that cannot write any more
says so once, and the run goes on without it.
"""

from __future__ import annotations

import logging
import math
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from fedtopics.extras import require
from fedtopics.files import make_folder
from fedtopics.harmless import sentence
from fedtopics.methods.events import OnEvent

Event = Mapping[str, Any]
WRITTEN = ("round", "validation", "vocabulary", "candidate", "finished")
AT_FIRST = ("vocabulary", "candidate")  # a resumed run tells them again
FLUSH = 5.0  # seconds between two messages to MLflow
MOST = 500  # numbers of a message, of the 1,000 that MLflow takes
LONGEST = 200  # characters of what a tracker says of its failure


def tell_all(*callbacks: OnEvent) -> OnEvent:
    """Return a callback that hands each event to several, in their order."""

    def tell(event: dict[str, Any]) -> None:
        for callback in callbacks:
            callback(event)

    return tell


def numbers(event: Event) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an event under names such as "round/loss"; of a list, how many.

    Examples
    --------
    >>> event = {"event": "round", "round": 3, "loss": 7.5, "clients": ["east", "west"]}
    >>> dict(numbers(event))
    {'round/loss': 7.5, 'round/clients': 2.0}
    """
    for key, value in event.items():
        if key in ("event", "time", "round") or isinstance(value, str):
            continue
        if isinstance(value, (list, tuple, Mapping)):
            value = len(value)
        if isinstance(value, (int, float)) and math.isfinite(value):
            yield f"{event['event']}/{key}", float(value)


class Tracker(ABC):
    """What reads the events of one run and writes their numbers.

    Use it as `on_event` of `train` or `serve`, best in a with statement: it is closed then, however
    the run ends. Nothing is written before the run's first round. `on_failure` gets one sentence if
    nothing can be written any more; by default it is a warning.
    """

    title: ClassVar[str]
    packages: ClassVar[tuple[tuple[str, str], ...]]

    def __init__(self, on_failure: Callable[[str], None] | None = None) -> None:
        require(f"{self.title} needs", f"'fedtopics[{self.title.lower()}]'", *self.packages)
        self._on_failure = on_failure or _warn
        self._step = 0
        self._began: float | None = None
        self._resumed = False
        self._study: Event = {}
        self._waiting: list[Event] = []
        self._state = "new"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(failed=kind is not None)

    def __call__(self, event: Event) -> None:
        """Write an event's numbers."""
        if self._state == "ended":
            return
        try:
            self._take(event)
        except Exception as error:  # of somebody else's library, or its server: almost any kind
            self._fail(error)

    def close(self, failed: bool = False) -> None:
        """Write what is left, and end; the run may have failed."""
        opened, self._state = self._state == "open", "ended"
        if not opened:
            return
        try:
            self._end(failed)
        except Exception as error:
            self._fail(error)

    def _take(self, event: Event) -> None:
        kind = event["event"]
        if kind == "started":
            self._began = event["time"]
        elif kind == "resumed":
            self._began, self._resumed = event["begun"], True
        elif kind == "study":
            self._study = event
        elif kind == "training":
            self._step = event["done"]
            name = sentence(self._study.get("name", "study"))
            self._begin(name, self._settings(), self._step)
            self._state = "open"
            for waiting in self._waiting:
                self._write_event(waiting)
        elif kind in WRITTEN and self._state == "open":
            self._write_event(event)
        elif kind in WRITTEN and (kind not in AT_FIRST or not self._resumed):
            self._waiting.append(event)
        if kind == "finished":
            self.close()

    def _write_event(self, event: Event) -> None:
        self._step = event.get("round", self._step)
        # What is tried before the first round has no round: its number of clusters is the step.
        step = event["n_components"] if event["event"] == "candidate" else self._step
        self._write(dict(numbers(event)), int(step), event.get("time", time.time()))

    def _settings(self) -> dict[str, Any]:
        return {
            key: sentence(", ".join(map(str, value)) if isinstance(value, list) else value)
            if isinstance(value, (list, str))
            else value
            for key, value in self._study.get("settings", {}).items()
        }

    def _fail(self, error: Exception) -> None:
        self._state = "ended"
        reason = sentence((str(error).strip().splitlines() or [""])[0][:LONGEST])
        failure = f"{type(error).__name__}: {reason}".rstrip(": .")
        self._on_failure(f"{self.title} is not written any more ({failure}); the run goes on.")

    @abstractmethod
    def _begin(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Begin to write, or go on after so many rounds."""

    @abstractmethod
    def _write(self, values: Mapping[str, float], step: int, when: float) -> None:
        """Write numbers by name, of a round."""

    @abstractmethod
    def _end(self, failed: bool) -> None:
        """Write what is left."""


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


class TensorBoard(Tracker):
    """Write a run's numbers for TensorBoard.

    A resumed run goes on where it was: of rounds that are repeated, TensorBoard leaves out what
    was written before.

    Parameters
    ----------
    folder : path
        One a run; ``tensorboard --logdir`` takes it, or the folder above.
    on_failure : function, optional
        Called with one sentence if nothing can be written any more; by default a warning.

    Raises
    ------
    FedTopicsError
        If tensorboard is not installed.
    """

    title = "TensorBoard"
    packages = (("tensorboard", "tensorboard"), ("torch", "torch"))

    def __init__(self, folder: str | Path, on_failure: Callable[[str], None] | None = None) -> None:
        super().__init__(on_failure)
        self._folder = Path(folder)

    def _begin(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        from torch.utils import tensorboard
        from torch.utils.tensorboard import summary

        purge = done + 1 if self._resumed else None
        make: Any = tensorboard.SummaryWriter
        self._writer = make(str(self._folder), purge_step=purge, flush_secs=int(FLUSH))
        if settings and not self._resumed:
            describe: Any = summary.hparams  # add_hparams would make another folder
            for part in describe(dict(settings), {"round/loss": 0.0}):
                self._writer.file_writer.add_summary(part)

    def _write(self, values: Mapping[str, float], step: int, when: float) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, when)

    def _end(self, failed: bool) -> None:
        self._writer.close()


class MLflow(Tracker):
    """Write a run's numbers to MLflow.

    A resumed run goes on in the MLflow run that it began. MLflow's own telemetry is switched off,
    unless MLFLOW_DISABLE_TELEMETRY says otherwise.

    Parameters
    ----------
    experiment : str, optional
        By default what MLFLOW_EXPERIMENT_NAME says, or "fedtopics".
    tracking_uri : str, optional
        A server, or ``sqlite:///FILE``; by default what MLFLOW_TRACKING_URI says, or MLflow's own
        default.
    run_name : str, optional
        By default the study's name.
    on_failure : function, optional
        Called with one sentence if nothing can be written any more; by default a warning.

    Raises
    ------
    FedTopicsError
        If mlflow is not installed.
    """

    title = "MLflow"
    packages = (("mlflow", "mlflow-skinny"), ("sqlalchemy", "sqlalchemy"), ("alembic", "alembic"))

    def __init__(
        self,
        experiment: str | None = None,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(on_failure)
        self._experiment = experiment
        self._uri = tracking_uri
        self._run_name = run_name
        self._unsent: list[Any] = []
        self._sent = 0.0

    def _begin(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        where: dict[str, Any] = {}
        if self._uri is not None and self._uri.startswith("sqlite:///"):
            folder = Path(self._uri.removeprefix("sqlite:///")).parent
            make_folder(folder)
            where = {"artifact_location": (folder / "artifacts").absolute().as_uri()}
        self._client = MlflowClient(tracking_uri=self._uri)
        title = self._experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "fedtopics"
        existing = self._client.get_experiment_by_name(title)
        if existing is None:
            experiment = self._client.create_experiment(title, **where)
        else:
            experiment = existing.experiment_id
        began = "" if self._began is None else repr(self._began)
        tag = f"tags.`fedtopics.began` = '{began}'"
        if self._resumed and (
            earlier := self._client.search_runs([experiment], tag, max_results=1)
        ):
            self._id = earlier[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        tags = {"fedtopics.study": str(self._study.get("fingerprint", ""))}
        tags |= {"fedtopics.began": began} if began else {}
        created = self._client.create_run(experiment, run_name=self._run_name or name, tags=tags)
        self._id = created.info.run_id
        if parameters := [Param(key, str(value)) for key, value in settings.items()]:
            self._client.log_batch(self._id, params=parameters)

    def _write(self, values: Mapping[str, float], step: int, when: float) -> None:
        from mlflow.entities import Metric

        self._unsent += [Metric(key, x, int(1000 * when), step) for key, x in values.items()]
        if len(self._unsent) >= MOST or time.monotonic() - self._sent > FLUSH:
            self._send()

    def _send(self) -> None:
        for first in range(0, len(self._unsent), MOST):
            self._client.log_batch(self._id, metrics=self._unsent[first : first + MOST])
        self._unsent, self._sent = [], time.monotonic()

    def _end(self, failed: bool) -> None:
        self._send()
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")
