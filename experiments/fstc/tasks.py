"""How the FSTC paper's experiments are run: on which data, of which studies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.compute as pc

from experiments.fstc.methods import DATA_SETS, OTHER, OWN, QUICK, DataSet
from experiments.fstc.parts import PARTS, Task, Usable, usable_seeds
from experiments.settings import FileSettings
from fedtopics.errors import StudyError
from fedtopics.federation.study import Study
from fedtopics.methods.core.settings import filled
from fedtopics.text.corpus import Corpus
from fedtopics.text.tables import Columns

SWEEP_SEEDS = 3  # at most, of what is not table 2
QUICK_DOCUMENTS = 400
NEEDED = ("agnews", "stackoverflow")  # the others are taken if they are there
OTHER_TEXTS = ("20ng", "news_outlets")  # which no method clusters; likewise


@dataclass(frozen=True)
class Settings(FileSettings):
    """How the experiment is run: `only` names the parts that are trained now.

    The seeds are of table 2, the other parts have three, or fewer.
    """

    experiment: ClassVar[str] = "fstc"

    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := set(self.only) - set(PARTS):
            raise StudyError(f"There is no part {min(unknown)!r}; choose from: {', '.join(PARTS)}.")

    @property
    def data_sets(self) -> list[DataSet]:
        """Those of the paper that can be had, and what else is there."""
        return [
            data
            for data in DATA_SETS.values()
            if data.name in NEEDED or self.path(data.name).exists()
        ]

    def tasks(self, part: str) -> list[Task]:
        """List the trainings of a part; all methods of a seed come before the next seed."""
        return self.planned(part, self.data_sets, self.usable)

    def planned(self, part: str, data_sets: Iterable[DataSet], usable: Usable) -> list[Task]:
        """List the trainings of a part, of these data sets."""
        seeds = len(self.used_seeds)
        seeds = seeds if part == "table2" else min(seeds, SWEEP_SEEDS)
        return [task for data in data_sets for task in PARTS[part](usable, data, seeds)]

    def usable(self, name: str, split: Mapping[str, Any], seeds: int) -> list[int]:
        """Return the first seeds whose split leaves each client enough documents."""
        return usable_seeds(self.documents(name), split, seeds)

    def study(self, task: Task) -> Study:
        """Return a task's study; without coherence, which says nothing about clusters."""
        n_clusters = pc.count_distinct(self.documents(task.data).labels).as_py()
        method = {"n_components": n_clusters, "coherence": "nothing"} | task.method
        if not self.quick:
            return Study.make(seed=task.seed, method=method, vocabulary={"min_clients_per_word": 1})
        # Views would be embedded.
        views = {"network": {"deletion": 0.0}} if method["name"] == "fsccl" else {}
        quick = {"start": {"tries": 4, "rounds": 10}, **QUICK[method["name"]]}
        method = filled(quick, filled(method, views))
        # Few documents of a client have few words in common.
        limits = {"min_persons_per_word": 1, "min_clients_per_word": 1}
        return Study.make(seed=task.seed, method=method, vocabulary=limits)

    def documents(self, name: str, n_documents: int | None = None) -> Corpus:
        """Return a data set's texts and labels, or so many of them."""
        return _documents(self.file(name), QUICK_DOCUMENTS if self.quick else n_documents)

    def known_to(self, encoder: str, name: str) -> list[str]:
        """Return the data sets whose texts word vectors of a data set's texts are made of.

        Raises
        ------
        StudyError
            If there are no others in the folder.
        """
        if encoder == OWN:
            return [name]
        others = [
            other
            for other in (*DATA_SETS, *OTHER_TEXTS)
            if other != name and self.path(other).exists()
        ]
        if encoder == OTHER and not others:
            raise StudyError(f"Beside {name}.parquet there are no texts to make word vectors of.")
        return others if encoder == OTHER else []


def given(study: Study) -> dict[str, Any]:
    """Return a method's settings that are not its defaults, with its name.

    Defaults change with the version only: a new setting, off by default, changes nothing here.
    """
    method: Any = study.method
    settings, defaults = map(_flat, (method, type(method)()))
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    return changed | {"name": method.method_name}


def _flat(method: Any) -> dict[str, Any]:
    """Return settings by the names that stored rows know them by: those of groups by themselves."""
    settings: dict[str, Any] = method.model_dump(mode="json", exclude={"preset"})
    start = settings.pop("start")
    labels = settings.pop("first_labels", None)
    named = {"starts": start["tries"], "start_rounds": start["rounds"], "start": labels}
    groups: dict[str, Any] = settings.pop("network", {}) | settings.pop("separation", {})
    return settings | named | groups


@lru_cache(maxsize=2 * len(DATA_SETS))
def _documents(path: Path, n_documents: int | None) -> Corpus:
    corpus = Corpus.read(path, Columns(text="text", label="label"))
    rows = np.random.default_rng(0).permutation(len(corpus))[:n_documents]
    return corpus if n_documents is None else corpus.take(rows)
