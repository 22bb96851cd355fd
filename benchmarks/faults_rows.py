"""The faults, a function each: what it starts, breaks, waits for, and expects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from faults_network import Namespaces, dropped, plaintext, scan, tls
from faults_stage import SIZES, Stage, fill, room
from faults_verdict import told

Play = Callable[[Stage], None]
THREE_BAD = ("--spoil", "15:forward", "--spoil", "25:loss", "--spoil", "35:backward")
# A client of ours that makes each round last an eighth of a second, so that a run outlives a
# fault; it does nothing wrong.
PACED = ("--spoil", "0:", "--seconds", "0.025")
EARLY = 15  # the round in which most faults happen


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    fault: str
    play: Callable[[Any], None]
    stage: type[Stage] = Stage
    quick: bool = False  # whether CI plays it
    peers: bool = False


ROWS: list[Row] = []


def row(fault: str, quick: bool = False) -> Callable[[Play], Play]:
    """Make a function a row of the table."""

    def add(play: Play) -> Play:
        ROWS.append(Row(play.__name__, fault, play, quick=quick))
        return play

    return add


@row("none")
def none(stage: Stage) -> None:
    stage.begin()
    stage.finish()
    stage.seen = stage["south"]


# Processes that are killed, networks that fail.


@row("client killed (SIGKILL) in a round", quick=True)
def killed(stage: Stage) -> None:
    server = stage.begin()
    stage.until_round(EARLY)
    stage.seen = stage["south"]
    stage.seen.kill()
    stage.finish()
    stage.expect(server.says("without south: its connection was lost"), "nobody missed south")


@row("client killed and started again, with the same --out")
def restarted(stage: Stage) -> None:
    stage.study(rounds=2 * stage.rounds)
    stage.begin()
    stage.until_round(EARLY)
    stage["south"].kill()
    stage.also.append("killed; started again")
    stage.seen = stage.join("south")
    stage.finish()
    stage.expect("south" in stage.last_round["clients"], "south is not in the last round")


@row("server killed and started again with --resume")
def resumed(stage: Stage) -> None:
    stage.study(checkpoint_every=1)
    server = stage.begin()
    stage.until_round(EARLY)
    server.kill()
    done = max(stage.rounds_done)
    stage.did.append(f"killed after round {done}; went on with the next")
    stage.serve("--resume")
    stage.finish()
    stage.seen = stage["south"]


@row("server and a client killed, started again, killed again at once, started again")
def twice(stage: Stage) -> None:
    stage.study(checkpoint_every=1, rounds=2 * stage.rounds)
    stage.begin()
    for seconds in (1.0, 4.0):
        stage.until_round(EARLY)
        stage.remember()
        stage["server"].kill()
        stage["south"].kill()
        stage.serve("--resume")
        stage.join("south")
        stage.rest(seconds)
    stage.finish()
    stage.seen = stage["south"]
    stage.expect("south" in stage.last_round["clients"], "south is not in the last round")


@row("server and all clients killed and started again")
def everybody(stage: Stage) -> None:
    stage.study(rounds=2 * stage.rounds)
    stage.begin()
    stage.until_round(EARLY + 2)  # the last checkpoint is of the round before the last two
    stage.remember()
    for name in ("server", *SIZES):
        stage[name].kill()
    stage.serve("--resume")
    for name in SIZES:
        stage.join(name)
    stage.finish()
    stage.seen = stage["south"]


@row("server killed and started anew, in another folder, without --resume")
def anew(stage: Stage) -> None:
    stage.begin()
    stage.until_round(EARLY)
    stage["server"].kill()
    stage.did.append("a new run; the clients join it by themselves")
    stage.run = stage.state = stage.folder / "run-2"
    stage.serve()
    stage.finish()
    stage.seen = stage["south"]


@row("network down for 20 s between one client and the server (two network namespaces)")
def partition(stage: Stage) -> None:
    spaces = Namespaces()
    stage.cleanup.append(spaces.close)
    inside, outside = spaces.inside(spaces.server), spaces.inside(spaces.client)
    stage.study(rounds=5 * stage.rounds, deadline=4)
    stage.serve(prefix=inside, host="0.0.0.0")  # noqa: S104 - both sides of the cable
    stage.join("north", prefix=inside)
    stage.spoil("slow", *PACED, name="west", code=0, prefix=inside)
    stage.seen = stage.join("south", prefix=outside, host=spaces.SERVER)
    stage.until_round(5)
    spaces.cable("down")
    stage.pause(20)
    spaces.cable("up")
    stage.finish()
    stage.expect("south" in stage.last_round["clients"], "south is not in the last round")


@row("client slower than the deadline, and then raises an error")
def late(stage: Stage) -> None:
    stage.study(deadline=2, rounds=2 * stage.rounds)
    stage.begin("south")
    when = ("--spoil", f"{EARLY}:loss", "--seconds", "3")
    stage.seen = stage.spoil("late-raise", *when, code=0)
    stage.finish()
    stage.expect("south" in stage.last_round["clients"], "south is not in the last round")


@row("client slower than the deadline, once")
def slow(stage: Stage) -> None:
    stage.study(deadline=2, rounds=2 * stage.rounds)
    stage.begin("south")
    stage.seen = stage.spoil("slow", "--spoil", f"{EARLY}:loss", "--seconds", "3", code=0)
    stage.finish()
    stage.expect("south" in stage.last_round["clients"], "south is not in the last round")


# Clients that do wrong: three times, in the first, a middle and the last exchange of a round.


@row("client raises an unexpected error, three times")
def error(stage: Stage) -> None:
    _three_times(stage, "raise")


@row("client sends NaN, three times", quick=True)
def nan(stage: Stage) -> None:
    _three_times(stage, "nan")


@row("client sends a wrong shape, three times")
def shape(stage: Stage) -> None:
    _three_times(stage, "shape")


@row("client's replies are signed over other totals than the others had, three times")
def digest(stage: Stage) -> None:
    _three_times(stage, "digest")


@row("client's replies have a signature that does not fit, three times")
def signature(stage: Stage) -> None:
    _three_times(stage, "signature")


@row("client joins another study at the handshake")
def handshake(stage: Stage) -> None:
    # South as it should be joins when the wrong one has been refused.
    server = stage.begin("south")
    wrong = stage.seen = stage.spoil("accept")
    stage.until(lambda: not wrong.running, "the end of the wrong one")
    stage.join("south")
    stage.finish()
    stage.expect(server.says("refused south"), "the server did not refuse it")


@row("client's messages are over the limit (largest_message = 1), three times")
def large(stage: Stage) -> None:
    # It comes back after each, so each comes from a later round, and hears why it may not again.
    stage.study(megabytes=1, rounds=5 * stage.rounds)
    server = stage.begin("south", "west")
    stage.spoil("slow", *PACED, name="west", code=0)
    stage.seen = stage.spoil("large", "--spoil", "0:loss")
    stage.finish()
    stage.expect(server.says("^south is excluded: 3 bad replies"), "south was not excluded")


@row("client sends a frame over gRPC's own limit of 4 MB, once")
def frame(stage: Stage) -> None:
    stage.begin("south")
    stage.seen = stage.spoil("frame", "--spoil", f"{EARLY}:loss", code=0)
    stage.finish()


@row("client answers an exchange that is past, once")
def old(stage: Stage) -> None:
    stage.study(deadline=3)
    stage.begin("south")
    stage.seen = stage.spoil("old", "--spoil", f"{EARLY}:loss", code=0)
    stage.finish()


def _three_times(stage: Stage, fault: str) -> None:
    server = stage.begin("south")
    stage.seen = stage.spoil(fault, *THREE_BAD)
    stage.finish()
    stage.expect(server.says("^south is excluded: 3 bad replies"), "south was not excluded")


# Who has no place in the study. The run goes on as if they were not there.


@row("two clients with the same name")
def twins(stage: Stage) -> None:
    stage.begin()
    stage.until_said(stage["south"], "joined")
    # It tries again: the other one may be a connection that is about to be found dead.
    twin = stage.seen = stage.join("south", code=None, out="twin")
    stage.until_said(twin, "connected already")
    stage.until(lambda: not stage["south"].running, "the end of south")
    twin.kill()
    stage.finish()


@row("certificate of another authority")
def authority(stage: Stage) -> None:
    server = stage.begin()
    stage.until_said(server, "listening")
    other, ca = stage.ground.identity("south", "other"), stage.ground.pki / "ca.crt"
    stage.also.append(f"by itself: {tls(stage.port, ca, other)}; as a client")
    stage.seen = stage.join("south", identity=other, code=4, out="foreign")
    stage.finish()


@row("expired certificate")
def expired(stage: Stage) -> None:
    server = stage.begin()
    stage.until_said(server, "listening")
    late, ca = stage.ground.identity("late"), stage.ground.pki / "ca.crt"
    stage.also.append(f"by itself: {tls(stage.port, ca, late)}; as a client")
    stage.seen = stage.join("late", code=2)
    stage.finish()


@row("certificate with a name that is not in the study")
def stranger(stage: Stage) -> None:
    server = stage.begin()
    stage.until_said(server, "listening")
    stage.seen = stage.join("stranger", code=4)
    stage.finish()
    stage.expect(server.says("refused stranger"), "the server did not refuse it")


@row("no certificate")
def anonymous(stage: Stage) -> None:
    server = stage.begin()
    stage.until_said(server, "listening")
    stage.also.append(tls(stage.port, stage.ground.pki / "ca.crt"))
    stage.finish()


@row("plaintext on the TLS port")
def insecure(stage: Stage) -> None:
    server = stage.begin()
    stage.until_said(server, "listening")
    stage.also.append(f"{plaintext(stage.port)}; as a client")
    stage.seen = stage.join("south", "--insecure", "--name", "south", code=4, out="open")
    stage.finish()


@row("port scanner: random bytes on twelve connections, then silence")
def scanner(stage: Stage) -> None:
    server = stage.serve()
    stage.until_said(server, "listening")
    opened = scan(stage.port)
    stage.cleanup += [line.close for line in opened]
    for name in SIZES:
        stage.join(name)
    stage.until_round(EARLY)
    stage.also.append(f"{dropped(opened)} of {len(opened)} connections were ended by the server")
    stage.finish()


# Disks that are full, policies that refuse.


@row("server's disk full, so that nothing is decided; room then, and --resume")
def disk(stage: Stage) -> None:
    stage.cleanup.append(room(stage.run, 4096))
    server = stage.begin()
    server.code = 1
    stage.until_round(EARLY)
    filling = fill(stage.run)
    stage.until(lambda: not server.running, "the server's end")
    filling.unlink()
    stage.serve("--resume")
    stage.finish()
    stage.seen = stage["south"]


@row("disk full at a client's ledger; room then, and the client started again")
def ledger(stage: Stage) -> None:
    folder = stage.folder / "south"
    stage.cleanup.append(room(folder, 1024))
    stage.study(rounds=2 * stage.rounds)
    server = stage.begin("west")
    stage.spoil("slow", *PACED, name="west", code=0)
    south = stage["south"]
    south.code = 1
    stage.until_round(EARLY)
    filling = fill(folder)
    stage.until(lambda: not south.running, "the end of south")
    stage.also += [told(south.lines), "started again"]
    filling.unlink()
    stage.seen = stage.join("south")
    stage.finish()
    stage.expect(server.says("its machine failed"), "the server does not know why")
    stage.expect("south" in stage.last_round["clients"], "south is not in the last round")
    found = stage.ground.fedtopics("ledger", str(folder), check=False)
    stage.expect(found == 0, "fedtopics ledger cannot read the client's ledger any more")


@row("client whose policy refuses: min_documents above the number it has")
def policy(stage: Stage) -> None:
    path = stage.folder / "policy.toml"
    path.write_text("min_documents = 1000\n")
    stage.study(gather=8)  # seconds for which the server hopes that it comes all the same
    server = stage.begin("south")
    stage.seen = stage.join("south", "--policy", str(path), code=3)
    stage.finish()
    stage.expect(server.says("south does not take part"), "the server does not know why")
