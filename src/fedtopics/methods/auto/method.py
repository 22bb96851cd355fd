"""A study that chooses its method by a rule, from the mean length of all clients' documents."""

from dataclasses import replace
from functools import partial
from typing import Any

from fedtopics.contract.events import Chosen
from fedtopics.contract.interfaces import Clients, Run
from fedtopics.contract.replies import LONGEST, Announced, Template, counts
from fedtopics.methods.auto.client import AutoClient, AutoSettings
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.registry import Method, find_method
from fedtopics.model.topics import Topics

EXTENT: Template = {
    "documents": Announced({}),
    "words": counts(per_document=LONGEST),
    "embedded": counts(per_document=1),
}


class Auto:
    def __init__(self, plan: Plan[Any]) -> None:
        self.plan = plan
        self.settings: AutoSettings = plan.settings

    def train(self, clients: Clients, run: Run) -> Topics:
        agreed = run.recall("agreement")  # of a resumed run; contains the method as well
        if agreed is None:
            extent = clients.round(0, partial(clients.sum, "extent", EXTENT))[0]
            chosen, why = self.settings.choose(**extent)
            run.event(Chosen(chosen["name"], why))
        else:
            chosen = agreed["chosen"]
        clients.tell("take", chosen=chosen)
        method = find_method(chosen["name"])
        settings = method.settings(**chosen)
        program = method.program(
            replace(self.plan, settings=settings, stored_with_agreement={"chosen": chosen})
        )
        return program.train(clients, run)


METHOD = Method("auto", "automatic choice", AutoSettings, Auto, AutoClient, starts_from_models=True)
