"""What benchmarks share: options, rows that are not measured again, tables, processes, documents.

Peers' environments import this module as well; they have no fedtopics and no pyarrow.
"""

import argparse
import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from scipy import sparse

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
QUICK = ROOT / "build" / "quick"
WORK = ROOT / ".bench"  # prepared documents: they are not ours to keep in the repository
Row = dict[str, Any]


def arguments(
    doc: str | None, data: str = "", optional: bool = False, peers: bool = False, **more: Any
) -> argparse.Namespace:
    """Read the options of a benchmark; ``folder`` is where its results go.

    `doc` is the module's docstring, whose first line is the help; `data` are names of files that it
    reads, `optional` if it has synthetic documents instead; `peers` are other libraries. `more` are
    options with defaults: a number, a string, a path or None, or names of which some can be chosen.
    """
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="see that it runs; results are lost")
    if data:
        parser.add_argument("--data", type=Path, help=f"folder of {data}")
    if peers:
        python = ROOT / ".venv-peers/bin/python"
        default_python = str(python) if python.exists() else None
        parser.add_argument(
            "--peers", default=default_python, help="Python of the peers' environment"
        )
    for name, default in more.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        elif isinstance(default, (list, tuple, dict)):
            kind = type(next(iter(default)))
            chosen = {"choices": list(default)} if kind is str else {"type": kind}
            parser.add_argument(option, nargs="+", default=list(default), **chosen)
        else:
            kind = Path if default is None else type(default)
            parser.add_argument(option, type=kind, default=default)
    given = parser.parse_args()
    given.name = sys.argv[0].split()[-1].replace("-", "_")
    if data and not optional and not given.quick and given.data is None:
        parser.error(f"say with --data which folder has {data}; --quick needs no file")
    given.folder = QUICK / given.name if given.quick else RESULTS
    if given.quick:
        shutil.rmtree(given.folder, ignore_errors=True)
        given.folder.mkdir(parents=True)
    return given


def parquet(data: Path, name: str) -> Path:
    """Return a data set's file, in the folder or in those of corpora and short texts below it."""
    for folder in (data, data / "corpora", data / "short_text"):
        if (folder / f"{name}.parquet").exists():
            return folder / f"{name}.parquet"
    raise SystemExit(f"There is no {name}.parquet in {data}; name its folder with --data.")


# Rows and tables.


def key_of(task: Any) -> Row:
    """Return what the row of a task is found by."""
    if isinstance(task, Mapping):
        named = dict(task)
    else:
        named = asdict(task) if is_dataclass(task) else task._asdict()  # type: ignore[arg-type]
    key: Row = json.loads(json.dumps(named))
    return key


def measured(
    given: argparse.Namespace, tasks: Iterable[Any], measure: Callable[[Any], Row]
) -> list[Row]:
    """Measure the tasks that have no row yet; return the rows of all of them."""
    from fedtopics.files import RowFile
    from fedtopics.text.words import RULES

    row_file = RowFile(given.folder / f"{given.name}.jsonl")
    every = list(tasks)

    def title(task: Any) -> str:
        return ", ".join(map(str, key_of(task).values()))

    def tell(event: Row) -> None:
        if event["name"]:
            print(f"{event['done'] + 1} of {event['models']}: {event['name']}", flush=True)

    row_file.fill(every, key_of, lambda task: {"rules": RULES} | measure(task), title, tell)
    return [row for task in every if (row := row_file.find(key_of(task)))]


def kept_rows(given: argparse.Namespace) -> list[Row]:
    """Return all rows of a benchmark, those of earlier options too."""
    path = given.folder / f"{given.name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def rules_of(rows: Iterable[Row]) -> str:
    """Return by which version of the rules texts became words; the first one had no number."""
    return "/".join(sorted({str(row.get("rules", 1)) for row in rows}))


def table(head: str, rows: Iterable[Sequence[object]], left: int = 1) -> list[str]:
    """Return a table in Markdown; `head` has its columns, the first ones aligned to the left."""
    names = [name.strip() for name in head.split("|")]
    marks = ["---"] * left + ["---:"] * (len(names) - left)
    return [f"| {' | '.join(map(str, cells))} |" for cells in (names, marks, *rows)]


def write(given: argparse.Namespace, lines: Iterable[str], name: str = "") -> None:
    """Keep a page of results and print it; of texts, with the version of the rules of words."""
    text = "\n".join(lines).rstrip() + "\n"
    if getattr(given, "data", None) is not None:
        from fedtopics.text.words import RULES

        row_path = given.folder / f"{given.name}.jsonl"
        rules = rules_of(kept_rows(given) if row_path.exists() else [{"rules": RULES}])
        text += f"\nTexts became words by version {rules} of the rules.\n"
    (given.folder / f"{name or given.name}.md").write_text(text, "utf-8")
    sys.stdout.write(text)


def mean_and_range(values: Sequence[float], digits: int = 3) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    between = f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return mean + between * (len(values) > 1)


def versions(*packages: str) -> dict[str, str]:
    return {name: version(name) for name in packages} | {"Python": platform.python_version()}


