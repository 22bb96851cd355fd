from __future__ import annotations

from pathlib import Path

import pytest

from fedtopics.engines import disk_log
from fedtopics.engines.disk_log import DiskLog
from fedtopics.engines.log import Entry, Log
from fedtopics.engines.log_messages import Append, Message, State
from fedtopics.engines.replica import Disagreement, Replica, Settings
from tests.helpers.schedules import ORIGIN, Schedule

SCHEDULES = 400


@pytest.mark.parametrize("part", range(4))
def test_schedules(part: int) -> None:
    for seed in range(part * SCHEDULES // 4, (part + 1) * SCHEDULES // 4):
        Schedule(seed).run()


class OnDisk(Schedule):
    """A schedule whose participants read their logs anew when they come back."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed)
        self.folder = folder
        self.lossy = False

    def begin(self, name: str) -> None:
        node = self.nodes[name]
        node.log.close()
        committed = node.log.committed
        node.log = DiskLog(self.folder / name, ORIGIN, sync=False)
        assert node.log.committed <= committed
        super().begin(name)


def test_schedules_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_log, "SEGMENT_BYTES", 600)
    monkeypatch.setattr(disk_log, "RECENT_BYTES", 20)
    for seed in range(60):
        OnDisk(seed, tmp_path / str(seed)).run()


# Faults planted in the replica, each of which the schedules have to find.


# Single steps.


class Network:
    """Replicas whose messages arrive at once."""

    def __init__(self, *replicas: Replica) -> None:
        self.replicas = {replica.name: replica for replica in replicas}
        self.now = 0.0
        self.sent: list[tuple[str, str, Message]] = []
        self.lost: set[str] = set()

    def connect(self, one: str, other: str) -> None:
        self.replicas[one].connected(other, self.now)
        self.replicas[other].connected(one, self.now)
        self.carry()

    def carry(self) -> None:
        while messages := [
            (name, to, message)
            for name, replica in self.replicas.items()
            for to, message in (replica.take() if name not in self.lost else [])
        ]:
            self.sent += messages
            for name, to, message in messages:
                if to not in self.lost:
                    self.replicas[to].receive(name, message, self.now)

    def lose(self, name: str) -> None:
        self.lost.add(name)
        for other, replica in self.replicas.items():
            if other != name:
                replica.disconnected(name, self.now)

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            for name, replica in self.replicas.items():
                if name not in self.lost:
                    replica.tick(self.now)
            self.carry()


def peers(names: str, **settings: float) -> Network:
    network = Network(
        *(Replica(name, names, [], Log(b"run"), Settings(**settings)) for name in names)
    )  # type: ignore[arg-type]
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            network.connect(one, other)
    return network


def entry(text: str) -> Entry:
    return Entry("total", text.encode())


def texts(replica: Replica) -> list[str]:
    log = replica.log
    return [log.entry(index).content.decode() for index in range(1, replica.committed + 1)]


def test_a_server_alone_commits_at_once(tmp_path: Path) -> None:
    server = Replica(
        "server", ["server"], ["north", "south"], DiskLog(tmp_path, b"run", sync=False)
    )
    clients = [
        Replica(name, ["server"], ["north", "south"], Log(b"run")) for name in ("north", "south")
    ]
    assert server.propose(entry("one")) == server.committed == 1
    network = Network(server, *clients)
    network.connect("server", "north")
    network.connect("south", "server")
    server.propose(entry("two"))
    messages = server.take()
    assert [type(message) for _, message in messages] == [Append, Append]
    assert all(message.committed == 2 for _, message in messages if isinstance(message, Append))
    for to, message in messages:
        network.replicas[to].receive("server", message, 0.0)
    network.carry()
    assert texts(clients[0]) == texts(clients[1]) == ["one", "two"]
    network.wait(60)
    assert server.is_adder
    assert server.view == 0


def test_a_minority_does_not_go_on() -> None:
    network = peers("abcde")
    a = network.replicas["a"]
    for name in "cde":
        network.lose(name)
    a.propose(entry("one"))
    network.wait(20)
    assert a.committed == network.replicas["b"].committed == 0
    assert a.adder is None
    assert network.replicas["b"].adder is None


def test_memory_on_the_way_is_bounded() -> None:
    settings = Settings(window=4, window_bytes=1000)
    log = Log(b"run")
    log.append([Entry("total", bytes(size)) for size in (10, 10, 10, 10, 10, 600, 600, 5000, 10)])
    a = Replica("a", "ab", [], log, settings)
    a.connected("b", 0.0)
    b = Replica("b", "ab", [], Log(b"run"), settings)
    b.connected("a", 0.0)
    for _, message in b.take():
        a.receive("b", message, 0.0)
    together: list[list[int]] = []
    for _ in range(40):
        messages = a.take()
        appends = [message for _, message in messages if isinstance(message, Append)]
        if appends:
            together.append([len(each.content) for one in appends for each in one.entries])
        for _, message in messages:
            b.receive("a", message, 0.0)
        for _, message in b.take():
            a.receive("b", message, 0.0)
    assert together == [[10, 10, 10, 10], [10, 600], [600], [5000], [10]]
    assert b.committed == 9


def test_a_state_in_place_of_forgotten_entries() -> None:
    installed: list[State] = []

    def install(state: State) -> bool:
        installed.append(state)
        return True

    log = Log(b"run")
    a = Replica(
        "a", ["a"], ["b"], log, snapshot=lambda: State(3, log.digest(3), b"all up to three")
    )
    for text in ("1", "2", "3", "4"):
        a.propose(entry(text))
    a.forget(4)
    b = Replica("b", ["a"], ["b"], Log(b"run"), install=install)
    network = Network(a, b)
    network.connect("a", "b")
    assert [(state.index, state.content) for state in installed] == [(3, b"all up to three")]
    assert (b.log.base, b.committed, b.log.digest(4)) == (3, 4, log.digest(4))
    assert not b.halted


def test_other_committed_entries_are_reported_on_both_sides() -> None:
    a = Replica("a", "abc", [], Log(b"run"))
    log = Log(b"run")
    log.append([entry("other")])
    log.committed = 1
    b = Replica("b", "abc", [], log)
    c = Replica("c", "abc", [], Log(b"run"))
    network = Network(a, b, c)
    network.connect("a", "c")
    a.propose(entry("one"))
    network.carry()
    ours, theirs = a.log.digest(1), log.digest(1)
    network.connect("a", "b")
    assert a.disagreements == [Disagreement("b", 1, ours, theirs)]
    assert b.disagreements == [Disagreement("a", 1, theirs, ours)]
    assert b.halted
    assert not a.halted
    assert log.entry(1) == entry("other")
    a.propose(entry("two"))
    network.wait(10)
    assert texts(c) == ["one", "two"]


def test_one_that_lost_its_folder_is_not_taken_for_one_that_is_new() -> None:
    def born(name: str) -> Replica:
        log = Log(b"run")
        log.doubtful = True  # as one on disk is in a new folder
        return Replica(name, "abcde", [], log, Settings(patience=2, grace=1), nonce=ord(name))  # type: ignore[arg-type]

    network = Network(*map(born, "abcde"))
    a = network.replicas["a"]
    for place, one in enumerate("abcde"):
        for other in "abcde"[place + 1 :]:
            network.connect(one, other)
    assert a.is_adder
    a.propose(entry("all have this"))
    network.carry()
    for name in "de":
        network.lose(name)
    a.propose(entry("three have this"))
    network.carry()
    assert [texts(network.replicas[name])[-1] for name in "abc"] == ["three have this"] * 3
    for name in "ab":
        network.lose(name)
    network.replicas["c"] = born("c")
    network.lost -= {"d", "e"}
    for one, other in ("cd", "ce", "de"):
        network.connect(one, other)
    network.wait(30)
    c, d, e = (network.replicas[name] for name in "cde")
    assert not any(each.is_adder for each in (c, d, e))
    assert texts(d) == texts(e) == ["all have this"]
    network.lost.clear()
    for one, other in ("ab", "ac", "ad", "ae", "bc", "bd", "be"):
        network.connect(one, other)
    network.wait(30)
    for replica in network.replicas.values():
        assert texts(replica) == ["all have this", "three have this"]
        assert not (replica.recovering or replica.log.doubtful)
