"""How an experiment is run: what is the same in all of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedtopics.errors import DataError


@dataclass(frozen=True)
class ExperimentSettings:
    """How an experiment is run.

    A quick run has one seed, few documents and steps: whether it runs, not what is true.
    """

    experiment: ClassVar[str]  # its name for python -m experiments

    out: Path | None = None
    seeds: int = 5
    quick: bool = False

    @property
    def folder(self) -> Path:
        """Where it all goes."""
        return self.out or Path(f"runs/{self.experiment}{'-quick' if self.quick else ''}")

    @property
    def used_seeds(self) -> range:
        """Seeds that are averaged."""
        return range(1 if self.quick else self.seeds)

    @property
    def options(self) -> list[str]:
        """What the command is given, without this machine's paths."""
        return ["--quick" if self.quick else f"--seeds {self.seeds}"]

    @property
    def command(self) -> str:
        """What repeats it."""
        return " ".join(["python -m experiments", self.experiment, *self.options])


@dataclass(frozen=True)
class _Files:
    data: Path


@dataclass(frozen=True)
class FileSettings(ExperimentSettings, _Files):  # in this order `data` is the first argument
    """How an experiment on the Parquet files of a folder is run."""

    @property
    def options(self) -> list[str]:
        """What the command is given, without this machine's paths."""
        return ["--data FOLDER", *super().options]

    def path(self, name: str) -> Path:
        """Return where the file of a data set belongs."""
        return self.data / f"{name}.parquet"

    def file(self, name: str) -> Path:
        """Return the file of a data set.

        Raises
        ------
        DataError
            If it is not there.
        """
        path = self.path(name)
        if not path.exists():
            raise DataError(
                f"There is no {path.name} in {path.parent}; name its folder with --data."
            )
        return path
