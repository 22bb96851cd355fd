"""Hold what a row's processes left behind against what should be there; say it in cells."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from faults_replay import Weights, finite, replay, same_bits, weights_of
from faults_stage import DAMAGED, Process, Stage
from faulty_client import CANARY
from fedtopics.model.topic_model import TopicModel
from fedtopics.report import find_run, summarise
from fedtopics.report.render import markdown

MODEL = Path("model") / "model.safetensors"
MOST_LINES = 8  # of a cell
SIGNS = ("Traceback", "A defect of fedtopics", "Exception in", "never retrieved", CANARY)
NOISE = re.compile(r"^[IWEF]\d{4,8} ")  # what gRPC's C core prints
WITHOUT = re.compile(r"round # without \w+: (.*)")
# What is printed without any fault as well.
USUAL = re.compile(
    r"^(listening on|waiting for|agreed on|round \d+ of|the model went to|topic, its share|The run"
    r" is in|\s|$|[┏┃┡│├└]|What it asks for|The server's study|The study"
    r"|waits for a majority|The report: "
    r"|\w+ has joined|\w+ is linked|\w+: [\d,]+ documents|\w+: joined|\w+: the model is in)"
)


@dataclass(frozen=True)
class Verdict:
    """A row's cells, and what is wrong."""

    server: str = ""
    client: str = ""
    lost: str = ""
    model: str = ""
    defects: list[str] = field(default_factory=list)
    skipped: str = ""

    @property
    def title(self) -> str:
        if self.skipped:
            return "skipped"
        return "DEFECT" if self.defects else "ok"

    @property
    def cells(self) -> tuple[str, ...]:
        if self.skipped:
            return f"skipped: {self.skipped}", "", "", ""
        model = self.model
        if self.defects:
            model = f"{model} **DEFECT**: {'; '.join(self.defects)}".lstrip()
        return self.server, self.client, self.lost, model


def judge(stage: Stage) -> Verdict:
    """Look at everything that a row left behind."""
    defects = stage.defects + [
        flaw for process in stage.processes for flaw in _flaws(process, stage.run)
    ]
    if any(event["event"] == DAMAGED for event in stage.events):
        defects.append("events.jsonl has a damaged line")
    stage.remember()
    defects += two_histories(stage) + silent(stage)
    servers = [process for process in stage.processes if process.name == stage.teller]
    said = told(line for server in servers for line in server.lines)
    lost, missed = rounds_lost(stage)
    model = ""
    if (stage.run / MODEL).exists():
        model, wrong = _model(stage, missed)
        defects += wrong
    did = "; ".join([*stage.did, said]) if said or stage.did else "printed nothing and went on"
    return Verdict(did.removesuffix("; "), _client(stage), lost, model, defects)


def two_histories(stage: Stage) -> list[str]:
    """Find rounds that somebody completed and others completed otherwise, or not at all."""
    found = [
        f"round {number} has two histories, at {' and at '.join(ways.values())}"
        for number, ways in sorted(stage.completed.items())
        if len(ways) > 1
    ]
    for name, events in stage.histories.items():
        done = {event["round"] for event in events if event["event"] == "round"}
        finished = (stage.out_of(name) / MODEL).exists()
        finished &= all(event["event"] != "caught up" for event in events)
        if finished and (lost := set(range(1, stage.rounds + 1)) - done):
            found.append(f"{name} has no events of the rounds {ranges(lost)}")
    return found


def silent(stage: Stage) -> list[str]:
    """Find reports of whoever has the model that do not name who was missing, as events do."""
    found = []
    missing = {name for event in stage.events for name in event.get("missing", ())
               if event["event"] in ("round", "left out")}  # fmt: skip
    for name in stage.histories:
        if (stage.out_of(name) / MODEL).exists():
            folder, facts = find_run(stage.out_of(name))
            page = markdown(summarise(TopicModel.from_pretrained(folder), facts))
            named = {row["client"] for row in facts.absences}
            if facts.of_kind("caught up"):
                missing = missing & named  # its own events begin with the state that it took
            if named != missing or not all(f"\n| {name} | " in page for name in named):
                found.append(f"the report of {name} names {sorted(named)} as missing")
            adds = {event["client"] for event in facts.of_kind("adds")}
            if not all(f"{client} added" in page for client in adds):
                found.append(f"the report of {name} does not say who added")
    return found


def _client(stage: Stage) -> str:
    cell = list(stage.also)
    if stage.seen is not None:
        cell.append(told(stage.seen.lines))
        code = stage.seen.popen.returncode
        cell.append("killed" if code == -9 else f"ended with code {code}")
        if code == 0:
            cell[-1] += ", with the model"
    return "; ".join(part for part in cell if part)


