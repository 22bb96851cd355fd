"""What happens when a process dies, sleeps, is asked to end, or cannot write: a row a fault.

A server and three clients, or three participants without a server, are processes of this machine
with mutual TLS and synthetic documents. A row is wrong if a process prints a traceback, hangs or
ends otherwise than it should; if a line of events or ledgers is no JSON, a round is missing, or
somebody has another model than the others; if weights differ from those without a fault although
nobody missed a round.
"""

from __future__ import annotations

import hashlib
import json
import resource
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from benchmarks.__main__ import sources
from benchmarks.common import Worker, arguments, measured, table, versions, write
from benchmarks.faults_stage import EARLY, ROUNDS, SIZES, Process, Stage
from benchmarks.federated import relayed

SLOWLY = {"quorum": 2, "deadline": 8, "pause": 0.5}  # so that a study outlives what sleeps
FULL = 200  # bytes that a file may have on a disk that is full
INTERRUPTED = "fedtopics: Interrupted; type it again to go on"
SIGNALS = {"Ctrl-C": (signal.SIGINT, 130), "SIGTERM": (signal.SIGTERM, 143)}


def weights_of(folder: Path) -> str | None:
    """Return a digest of a model's weights, or None without a model."""
    path = folder / "model" / "model.safetensors"
    if not path.exists():
        return None
    weights = b"".join(array.tobytes() for _, array in sorted(load_file(path).items()))
    return hashlib.sha256(weights).hexdigest()


# The faults, a function each: what is started, what fails, what follows.


def nothing(stage: Stage) -> None:
    """none"""
    stage.begin()


def client_dies(stage: Stage) -> None:
    """client killed"""
    stage.begin({"quorum": 2})
    stage.kill("south")
    stage.codes["south"] = -signal.SIGKILL


def client_comes_back(stage: Stage) -> None:
    """client killed and started again"""
    stage.begin()
    stage.kill("south")
    stage.client("south")
    back_in_the_end(stage)


def server_comes_back(stage: Stage) -> None:
    """server killed and started again with --resume"""
    stage.begin()
    stage.kill("server")
    stage.server("--resume")


def all_come_back(stage: Stage) -> None:
    """server and all clients killed and started again"""
    stage.begin()
    stage.kill("server", *SIZES)
    stage.server("--resume")
    for name in SIZES:
        stage.client(name)


def client_sleeps(stage: Stage) -> None:
    """client stopped (SIGSTOP) for 15 s, longer than the deadline"""
    stage.begin(SLOWLY)
    sleep(stage.started["south"])
    back_in_the_end(stage)


def network_fails(stage: Stage) -> None:
    """network of a client silent for 15 s"""
    stage.study(SLOWLY)
    stage.server()
    stage.until(lambda: listens(stage.port), "the server")
    relay = Worker(relayed, stage.port, 0.0)
    stage.client("south", port=relay.answer())
    for name in ("north", "west"):
        stage.client(name)
    stage.until_round(EARLY)
    sleep(relay.process)
    back_in_the_end(stage)
    stage.finish()
    relay.close()


def server_cannot_write(stage: Stage) -> None:
    """server cannot write any more; then it can, and --resume"""
    stage.begin()
    fill(stage, "server")
    stage.server("--resume")


def client_cannot_write(stage: Stage) -> None:
    """client cannot write any more; then it can, and is started again"""
    stage.begin()
    fill(stage, "south")
    stage.client("south")
    back_in_the_end(stage)


def peer_dies(stage: Stage) -> None:
    """without a server: each participant killed and started again, one after the other"""
    stage.begin_peers()
    for name in SIZES:
        stage.kill(name)
        stage.peer(name)
        done = max(event["round"] for event in stage.rounds())
        stage.until_round(min(done + 5, ROUNDS))


def all_peers_come_back(stage: Stage) -> None:
    """without a server: all killed and started again"""
    stage.begin_peers()
    stage.kill(*SIZES)
    for name in SIZES:
        stage.peer(name)


def server_trains(stage: Stage) -> None:
    """server asked to end in training"""
    stage.begin()
    interrupt(stage, "server", lambda: stage.server("--resume"))


def client_trains(stage: Stage) -> None:
    """client asked to end in training"""
    stage.begin()
    interrupt(stage, "south", lambda: stage.client("south"))


def peer_trains(stage: Stage) -> None:
    """without a server: participant asked to end in training"""
    stage.begin_peers()
    interrupt(stage, "south", lambda: stage.peer("south"))


def simulation_trains(stage: Stage) -> None:
    """simulation (`fedtopics run`) asked to end in training"""
    stage.study(of="files")
    stage.teller = "run"
    command = ("run", "study.toml", "--out", "run")
    stage.start("run", *command)
    stage.until_round(EARLY)
    interrupt(stage, "run", lambda: stage.start("run", *command, "--resume"))


FAULTS = (
    nothing, client_dies, client_comes_back, server_comes_back, all_come_back,
    client_sleeps, network_fails, server_cannot_write, client_cannot_write, peer_dies,
    all_peers_come_back, server_trains, client_trains, peer_trains, simulation_trains,
)  # fmt: skip
OTHERS = ("without a server", "simulation")  # rows that have no run without the fault
QUICK = (nothing, client_dies, all_come_back, all_peers_come_back, server_trains)


