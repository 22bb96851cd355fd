"""What rules of texts cost: seconds of one core to count all words of 20 newsgroups.

The least of three runs that take turns.

    python benchmarks/words.py --data FOLDER [--quick]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import BEFORE, TextRules
from fedtopics.text.vocabulary import count_words
from quick import made_up_clients, parser_of, results_of

RULES: dict[str, dict[str, Any]] = {
    "as before: no HTML or addresses": BEFORE,
    "default": {},
    'languages = "en"': {"languages": "en"},
    'languages = "en", lemmas': {"languages": "en", "lemmas": True},
    'languages = "detect"': {"languages": "detect"},
    'languages = "detect", lemmas': {"languages": "detect", "lemmas": True},
}
RUNS = 3


def speeds(corpus: Corpus) -> Iterator[str]:
    """Yield a row of the table for each of the rules."""
    best = dict.fromkeys(RULES, np.inf)
    for _ in range(RUNS):
        for name, rules in RULES.items():
            begun = time.process_time()
            count_words(corpus, TextRules(**rules))
            best[name] = min(best[name], time.process_time() - begun)
    yield "| rules | documents a second |\n| --- | ---: |"
    yield from (f"| {name} | {len(corpus) / least:,.0f} |" for name, least in best.items())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder with 20ng.parquet")
    given = parser.parse_args()
    out = results_of("words", given.quick) / "words.md"
    if given.data is None and not given.quick:
        parser.error("say with --data where 20ng.parquet is")
    corpus = (
        Corpus.pool(made_up_clients().values())
        if given.quick
        else Corpus.read(given.data / "20ng.parquet")
    )
    lines = [
        f"{len(corpus):,} documents, one core. Command: `make bench-words DATA=folder`.\n",
        *speeds(corpus),
    ]
    text = "\n".join(lines) + "\n"
    out.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
