"""How F-LDA's default threshold decides pairs of topics that a person has labelled.

A run of F-LDA on each data set of ``python -m experiments flda``, with a seed that is not in its
table; the labelled pairs are in ``benchmarks/results/flda``.

    python -m experiments.flda.thresholds --data DIR
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.flda.models import DATA_SETS
from experiments.flda.runs import Settings, thresholds
from experiments.made_up import write
from fedtopics.methods.flda.labelled_pairs import decided_alike, fit_curve, read_pairs

PAIRS = Path(__file__).parents[2] / "benchmarks" / "results" / "flda"
SEED = 50


def main() -> None:
    """Print how many pairs each threshold decides as the person did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the Parquet files")
    parser.add_argument("--quick", action="store_true", help="see that it runs, on made-up texts")
    given = parser.parse_args()
    if given.data is None and not given.quick:
        parser.error("say where the Parquet files are: --data FOLDER; or --quick")
    data_sets = tuple(data.name for data in DATA_SETS)
    folder = write(Path("build/quick/data"), data_sets, 1100) if given.quick else given.data
    settings = Settings(folder, quick=given.quick)
    for data in DATA_SETS:
        pairs = read_pairs(PAIRS / f"pairs-{data.name}.csv")
        values = {"regression": fit_curve(pairs).threshold, "paper": data.gamma}
        rounds = enumerate(thresholds(settings, data, SEED), 1)
        values |= {f"default, round {number}": value for number, value in rounds}
        for name, value in values.items():
            decided = decided_alike(pairs, value)
            sys.stdout.write(
                f"{data.name}, {name}: {value:.3f} decides {decided} of {len(pairs)}\n"
            )


if __name__ == "__main__":
    main()
