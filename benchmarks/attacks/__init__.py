"""Attacks on what leaves clients in an honest study: the figures of docs/threat-model.md."""

from __future__ import annotations

from importlib import import_module

from benchmarks.common import arguments

NAMES = ("solving", "one_reply", "blind", "rare_words", "pairs_of_sums", "few_of_all")


def main() -> None:
    given = arguments(__doc__, "20ng.parquet", optional=True, only=NAMES)
    for name in given.only:
        module = import_module(f"benchmarks.attacks.{name}")
        print(f"\n{str(module.__doc__).splitlines()[0]}")
        for line in module.lines(given.data, given.quick):
            print(f"  {line}", flush=True)
