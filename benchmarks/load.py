"""A load test: 100 clients, ten a process, 200 rounds of 2 MB there and back over mutual TLS.

Every round checks that the sum holds each client once. Prints seconds and the server's memory as it
goes; the table is in ``benchmarks/results/load.md``.

    python benchmarks/load.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from echo import SIZES
from quick import parser_of, results_of
from rounds import Contestant, certify

BLOCK = 20  # rounds between two readings of memory


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.clients, arguments.rounds = 11, BLOCK  # in two processes
    lines = [
        f"{arguments.clients} clients, ten a process, 2 MB to each and back in every round, mutual "
        "TLS on loopback. Nothing was lost: every round's sum holds each client once. Command: "
        "`make bench-rounds`.",
        "",
        "| rounds | seconds a round, median | resident, MB | peak, MB |",
        "| ---: | ---: | ---: | ---: |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        certify(Path(folder), arguments.clients)
        blocks = arguments.rounds // BLOCK * [(BLOCK, SIZES["2 MB"])]
        contestant = Contestant("ours", arguments.clients, Path(folder), blocks)
        begin = time.monotonic()
        for done in range(BLOCK, arguments.rounds + 1, BLOCK):
            answer = contestant.run()
            seconds = statistics.median(answer["seconds"])
            line = f"| {done} | {seconds:.2f} | {answer['now']:.0f} | {answer['megabytes']:.0f} |"
            lines.append(line)
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        contestant.close()
    lines += ["", f"{time.monotonic() - begin:.0f} s in all."]
    (results_of("load", arguments.quick) / "load.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
