"""What rules of texts cost: seconds of one core to count all words of 20 newsgroups."""

import time
from typing import Any

import numpy as np

from benchmarks.common import arguments, made_up_clients, parquet, table, write
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import count_words

RULES: dict[str, dict[str, Any]] = {
    "HTML and addresses stay": {"html": False, "addresses": "keep"}, "default": {},
    'languages = "en"': {"languages": "en"},
    'languages = "en", lemmas': {"languages": "en", "lemmas": True},
    'languages = "detect"': {"languages": "detect"},
    'languages = "detect", lemmas': {"languages": "detect", "lemmas": True},
}  # fmt: skip
RUNS = 3  # that take turns; the least counts


def main() -> None:
    given = arguments(__doc__, "20ng.parquet")
    if given.quick:
        corpus = Corpus.pool(made_up_clients().values())
    else:
        corpus = Corpus.read(parquet(given.data, "20ng"))
    best = dict.fromkeys(RULES, np.inf)
    for _ in range(RUNS):
        for name, rules in RULES.items():
            begun = time.process_time()
            count_words(corpus, TextRules(**rules))
            best[name] = min(best[name], time.process_time() - begun)
    write(given, [
        f"{len(corpus):,} documents, one core. Command: `make bench NAME=words DATA=folder`.", "",
        *table("rules | documents a second", [
            (name, f"{len(corpus) / least:,.0f}") for name, least in best.items()
        ]),
    ])  # fmt: skip
