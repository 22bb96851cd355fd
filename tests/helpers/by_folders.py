"""A study whose files are carried between folders, by a carrier who loses nothing."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedtopics import Corpus, Policy, Study, TopicModel
from fedtopics.federation.by_folders import exchange_of, relay_by_folders, take_turn
from fedtopics.federation.egress import Egress
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.protocol.link import NotYetError
from fedtopics.protocol.roster import Key
from tests.helpers.grpc_federation import Notes, part_of, signed

MOST_TURNS = 300


@dataclass
class Site:
    """The folders of a participant."""

    place: Path
    problems: list[str] = field(default_factory=list)  # sentences about files

    @property
    def inbox(self) -> Path:
        return self.place / "in"

    @property
    def outbox(self) -> Path:
        return self.place / "out"


class Carried:
    """Members and a relay, each with an inbox and an outbox."""

    def __init__(
        self,
        plan: Study,
        corpora: Mapping[str, Corpus],
        folder: Path,
        keys: Mapping[str, Key],
        policies: Mapping[str, Policy] | None = None,
        host: str | None = None,
    ) -> None:
        members = {name: key for name, key in keys.items() if name in corpora or name == "server"}
        self.plan = signed(plan.with_clients(corpora), members)
        if host is not None:
            server = self.plan.server.model_copy(update={"host": host, "certificate": None})
            self.plan = self.plan.model_copy(update={"server": server})
        self.keys = {name: replace(key, folder=folder / name) for name, key in keys.items()}
        self.corpora = corpora
        self.policies = policies or {}
        self.relay = host or "server"
        self.sites = {name: Site(folder / name) for name in {*corpora, self.relay}}
        for site in self.sites.values():
            site.inbox.mkdir(parents=True)
        self.models: dict[str, TopicModel] = {}
        self.events = {name: Notes() for name in self.sites}
        self.carryings = 0

    def turn(self, name: str) -> str:
        """Take a participant's turn; return for what it waits, "" if it has ended."""
        site = self.sites[name]
        plan = self.plan.server_plan
        exchange = exchange_of(plan, site.inbox, site.outbox, site.problems.append)
        try:
            if name not in self.corpora:
                relay_by_folders(plan, self.keys[name], exchange, site.place, self.events[name])
                return ""
            policy = self.policies.get(name, OPEN_POLICY)
            part, events = part_of(
                self.keys[name],
                self.corpora[name],
                site.place / "run",
                policy.model_copy(update={"memory": site.place / "memory"}),
                egress=Egress(site.outbox),
            )
            try:
                self.models[name] = take_turn(part, self.plan, exchange)  # type: ignore[assignment]
            finally:
                self.events[name] += events
        except NotYetError as error:
            return str(error)
        return ""

    def carry(self) -> int:
        """Copy what is new to where it belongs; return how many files that were."""
        return sum(
            _copy(path, self.sites[other].inbox)
            for name, site in self.sites.items()
            for path in site.outbox.glob("*.fedtopics")
            for other in (self.sites if name == self.relay else [self.relay])
            if other != name
        )

    def run(self, between: Callable[[int], object] = bool) -> None:
        """Carry files to the relay and back until nothing is left to do."""
        for number in range(MOST_TURNS):
            waits = [self.turn(name) for name in self.corpora]
            n_copied = self.carry()
            if self.relay not in self.corpora:
                waits.append(self.turn(self.relay))
            n_copied += self.carry()
            # What is carried afterwards only tells the relay that all have the model.
            self.carryings += n_copied > 0 and len(self.models) < len(self.corpora)
            if not any(waits):
                return
            between(number)
        raise AssertionError(waits)


def _copy(path: Path, folder: Path) -> bool:
    copy = folder / path.name
    if copy.exists() and copy.read_bytes() == path.read_bytes():
        return False
    shutil.copy(path, copy)
    return True
