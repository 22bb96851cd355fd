"""Effects of groups on topics' shares: do intervals contain the truth, and is chance no finding?

Shares of five topics are drawn for three clients, so that the effect of a group is known. Then
documents are drawn from shares, and shares are estimated: what does this uncertainty change?
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student

from benchmarks import common
from fedtopics.estimators import LDA, NMF
from fedtopics.inference.variational import infer
from fedtopics.model.effects import Effects, GroupTable, coefficients_of, products, squares
from fedtopics.model.formulas import one_hot

CASES = {  # persons, persons with the group, most documents of each
    "600 persons with a document": (600, 300, 1),
    "600 persons with a document, 20 in the group": (600, 20, 1),
    "150 persons with 1 to 9": (150, 75, 9),
    "150 persons with 1 to 9, 20 in the group": (150, 20, 9),
    "150 persons with 1 to 9, 10 in the group": (150, 10, 9),
}
BLOCK = 50  # studies of a row
TOPICS = 5
CLIENTS = 3
EFFECT = 0.05
OF_PERSONS = 20.0  # how alike a group's persons are: the precision of their Dirichlet distribution
OF_DOCUMENTS = 5.0  # how alike a person's documents are
WORDS = 1_000
DOCUMENTS = 1_000
OF_WORDS = 5  # topics of documents of words
DRAWS = 25
SHIFT = 0.1  # of two topics, by the group of documents of words
HOW = ("true shares", "known topics", "known topics, composition", "LDA", "NMF")
INTRODUCTION = """\
Shares of five topics at three clients. A group has 5 points more of one topic and fewer of \
another; a second column is by chance. Of so many studies: how many 95 % intervals contain the \
true effect, or the true mean of the group's shares, and how many studies have a topic whose \
simultaneous interval of the column by chance excludes zero; mean width. Within clients; errors \
are by person. Seeds are 0, 1 and so on. Command: `make bench NAME=effects`."""
OF_THETA = """\
{documents:,} documents of so many words of five topics: a group has 10 points more of one topic \
and fewer of another. Coverage of 95 % intervals of these two, and of the other three, mean \
estimate in percent of the effect, and mean width, if shares are the true ones, those of the true \
topics (posterior mean), {draws} draws from each document's posterior that are combined \
(composition, as in stm), or those of trained topics."""


def dirichlet(rng: Any, means: Any, precision: float) -> Any:
    """Draw shares from a Dirichlet distribution around each row."""
    shares = np.maximum(rng.standard_gamma(precision * np.maximum(means, 1e-3)), 1e-12)
    return shares / shares.sum(1, keepdims=True)


