"""What happens when participants, servers, networks and disks fail: a table, a row a fault.

Each row is a server and three clients, or five participants without a server: processes of this
machine with mutual TLS, with made-up documents, in a folder of their own. A row is a defect if a
process prints a traceback or hangs, ends otherwise than it should, has no model; if a round that
somebody has completed is lost or is another one elsewhere; if the model's weights are not those of
the rounds' clients, bit by bit; if events or the report do not say who was left out. Results go to
``benchmarks/results/faults.md``.

    python benchmarks/faults.py [--rows killed,nan | --quick] [--anew]

What was played is kept in ``runs/faults`` and not played again until the sources change, so a run
that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from faults_peers import PEER_ROWS
from faults_rows import ROWS, Row
from faults_stage import Ground, NotHereError, TookTooLongError
from faults_verdict import Verdict, judge
from fedtopics.files import RowFile

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "faults.md"
PLAYED = HERE.parent / "runs" / "faults" / "rows.jsonl"
LIMIT = 300.0  # seconds of a row
HEAD = ("fault", "what the server did", "what the client saw", "rounds lost", "model")
PEER_HEAD = ("fault", "what the others did", "what the participant saw", *HEAD[3:])
WHERE = {
    False: "A server and three clients (north, south, west).",
    True: "Five participants without a server (north, south, west, east, centre).",
}


def play(row: Row, ground: Ground, folder: Path) -> Verdict:
    """Play a row; whatever happens, its processes end and the table goes on."""
    folder.mkdir()
    stage = row.stage(ground, folder, LIMIT)
    try:
        try:
            row.play(stage)
            stage.finish()
        except TookTooLongError as error:
            hung = ", ".join(stage.stop()) or "nobody"
            stage.defects.append(f"waited in vain for {error}; still running: {hung}")
        except (LookupError, ValueError, OSError) as error:  # after something else went wrong
            stage.defects.append(f"the row came to an end before its time: {error!r}")
        stage.stop()
        return judge(stage)
    except NotHereError as error:
        return Verdict(skipped=str(error))
    finally:
        stage.stop()
        stage.leave()


def versions() -> str:
    """Name what ran here."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("fedtopics", "grpcio", "torch"))
    return f"{packages}, Python {platform.python_version()}, {platform.system()}"


def sources() -> str:
    """Return a digest of what a row depends on."""
    paths = [*(HERE.parent / "src").rglob("*.py"), *HERE.glob("fault*")]
    content = b"".join(path.read_bytes() for path in sorted(paths))
    return hashlib.sha256(content).hexdigest()[:16]


def play_all(rows: list[Row], folder: Path, anew: bool) -> list[tuple[Row, Verdict]]:
    """Play rows that have not been played yet, say so, and return what came of all."""
    ground, kept, digest = Ground(folder), RowFile(PLAYED), sources()
    verdicts = []
    for number, row in enumerate(rows, 1):
        key = {"row": row.name, "sources": digest}
        found = None if anew else kept.find(key)
        if found is None:
            before = time.monotonic()
            verdict = play(row, ground, folder / row.name)
            seconds = time.monotonic() - before
            found = key | {"seconds": seconds, "verdict": asdict(verdict)}
            if not verdict.defects:
                kept.keep(found)
        verdict = Verdict(**found["verdict"])
        verdicts.append((row, verdict))
        sys.stderr.write(
            f"{number:>2}/{len(rows)} {found['seconds']:5.1f} s  {verdict.title:<7} {row.fault}\n"
        )
        for defect in verdict.defects:
            sys.stderr.write(f"      {defect}\n")
    return verdicts


def table(verdicts: list[tuple[Row, Verdict]], head: tuple[str, ...]) -> list[str]:
    """Write the table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for row, verdict in verdicts:
        cells = (row.fault, *verdict.cells)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines


def written(verdicts: list[tuple[Row, Verdict]]) -> list[str]:
    """Write what came of all rows in Markdown."""
    defects = [defect for _, verdict in verdicts for defect in verdict.defects]
    skipped = sum(bool(verdict.skipped) for _, verdict in verdicts)
    lines = [
        "What happens when something fails: processes with mutual TLS on one machine; "
        f"{versions()}. {len(verdicts)} rows, {skipped or 'none'} skipped. Command: `make faults`.",
        "",
    ]
    for peers, where in WHERE.items():
        part = [(row, verdict) for row, verdict in verdicts if row.peers == peers]
        if part:
            lines += [where, "", *table(part, PEER_HEAD if peers else HEAD), ""]
    return [
        *lines,
        "A row is a defect if a process printed a traceback or hung, ended otherwise than it "
        "should, has no model; if a round that somebody had completed is lost, or is another one "
        "at somebody else; if the models differ, or the weights are not, bit by bit, those of the "
        "rounds worked again in one process by exactly the clients that the run's events name; if "
        f"events or report do not name who was missing. Defects: {len(defects) or 'none'}.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", help="names of rows, with commas between them")
    parser.add_argument("--quick", action="store_true", help="a few of them, as in CI")
    parser.add_argument("--anew", action="store_true", help="play again what was played")
    given = parser.parse_args()
    wanted = given.rows.split(",") if given.rows else [row.name for row in (*ROWS, *PEER_ROWS)]
    rows = [row for row in (*ROWS, *PEER_ROWS) if row.name in wanted]
    if given.quick:
        rows = [row for row in rows if row.quick]
    folder = Path(tempfile.mkdtemp(prefix="fedtopics-faults-"))
    verdicts = play_all(rows, folder, given.anew)
    lines = written(verdicts)
    sys.stdout.write("\n".join(lines) + "\n")
    if not given.rows and not given.quick:
        RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if any(verdict.defects for _, verdict in verdicts):
        sys.stderr.write(f"The processes' output is in {folder}\n")
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
