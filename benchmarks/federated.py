"""Real federated studies of five client processes: seconds, bytes, loss, by setting.

A server and five clients, each a process with one thread, over mutual TLS: 5,000 words, 50 topics,
hidden layers of 100, 64 documents a round. First where a round's time goes with each way to
normalise, then what several local steps a round save, then the same on a line with 50 ms of delay
(network namespaces and a TUN relay; left out where they cannot be made). Results are kept in
``benchmarks/results/federated.jsonl``; what is there is not measured again.

    python benchmarks/federated.py
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from delay import Delay
from documents import bag_of_words, tokenised
from fedtopics import pki
from quick import parser_of, results_of

FEDTOPICS = Path(sys.executable).parent / "fedtopics"
NAMES = ["east", "middle", "north", "south", "west"]
DOCUMENTS = 2_000  # of a client
WORDS, TOPICS, HIDDEN = 5_000, 50, 100
DELAY = 0.05  # seconds, there and back
TLS_SETTINGS = """name = "bench"
checkpoint_every = 1000000
secure = false  # secure_rounds.py has masks

[method]
n_components = {topics}
hidden = [{hidden}, {hidden}]
batch_size = 64
{method}

[vocabulary]
max_words = {words}
min_document_frequency = 1
max_document_share = 1.0
"""
STEPS, STEPS_DELAYED, STEPS_QUICK = 500, 100, 4  # minibatches in all


def settings(steps: int) -> dict[str, str]:
    """Return settings by name: all take so many steps, some of them several in a round."""
    found = {norm: f'norm = "{norm}"\n{_rounds(steps)}' for norm in ("sync", "server")}
    for local in (5, 20):
        found[f"server, {local} local steps"] = (
            'norm = "server"\noptimizer = "fedavg"\nlearning_rate = 1.0\n'
            f"local_steps = {local}\n{_rounds(steps // local)}"
        )
    return found


def _rounds(number: int) -> str:
    # One validation, of the model that the last round gives.
    return f"max_rounds = {number}\nvalidation_share = 0.1\nvalidate_every = {number}"


def prepare(folder: Path, bags: Mapping[str, Any]) -> None:
    """Write the clients' documents, certificates, a policy."""
    pki.create(folder / "pki", ["localhost", Delay.SERVER])
    (folder / "policy.toml").write_text("min_documents = 10\nmin_document_frequency = 1\n")
    for name, bag in bags.items():
        pki.issue(folder / "pki", name)
        pq.write_table(pa.table({"words": tokenised(bag)}), folder / f"{name}.parquet")


def run(
    folder: Path,
    study: str,
    host: str = "localhost",
    server: Sequence[str] = (),
    clients: Sequence[str] = (),
) -> Path:
    """Run a study; return the run's folder. `server`, `clients` begin their commands."""
    text = study + "".join(f"\n[clients.{name}]" for name in NAMES) + "\n"
    (folder / "study.toml").write_text(text)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    out = Path(tempfile.mkdtemp(dir=folder))

    def start(prefix: Sequence[str], *words: str) -> subprocess.Popen[bytes]:
        command = [*prefix, str(FEDTOPICS), *words]
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)

    listen = f"{host}:{free_port()}"
    processes = [
        start(server, "server", "study.toml", "--pki", "pki", "--listen", listen, "--out", str(out))
    ]
    processes += [
        start(
            clients, "client", "--server", listen, "--identity", f"pki/clients/{name}",
            "--data", f"{name}.parquet", "--tokens", "words", "--policy", "policy.toml",
            "--out", str(out / name),
        )
        for name in NAMES
    ]  # fmt: skip
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"The server and its clients ended with {codes}.")
    return out


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("", 0))
        port: int = one.getsockname()[1]
        return port


