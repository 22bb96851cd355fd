"""Coherence, diversity and agreement with labels: our models beside what people use today.

Every contestant gets the same words and the same embeddings of the same documents; every one runs
in a process of its own, those of other libraries in the peers' environment. A run that has a row is
not run again, so the benchmark can be done in pieces.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import common, peers
from experiments.made_up import write as write_made_up
from fedtopics import Columns, Corpus, Study, __version__, metrics, train
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.model.nearness import measured_nearness
from fedtopics.text.embeddings import PACKAGED, EmbeddingSettings, document_embeddings
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import VocabularyLimits, agree, count_words, tokens
from fedtopics.text.words import RULES

OURS = ("zeroshottm", "combinedtm", "prodlda", "lda", "nmf", "mixture")
PEERS = (
    "tomotopy",
    "topica-lda",
    "topica-nmf",
    "sklearn-nmf",
    "keynmf",
    "senstopic",
    "bertopic-merged",
    "bertopic-merged-even",
    "fastopic",
    "topmost-prodlda",
    "ctm-combined",
    "ctm-zeroshot",
)
CLUSTERED = ("nmf", "mixture", "one clustering", "consensus")
CLUSTERED_BY_PEERS = ("keynmf", "bertopic", "top2vec")
CLIENTS = ("pooled", "node", "even")
FEDERATED = (("m10", 20), ("news_outlets", 20), ("20ng", 20), ("20ng", 50))
# Pooled, with as many topics as there are labels.
LABELLED = (
    ("agnews", 4),
    ("stackoverflow", 20),
    ("biomedical", 20),
    ("m10", 10),
    ("s2_tiny", 5),
    ("20ng", 20),
)
NAMES = tuple(dict.fromkeys((*OURS, *CLUSTERED, *PEERS, *CLUSTERED_BY_PEERS)))
METHODS: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in ("lda", "nmf", "mixture")},
    "one clustering": {"name": "discriminative", "preset": "single"},
    "consensus": {"name": "discriminative"},
}
ORDERLESS = {"20ng"}  # bags of words: words of a document occur together, not of a window
COLUMNS = ("npmi", "npmi_by_probability", "c_v", "top10", "top25", "nmi", "acc", "nearness")
SHOWN = 10  # words
MOST = 25  # words in a long list
EVEN = 5  # clients of the even split
INTRODUCTION = """\
Quality on real text: mean and deviation over seeds. Our topics are read as the model chooses: by \
NPMI on the clients' own documents, which are the documents scored here, among readings with nine \
of ten words different; "by probability" is NPMI without that choice. BERTopic's merged topics \
are reduced to the number of topics on the pooled documents, which favours it, and may be shorter \
than 25 words. NPMI and c_v of the ten words shown (20ng: by document, its word order is lost; \
others: windows of 10 and 110 words); top10, top25: share of different words; NMI of each \
document's main topic with its label (outliers count as one topic); ACC: share of documents whose \
topic is that of their label, with one topic for each label. Nearness: by how much documents are \
nearer to a topic's centre if they have the topic, by MiniLM, on which all except LDA, NMF and \
ProdLDA are trained, which favours them; it has not been shown to rank models, and other programs \
give no shares. Seconds of training (without embeddings) and peak memory are those of the runs, \
with the threads named, and texts became words by the version of the rules (m10 and 20ng have the \
same words by 1 and 2, and NMF the same scores). Command: `make bench NAME=quality DATA=folder`."""
HEADER = """\
| model | documents | seeds | NPMI | by probability | c_v | top10 | top25 | NMI | ACC | nearness | \
s | MB | threads | rules |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | \
---: | ---: | ---: | ---: |"""


@dataclass(frozen=True)
class Job:
    """One run."""

    data: str
    topics: int
    name: str
    clients: str
    seed: int


def jobs(seeds: int) -> list[Job]:
    """List the runs, a seed after the other, so that the table fills evenly."""
    listed = []
    for seed in range(seeds):
        for data, topics in FEDERATED:
            listed += [
                Job(data, topics, name, clients, seed) for name in OURS for clients in CLIENTS
            ]
            listed += [Job(data, topics, name, "peer", seed) for name in PEERS]
        for data, topics in LABELLED:
            listed += [Job(data, topics, name, "pooled", seed) for name in CLUSTERED]
            listed += [Job(data, topics, name, "peer", seed) for name in CLUSTERED_BY_PEERS]
    return list(dict.fromkeys(listed))


def prepare(data: Path, work: Path, name: str) -> tuple[Path, Path]:
    """Write the documents and the vocabulary that all contestants get."""
    documents = work / f"{name}-{RULES}.parquet"
    words = work / f"{name}-{RULES}.json"
    if not documents.exists():
        work.mkdir(exist_ok=True)
        table = pq.read_table(common.parquet(data, name))
        tokenised = "tokens" if "tokens" in table.column_names else None
        # Embeddings in the file are of another model.
        embedding_columns = [name for name in table.column_names if name == "embedding"]
        corpus = Corpus.of(
            table.drop_columns(embedding_columns),
            Columns(text="text", tokens=tokenised, label="label"),
        )
        rules = TextRules()
        rarest = 1 if tokenised else 5  # tokenised sets were pruned by those who made them
        named, counts = count_words(corpus, rules).named(rarest)
        counted = np.column_stack([counts[:, :2], np.tile([1, 0], (len(named), 1))])
        limits = VocabularyLimits(max_document_share=1 if tokenised else 0.5)
        vocabulary = agree(named, counted, len(corpus), limits, n_clients=1)
        split = [
            [word for word in document if word in vocabulary.index]
            for batch in tokens(corpus, rules)
            for document in batch
        ]
        vectors = document_embeddings(corpus, EmbeddingSettings())
        flat = pa.array(vectors.reshape(-1))
        node = "node" if "node" in table.column_names else "label"
        content = {
            "tokens": pa.array(split, pa.list_(pa.string())),
            "embedding": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
            "label": table["label"].cast(pa.string()),
            "node": table[node].cast(pa.string()),
        }
        words.write_text(json.dumps(list(vocabulary.words)))
        pq.write_table(pa.table(content), documents)
    return documents, words


def corpus_of(table: pa.Table) -> Corpus:
    """Return the prepared documents: words and embeddings."""
    vectors = table["embedding"].combine_chunks().flatten().to_numpy()
    return Corpus.of(table["tokens"]).with_embeddings(vectors.reshape(len(table), -1))


def spread_over(corpus: Corpus, nodes: list[str], clients: str, seed: int) -> dict[str, Corpus]:
    """Spread the documents over clients: by node, evenly, or not at all."""
    if clients == "pooled":
        return {"all": corpus}
    if clients == "even":
        owner = np.random.default_rng(seed).permutation(len(corpus)) % EVEN
    else:
        owner = np.unique(nodes, return_inverse=True)[1]
    return {f"client{i}": corpus.take(np.flatnonzero(owner == i)) for i in range(owner.max() + 1)}


def ours(
    name: str, documents: str, topics: int, seed: int, clients: str, within: str, rounds: int | None
) -> dict[str, Any]:
    """Train one of our models; return topics, assignments, seconds and memory."""
    table = pq.read_table(documents)
    corpus = corpus_of(table)
    parts = spread_over(corpus, table["node"].to_pylist(), clients, seed)
    method = {"n_components": topics, "coherence": within}
    method |= METHODS.get(name, {"name": "gfedntm", "network": name})
    method |= {} if rounds is None else {"max_rounds": rounds}
    limits = {"min_persons_per_word": 1, "max_words": 100_000, "max_document_share": 1}
    study = Study.make(seed=seed, method=method, vocabulary=limits)
    start = time.perf_counter()
    model = train(study, parts, policies=dict.fromkeys(parts, OPEN_POLICY))
    seconds = time.perf_counter() - start
    _, theta, seen = model.read(corpus)
    vectors = np.asarray(corpus.embeddings)
    rows = np.flatnonzero(seen & vectors.any(1))
    near = measured_nearness(theta[rows], vectors[rows], rows, PACKAGED)
    return {
        "versions": {"fedtopics": __version__},
        "topics": model.topics(MOST),
        "assigned": theta.argmax(1).tolist(),
        **({"nearness": near["mean"]} if near else {}),
        "seconds": seconds,
        "rounds": model.info["rounds"],
        "peak_mb": common.memory_mb(),
        "threads": int(os.environ["OMP_NUM_THREADS"]),
        "reading": [model.word_ranking.relevance, model.word_ranking.by_sums],
        "by_probability": model.topics(MOST, relevance=1.0),
    }


def run(job: Job, data: Path, work: Path, python: str, rounds: int | None) -> dict[str, Any]:
    """Run a contestant and score what it found; say what went wrong where it does."""
    documents, words = prepare(data, work, job.data)
    within = "documents" if job.data in ORDERLESS else "windows"
    threads = int(os.environ["OMP_NUM_THREADS"])
    try:
        if job.clients == "peer":
            name = job.name.removesuffix("-even")
            dealt = evenly(documents, job.seed) if job.name != name else documents
            given: tuple[Any, ...] = name, str(dealt), str(words), job.topics, job.seed
            result = common.apart(peers.trained, *given, python=python, threads=threads)
        else:
            given = job.name, str(documents), job.topics, job.seed, job.clients, within, rounds
            result = ours(*given) if rounds else common.apart(ours, *given, threads=threads)
    except SystemExit as error:
        result = {"failed": str(error)}
    if "failed" in result:
        return {"failed": result["failed"]}
    copied = ("versions", "seconds", "peak_mb", "threads", "rounds", "reading", "notes", "nearness")
    row: dict[str, Any] = {key: result[key] for key in copied if key in result}
    return score(result, documents, within) | row


def evenly(documents: Path, seed: int) -> Path:
    """Write the documents with clients drawn evenly."""
    table = pq.read_table(documents)
    owner = np.random.default_rng(seed).permutation(len(table)) % EVEN
    path = documents.with_suffix(".even.parquet")
    nodes = pa.array([f"client{i}" for i in owner])
    pq.write_table(table.set_column(table.column_names.index("node"), "node", nodes), path)
    return path


def score(result: dict[str, Any], documents: Path, within: str) -> dict[str, float]:
    """Score topics on the documents, and the documents' topics on their labels."""
    table = pq.read_table(documents, columns=["tokens", "label"])
    split = table["tokens"].to_pylist()
    shown = [topic[:SHOWN] for topic in result["topics"]]
    window: Any = "usual" if within == "windows" else None
    scores = {
        measure: float(np.nanmean(metrics.coherence_of(shown, split, measure, window)))
        for measure in ("npmi", "c_v")
    }
    if "by_probability" in result:
        plain = [topic[:SHOWN] for topic in result["by_probability"]]
        scores["npmi_by_probability"] = float(
            metrics.coherence_of(plain, split, "npmi", window).mean()
        )
        scores["top10_by_probability"] = metrics.unique_words(plain, SHOWN)
    assigned = np.array(result["assigned"])
    labels = table["label"].to_pylist()
    if len(set(labels)) == len(result["topics"]):
        scores["acc"] = metrics.clustering_accuracy(labels, assigned)
    return scores | {
        "top10": metrics.unique_words(shown, SHOWN),
        "top25": metrics.unique_words(result["topics"], MOST),
        "nmi": metrics.normalised_mutual_information(labels, assigned),
        "outliers": float((assigned < 0).mean()),
    }


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the tables, a data set after the other: a line a contestant, ours first."""
    order = [(name, clients) for name in NAMES for clients in (*CLIENTS, "peer")]
    yield INTRODUCTION
    for data, topics in dict.fromkeys((*FEDERATED, *LABELLED)):
        chosen = [r for r in rows if (r["data"], r["topics"]) == (data, topics)]
        if chosen:
            yield f"\n**{data}, {topics} topics**\n\n{HEADER}"
        groups = dict(common.each_group(chosen, "name", "clients"))
        for name, clients in filter(groups.__contains__, order):
            cells = " | ".join(cells_of(groups[name, clients]))
            yield f"| {name} | {place(name, clients)} | {cells} |"


def cells_of(rows: list[dict[str, Any]]) -> list[str]:
    """Return the scores of a contestant, or why it has none."""
    good = [r for r in rows if "failed" not in r]
    if not good:
        why = rows[0]["failed"]
        return ["does not install" if why == "ImportError" else f"failed: {why}"]
    scores = [spread([r[column] for r in good if column in r]) for column in COLUMNS]
    middle = [f"{np.mean([r[c] for r in good]):,.0f}" for c in ("seconds", "peak_mb")]
    threads = "/".join(sorted({str(r["threads"]) for r in good}))
    return [str(len(good)), *scores, *middle, threads, common.rules_of(good)]


def place(name: str, clients: str) -> str:
    if clients != "peer":
        return {"node": "at their nodes", "even": "spread evenly"}.get(clients, clients)
    if not name.startswith("bertopic-"):
        return "pooled"
    return "spread evenly" if name.endswith("even") else "at their nodes"


def spread(values: list[float]) -> str:
    """Return mean and deviation; one seed has no deviation, and peers have one reading."""
    if not values:
        return "-"
    deviation = f" ± {np.std(values):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{deviation}".replace("0.", ".")


def main() -> None:
    sets = dict.fromkeys(data for data, _ in (*FEDERATED, *LABELLED))
    files = ", ".join(f"{data}.parquet" for data in sets)
    given = common.arguments(__doc__, files, peers=True, sets=sets, names=NAMES, seeds=3)
    data = given.data
    work = common.WORK
    rounds = None
    todo = [job for job in jobs(given.seeds) if job.name in given.names and job.data in given.sets]
    if given.quick:
        data = write_made_up(given.folder, ("m10",), 60)
        work = given.folder / "work"
        rounds = 2
        todo = [Job("m10", 20, name, "node", 0) for name in ("lda", "zeroshottm")]
    todo = [job for job in todo if given.peers or job.clients != "peer"]
    rows = common.measured(given, todo, lambda job: run(job, data, work, given.peers, rounds))
    common.write(given, tables(common.kept_rows(given)))
    if given.quick and any("failed" in row for row in rows):
        raise SystemExit("A contestant failed.")
