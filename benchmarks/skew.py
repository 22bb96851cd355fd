"""What clients that write about different things do to each way of normalising.

The documentation of five Python packages, and a synthetic corpus in which each client has topics
of its own. Purity and mutual information are those of main topics with the client they come from.
"""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.common import arguments, grid, kept_rows, measured, table
from fedtopics import Corpus, Study, TopicModel, train
from fedtopics.datasets import package_documentation
from fedtopics.metrics import normalised_mutual_information, purity, topic_similarity

SETS = ("packages", "synthetic")
SCENARIOS = ("centralised", "sync", "server", "local")
N_TOPICS = 20
N_CLIENTS = 5
SCORES = ("purity", "nmi", "tss")
Scores = dict[str, float]


def private_topics(
    seed: int, n_words: int = 2000, documents: int = 2000
) -> tuple[dict[str, Corpus], NDArray[np.float64]]:
    """Draw LDA documents: every client has four of the twenty topics to itself."""
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(n_words, 0.01), N_TOPICS)
    words = pa.array([f"w{i}" for i in range(n_words)], pa.large_string())
    n_private = N_TOPICS // N_CLIENTS
    corpora = {}
    for client in range(N_CLIENTS):
        theta = rng.dirichlet(np.full(n_private, 0.1), documents)
        mixed = theta @ beta[client * n_private : (client + 1) * n_private]
        lengths = rng.integers(50, 151, documents)
        counts = rng.multinomial(lengths, mixed / mixed.sum(1, keepdims=True))
        row, column = counts.nonzero()
        flat = np.repeat(column, counts[row, column])
        ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]))
        tokens = pa.LargeListArray.from_arrays(ends, words.take(pa.array(flat)))
        corpora[f"client{client}"] = Corpus.of(pa.chunked_array([tokens]))
    return corpora, beta


def fitted(scenario: str, corpora: Mapping[str, Corpus], seed: int, rounds: int) -> TopicModel:
    """Train on the pooled documents, or federated with one of the normalisations."""
    federated = scenario != "centralised"
    method = {
        "name": "gfedntm",
        "n_components": N_TOPICS,
        "norm": scenario if federated else "sync",
        "batch_size": 320,
        "learning_rate": 0.005,
        "max_rounds": rounds,
        # These two are stated so that the table outlives the defaults.
        "dropout_theta": 0.2,
        "encoder_input": "counts",
    }
    clients = corpora if federated else {"all": Corpus.pool(corpora.values())}
    return train(Study.make(method=method, seed=seed), clients)


def scores(
    model: TopicModel, corpora: Mapping[str, Corpus], beta: NDArray[np.float64] | None
) -> Scores:
    main = np.concatenate([model.transform(corpus).argmax(1) for corpus in corpora.values()])
    labels = np.repeat(np.arange(len(corpora)), [len(corpus) for corpus in corpora.values()])
    scores = {"purity": purity(labels, main), "nmi": normalised_mutual_information(labels, main)}
    if beta is not None:
        columns = [int(word[1:]) for word in model.vocabulary.words]
        scores["tss"] = topic_similarity(beta[:, columns], model.beta)
    return scores


def lines(rows: list[dict[str, Any]], names: list[str]) -> Iterator[list[str]]:
    """Yield mean and standard deviation over seeds, a line for each way."""
    for scenario in SCENARIOS:
        cells = [scenario]
        for name in names:
            values = [row[name] for row in rows if row["scenario"] == scenario]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.3f} ± {spread:.3f}")
        yield cells


def main() -> None:
    given = arguments(__doc__, seeds=3)
    sets, seeds = (SETS[1:], 1) if given.quick else (SETS, given.seeds)

    def measure(task: dict[str, Any]) -> Scores:
        seed, data, scenario = task.values()
        if data == "packages":
            corpora = package_documentation(N_CLIENTS)
            beta = None
            rounds = 1000
        else:
            corpora, beta = private_topics(seed, *((300, 40) if given.quick else ()))
            rounds = 2 if given.quick else 600
        return scores(fitted(scenario, corpora, seed, rounds), corpora, beta)

    measured(given, grid(seed=range(seeds), data=sets, scenario=SCENARIOS), measure)
    for data in sets:
        rows = [row for row in kept_rows(given) if row["data"] == data]
        names = [name for name in SCORES if name in rows[0]]
        print("\n".join(table(f"{data} | {' | '.join(names)}", lines(rows, names))), end="\n\n")
