"""Whole studies in this process: a server and its members, each in a thread."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedtopics import Corpus, Policy, Study, TopicModel
from fedtopics.federation.join import join
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.relay import lead_relay
from fedtopics.federation.serve import lead
from fedtopics.federation.study_tables import ServerData
from fedtopics.protocol.link import Link, Service
from fedtopics.protocol.roster import Key
from fedtopics.transport.loopback import LoopbackLink
from tests.helpers.background import HOST, PATIENCE, Background, KilledError, Notes, until

__all__ = [
    "HOST",
    "PATIENCE",
    "Background",
    "Cut",
    "KilledError",
    "Notes",
    "Outcome",
    "Partner",
    "federated",
    "keys_of",
    "part_of",
    "signed",
    "until",
]


def keys_of(folder: Path, *names: str) -> dict[str, Key]:
    """Make a key for each name."""
    return {name: Key.create(folder / name, name) for name in names}


def signed(plan: Study, keys: Mapping[str, Key]) -> Study:
    """Return the study of those who have keys; "server" is the server's, if there is one."""
    clients = {
        name: plan.with_clients([name])
        .clients[name]
        .model_copy(update={"certificate": key.certificate.decode()})
        for name, key in keys.items()
        if name != "server"
    }
    certificate = keys["server"].certificate.decode() if "server" in keys else None
    server = ServerData(address=f"{HOST}:1", certificate=certificate)
    return plan.model_copy(update={"clients": clients, "server": server})


class Cut:
    """A link that is cut after so many calls, as where a process is killed."""

    def __init__(self, link: Link, calls: float = math.inf) -> None:
        self._link = link
        self._left = calls

    def _check(self) -> None:
        self._left -= 0.5
        if self._left < 0:
            raise KilledError

    def ask(self, message: bytes) -> bytes:
        self._check()
        answer = self._link.ask(message)
        self._check()
        return answer

    def say(self, message: bytes) -> None:
        self._check()
        self._link.say(message)
        self._check()

    def fetch(self, what: bytes, most: int | None = None) -> bytes:
        self._check()
        content = self._link.fetch(what, most)
        self._check()
        return content


class Partner:
    """A member of a study in a thread."""

    def __init__(
        self,
        part: Participation,
        plan: Study,
        link: Link,
        events: Notes,
        service: Any = None,
        calls: float = math.inf,
    ) -> None:
        self.part = part
        self.events = events
        self.link = Cut(link, calls)

        def work() -> TopicModel | None:
            try:
                return join(part, plan, link=self.link, timeout=20 * PATIENCE)
            except Exception as error:
                if service is not None:  # which would wait for ever
                    service.fail(f"{part.name}: {error}")
                raise

        self._work = Background(work)

    def result(self) -> TopicModel:
        model: TopicModel = self._work.result()
        return model

    def error(self) -> BaseException | None:
        return self._work.error()


@dataclass
class Outcome:
    """What a study left."""

    model: TopicModel
    events: Notes  # of the server
    partners: dict[str, Partner]


def part_of(
    key: Key, corpus: Corpus | None, out: Path, policy: Policy = OPEN_POLICY, **more: Any
) -> tuple[Participation, Notes]:
    """Return a member that draws what those of a simulation draw, and what happens to it."""
    events = Notes()
    more = {"insecure_seed": True} | more
    return Participation(key, corpus, policy, out, on_event=events.append, **more), events


def federated(
    plan: Study,
    corpora: Mapping[str, Corpus],
    folder: Path,
    policy: Policy = OPEN_POLICY,
    policies: Mapping[str, Policy] | None = None,
    starts: Mapping[str, Any] | None = None,
    seeded: bool = True,
    start: Any = None,
    keys: Mapping[str, Key] | None = None,
) -> Outcome:
    """Run a study with a server and all its members, over loopback."""
    from fedtopics.federation.participant import start_of

    keys = keys or keys_of(folder / "keys", *corpora, "server")
    plan = signed(plan.with_clients(corpora), keys)
    starts = dict.fromkeys(corpora, start) if starts is None else starts
    events = Notes()
    partners = dict[str, Partner]()

    @contextmanager
    def listen(service: Service, notify: Any) -> Iterator[None]:
        for name, corpus in corpora.items():
            rules = (policies or {}).get(name, policy)
            # A folder is a world of its own, with its memories and what its keys have signed.
            rules = rules.model_copy(update={"memory": rules.memory or folder / "memories" / name})
            part, notes = part_of(
                replace(keys[name], folder=folder / name),
                corpus,
                folder / name,
                rules,
                start=starts.get(name),
                insecure_seed=seeded,
            )
            partners[name] = Partner(part, plan, LoopbackLink(service, name), notes, service)
        yield

    if plan.is_secure:
        lead_relay(plan, folder / "server", listen, events)
    else:
        begun = None if start is None else start_of(start, plan)
        lead(plan, folder / "server", listen, on_event=events.append, start=begun)
    models = [partner.result() for partner in partners.values()]
    return Outcome(models[0], events, partners)