def events_of(out: Path) -> list[dict[str, Any]]:
    """Read what happened in a run."""
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def summarise(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians of a round's parts, and totals."""
    rounds = [event for event in events if event["event"] == "round"]
    last = next(event for event in events if event["event"] == "validation")

    def median(part: Any) -> float:
        return float(statistics.median(part(event) for event in rounds[1:]))

    return {
        "rounds": len(rounds),
        "seconds": sum(event["seconds"] for event in rounds),
        "round": median(lambda e: e["seconds"]),
        "server": median(lambda e: e["seconds"] - e["waiting"]),
        "sent": median(lambda e: e["bytes_sent"]) / len(NAMES),
        "received": median(lambda e: e["bytes_received"]) / len(NAMES),
        "loss": last["loss"],
    }


def known(results: Path) -> dict[str, dict[str, Any]]:
    """Read what was measured before."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {row["setting"]: row for row in map(json.loads, lines)}


def measure(folder: Path, results: Path, quick: bool) -> dict[str, dict[str, Any]]:
    """Run what was not run yet; keep each result at once."""
    found = known(results)
    for delayed in (False,) if quick else (False, True):
        steps = STEPS_DELAYED if delayed else STEPS
        wanted = (
            {"sync": settings(STEPS_QUICK)["sync"] + '\ncoherence = "nothing"'}
            if quick
            else settings(steps)
        )
        names = {f"{n}{', delayed' * delayed}": method for n, method in wanted.items()}
        missing = {name: method for name, method in names.items() if name not in found}
        with ExitStack() as stack:
            server: Sequence[str] = ()
            clients: Sequence[str] = ()
            host = "localhost"
            if delayed and missing:
                try:
                    line = stack.enter_context(Delay(DELAY))
                except PermissionError as error:
                    sys.stdout.write(f"without delay: {error}\n")
                    continue
                server, clients, host = line.at_server, line.at_client, Delay.SERVER
            for name, method in missing.items():
                study = TLS_SETTINGS.format(
                    topics=TOPICS, hidden=HIDDEN, method=method, words=WORDS
                )
                out = run(folder, study, host, server, clients)
                row = {"setting": name} | summarise(events_of(out))
                with results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                sys.stdout.write(f"{name}: {row['round'] * 1e3:.0f} ms a round\n")
                sys.stdout.flush()
                found[name] = row
    return found


def dense_bytes() -> int:
    """Bytes of all of the network's weights in float32."""
    encoder = WORDS * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN * 2 * TOPICS
    return 4 * (encoder + TOPICS * WORDS + WORDS)


def report(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the tables as lines."""
    lines = [
        f"Five client processes and a server, mutual TLS on loopback, {WORDS:,} words, {TOPICS} "
        f"topics, hidden layers of {HIDDEN}, 64 documents a round, seed 0, one thread a process, "
        "two cores. Command: `make bench-rounds`.",
        "",
        "| setting | rounds | seconds | ms a round | server computes "
        "| sent, MB a client | received, MB a client | loss, held back |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, row in found.items():
        server = f"{row['server'] * 1e3:.0f} ms ({row['server'] / row['round']:.0%})"
        lines.append(
            f"| {name} | {row['rounds']} | {row['seconds']:.1f} | {row['round'] * 1e3:.0f} "
            f"| {server} | {row['sent'] / 1e6:.2f} | {row['received'] / 1e6:.2f} "
            f"| {row['loss']:.2f} |"
        )
    lines += ["", f"All weights, dense, in float32: {dense_bytes() / 1e6:.2f} MB."]
    return lines


def main() -> None:
    quick = parser_of(__doc__).parse_args().quick
    results = results_of("federated", quick) / "federated.jsonl"
    each = 100 if quick else DOCUMENTS
    bag = bag_of_words(each * len(NAMES), WORDS)
    parts = {name: bag[i * each : (i + 1) * each] for i, name in enumerate(NAMES)}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), parts)
        lines = report(measure(Path(folder), results, quick))
    results.with_suffix(".md").write_text("\n".join(lines) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
