"""What rules of texts cost, and who is told that its documents hold base forms.

Seconds of one core to count all words of 20 newsgroups by several rules, the least of three runs
that take turns; the share of agreed words that differ by their endings alone; and clients made of
the newsgroups, drawn from all or of one newsgroup each, every other one with base forms.

    python benchmarks/words.py --data FOLDER [--quick]
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.methods.client import frequent
from fedtopics.text.corpus import Corpus
from fedtopics.text.endings import families, has_one_form
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
RUNS, RAREST, MOST = 3, 5, 5000
RAW, BASE = TextRules(), TextRules(languages="en", lemmas=True)


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


def agreed(parts: Sequence[Corpus], rules: Sequence[TextRules]) -> tuple[list[str], list[Any]]:
    """Return the most frequent words that clients name, and which of them each client has."""
    counts = [count_words(part, rule) for part, rule in zip(parts, rules, strict=True)]
    occurrences: Counter[str] = Counter()
    for each in counts:
        words, counted = each.named(RAREST)
        occurrences.update(dict(zip(words, counted[:, 1].tolist(), strict=True)))
    chosen = [word for word, _ in occurrences.most_common(MOST)]
    columns = {word: number for number, word in enumerate(chosen)}
    bags = (frequent(each.columns(columns), RAREST) for each in counts)
    return chosen, [np.bincount(bag.indices, minlength=len(chosen)) > 0 for bag in bags]


def told(corpora: dict[str, list[Corpus]]) -> Iterator[str]:
    """Yield what clients are told, where every other one has base forms, and where none has."""
    for name, parts in corpora.items():
        for what, second in (("none has base forms", RAW), ("every other one has", BASE)):
            rules = [second if n % 2 else RAW for n in range(len(parts))]
            words, there = agreed(parts, rules)
            groups = families(words)
            found = [has_one_form(groups, has) for has in there]
            right = sum(one == (rule is BASE) for one, rule in zip(found, rules, strict=True))
            yield f"{name}, {what}: {right} of {len(parts)} are told what is so"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder with 20ng.parquet")
    given = parser.parse_args()
    out = results_of("words", given.quick) / "words.md"
    if given.quick:
        clients = list(made_up_clients().values())
        corpus, corpora = Corpus.pool(clients), {"made up": clients}
    elif given.data is None:
        parser.error("say with --data where 20ng.parquet is")
    else:
        corpus = Corpus.read(given.data / "20ng.parquet")
        labels = np.array([] if corpus.labels is None else corpus.labels.to_pylist())
        drawn = np.random.default_rng(0).permutation(len(corpus))
        corpora = {
            "one newsgroup each": [
                corpus.take(np.flatnonzero(labels == n)) for n in np.unique(labels)
            ]
        }
        for size in (6000, 900, 200):
            rows = np.split(drawn[: size * 20], range(size, min(size * 20, len(drawn)), size))
            corpora[f"{size:,} documents of all"] = [corpus.take(part) for part in rows]
    words, _ = agreed([corpus], [RAW])
    share = sum(map(len, families(words[:2000]))) / len(words[:2000])
    lines = [
        f"{len(corpus):,} documents, one core. Command: `make bench-words DATA=folder`.\n",
        *speeds(corpus),
        f"\n{share:.0%} of the {len(words[:2000]):,} most frequent words differ from another by "
        "their ending alone.\n",
        *(f"- {line}" for line in told(corpora)),
    ]
    text = "\n".join(lines) + "\n"
    out.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
