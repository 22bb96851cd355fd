"""Coherence, diversity and agreement with labels: our models beside what people use today.

Every contestant gets the same words and the same embeddings of the same documents; every one runs
in a process of its own, those of other libraries in the peers' environment. A run that is in
``results/quality.jsonl`` is not run again, so the benchmark can be done in pieces.

    python benchmarks/quality.py --data DIR --peers .venv-peers/bin/python [--sets m10] [--seeds 3]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedtopics.metrics import coherence_of, normalised_mutual_information, unique_words
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings
from fedtopics.text.rules import TextRules
from fedtopics.text.tables import Columns
from fedtopics.text.vocabulary import VocabularyLimits, agree, count_words, tokens
from quick import HERE, made_up_clients, parser_of, results_of

WORK = HERE.parent / ".bench"  # prepared documents: they are not ours to keep in the repository
SETTINGS = (("m10", 20), ("news_outlets", 20), ("20ng", 20), ("20ng", 50))
OURS = ("zeroshottm", "combinedtm", "prodlda", "lda", "nmf", "mixture")
CLIENTS = ("pooled", "node", "even")
PEERS = (
    "tomotopy", "topica-lda", "topica-nmf", "sklearn-nmf", "keynmf", "senstopic",
    "bertopic-merged", "bertopic-merged-even", "fastopic", "topmost-prodlda", "ctm-combined",
    "ctm-zeroshot",
)  # fmt: skip
ORDERLESS = {"20ng"}  # bags of words: words of a document occur together, not of a window
COLUMNS = ("npmi", "npmi_by_probability", "c_v", "top10", "top25", "nmi")
SHOWN = 10
LIMIT = 7200  # seconds for one run
WHY = {
    "TimeoutExpired": f"no result within {LIMIT // 60} minutes",
    "ImportError": "does not install",
}
INTRODUCTION = """\
Quality on real text: mean and deviation over seeds. Our topics are read as the model chooses: by \
NPMI on the clients' own documents, which are the documents scored here, among readings with nine \
of ten words different; "by probability" is NPMI without that choice. BERTopic's merged topics are \
reduced to the number of topics on the pooled documents, which favours it, and may be shorter than \
25 words. NPMI and c_v of the ten words shown (20ng: by document, its word order is lost; others: \
windows of 10 and 110 words); top10, top25: share of different words; NMI of each document's main \
topic with its label (outliers count as one topic). Seconds of training (without embeddings) and \
peak memory are those of the runs, with the threads named. Command: \
`make bench-quality DATA=folder`."""
HEADER = """\
| model | documents | seeds | NPMI | by probability | c_v | top10 | top25 | NMI | s | MB | threads |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


@dataclass(frozen=True)
class Place:
    """Where documents are, where prepared ones go, and who runs."""

    data: Path
    work: Path = WORK
    peers: str = ""  # Python of their environment
    rounds: int | None = None  # of our models, if not their own number


@dataclass(frozen=True)
class Job:
    """One run."""

    data: str
    topics: int
    name: str
    clients: str
    seed: int


def jobs(sets: list[str], seeds: int) -> Iterator[Job]:
    """List the runs, a seed after the other, so that the table fills evenly."""
    for seed in range(seeds):
        for data, topics in SETTINGS:
            if data not in sets:
                continue
            for name in OURS:
                yield from (Job(data, topics, name, clients, seed) for clients in CLIENTS)
            for name in PEERS:
                yield Job(data, topics, name, "peer", seed)


def prepare(place: Place, name: str) -> tuple[Path, Path]:
    """Write the documents and the vocabulary that all contestants get."""
    documents, words = place.work / f"{name}.parquet", place.work / f"{name}.json"
    if not documents.exists():
        place.work.mkdir(exist_ok=True)
        table = pq.read_table(place.data / f"{name}.parquet")
        tokenised = "tokens" in table.column_names
        columns = Columns(text="text", tokens="tokens" if tokenised else None, label="label")
        corpus = Corpus.of(table, columns)
        rules = TextRules()
        rarest = 1 if tokenised else 5  # tokenised sets were pruned by those who made them
        named, counts = count_words(corpus, rules).named(rarest)
        counted = np.column_stack([counts, np.tile([1, 0], (len(named), 1))])
        limits = VocabularyLimits(max_document_share=1 if tokenised else 0.5)
        vocabulary = agree(named, counted, len(corpus), limits)
        split = [
            [word for word in document if word in vocabulary.index]
            for batch in tokens(corpus, rules)
            for document in batch
        ]
        vectors = document_embeddings(corpus, EmbeddingSettings(), on_progress=progress)
        flat = pa.array(vectors.reshape(-1))
        content = {
            "tokens": pa.array(split, pa.list_(pa.string())),
            "embedding": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
            "label": table["label"].cast(pa.string()),
            "node": table["node"].cast(pa.string()),
        }
        words.write_text(json.dumps(list(vocabulary.words)))
        pq.write_table(pa.table(content), documents)
    return documents, words


def progress(done: int, total: int) -> None:
    sys.stderr.write(f"embedded {done:,} of {total:,} documents\n")


def run(job: Job, place: Place) -> dict[str, Any]:
    """Run a contestant and score what it found; say what went wrong where it does."""
    documents, words = prepare(place, job.data)
    out = place.work / f"result-{os.getpid()}.json"  # two may run side by side
    out.unlink(missing_ok=True)
    within = "documents" if job.data in ORDERLESS else "windows"
    if job.clients == "peer":
        name, even = job.name.removesuffix("-even"), job.name.endswith("-even")
        program = [place.peers, str(HERE / "peers.py"), name]
        documents = evenly(documents, job.seed) if even else documents
        extra = []
    else:
        program = [sys.executable, str(HERE / "ours.py"), job.name]
        extra = ["--clients", job.clients, "--within", within]
        extra += [] if place.rounds is None else ["--rounds", str(place.rounds)]
    numbers = ["--topics", str(job.topics), "--seed", str(job.seed), "--out", str(out)]
    threads = os.environ.get("OMP_NUM_THREADS", "2")
    try:
        subprocess.run(
            [*program, str(documents), str(words), *numbers, *extra],
            check=True,
            timeout=LIMIT,
            env=os.environ | {"OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1"},
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        missing = getattr(error, "returncode", None) == os.EX_UNAVAILABLE  # so says peers.py
        return asdict(job) | {"failed": "ImportError" if missing else type(error).__name__}
    result = json.loads(out.read_text())
    kept = ("versions", "seconds", "peak_mb", "threads", "rounds", "reading", "notes")
    return (
        asdict(job)
        | score(result, documents, within)
        | {key: result[key] for key in kept if key in result}
    )


def evenly(documents: Path, seed: int) -> Path:
    """Write the documents with clients drawn evenly."""
    table = pq.read_table(documents)
    owner = np.random.default_rng(seed).permutation(len(table)) % 5
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
        measure: float(np.nanmean(coherence_of(shown, split, measure, window)))
        for measure in ("npmi", "c_v")
    }
    if "by_probability" in result:
        plain = [topic[:SHOWN] for topic in result["by_probability"]]
        scores["npmi_by_probability"] = float(coherence_of(plain, split, "npmi", window).mean())
        scores["top10_by_probability"] = unique_words(plain, SHOWN)
    assigned = np.array(result["assigned"])
    return scores | {
        "top10": unique_words(shown, SHOWN),
        "top25": unique_words(result["topics"], 25),
        "nmi": normalised_mutual_information(table["label"].to_pylist(), assigned),
        "outliers": float((assigned < 0).mean()),
    }


def known(results: Path) -> list[dict[str, Any]]:
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines()]


def is_done(job: Job, results: Path) -> bool:
    """Look again each time: another process may have finished it in the meantime."""
    return any(asdict(job).items() <= row.items() for row in known(results))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the tables, a data set after the other: mean and deviation over seeds."""
    lines = [INTRODUCTION]
    for data, topics in SETTINGS:
        chosen = [r for r in rows if (r["data"], r["topics"]) == (data, topics)]
        if chosen:
            lines += ["", f"**{data}, {topics} topics**", "", HEADER, *lines_of(chosen)]
    return "\n".join(lines) + "\n"


