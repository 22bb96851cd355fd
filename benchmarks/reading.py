"""Which words of topics are shown: the ten first, or the most coherent ten of the fifteen first."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import common
from experiments.made_up import write as write_made_up
from fedtopics import Columns, Corpus, Policy, Study, TopicModel, train
from fedtopics.contract.payload import RunningSum
from fedtopics.datasets import package_documentation
from fedtopics.federation.local import LocalClients
from fedtopics.federation.program import plan_of
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import ClientWords
from fedtopics.methods.core.final_model import CHOOSING, SCORED, choose_words, draw_halves
from fedtopics.methods.core.plan import ClientContext
from fedtopics.methods.core.vocabulary_agreement import adopt
from fedtopics.metrics import unique_words
from fedtopics.model.coherence import count_pairs, federated_coherence
from fedtopics.model.shown_words import CANDIDATES, WORDS_SHOWN
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings
from fedtopics.text.vocabulary import count_words

ORDERLESS = {"20ng", "reuters395"}  # bags of words
SETS = ("demo", "m10", "20ng", "news_outlets", "health_tweets", "reuters395")
MOST = 12_000  # documents of a set, drawn at random
METHODS: dict[str, dict[str, Any]] = {
    "lda": {"name": "lda"},
    "prodlda": {"name": "gfedntm", "network": "prodlda", "max_rounds": 500},
    "kmeans": {"name": "kmeans", "representation": "tfidf"},
    "discriminative": {"name": "discriminative", "preset": "single"},
}
# No texts to embed; too few documents for so many clusters at each client.
UNFIT = {*((name, "discriminative") for name in ORDERLESS), ("reuters395", "kmeans")}
TOPICS = 20
INTRODUCTION = f"""\
The ten first words of {TOPICS} topics as they are, and the most coherent ten of the {CANDIDATES} \
first. One half of each client's documents chooses lambda and words, the scores are of the other \
half, with words that are too rare to be counted; "said" is the model's own score, without them, \
"in the half that chose" what its words score where they were chosen, which is too good. \
Diversity: share of different words. Means over seeds (of training and of the halves), with the \
smallest gain of a seed. Sets have at most {MOST:,} documents, at their nodes; clients have the \
usual policy. ProdLDA has 500 rounds, k-means is on TF-IDF, discriminative clustering on \
embeddings. Command: `make bench NAME=reading DATA=folder`."""
HEAD = """documents | clients | method | seeds | NPMI, ten first | most coherent | smallest gain \
| said | in the half that chose | diversity, ten first | most coherent"""


def clients_of(data: Path, name: str, embedded: bool) -> dict[str, Corpus]:
    """Return the documents of each client of a set, with embeddings that are kept if asked for."""
    if name == "demo":
        return package_documentation(5)
    file = pq.read_table(common.parquet(data, name))
    if len(file) > MOST:
        file = file.take(np.random.default_rng(0).permutation(len(file))[:MOST])
    tokens = "tokens" if "tokens" in file.column_names else None
    corpus = Corpus.of(file, Columns(text="text", tokens=tokens))
    if embedded:
        vectors = document_embeddings(corpus, EmbeddingSettings(), cache=common.WORK)
        corpus = corpus.with_embeddings(vectors)
    nodes = np.array(file["node"].cast("string").to_pylist())
    rows = [np.flatnonzero(nodes == node) for node in np.unique(nodes)]
    least = Policy().min_persons
    return {
        f"client-{i}": corpus.take(client_rows)
        for i, client_rows in enumerate(rows)
        if len(client_rows) >= least
    }


def at_clients(study: Study, corpora: Mapping[str, Corpus], model: TopicModel) -> Agreement:
    joined = LocalClients(common.doors_of(study, corpora, Policy()))
    total = sum(map(len, corpora.values()))
    adopt(joined, {"words": list(model.vocabulary.words), "total": total, "length": 1.0})
    return Agreement(
        clients=joined,
        settings=study.method,
        vocabulary=model.vocabulary,
        documents=total,
        training=total,
    )


def npmi(study: Study, corpora: Sequence[Corpus], words: list[list[str]]) -> float:
    """Score words on documents, where rare words count as well."""

    def ask(**payload: Any) -> dict[str, Any]:
        total = RunningSum()
        for corpus in corpora:
            total.add(count_pairs(count_words(corpus, study.text), **payload))
        return total.total()

    within: Any = study.method.coherence
    return float(federated_coherence(ask, words, within)["npmi"].mean())


def read_both_ways(study: Study, corpora: Mapping[str, Corpus], folder: Path) -> dict[str, Any]:
    if not folder.exists():
        train(study, corpora).save_pretrained(folder)
    model = TopicModel.from_pretrained(folder)
    agreement = at_clients(study, corpora, model)
    drawn = [
        (c, draw_halves(ClientWords(plan_of(study), ClientContext(name, c, Policy()))))
        for name, c in corpora.items()
    ]
    parts = {part: [c.take(rows[part]) for c, rows in drawn] for part in (CHOOSING, SCORED)}
    row: dict[str, Any] = {"clients": len(corpora)}
    for way, n in (("first", WORDS_SHOWN), ("coherent", CANDIDATES)):
        settings = study.method.model_copy(update={"coherence_candidates": n})
        read = choose_words(agreement, settings, model)
        words = read.topics(WORDS_SHOWN)
        row[f"{way}_npmi"] = npmi(study, parts[SCORED], words)
        row[f"{way}_there"] = npmi(study, parts[CHOOSING], words)
        row[f"{way}_said"] = float(read.coherence["npmi"].mean())
        row[f"{way}_diversity"] = unique_words(words, WORDS_SHOWN)
        row[f"{way}_reading"] = [read.word_ranking.relevance, read.word_ranking.by_sums]
    return row


def lines(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    groups = dict(common.each_group(rows, "data", "method"))
    for data, method in product(SETS, METHODS):
        if these := groups.get((data, method)):
            columns = "first_npmi", "coherent_npmi", "coherent_said", "coherent_there"
            means = {
                column: f"{np.mean([row[column] for row in these]):.3f}"
                for column in (*columns, "first_diversity", "coherent_diversity")
            }
            gain = min(row["coherent_npmi"] - row["first_npmi"] for row in these)
            first, best, *rest = means.values()
            start = [data, str(these[0]["clients"]), method, str(len(these))]
            yield [*start, first, best, f"{gain:+.3f}", *rest]


def main() -> None:
    given = common.arguments(__doc__, "the Parquet files", sets=SETS, methods=METHODS, seeds=3)
    data = given.data
    sets = given.sets
    methods = given.methods
    work = common.WORK / "reading"
    if given.quick:
        data = write_made_up(given.folder, ("m10",), 240)
        work = given.folder
        sets = ["m10"]
        methods = ["lda"]

    def measure(task: dict[str, Any]) -> dict[str, Any]:
        method = METHODS[task["method"]] | {"n_components": TOPICS}
        method["coherence"] = "documents" if task["data"] in ORDERLESS else "windows"
        method |= {"max_rounds": 10} if given.quick else {}
        study = Study.make(seed=task["seed"], method=method)
        corpora = clients_of(data, task["data"], task["method"] == "discriminative")
        named = (task["data"], task["method"], str(task["seed"]), study.fingerprint)
        folder = work / "-".join(named)
        return read_both_ways(study, corpora, folder)

    seeds = range(1 if given.quick else given.seeds)
    tasks = common.grid(seed=seeds, data=sets, method=methods)
    fit = [task for task in tasks if (task["data"], task["method"]) not in UNFIT]
    common.measured(given, fit, measure)
    rows = lines(common.kept_rows(given))
    common.write(given, [INTRODUCTION, "", *common.table(HEAD, rows)])
