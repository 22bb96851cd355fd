"""Run every benchmark, attack and experiment with --quick: whether they run, not what they say.

Two at a time, a thread each; peers and their environments are left out. Ends with 1 if one fails,
and prints what that one wrote. Not among them is `threads`, which keeps all cores busy on purpose.

    python benchmarks/all_quick.py [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from experiments.made_up import write  # noqa: E402

AT_ONCE = 2
FIRST = ("faults", "same_bits", "cost", "federated", "rounds")  # the longest
# What others start, in processes of their own; and what would disturb them all.
WORKERS = {
    "all_quick", "contestant", "delay", "engines_flare", "engines_flower", "faults_replay",
    "faulty_client", "faulty_peer", "ours", "peers", "round_contestant", "threads",
}  # fmt: skip
OUT = ROOT / "build" / "quick"
EXPERIMENTS: dict[str, list[str | Path]] = {
    "gfedntm-figure3": [
        "experiments", "gfedntm-figure3", "--model", "lda", "--out", OUT / "figure3",
    ],
    "gfedntm-amwmd": [
        "experiments", "gfedntm-amwmd", "--network", "prodlda", "--out", OUT / "amwmd",
    ],
    "flda": ["experiments", "flda", "--out", OUT / "flda"],
    "flda-thresholds": ["experiments.flda.thresholds"],
    "fstc": ["experiments", "fstc", "--only", "table2", "--out", OUT / "fstc"],
}  # fmt: skip


DATA = OUT / "data"
OPTIONS = {  # of those that have no made-up data of their own
    "reading": ["--data", f"{DATA}/corpora", "--sets", "m10", "--methods", "lda"],
    "titles": ["--data", str(DATA)],
}


def scripts() -> dict[str, Path]:
    """Return what is started by itself in benchmarks and attacks, by name."""
    found = {}
    for folder in ("benchmarks", "benchmarks/attacks"):
        for path in sorted((ROOT / folder).glob("*.py")):
            if path.stem not in WORKERS and "__main__" in path.read_text("utf-8"):
                found[path.stem] = path
    return found


def commands() -> dict[str, list[str]]:
    """Return all commands by name, the longest first."""
    found = {n: [str(path), *OPTIONS.get(n, []), "--quick"] for n, path in scripts().items()}
    found |= {name: ["-m", *map(str, words), "--quick"] for name, words in EXPERIMENTS.items()}
    return dict(sorted(found.items(), key=lambda item: item[0] not in FIRST))


def run(name: str, words: list[str]) -> bool:
    """Run one, say how long it took; return whether it ended well."""
    begun = time.monotonic()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": PATHS}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said = f"{time.monotonic() - begun:6.1f} s  {name}"
    print(said if done.returncode == 0 else f"{said}: FAILED\n{done.stdout}", flush=True)
    return done.returncode == 0


PATHS = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="of these only")
    wanted = parser.parse_args().names
    chosen = {name: words for name, words in commands().items() if name in wanted or not wanted}
    shutil.rmtree(OUT, ignore_errors=True)  # or nothing would be left to do
    write(DATA / "corpora", ("m10",), 240)
    begun = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        well = list(pool.map(run, chosen, chosen.values()))
    print(f"{time.monotonic() - begun:6.1f} s  {sum(well)} of {len(well)} ran")
    sys.exit(not well or not all(well))


if __name__ == "__main__":
    main()
