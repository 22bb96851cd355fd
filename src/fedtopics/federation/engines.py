"""Engines that train a study elsewhere than in this process; packages add them by entry points."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedtopics.extras import Registry

if TYPE_CHECKING:
    from fedtopics.contract.events import OnEvent
    from fedtopics.federation.study import Study


class Engine(Protocol):
    """Where a study is trained: the workers of Dask, or FLARE's simulator or a system of it.

    It is made with the options of the command line for it. Dask's also has `prepared`, which
    `fedtopics.train` calls with a cluster.
    """

    def train(
        self, study: Study, folder: Path, resume: bool, on_event: OnEvent, **start: Any
    ) -> Path | None:
        """Train a study; return the folder with its model, or None if only the members have it.

        `start` are the arguments `start` and `vocabulary` of `fedtopics.train`, if given.
        """


ENGINES: Registry[Any] = Registry("engine", "fedtopics.engines")
