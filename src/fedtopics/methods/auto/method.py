"""A study that leaves the method to a rule: all clients say how much they have, and train it.

The client's side becomes that of the chosen method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.auto.settings import AutoSettings, count_words
from fedtopics.methods.core.client import Documents, TopicClient, leaves
from fedtopics.methods.core.events import Chosen
from fedtopics.methods.core.interfaces import Clients, Run
from fedtopics.methods.core.plan import Plan, Site
from fedtopics.methods.core.replies import LONGEST, Announced, Template, counts
from fedtopics.methods.mixture.client import MixtureClient
from fedtopics.methods.nmf.client import NMFClient
from fedtopics.methods.registry import find_method
from fedtopics.model.topic_model import TopicModel

HALVES: tuple[type[TopicClient[Any]], ...] = (NMFClient, MixtureClient)


class AutoClient(TopicClient[AutoSettings]):
    """Counts documents and words; then it does what the half of the chosen method does."""

    def __init__(self, plan: Plan[Any], site: Site) -> None:
        super().__init__(plan, site)
        self._plan = plan
        self._half: TopicClient[Any] | None = None

    @classmethod
    def schedule(cls, settings: AutoSettings) -> dict[str, str]:
        """Return the calls of all methods that can be chosen."""
        whens: dict[str, list[str]] = {}
        for chosen in (settings.for_texts, settings.for_titles):
            method = find_method(chosen["name"])
            for name, when in method.client.schedule(method.settings(**chosen)).items():
                whens.setdefault(name, []).append(f"{when}, with {method.name}")
        usual = super().schedule(settings)  # what any method calls, as often
        return {"extent": "once"} | {n: "; ".join(when) for n, when in whens.items()} | usual

    @staticmethod
    def rounds(settings: AutoSettings) -> dict[str, str]:
        return {}  # all is in the schedule

    @leaves("Their number, how many have an embedding, and the number of their words.")
    def extent(self) -> dict[str, Any]:
        """Count what the method is chosen by."""
        embeddings = self._corpus.embeddings
        embedded = 0 if embeddings is None else len(embeddings)
        words = count_words(self._corpus)
        return {"documents": len(self._corpus), "words": words, "embedded": embedded}

    def take(self, chosen: Mapping[str, Any]) -> None:
        """Become the half of a method with these settings; told, nothing leaves."""
        method = find_method(chosen["name"])
        self._half = method.client(
            replace(self._plan, settings=method.settings(**chosen)), self.site
        )

    def adopt(self, words: list[str], total: int, length: float) -> None:
        self.half.adopt(words, total, length)

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, NDArray[np.float64]]]:
        return self.half.thetas(**model)

    @property
    def half(self) -> TopicClient[Any]:
        """The half of the chosen method, at the present attempt."""
        assert self._half is not None, "a method is chosen first"  # noqa: S101
        self._half.attempt = self.attempt
        return self._half


def _forwarded(name: str, what: str, seen_by_all: bool) -> Callable[..., dict[str, Any]]:
    def ask(self: AutoClient, **payload: Any) -> dict[str, Any]:
        reply: dict[str, Any] = getattr(self.half, name)(**payload)
        return reply

    ask.__name__ = name
    ask.__doc__ = "As of the chosen method's half."
    return leaves(what, seen_by_all)(ask)


for _name, _function in {n: getattr(h, n) for h in HALVES for n in dir(h)}.items():
    if what := getattr(_function, "leaves", ""):
        setattr(AutoClient, _name, _forwarded(_name, what, _function.seen_by_all))


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
