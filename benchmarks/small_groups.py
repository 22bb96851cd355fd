"""Many small clusters at four clients, with masks and without: how many are used, and how well.

Short texts of 44 subjects (AgNews, Biomedical, StackOverflow), 28 of each on average as in the set
Tweet of 89, from 283 down to 7; or of a Parquet file with text and label. Policies are those by
default: a cluster needs ten documents, of one client, or with masks of all. Simulated: masks are
not computed, what they change of the result is.

    python benchmarks/small_groups.py --data FOLDER | --file FILE [--seeds 3] [--quick]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clusters import made_up
from fedtopics import Corpus, Policy, Study, train
from fedtopics.datasets import split_clients
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.metrics import clustering_accuracy, normalised_mutual_information
from quick import parser_of, results_of

SETS = "stackoverflow", "biomedical", "agnews"
EACH = 28  # texts of a subject, on average
CLIENTS = 4
METHODS: dict[str, dict[str, Any]] = {
    "kmeans": {"name": "kmeans"},
    "discriminative": {"name": "discriminative"},
    "discriminative, free sizes": {"name": "discriminative", "sizes": "free"},
}
CASES: dict[str, tuple[int, Policy, bool]] = {  # clients, their policies, masks
    "pooled, one document is enough": (1, OPEN_POLICY, False),
    "pooled, ten": (1, Policy(), False),
    "four clients, ten of each": (CLIENTS, Policy(), False),
    "four clients with masks, ten of all": (CLIENTS, Policy(), True),
}
HEADER = "| method | documents | ACC | NMI | clusters used | of few others | s |"
INTRODUCTION = """\
{n:,} texts of {labels} subjects ({smallest} to {largest} of each) in as many clusters, mean of \
{seeds} ways of dealing them out to four clients (`python benchmarks/small_groups.py`, simulated). \
Used: clusters that texts are in. Of few others: clusters of ten texts or more, of which all \
clients but one have 1 to 9 together: with masks that one can read the sum of these."""


def of_subjects(folder: Path) -> Corpus:
    """Draw texts of each set's subjects: of the k-th one as many as its share by Zipf's law."""
    tables = [pq.read_table(folder / f"{name}.parquet") for name in SETS]
    rng = np.random.default_rng(0)
    texts = [
        (name, label, text)
        for name, table in zip(SETS, tables, strict=True)
        for label, text in zip(table["label"].to_pylist(), table["text"].to_pylist(), strict=True)
    ]
    subjects = sorted({(name, label) for name, label, _ in texts})
    shares = 1 / np.arange(1, len(subjects) + 1)
    sizes = np.ceil(EACH * len(subjects) * shares / shares.sum()).astype(int)
    found: dict[str, list[Any]] = {"text": [], "label": []}
    for number, place in enumerate(rng.permutation(len(subjects))):
        own = [text for name, label, text in texts if (name, label) == subjects[place]]
        found["text"] += rng.choice(own, sizes[number], replace=False).tolist()
        found["label"] += [int(place)] * int(sizes[number])
    return Corpus.of(pa.table(found))


def measured(corpus: Corpus, method: dict[str, Any], case: str, seed: int) -> list[float]:
    """Train; return a row's numbers."""
    n, policy, secure = CASES[case]
    known: Any = corpus.labels
    truth = known.to_pylist()
    clients = split_clients(corpus, by="even", n_clients=n, seed=seed)
    clusters = {"n_components": len(set(truth)), "coherence": "nothing"}
    study = Study.make(method=method | clusters, secure=secure, seed=seed)
    begun = time.perf_counter()
    model = train(study, clients, policies=dict.fromkeys(clients, policy))
    seconds = time.perf_counter() - begun
    labels = model.main_topics(corpus)
    own = np.array([np.bincount(model.main_topics(each), minlength=model.n_topics)
                    for each in clients.values()])  # fmt: skip
    others = own.sum(0) - own
    least = policy.min_documents
    few = ((others > 0) & (others < least) & (own.sum(0) >= least)).any(0).sum()
    accuracy = 100 * clustering_accuracy(truth, labels)
    agreement = 100 * normalised_mutual_information(truth, labels)
    return [accuracy, agreement, len(set(labels.tolist())), float(few), seconds]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder of the three sets' Parquet files")
    parser.add_argument("--file", type=Path, help="a Parquet file of texts and labels instead")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if not (given.quick or given.data or given.file):
        parser.error("say where texts are: --data FOLDER or --file FILE; or --quick")
    if given.quick:
        corpus = made_up()
    else:
        corpus = Corpus.of(pq.read_table(given.file)) if given.file else of_subjects(given.data)
    corpus = Study.make(method={"name": "kmeans"}).embedded(corpus)
    known: Any = corpus.labels
    sizes = np.unique(known.to_pylist(), return_counts=True)[1]
    seeds = 1 if given.quick else given.seeds
    numbers = {"smallest": sizes.min(), "largest": sizes.max(), "seeds": seeds}
    said = INTRODUCTION.format(n=len(corpus), labels=len(sizes), **numbers)
    lines = [said, "", HEADER, "| --- | --- |" + " ---: |" * 5]
    for name, method in list(METHODS.items())[: 1 if given.quick else None]:
        for case in CASES:
            rows = [measured(corpus, method, case, seed) for seed in range(seeds)]
            mean = np.mean(rows, axis=0)
            lines.append(f"| {name} | {case} | " + " | ".join(f"{x:.1f}" for x in mean) + " |")
            sys.stderr.write(lines[-1] + "\n")
    where = results_of("small_groups", given.quick) / "small_groups.md"
    if not given.file:
        where.write_text("\n".join(lines) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
