"""The kinds of runs of the simulated world, how each has to end, and many of them."""

import argparse
import re
import sys
import time
from collections import Counter
from typing import Any

from tests.protocol import exhaustive
from tests.protocol.carried import Scene
from tests.protocol.checks import ViolationError
from tests.protocol.host import RELAY
from tests.protocol.world import USUAL, World

DISK = ["older", "clone", "wipe", "kill", "power", "relay", "loss"]
ALL = [*DISK, *USUAL, "relay disk", "clone rng"]
LYING = [*DISK, "clone rng"]
NONE = {"count": (0, 0)}
ONCE: dict[str, Any] = {"count": (1, 1), "operator": True, "between": 0.0}
KINDS: dict[str, dict[str, Any]] = {
    "quiet": NONE,
    "faults": {},
    "powers": {"kinds": ["powers", "relay power", "power"]},
    "relay": {"kinds": ["relay", "relay power", "kill"]},
    "between": {"kinds": ["kill"], "between": 0.05, "count": (6, 12)},
    "older": {"kinds": ["older", "kill", "relay"]},
    "clone": {"kinds": ["clone"]},
    "clone rng": {"kinds": ["clone rng"]},
    "wipe": {"kinds": ["wipe", "kill"]},
    "relay disk": {"kinds": ["relay disk", "kill", "power"]},
    "disk": {"kinds": DISK},
    "all": {"kinds": ALL},
    "operator": {"kinds": ["clone"], **ONCE},
    "operator rng": {"kinds": ["clone rng"], **ONCE},
    "reform 0": {"evil": True, "reform": 20.0},
    "reform 1": {"evil": True, "accomplices": 1, "reform": 20.0},
    "evil 0": {"evil": True},
    "evil 1": {"evil": True, "accomplices": 1},
    "evil 2": {"evil": True, "accomplices": 2},
    "evil 0 disk": {"evil": True, "kinds": LYING},
    "evil 1 disk": {"evil": True, "accomplices": 1, "kinds": LYING},
    "evil 2 disk": {"evil": True, "accomplices": 2, "kinds": LYING},
    "evil 0 quiet": {"evil": True, **NONE},
    "evil 1 quiet": {"evil": True, "accomplices": 1, **NONE},
    "words": {"words": True},
    "words operator": {"words": True, "kinds": ["clone"], **ONCE},
    "words disk": {"words": True, "kinds": DISK},
    "words evil": {"words": True, "evil": True, "accomplices": 1},
    "files quiet": {"kinds": []},
    "files": {"kinds": ["turn", "carry"]},
    "files older": {"kinds": [*["turn", "carry"] * 9, "older"]},
}
SURVIVED = {"quiet", "faults", "powers", "relay", "between", "operator", "operator rng", "reform 0"}
SURVIVED |= {"words", "words operator", "files quiet", "files"}


def play(kind: str, seed: int, mutant: str = "") -> tuple[str, World]:
    """Run one world; return how it ended, and it. ViolationError if that is not allowed."""
    world = (Scene if kind.startswith("files") else World)(seed, mutant=mutant, **KINDS[kind])
    ending = world.run()
    if world.evil and kind not in SURVIVED:
        return ending, world
    if ending != "same model" and kind in SURVIVED:
        raise ViolationError(f"i: not the same model: {ending}")
    if ending.startswith("stopped") and not set(re.findall(r"\w+", ending)) & world.touched:
        raise ViolationError(f"j: names another: {ending}")
    # One known rest: the relay's disk is lost after others have ended, and the last one waits.
    if ending.startswith("stuck") and not (RELAY in world.touched and world.ended):
        raise ViolationError(f"k: {ending}")
    return ending, world


def many(kind: str, seeds: range, mutant: str = "") -> tuple[Counter[str], list[str]]:
    """Run seeds of a kind; return how they ended, and what was not allowed."""
    endings = Counter[str]()
    violations = []
    for seed in seeds:
        try:
            ending, world = play(kind, seed, mutant)
        except ViolationError as error:
            violations.append(f"{kind}, seed {seed}: {error}")
            ending = "violation"
        else:
            endings["sums opened"] += world.checks.opened
            endings["false totals of accomplices"] += world.checks.forged
            if ending == "same model":
                endings["slowest"] = max(endings["slowest"], round(world.now - world.quiet))
        endings[ending.split(" ", 1)[0] if ending != "same model" else ending] += 1
    return endings, violations


COLUMNS = [
    "same model",
    "stopped",
    "stuck",
    "violation",
    "sums opened",
    "false totals of accomplices",
    "slowest",
]


def main(kind: str = "") -> int:
    """Run many worlds and print a table; the exit status is 1 after a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="of all kinds together")
    parser.add_argument("--first", type=int, default=0, help="the first seed of each kind")
    parser.add_argument("--kind", choices=KINDS, help="this kind alone")
    parser.add_argument("--mutant", default="", help="a fault of `mutants`")
    parser.add_argument("--exhaustive", action="store_true", help="all ways of the smallest case")
    options = parser.parse_args()
    if options.exhaustive:
        return exhaustive.main()
    kinds = [options.kind] if options.kind else [name for name in KINDS if name.startswith(kind)]
    seeds_per_kind = -(-options.seeds // len(kinds))
    all_violations = list[str]()
    begin = time.monotonic()
    print("| kind | seeds | seconds |", " | ".join(COLUMNS), "|")
    print("| --- |" + " ---: |" * (len(COLUMNS) + 2))
    for kind in kinds:
        start = time.monotonic()
        seeds = range(options.first, options.first + seeds_per_kind)
        endings, violations = many(kind, seeds, options.mutant)
        all_violations += violations
        print(
            f"| {kind} | {seeds_per_kind:,} | {time.monotonic() - start:.1f} |",
            " | ".join([f"{endings[column]:,}" for column in COLUMNS]),
            "|",
            flush=True,
        )
        for violation in violations[:10]:
            print(f"  {violation}", file=sys.stderr, flush=True)
    print(
        f"{seeds_per_kind * len(kinds):,} seeds in {time.monotonic() - begin:,.0f} s,",
        f"{len(all_violations)} violations",
    )
    return 1 if all_violations else 0
