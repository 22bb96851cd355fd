"""The faults of studies without a server, a function each; see `faults_rows`."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable

from faults_network import Namespaces
from faults_peer_stage import PeerStage, other_clock
from faults_rows import EARLY, Row
from faults_stage import ROUNDS, fill, room

PeerPlay = Callable[[PeerStage], None]
PEER_ROWS: list[Row] = []
LONGER = 150  # rounds of a study that outlives what happens
HOUR = 3600


def row(fault: str, quick: bool = False) -> Callable[[PeerPlay], PeerPlay]:
    """Make a function a row of the table."""

    def add(play: PeerPlay) -> PeerPlay:
        PEER_ROWS.append(Row(f"peers_{play.__name__}", fault, play, PeerStage, quick, True))
        return play

    return add


@row("none")
def none(stage: PeerStage) -> None:
    stage.paced = False
    stage.begin()
    stage.finish()
    stage.seen = stage["south"]


# Who adds is killed at the worst moments.


def _killed(stage: PeerStage, point: str) -> None:
    """Kill the adder at a point of round `EARLY`; start it again when others have gone on."""
    stage.study(rounds=LONGER)
    first, second = stage.adders[:2]
    stage.judge_by(stage.adders[2])
    stage.begin(**{first: f"{point}:{EARLY}"})
    stage.until_dead(first)
    stage.until_round(EARLY + 20)
    stage.expect_adder(second)
    stage.seen = stage.peer(first)
    stage.finish()
    stage.expect(first in stage.last_round["clients"], f"{first} is not in the last round")


@row("who adds killed with all replies of a round, before anybody has the total", quick=True)
def collected(stage: PeerStage) -> None:
    _killed(stage, "collected")


@row("who adds killed when the total is in its own log alone")
def sent0(stage: PeerStage) -> None:
    _killed(stage, "sent0")


@row("who adds killed between two totals: one of four others has it (no majority)")
def sent1(stage: PeerStage) -> None:
    _killed(stage, "sent1")


@row("who adds killed between two totals: two of four others have it (a majority)")
def sent2(stage: PeerStage) -> None:
    _killed(stage, "sent2")


@row("who adds killed after the last total of a round")
def after(stage: PeerStage) -> None:
    _killed(stage, "after")


@row("two adders killed, one after the other; nobody starts them again")
def two(stage: PeerStage) -> None:
    stage.paced = False
    stage.study(rounds=5 * stage.rounds)
    first, second, third = stage.adders[:3]
    stage.judge_by(third)
    stage.begin(**{first: f"sent1:{EARLY}", second: f"collected:{2 * EARLY}"})
    stage.until_dead(first)
    stage.until_dead(second)
    stage.finish()
    stage.seen = stage[stage.adders[3]]
    stage.expect_adder(third)


@row("two adders killed; a third as well, so that no majority is left; then all are started again")
def three(stage: PeerStage) -> None:
    stage.study(rounds=4 * stage.rounds)
    first, second, third = stage.adders[:3]
    stage.judge_by(stage.adders[4])
    stage.begin(**{first: f"sent1:{EARLY}", second: f"collected:{2 * EARLY}"})
    stage.until_dead(first)
    stage.until_dead(second)
    stage.until_round(2 * EARLY + 5)
    stage[third].kill()
    stage.remember()
    stage.rest(4)
    done = stage.rounds_of(stage.teller)
    stage.rest(12)
    stage.expect(stage.rounds_of(stage.teller) == done, "two of five went on")
    stage.did.append(f"two of five stopped after round {done}, and went on when a third was back")
    for name in (first, second, third):
        stage.seen = stage.peer(name)
    stage.finish()


@row("all five killed and started again", quick=True)
def everybody(stage: PeerStage) -> None:
    stage.study(rounds=2 * stage.rounds)
    stage.begin()
    for number in (EARLY, 2 * EARLY):
        stage.until_round(number)
        for name in stage.sizes:
            stage[name].kill()
        stage.remember()
        for name in stage.sizes:
            stage.peer(name)
    stage.also.append("killed and started again, twice")
    stage.finish()
    stage.seen = stage["south"]


@row("fifteen times one to three of five, drawn, are killed and started again")
def storm(stage: PeerStage) -> None:
    stage.study(rounds=6 * stage.rounds)
    stage.begin()
    rng, names = random.Random(0), list(stage.sizes)  # noqa: S311 - it draws who is killed
    kills = 0
    while kills < 15 and all(stage[name].running for name in names):
        stage.rest(rng.uniform(2, 16))  # a process needs a few seconds to begin
        for name in rng.sample(names, rng.choice((1, 1, 2, 3))):
            stage[name].kill()
            stage.peer(name)
        kills += 1
        stage.remember()
    stage.did.append(f"{kills} times")
    stage.finish()
    stage.seen = stage["south"]


# Networks, absence, old states, clocks.


@row("network parted, 3 to 2 with who adds, for 20 s (two network namespaces), then healed")
def parted(stage: PeerStage) -> None:
    _parted(stage, adder_with_two=True)


@row("network parted, 3 with who adds to 2, for 20 s, then healed")
def parted_without(stage: PeerStage) -> None:
    _parted(stage, adder_with_two=False)


def _parted(stage: PeerStage, adder_with_two: bool) -> None:
    spaces = Namespaces()
    stage.cleanup.append(spaces.close)
    # The order of adders follows from the addresses; the sides are drawn until they fit.
    names = list(stage.sizes)
    for shift in range(len(names) * 4):
        rng = random.Random(shift)  # noqa: S311
        two = set(rng.sample(names, 2))
        stage.hosts = {n: spaces.CLIENT if n in two else spaces.SERVER for n in names}
        stage.study(rounds=4 * ROUNDS, deadline=4)
        if (stage.adders[0] in two) == adder_with_two:
            break
    for name in names:
        space = spaces.client if name in two else spaces.server
        stage.prefixes[name] = spaces.inside(space)
    many = [name for name in stage.adders if name not in two]
    stage.judge_by(many[-1])
    stage.begin()
    stage.until_round(EARLY)
    spaces.cable("down")
    stage.rest(10)
    stopped = {name: stage.rounds_of(name) for name in two}
    stage.remember()
    stage.rest(10)
    stage.expect(
        all(stage.rounds_of(name) == stopped[name] for name in two), "the two went on by themselves"
    )
    went = stage.rounds_of(stage.teller)
    stage.expect(went > max(stopped.values()), "the three did not go on")
    stage.did.append(f"the two stopped at round {max(stopped.values())}, the three came to {went}")
    spaces.cable("up")
    stage.finish()
    if adder_with_two:
        stage.expect_adder(next(name for name in stage.adders if name in many))
    stage.seen = stage[min(two)]
    stage.expect(set(stage.last_round["clients"]) == set(names), "not all are in the last round")


@row("a participant away for 50 rounds and more")
def away(stage: PeerStage) -> None:
    stage.study(rounds=LONGER)
    last = stage.adders[-1]
    stage.judge_by(stage.adders[0])
    stage.begin()
    stage.until_round(EARLY)
    stage[last].kill()
    stage.until_round(EARLY + 55)
    stage.seen = stage.peer(last)
    stage.finish()
    stage.expect(last in stage.last_round["clients"], f"{last} is not in the last round")


@row("a participant back with an old state: its folder as it was 30 rounds before")
def old_state(stage: PeerStage) -> None:
    stage.study(rounds=LONGER)
    last = stage.adders[-1]
    stage.judge_by(stage.adders[0])
    stage.begin()
    stage.until_round(EARLY)
    stage[last].kill()
    copy = stage.folder / "copy-of-state"
    shutil.copytree(stage.folder / last, copy)
    stage.peer(last)
    stage.until_round(EARLY + 30, last)
    stage[last].kill()
    stage.remember()
    shutil.rmtree(stage.folder / last)
    copy.rename(stage.folder / last)
    stage.seen = stage.peer(last)
    stage.finish()
    stage.expect(last in stage.last_round["clients"], f"{last} is not in the last round")


@row("a participant back without its folder")
def no_state(stage: PeerStage) -> None:
    stage.study(rounds=LONGER)
    last = stage.adders[-1]
    stage.judge_by(stage.adders[0])
    stage.begin()
    stage.until_round(EARLY)
    stage[last].kill()
    stage.remember()
    shutil.rmtree(stage.folder / last)
    stage.seen = stage.peer(last)
    stage.finish()
    stage.expect(last in stage.last_round["clients"], f"{last} is not in the last round")


@row("who adds killed and a second one has lost its folder, while two of five were asleep")
def forgotten(stage: PeerStage) -> None:
    # Three had rounds that two slept through; of the three one forgets, and two are dead for a
    # while: no three are left of whom one knows.
    stage.study(rounds=LONGER, deadline=3)
    first, second, third, *asleep = stage.adders
    stage.judge_by(asleep[0])
    stage.begin()
    stage.until_round(EARLY, first)
    for name in asleep:
        stage[name].signal(signal.SIGSTOP)
    stage.until_round(stage.rounds_of(first) + 5, first)
    for name in (first, second, third):
        stage[name].kill()
    stage.remember()
    shutil.rmtree(stage.folder / third)
    stage.seen = stage.peer(third)
    for name in asleep:
        stage[name].signal(signal.SIGCONT)
    stage.rest(15)
    for name in (first, second):
        stage.peer(name)
    stage.finish()


@row("clocks: who adds first an hour ahead; who adds second an hour behind, then set right")
def clock(stage: PeerStage) -> None:
    preload = {"LD_PRELOAD": str(other_clock(stage.ground))}
    stage.study()
    first, second = stage.adders[:2]
    stage.judge_by(stage.adders[2])
    stage.begin(first, second)
    stage.seen = stage.peer(first, environment=preload | {"FAULTS_CLOCK": str(HOUR)})
    # To this one its certificate, which was issued just now, is not valid yet.
    behind = stage.peer(second, environment=preload | {"FAULTS_CLOCK": str(-HOUR)})
    behind.code = 2
    stage.until(lambda: not behind.running, f"the end of {second}")
    stage.also.append(behind.lines[-1])
    stage.peer(second)
    stage.finish()


@row("who adds is stopped for a minute (SIGSTOP), then goes on (SIGCONT)")
def stopped(stage: PeerStage) -> None:
    stage.study(rounds=5 * stage.rounds, deadline=5)
    first, second = stage.adders[:2]
    stage.judge_by(stage.adders[2])
    stage.begin()
    stage.until_round(EARLY)
    stage[first].signal(signal.SIGSTOP)
    before = time.monotonic()
    stage.until_round(stage.rounds_of(stage.teller) + 3)
    stage.did.append(f"went on after {time.monotonic() - before:.0f} s")
    stage.rest(60 - (time.monotonic() - before))
    stage[first].signal(signal.SIGCONT)
    stage.seen = stage[first]
    stage.finish()
    stage.expect_adder(second)
    stage.expect(first in stage.last_round["clients"], f"{first} is not in the last round")


@row("disk of who adds full; room then, and it is started again")
def disk(stage: PeerStage) -> None:
    stage.study(rounds=LONGER)
    _full(stage, stage.adders[0])
    stage.expect_adder(stage.adders[1])


@row("disk of a participant full that does not add; room then, and it is started again")
def disk_of_another(stage: PeerStage) -> None:
    stage.study(rounds=LONGER)
    _full(stage, stage.adders[-1])


def _full(stage: PeerStage, name: str) -> None:
    folder = stage.folder / name
    stage.cleanup.append(room(folder, 8192))
    stage.judge_by(stage.adders[2])
    stage.begin()
    stage[name].code = 1
    stage.until_round(EARLY)
    filling = fill(folder)
    stage.until(lambda: not stage[name].running, f"the end of {name}")
    stage.also += [stage[name].lines[-1] if stage[name].lines else "", "started again"]
    filling.unlink()
    stage.remember()
    stage.seen = stage.peer(name)
    stage.finish()
    stage.expect(name in stage.last_round["clients"], f"{name} is not in the last round")
