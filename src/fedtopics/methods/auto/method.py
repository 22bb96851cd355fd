"""A study that leaves the method to a rule: all clients say how much they have, and train it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fedtopics.methods.auto.settings import AutoSettings
from fedtopics.methods.core.events import Chosen
from fedtopics.methods.core.interfaces import Clients, Run
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.replies import LONGEST, Announced, Template, counts
from fedtopics.methods.registry import find_method
from fedtopics.model.topic_model import TopicModel

EXTENT: Template = {
    "documents": Announced({}), "words": counts(each=LONGEST), "embedded": counts(each=1),
}  # fmt: skip
AGREED = "agreement"  # what is kept of before the first round, also for who comes back late


class Auto:
    """Chooses a method, and is its program from then on."""

    def __init__(self, plan: Plan[Any]) -> None:
        self.plan = plan
        self.settings: AutoSettings = plan.settings

    def train(self, clients: Clients, run: Run) -> TopicModel:
        """Choose; train by the chosen method's program."""
        kept = run.recall(AGREED)
        if kept is None:
            found = clients.round(0, partial(clients.sum, "extent", EXTENT))[0]
            chosen, why = self.settings.choose(**found)
            run.event(Chosen(chosen["name"], why))
        else:
            chosen = kept["chosen"]
        clients.tell("take", chosen=chosen)
        method = find_method(chosen["name"])
        program = method.server(replace(self.plan, settings=method.settings(**chosen)))
        return program.train(clients, _Remembering(run, chosen))


class _Remembering:
    """A run that keeps with the agreement which method was chosen."""

    def __init__(self, run: Run, chosen: Mapping[str, Any]) -> None:
        self._run = run
        self._chosen = chosen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep it, and the choice if it is the agreement."""
        more = {"chosen": self._chosen} if name == AGREED else {}
        self._run.keep(name, {**content, **more})
