"""A study whose files are carried between folders, by a carrier who loses nothing."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from fedtopics import Corpus, Policy, Study, TopicModel
from fedtopics.federation.by_folders import exchange_of, relay_by_folders, take_turn
from fedtopics.federation.egress import Egress
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.methods.core.plan import fingerprint_of
from fedtopics.protocol.link import NotYetError
from tests.helpers.background import Notes
from tests.helpers.grpc_federation import signed
from tests.helpers.keys import key_of

MOST_TURNS = 300


class Carried:
    """Members and a relay, each with an inbox and an outbox."""

    def __init__(
        self,
        plan: Study,
        corpora: Mapping[str, Corpus],
        folder: Path,
        policies: Mapping[str, Policy] | None = None,
        host: str | None = None,
    ) -> None:
        self.relay = host or "server"
        self.folders = {name: folder / name for name in {*corpora, self.relay}}
        self.keys = {name: replace(key_of(name), folder=at) for name, at in self.folders.items()}
        self.plan = signed(plan.with_clients(corpora), self.keys)
        if host is not None:
            server = self.plan.server.model_copy(update={"host": host})
            self.plan = self.plan.model_copy(update={"server": server})
        self.corpora = corpora
        self.policies = policies or {}
        for name in self.folders:
            self.inbox(name).mkdir(parents=True)
        self.models: dict[str, TopicModel] = {}
        self.events = {name: Notes() for name in self.folders}
        self.problems: list[str] = []  # sentences about files
        self.carryings = 0

    def inbox(self, name: str) -> Path:
        return self.folders[name] / "in"

    def outbox(self, name: str) -> Path:
        return self.folders[name] / "out"

    def turn(self, name: str) -> str:
        """Take a participant's turn; return for what it waits, "" if it has ended."""
        folder = self.folders[name]
        plan = self.plan
        exchange = exchange_of(plan, self.inbox(name), self.outbox(name), self.problems.append)
        try:
            if name in self.corpora:
                part = Participation(
                    self.keys[name],
                    self.corpora[name],
                    self.policies.get(name, OPEN_POLICY).model_copy(
                        update={"memory": folder / "memory"}
                    ),
                    folder / "run",
                    on_event=self.events[name].append,
                    insecure_seed=True,
                    egress=Egress(self.outbox(name)),
                )
                self.models[name] = take_turn(part, self.plan, exchange)  # type: ignore[assignment]
            else:
                relay_by_folders(plan, self.keys[name], exchange, folder, self.events[name])
        except NotYetError as error:
            return str(error)
        return ""

    def carry(self) -> int:
        """Copy what is new to where it belongs; return how many files that were."""
        return sum(
            _copy(path, self.inbox(other))
            for name in self.folders
            for path in self.outbox(name).glob("*.fedtopics")
            for other in (self.folders if name == self.relay else [self.relay])
            if other != name
        )

    def go_round(self, *names: str) -> list[str]:
        """Let members take their turns, then the relay; return for what each of them waits."""
        waits = [self.turn(name) for name in names]
        n_copied = self.carry()
        if self.relay not in self.corpora:
            waits.append(self.turn(self.relay))
        n_copied += self.carry()
        # What is carried afterwards only tells the relay that all have the model.
        self.carryings += n_copied > 0 and len(self.models) < len(self.corpora)
        return waits

    def run(self, between: Callable[[int], object] = bool) -> set[str]:
        """Carry files until nothing is left to do; return the models, by their fingerprints."""
        for number in range(MOST_TURNS):
            if not any(waits := self.go_round(*self.corpora)):
                return {fingerprint_of(model) for model in self.models.values()}
            between(number)
        raise AssertionError(waits)


def _copy(path: Path, folder: Path) -> bool:
    copy = folder / path.name
    if copy.exists() and copy.read_bytes() == path.read_bytes():
        return False
    shutil.copy(path, copy)
    return True
