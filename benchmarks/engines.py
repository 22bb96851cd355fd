"""What each engine costs without a method: five clients that give back what they get.

An exchange gets an array from each client and brings the sum to all, by door, ledger and checks.
Local: one process. gRPC: a server and five processes, mutual TLS, loopback. Flower: SuperLink and
five SuperNodes with TLS and keys. FLARE: its simulator, a process a site. One engine after the
other; Flower's and FLARE's in environments of their own (`make test-flower`, `make test-flare`).

    python benchmarks/engines.py --flower .venv-flower/bin/python --flare .venv-flare/bin/python
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from echo import SIZES, echo, echoing, latencies, peak_megabytes
from fedtopics.engines.local import LocalClients
from quick import HERE, parser_of, results_of
from rounds import Contestant, certify

CLIENTS = 5
HEADER = f"""\
{CLIENTS} clients; median of 20 exchanges (Flower: 5). *Start*: until all clients answer. *Memory*:
the most that a client's processes have had; local: all clients and the server. Command:
`make bench-engines`.

| engine | start, s | {" | ".join(f"{size}, ms" for size in SIZES)} | memory, MB |
| --- | ---: | {" | ".join("---:" for _ in SIZES)} | ---: |"""


def local(rounds: int) -> dict[str, Any]:
    before = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        names = [f"client-{number}" for number in range(CLIENTS)]
        clients = LocalClients({n: echoing(n, Path(folder) / f"{n}.jsonl") for n in names})
        echo(clients, 1)
        start = time.perf_counter() - before
        return {"start": start, **latencies(clients, rounds)}


def grpc(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certify(folder, CLIENTS)
        before = time.perf_counter()
        blocks = [(1, 1), *((rounds, floats) for floats in SIZES.values())]
        contestant = Contestant("ours", CLIENTS, folder, blocks)
        contestant.run()
        found: dict[str, Any] = {"start": time.perf_counter() - before}
        for size in SIZES:
            found[size] = statistics.median(contestant.run()["seconds"])
        found["client_mb"] = max(map(peak_megabytes, contestant.children()))
        contestant.close()
        return found


def elsewhere(engine: str, python: str, rounds: int) -> dict[str, Any]:
    command = [python, str(HERE / f"engines_{engine}.py"), "--clients", str(CLIENTS)]
    done = subprocess.run([*command, "--rounds", str(rounds)], check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--flower", help="Python of the environment with Flower")
    parser.add_argument("--flare", help="Python of the environment with FLARE")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    rounds = 2 if given.quick else given.rounds
    lines = [HEADER]
    rows = {"local": local(rounds), "gRPC": grpc(rounds)}
    if given.flare:
        rows["NVIDIA FLARE"] = elsewhere("flare", given.flare, rounds)
    if given.flower:
        rows["Flower"] = elsewhere("flower", given.flower, min(rounds, 5))
    for name, row in rows.items():
        times = " | ".join(f"{1e3 * row[size]:,.1f}" for size in SIZES)
        lines.append(f"| {name} | {row['start']:.1f} | {times} | {row['client_mb']:,.0f} |")
        print(lines[-1])
    absent = [option for option in ("--flare", "--flower") if not getattr(given, option[2:])]
    lines += [f"\nLeft out, for want of {' and '.join(absent)}."] if absent else []
    (results_of("engines", given.quick) / "engines.md").write_text(
        "\n".join(lines) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