def _flaws(process: Process, reference: Path) -> list[str]:
    code = process.popen.returncode
    flaws = [
        f"{process.name} printed {line.strip()!r:.100}"
        for line in process.lines
        if any(sign in line for sign in SIGNS) or NOISE.match(line)
    ]
    if process.code is not None and code != process.code:
        flaws.append(f"{process.name} ended with code {code} instead of {process.code}")
    if process.code == 0 and process.out is not None:
        kept = process.out / MODEL
        if not kept.exists():
            flaws.append(f"{process.name} has no model")
        elif (reference / MODEL).exists() and kept.read_bytes() != (reference / MODEL).read_bytes():
            flaws.append(f"{process.name} has another model than {reference.name}")
    return flaws


def told(lines: Iterable[str]) -> str:
    """Sum up what was printed: without what is usual, the same sentence of many rounds once."""
    lines = list(lines)
    joined = [number for number, line in enumerate(lines) if ": joined study" in line]
    groups: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        early = joined and number < joined[0] and "trying again" in line  # than the server
        if early or USUAL.match(line):
            continue
        line = re.sub(r"\d+\.\d+\.\d+\.\d+:\d+", "HOST:PORT", line)
        line = re.sub(r"\bport \d+", "the port", line)
        line = re.sub(r"/\S*/(run|north|south|west)\b", r"\1", line)
        line = re.sub(r"trying again in \d+ s$", "trying again", line.strip())
        found = re.search(r"\bround (\d+)", line)
        key = re.sub(r"\bround \d+", "round #", line)
        groups.setdefault(key, []).append(int(found[1]) if found else 0)
    said = []
    for key, numbers in groups.items():
        why = WITHOUT.match(key)
        if why and any(why[1] in other for other in groups if other != key):
            continue  # a line of every round; the column of rounds lost has them
        if len(numbers) == 1:
            said.append(key.replace("#", str(numbers[0])))
        elif numbers[-1]:
            several = key.replace(" is worked", " are worked")
            said.append(several.replace("round #", f"rounds {ranges(numbers)}"))
        else:
            said.append(f"{key} ({len(numbers)} times)")
    if len(said) > MOST_LINES:
        said[MOST_LINES - 1 :] = [f"and {len(said) - MOST_LINES + 1} more lines"]
    return "; ".join(said)


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers as ranges: 3 to 5, 7."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def rounds_lost(stage: Stage) -> tuple[str, dict[str, list[int]]]:
    """Say which rounds were worked again or missed; return who missed which."""
    missed: dict[str, list[int]] = {}
    for event in stage.events:
        if event["event"] == "round":
            for name in event["missing"]:
                missed.setdefault(name, []).append(event["round"])
    parts = []
    repeated = [event["round"] for event in stage.events if event["event"] == "repeated"]
    done = stage.rounds_done
    again = [number for number in set(done) if done.count(number) > 1]
    if repeated:
        parts.append(f"worked again: {ranges(repeated)}")
    if again:
        parts.append(f"worked again after the restart: {ranges(again)}")
    parts += [f"{name} missed {len(n)}: {ranges(n)}" for name, n in sorted(missed.items())]
    return "; ".join(parts) or "none", missed


def _model(stage: Stage, missed: dict[str, list[int]]) -> tuple[str, list[str]]:
    """Hold the weights against those of the rounds worked again in one process."""
    found = weights_of(stage.run / "model")
    wrong = [] if finite(found) else ["the model has NaN or infinite numbers"]
    events = [event for event in stage.events if event["event"] == "round"]
    members = {event["round"]: (tuple(event["clients"]), event["attempts"]) for event in events}
    if sorted(members) != list(range(1, stage.rounds + 1)):
        return "", [*wrong, f"events.jsonl has the rounds {ranges(members) or 'none'}"]
    data = {name: stage.ground.data(name) for name in stage.sizes}
    if same_bits(found, _faultless(stage)):
        if missed:
            wrong.append("the weights do not show who was missing")
        return "same bits as without the fault", wrong
    if not same_bits(found, replay(stage.state / "study.toml", data, members)):
        return "", [*wrong, "the weights are not those of the rounds' clients"]
    again = [number for number, (_, attempts) in members.items() if attempts > 1]
    if not missed and not again:
        return "", [*wrong, "the weights are not those without the fault, yet nobody was missing"]
    why = f"{' and '.join(sorted(missed))} missed rounds" if missed else "a new attempt draws anew"
    return f"not the same: {why}; same bits as the rounds worked so", wrong


def _faultless(stage: Stage) -> Weights:
    """Return the weights that the study has without a fault; worked once for a study."""
    known, case = stage.ground.faultless, (tuple(stage.sizes), stage.rounds)
    if case not in known:
        data = {name: stage.ground.data(name) for name in stage.sizes}
        known[case] = replay(stage.state / "study.toml", data)
    return known[case]
