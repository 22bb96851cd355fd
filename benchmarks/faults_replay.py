"""The weights that a run should have: its rounds worked again in one process.

Each round is worked by the clients whose replies counted, as the run's events say, and by nobody
else. If the run's weights have the same bits, nothing of a reply that was refused, late or lost
got into them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedtopics.engines.local import LocalClients
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import Policy
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study
from fedtopics.methods.core.events import RoundReport
from fedtopics.methods.core.interfaces import EVERYONE, Draw, Moment, T
from fedtopics.methods.core.plan import Site
from fedtopics.text.corpus import Corpus
from fedtopics.text.tables import Columns

Weights = dict[str, NDArray[Any]]
Counted = tuple[tuple[str, ...], int]  # whose replies counted in a round, and at which attempt


@dataclass(frozen=True)
class _Named(Draw):
    """Clients that are named, not drawn."""

    names: tuple[str, ...] = ()

    def members(self, *_: Any) -> list[str]:
        return list(self.names)


class _Counted(LocalClients):
    """Clients of which only some count in a round, at the attempt that counted."""

    def __init__(self, doors: Mapping[str, Door], rounds: Mapping[int, Counted]) -> None:
        super().__init__(doors)
        self._rounds = rounds
        self._attempt = 1

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        # What comes before and after the rounds draws nothing; everybody counts there.
        names, self._attempt = self._rounds.get(number, (tuple(self.names), 1))
        return super().round(number, work, _Named(None, 0, names=names))

    def _begin(self, attempt: int = 1) -> None:
        self._moment = Moment(self._moment.turn + 1, self._attempt, 0)


class _Kept(RunFolder):
    """A run without a folder, that goes on from an agreement."""

    agreement: dict[str, Any] | None = None

    def recall(self, name: str) -> dict[str, Any] | None:
        return self.agreement if name == "agreement" else None


def replay(
    study_file: Path, data: Mapping[str, Path], members: Mapping[int, Counted] | None = None
) -> Weights:
    """Work a study's rounds in this process.

    Parameters
    ----------
    study_file : path
        In the run's folder, beside its agreement on the words.
    data : mapping of client name to JSON lines
    members : mapping of round to names and attempt, optional
        Who counts, as each attempt draws anew. Without it everyone, from the agreement on.
    """
    torch.set_num_threads(1)  # as in the processes
    study = Study.read(study_file)
    doors = {}
    for name, path in data.items():
        half = study.client_half(Site(name, Corpus.read(path, Columns(text="text")), Policy()))
        ledger = Ledger(study.method.method_name, study.fingerprint)
        doors[name] = Door(name, half, Policy(), ledger)
    run = _Kept(None, study.fingerprint)
    clients = LocalClients(doors)
    if members is not None:
        run.agreement = json.loads(study_file.with_name("agreement.json").read_text())
        clients = _Counted(doors, members)
    model = study.server_half().train(clients, run)
    found = {f"weights/{name}": np.asarray(array) for name, array in model.weights.items()}
    for stage, values in model.shared.items():
        found |= {f"shared/{stage}/{name}": np.asarray(array) for name, array in values.items()}
    return found


def weights_of(model: Path) -> Weights:
    """Read a model's weights from its folder, without what describes its topics."""
    found: Weights = load_file(model / "model.safetensors")
    kinds = ("weights/", "shared/")
    return {name: array for name, array in found.items() if name.startswith(kinds)}


def same_bits(one: Weights, other: Weights) -> bool:
    """Whether two models have the same weights, bit by bit."""
    return one.keys() == other.keys() and all(
        array.dtype == other[name].dtype and array.tobytes() == other[name].tobytes()
        for name, array in one.items()
    )


def finite(weights: Weights) -> bool:
    """Whether all numbers are numbers."""
    return all(bool(np.isfinite(array).all()) for array in weights.values())