def lines_of(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Return a line a contestant: ours first, then the peers."""
    ours = [(name, clients) for name in OURS for clients in CLIENTS]
    for name, clients in [*ours, *((name, "peer") for name in PEERS)]:
        these = [r for r in rows if (r["name"], r["clients"]) == (name, clients)]
        if these:
            yield f"| {name} | {place(name, clients)} | {' | '.join(cells(these))} |"


def cells(rows: list[dict[str, Any]]) -> list[str]:
    """Return the scores of a contestant, or why it has none."""
    good = [r for r in rows if "failed" not in r]
    if not good:
        why = rows[0]["failed"]
        return [WHY.get(why, f"failed: {why}")]
    scores = [spread([r[column] for r in good if column in r]) for column in COLUMNS]
    middle = [f"{np.mean([r[c] for r in good]):,.0f}" for c in ("seconds", "peak_mb")]
    threads = "/".join(sorted({str(r["threads"]) for r in good}))
    return [str(len(good)), *scores, *middle, threads]


def place(name: str, clients: str) -> str:
    if clients != "peer":
        return {"node": "at their nodes", "even": "spread evenly"}.get(clients, clients)
    if not name.startswith("bertopic"):
        return "pooled"
    return "spread evenly" if name.endswith("even") else "at their nodes"


def spread(values: list[float]) -> str:
    """Return mean and deviation; one seed has no deviation, and peers have one reading."""
    if not values:
        return "-"
    deviation = f" ± {np.std(values):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{deviation}".replace("0.", ".")


def made_up(folder: Path) -> Path:
    """Write documents that look like m10's; return their folder."""
    clients = made_up_clients(n_documents=12)
    tokens = [text for corpus in clients.values() for text in corpus.documents.to_pylist()]
    names = [name for name, corpus in clients.items() for _ in range(len(corpus))]
    texts = [" ".join(words) for words in tokens]
    content = {"text": texts, "tokens": tokens, "label": names, "node": names}
    pq.write_table(pa.table(content), folder / "m10.parquet")
    return folder


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder of the Parquet files")
    parser.add_argument("--peers", default="", help="Python of the peers' environment")
    parser.add_argument("--sets", nargs="+", default=[data for data, _ in SETTINGS])
    parser.add_argument("--names", nargs="+", default=[*OURS, *PEERS])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    folder = results_of("quality", arguments.quick)
    if arguments.quick:
        place = Place(made_up(folder), folder / "work", rounds=2)
        todo = [Job("m10", 20, name, "node", 0) for name in ("lda", "zeroshottm")]
    elif arguments.data is None:
        parser.error("say where the Parquet files are: --data FOLDER; or --quick")
    else:
        place = Place(arguments.data, peers=arguments.peers)
        todo = list(jobs(arguments.sets, arguments.seeds))
    results = folder / "quality.jsonl"
    for job in todo:
        skip = job.name not in arguments.names or (job.clients == "peer" and not arguments.peers)
        if skip or is_done(job, results):
            continue
        row = run(job, place)
        if arguments.quick and "failed" in row:
            sys.exit(f"{job.name} failed: {row['failed']}")
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        sys.stderr.write(json.dumps({k: row.get(k) for k in ("data", "topics", "name", "clients",
            "seed", "npmi", "c_v", "top10", "nmi", "seconds", "failed")}) + "\n")  # fmt: skip
    text = table(known(results))
    (folder / "quality.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