def interrupt(stage: Stage, who: str, again: Callable[[], Process]) -> None:
    """Ask somebody to end, by either signal; it says so in a sentence, and is started again."""
    for name, (number, code) in SIGNALS.items():
        process, before = stage.started[who], max(e["round"] for e in stage.rounds())
        process.send_signal(number)
        stage.until(lambda p=process: p.poll() is not None, f"the end of {who}")  # type: ignore[misc]
        last = (stage.folder / f"{who}.log").read_text("utf-8", "replace").splitlines()[-1]
        if process.returncode != code or not last.startswith(INTERRUPTED):
            stage.wrong.append(f"{name}: {who} ended with {process.returncode}, saying {last!r}")
        again()
        stage.until_round(min(before + 10, ROUNDS))


def sleep(process: Any) -> None:
    """Stop a process for a while."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(15)
    process.send_signal(signal.SIGCONT)


def fill(stage: Stage, who: str) -> None:
    """Let a process write no more, and wait until it has ended."""
    process = stage.started[who]
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FULL, FULL))
    stage.until(lambda: process.poll() is not None, f"the end of {who}")
    if process.returncode != 1:
        stage.wrong.append(f"{who}, which could not write, ended with {process.returncode}")


def listens(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port), 1).close()
    except OSError:
        return False
    return True


def back_in_the_end(stage: Stage) -> None:
    """Wait for the end; south is to be in the last round."""
    stage.finish()
    if "south" not in stage.rounds()[-1]["clients"]:
        stage.wrong.append("south is not in the last round")


def judge(stage: Stage, usual: str | None) -> dict[str, Any]:
    """Return who missed rounds, what became of the model, and what is wrong."""
    wrong = [*stage.wrong]
    for path in stage.folder.rglob("*.jsonl"):
        try:
            [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        except ValueError:
            wrong.append(f"{path.name} has half a line")
    if any("Traceback" in log.read_text("utf-8", "replace") for log in stage.folder.glob("*.log")):
        wrong.append("there is a traceback")
    rounds = {event["round"]: event for event in stage.rounds()}
    if not {*range(1, ROUNDS + 1)} <= rounds.keys():
        wrong.append(f"events have {len(rounds)} rounds")
    missed = Counter(name for event in rounds.values() for name in event.get("missing", ()))
    model = weights_of(stage.folder / stage.teller)
    ended = [name for name, process in stage.started.items() if process.returncode == 0]
    others = (name for name in ended if name != "server")
    wrong += [f"{n} has another model" for n in others if weights_of(stage.folder / n) != model]
    again = any(event.get("attempts", 1) > 1 for event in rounds.values())
    if model is None or not (usual in (None, model) or missed or again):
        wrong.append("the model is missing" if model is None else "the model is another one")
    who = ", ".join(f"{name} {number}" for name, number in sorted(missed.items()))
    return {"missed": who or "nobody", "weights": model, "again": again, "wrong": "; ".join(wrong)}


def play(fault: Callable[[Stage], None], usual: str | None) -> dict[str, Any]:
    """Play a row; whatever happens, its processes end and the table goes on."""
    with tempfile.TemporaryDirectory(prefix="fedtopics-faults-") as folder:
        stage = Stage(Path(folder))
        try:
            fault(stage)
            stage.finish()
        except (TimeoutError, LookupError, OSError) as error:
            stage.wrong.append(str(error))
        finally:
            stage.stop()
        return judge(stage, usual)


def cells_of(row: dict[str, Any], usual: str) -> list[str]:
    if row["weights"] == usual:
        model = "same bits as without the fault"
    elif row["fault"].startswith(OTHERS):
        model = "one model"
    else:
        why = "rounds had other clients" if row["missed"] != "nobody" else "a round was repeated"
        model = f"another: {why}"
    return [row["fault"], row["missed"], model, row["wrong"] or "-"]


def main() -> None:
    given, state = arguments(__doc__), sources()
    # A shell lets what it starts in the background ignore Ctrl-C, and so would the processes here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows: list[dict[str, Any]] = []
    for fault in QUICK if given.quick else FAULTS:
        title = str(fault.__doc__)
        usual = rows[0]["weights"] if rows and not title.startswith(OTHERS) else None
        task = {"fault": title, "sources": state}
        rows += measured(given, [task], lambda _, f=fault, u=usual: play(f, u))  # type: ignore[misc]
        print(rows[-1]["wrong"] or "well", flush=True)
    used = ", ".join(f"{k} {v}" for k, v in versions("fedtopics", "grpcio").items())
    write(given, [
        "What happens when something fails: processes with mutual TLS on one machine, LDA of "
        f"{ROUNDS} rounds, a server and three clients or three participants without a server; "
        f"{used}. Each process that is asked to end (Ctrl-C, then SIGTERM) ends with its exit code "
        "and one sentence, and goes on when it is started again. Command: "
        "`make stress NAME=faults`.", "",
        *table("fault | missed rounds | model | what was wrong",
               [cells_of(row, rows[0]["weights"]) for row in rows], left=4), "",
        "A row is wrong if a process printed a traceback, hung or ended otherwise than it should; "
        "if a line of events or ledgers is no JSON, a round is missing or somebody has another "
        "model than the others; if weights differ from those without the fault although nobody "
        f"missed a round. Wrong: {sum(bool(row['wrong']) for row in rows) or 'none'}.",
    ])  # fmt: skip
    raise SystemExit(any(row["wrong"] for row in rows))
