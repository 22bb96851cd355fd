"""What happens when clients, servers, networks and disks fail: a table, a row a fault.

Each row is a server and three clients, processes of this machine with mutual TLS, with made-up
documents, in a folder of their own. A row is a defect if a process prints a traceback or hangs,
ends otherwise than it should, has no model, or if the model's weights are not those of the rounds'
clients, bit by bit. Results go to ``benchmarks/results/faults.md``.

    python benchmarks/faults.py [--rows killed,nan]
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from faults_rows import ROWS, Row
from faults_stage import Ground, NotHereError, Stage, TookTooLongError
from faults_verdict import Verdict, judge

RESULT = Path(__file__).parent / "results" / "faults.md"
LIMIT = 120.0  # seconds of a row
HEAD = ("fault", "what the server did", "what the client saw", "rounds lost", "model")


def play(row: Row, ground: Ground, folder: Path) -> Verdict:
    """Play a row; whatever happens, its processes end and the table goes on."""
    folder.mkdir()
    stage = Stage(ground, folder, LIMIT)
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


def table(verdicts: list[tuple[Row, Verdict]]) -> list[str]:
    """Write the table in Markdown."""
    lines = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    for row, verdict in verdicts:
        cells = (row.fault, *verdict.cells)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", help="names of rows, with commas between them")
    wanted = parser.parse_args().rows
    rows = [row for row in ROWS if not wanted or row.name in wanted.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="fedtopics-faults-"))
    ground = Ground(folder)
    verdicts: list[tuple[Row, Verdict]] = []
    begun = time.monotonic()
    for number, row in enumerate(rows, 1):
        before = time.monotonic()
        verdict = play(row, ground, folder / row.name)
        verdicts.append((row, verdict))
        sys.stderr.write(
            f"{number:>2}/{len(rows)} {time.monotonic() - before:5.1f} s  {verdict.title:<7} "
            f"{row.fault}\n"
        )
    minutes = (time.monotonic() - begun) / 60
    defects = [defect for _, verdict in verdicts for defect in verdict.defects]
    lines = [
        "What happens when something fails: a server and three clients (north, south, west), "
        f"processes with mutual TLS on one machine; {versions()}. {len(rows)} rows in "
        f"{minutes:.0f} minutes. Command: `make faults`.",
        "",
        *table(verdicts),
        "",
        "A row is a defect if a process printed a traceback or hung, ended otherwise than it "
        "should, has no model, or if the weights are not, bit by bit, those of the rounds worked "
        "again by exactly the clients that the run's events name. "
        f"Defects: {len(defects) or 'none'}.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    if not wanted:
        RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if defects:
        sys.stderr.write(f"The processes' output is in {folder}\n")
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