def memory_mb(process: int | str = "self", kind: str = "VmHWM") -> float:
    """Return what the system says of a process's memory; by default the most it has had."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    return int(status.split(f"{kind}:")[1].split()[0]) / 1024


# Processes.

# What the process imports that quick runs, and the processes of some, are forked from.
IMPORTED = ["fedtopics.cli.run_commands", "fedtopics.federation.serve", "fedtopics.federation.join"]
IMPORTED += ["fedtopics.cli.federation", "fedtopics.federation.simulation", "torch"]


def forked(folder: Path, log: Path, words: Sequence[str], also: Sequence[str] = ()) -> Any:
    """Do what words after ``python`` say in a process, adding all that it prints to a file."""
    context = get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED, *also])
    process: Any = context.Process(target=_do, args=(folder, log, words))
    process.start()
    process.poll = lambda: process.exitcode
    process.wait = lambda: process.join() or process.exitcode
    return process


def _do(folder: Path, log: Path, words: Sequence[str]) -> None:
    with log.open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(folder)
    _, module, *sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class Worker:
    """A function of a benchmark's module in a process of its own.

    What it returns, or each thing that it yields, comes back as JSON. It may read lines from stdin.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *given: Any,
        python: str = sys.executable,
        threads: int = 1,
        prefix: Sequence[str] = (),
        **environment: str,
    ) -> None:
        module = function.__module__.removeprefix("benchmarks.")
        command = [*prefix, python, "-m", "benchmarks.worker", module, function.__name__]
        variables = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"} | environment
        self.process = subprocess.Popen(
            [*command, json.dumps(given)],
            cwd=ROOT,
            env=os.environ | variables,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, job: Any = None) -> Any:
        stdin = cast("IO[str]", self.process.stdin)
        stdin.write(json.dumps(job) + "\n")
        stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        line = cast("IO[str]", self.process.stdout).readline()
        if not line:
            raise SystemExit(f"A process of this benchmark ended with {self.process.wait()}.")
        return json.loads(line)

    def close(self) -> None:
        cast("IO[str]", self.process.stdin).close()
        if code := self.process.wait():
            raise SystemExit(f"A process of this benchmark ended with {code}.")


def apart(function: Callable[..., Any], *given: Any, **how: Any) -> Any:
    """Call a function in a process of its own; `how` is of `Worker`."""
    worker = Worker(function, *given, **how)
    answer = worker.answer()
    worker.close()
    return answer


# Synthetic documents.


def made_up_clients(n_clients: int = 5, n_documents: int = 60) -> dict[str, Any]:
    """Draw so many documents for each client, of a topic of its own and two that all have."""
    from fedtopics.datasets import synthetic_lda

    drawn = synthetic_lda(
        n_clients,
        n_words=300,
        n_topics=n_clients + 2,
        shared_topics=2,
        n_documents=n_documents,
        n_validation=1,
        lengths=(20, 40),
        eta=0.05,
    )
    return {name: documents.corpus() for name, documents in drawn.training.items()}


def bag_of_words(n_documents: int, n_words: int, seed: int = 0) -> sparse.csr_array:
    """Draw float32 counts of 100 words a row; every word of a Zipf-like vocabulary occurs."""
    rng = np.random.default_rng(seed)
    length = 100
    cumulative = np.cumsum(1 / (np.arange(1, n_words + 1) + 10.0))
    words = np.searchsorted(cumulative, rng.random((n_documents, length)) * cumulative[-1])
    every = np.arange(n_words)
    rows = np.concatenate([np.repeat(np.arange(n_documents), length), every % n_documents])
    columns = np.concatenate([words.ravel(), every])
    ones = np.ones(len(rows), np.float32)
    bag = sparse.csr_array(sparse.coo_array((ones, (rows, columns)), (n_documents, n_words)))
    bag.sum_duplicates()
    return bag


def tokenised(bag: sparse.csr_array) -> Any:
    """Turn a bag of words into documents of tokens w0, w1, ..., without a Python string."""
    import pyarrow as pa

    bag.sort_indices()
    names = pa.array([f"w{i}" for i in range(bag.shape[1])], pa.large_string())
    ends = np.concatenate([[0], np.cumsum(bag.sum(1))]).astype(np.int64)
    words = names.take(pa.array(np.repeat(bag.indices, bag.data.astype(int))))
    return pa.chunked_array([pa.LargeListArray.from_arrays(pa.array(ends), words)])


def embedded(n_documents: int, dimension: int = 384, seed: int = 0) -> Any:
    """Draw embeddings of unit length, float32 of shape (n_documents, dimension)."""
    vectors = np.random.default_rng(seed).standard_normal((n_documents, dimension), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# Clients in this process.


def grid(**values: Iterable[Any]) -> list[Row]:
    """Return a task for each combination of values; those of the last name change fastest."""
    return [
        dict(zip(values, combination, strict=True)) for combination in product(*values.values())
    ]


def doors_of(study: Any, clients: Mapping[str, Any], policy: Any) -> dict[str, Any]:
    """Return the doors of a study's clients, by name."""
    from fedtopics.federation.door import Door
    from fedtopics.federation.ledger import Ledger
    from fedtopics.federation.program import client_of
    from fedtopics.methods.core.plan import ClientContext, Secret

    doors = {}
    for name, corpus in clients.items():
        site = ClientContext(name, corpus, policy, secret=Secret.from_seed(study.seed, name))
        ledger = Ledger(study.method.method_name, study.fingerprint)
        doors[name] = Door(name, client_of(study, site), policy, ledger)
    return doors


def topic_scores(shown: list[list[str]], words: Any, window: Any = None) -> dict[str, float]:
    """Score the words that are shown of topics: NPMI on documents, share of different words."""
    from fedtopics.metrics import coherence_of, unique_words

    npmi = coherence_of(shown, words, "npmi", window)
    return {"npmi": float(np.nanmean(npmi)), "different": unique_words(shown, len(shown[0]))}


def each_group(rows: Iterable[Row], *names: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    """Yield rows that have the same values of some names, in the order in which these come."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    yield from groups.items()
