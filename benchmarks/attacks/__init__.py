"""Attacks on what clients send in an honest study: figures of docs/concepts/threat-model.md."""

from importlib import import_module

from benchmarks.common import arguments

NAMES = {
    "solving": "solving.lines",
    "one_reply": "one_reply.lines",
    "blind": "blind.lines",
    "rare_words": "solving.rare_lines",
    "pairs_of_sums": "pairs_of_sums.lines",
    "few_of_all": "pairs_of_sums.few_lines",
    "sums_by_word": "sums_by_word.lines",
}


def main() -> None:
    given = arguments(__doc__, "20ng.parquet", optional=True, only=NAMES)
    for name in given.only:
        module, function = NAMES[name].split(".")
        lines = getattr(import_module(f"benchmarks.attacks.{module}"), function)
        print(f"\n{lines.__doc__}")
        for line in lines(given.data, given.quick):
            print(f"  {line}", flush=True)