def summed(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    every = list(parts)
    return {name: np.sum([part[name] for part in every], axis=0) for name in every[0]}


def estimated(parts: list[tuple[Any, Any, Any]], within: bool) -> Effects:
    """Return effects of clients' columns, shares and persons, from their sums."""
    total = summed(products(*part, within) for part in parts)
    coefficients = coefficients_of(total)
    spread = [squares(x, theta, coefficients, owners, within) for x, theta, owners in parts]
    terms = ("group", "chance")
    spread_of_all = np.sum(spread, axis=0)
    return Effects.of("", terms, total, spread_of_all, within, np.ones(2))


def study(seed: int, case: str) -> tuple[int, int, int, float]:
    """Return how many intervals of effects and means hold, whether chance differs, and width."""
    rng = np.random.default_rng(seed)
    n, in_group, most = CASES[case]
    columns = np.array([rng.permutation(np.arange(n) < in_group) for _ in range(2)]).T * 1
    means = np.full((2, TOPICS), 1 / TOPICS)
    means[1, :2] += [EFFECT, -EFFECT]
    owners = np.repeat(np.arange(n), rng.integers(1, most + 1, n))
    theta = dirichlet(rng, dirichlet(rng, means[columns[:, 0]], OF_PERSONS)[owners], OF_DOCUMENTS)
    designs = []
    cells = []
    for client in range(CLIENTS):
        rows = owners % CLIENTS == client
        of_client = columns[owners[rows]]
        more = theta[rows], owners[rows] // CLIENTS
        designs.append((sparse.csr_array(of_client.astype(float)), *more))
        cells.append((one_hot(of_client[:, 0], 2), *more))
    tests = estimated(designs, within=True).rows()
    truth = means[1] - means[0]
    effects = sum(row["low"] <= truth[row["topic"]] <= row["high"] for row in tests[:TOPICS])
    differs = any(row["low_of_all"] * row["high_of_all"] > 0 for row in tests[TOPICS:])
    total = summed(products(*part, within=False) for part in cells)
    shares = total["xy"] / np.diag(total["xx"])[:, None]
    spread = np.sum([squares(x, t, shares, o, False, cells=True) for x, t, o in cells], axis=0)
    table = GroupTable.of(("group",), ("no", "yes"), total, spread)
    of_means = sum(
        row["low"] <= means[1, row["topic"]] <= row["high"] for row in [*table.rows()][TOPICS:]
    )
    width = np.mean([row["high"] - row["low"] for row in tests[:TOPICS]])
    return effects, of_means, int(differs), float(width)


def shares_of(how: str, counts: sparse.csr_array, beta: Any, theta: Any, rng: Any) -> list[Any]:
    """Return estimates of documents' shares: one, or draws for composition."""
    if how == "true shares":
        return [theta]
    if how in ("LDA", "NMF"):
        names = np.array([f"word{place}" for place in range(WORDS)])
        texts = [names[np.repeat(row.indices, row.data.astype(int))].tolist() for row in counts]
        kind: Any = {"LDA": LDA, "NMF": NMF}[how]
        model = kind(n_components=OF_WORDS, random_state=int(rng.integers(1 << 31))).fit(texts)
        made = model.transform(texts).astype(float)
        # The shares that are most alike, as topics have no order.
        alike = np.corrcoef(made.T, theta.T)[:OF_WORDS, OF_WORDS:]
        return [made[:, linear_sum_assignment(-alike.T)[1]]]
    posterior = infer(counts, np.ascontiguousarray(beta.T), 1 / OF_WORDS, steps=50)
    if how == "known topics":
        return [posterior.read("mean")]
    return [dirichlet(rng, posterior.gamma, 1.0) for _ in range(DRAWS)]


def of_words(seed: int, words: int, how: str) -> tuple[int, int, float, float]:
    """Return intervals that hold (with, without an effect), the estimate by truth, and width."""
    rng = np.random.default_rng([seed, words])
    beta = np.maximum(rng.dirichlet(np.full(WORDS, 0.05), OF_WORDS), 1e-12)
    group = np.arange(DOCUMENTS) % 2
    means = np.full((2, OF_WORDS), 1 / OF_WORDS)
    means[1, :2] += [SHIFT, -SHIFT]
    theta = dirichlet(rng, means[group], 1.0)
    counts = sparse.csr_array(rng.multinomial(words, theta @ beta / (theta @ beta).sum(1)[:, None]))
    x = sparse.csr_array(np.c_[np.ones(DOCUMENTS), group].astype(float))
    made = [
        estimated([(x, one, np.arange(len(one)))], within=False)
        for one in shares_of(how, counts, beta, theta, rng)
    ]
    estimates = np.array([one.coefficients[1] for one in made])
    between = estimates.var(0, ddof=1) * (1 + 1 / DRAWS) if len(made) > 1 else 0.0
    error = np.sqrt(np.mean([one.errors[1] ** 2 for one in made], axis=0) + between)
    reach = student.ppf(0.975, DOCUMENTS - 2) * error
    truth = means[1] - means[0]
    holds = np.abs(estimates.mean(0) - truth) <= reach
    ratio = float((estimates.mean(0)[:2] / truth[:2]).mean())
    return int(holds[:2].sum()), int(holds[2:].sum()), ratio, float(2 * reach.mean())


def run(task: dict[str, Any]) -> dict[str, Any]:
    seeds = range(task["block"] * task["size"], (task["block"] + 1) * task["size"])
    if "case" in task:
        results: list[Any] = [study(seed, task["case"]) for seed in seeds]
    else:
        results = [of_words(seed, task["words"], task["how"]) for seed in seeds]
    return {"sums": np.sum(results, axis=0).tolist(), "numpy": np.__version__}


def lines_of(rows: list[dict[str, Any]], *names: str, of: Sequence[float]) -> Iterator[list[Any]]:
    """Yield a line of the number of studies, percentages and the width for each group."""
    for key, group in common.each_group([row for row in rows if names[0] in row], *names):
        n = sum(row["size"] for row in group)
        *parts, width = np.sum([row["sums"] for row in group], axis=0) / n
        percent = (f"{100 * p / m:.1f}" for p, m in zip(parts, of, strict=True))
        yield [*key, n, *percent, f"{width:.3f}"]


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    lines = lines_of(rows, "case", of=(TOPICS, TOPICS, 1))
    yield from (INTRODUCTION, "")
    head = "documents | studies | effects, % | means, % | false findings, % | width"
    yield from common.table(head, lines)
    lines = lines_of(rows, "how", "words", of=(2, OF_WORDS - 2, 1))
    yield from ("", OF_THETA.format(draws=DRAWS, documents=DOCUMENTS), "")
    head = "shares | words | studies | effects, % | others, % | estimate, % | width"
    yield from common.table(head, lines)


def main() -> None:
    given = common.arguments(__doc__, studies=1_000, of_words=200)
    size = 2 if given.quick else BLOCK
    studies, of_words_ = (size, size) if given.quick else (given.studies, given.of_words)
    tasks = common.grid(case=CASES, size=(size,), block=range(studies // size))
    tasks += common.grid(how=HOW, words=(20, 100), size=(size,), block=range(of_words_ // size))
    common.measured(given, tasks, run)
    common.write(given, tables(common.kept_rows(given)))
