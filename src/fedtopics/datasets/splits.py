"""Split one corpus over several clients, for experiments.

References
----------
Hu et al., Federated Learning for Short Text Clustering, section 5.1: "even" is the IID partition,
"proportions" the non-IID one. Yurochkin et al. (2019), Bayesian Nonparametric Federated Learning of
Neural Networks: "dirichlet".
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError, check_choice
from fedtopics.text.columns import Column
from fedtopics.text.corpus import Corpus

Split = Literal["even", "proportions", "dirichlet"]


def split_clients(
    corpus: Any,
    by: Split,
    *,
    n_clients: int = 4,
    proportions: Sequence[float] | None = None,
    alpha: float | None = None,
    seed: int = 0,
) -> dict[str, Corpus]:
    """Split the documents of a corpus over clients, each document to exactly one.

    Parameters
    ----------
    corpus : whatever `Corpus.of` takes
    by : {"even", "proportions", "dirichlet"}
        The first two shuffle the documents. "dirichlet" splits the documents of each label by
        random shares from a symmetric Dirichlet distribution. A missing label counts as a label.
    n_clients : int
        Ignored with "proportions", whose length is the number of clients.
    proportions : sequence of positive numbers, length n_clients, for "proportions"
        They need not sum to 1: (6, 4) is 60 % and 40 %.
    alpha : float above 0, for "dirichlet"
        Below 1, few clients get most documents of a label; with large values, all get equal shares.
    seed : int

    Returns
    -------
    dict of client name to Corpus
        "client-1", ..., each in the corpus' order; leading zeros make names sort like numbers.

    Raises
    ------
    StudyError, DataError
        If an argument cannot be used, a client would have no document, or labels are missing.

    Examples
    --------
    >>> parts = split_clients(["oak", "elm", "ash", "fir"], "proportions", proportions=(3, 1))
    >>> {name: len(part) for name, part in parts.items()}
    {'client-1': 3, 'client-2': 1}
    """
    check_choice(by, "by", get_args(Split))
    corpus = Corpus.of(corpus)
    rng = np.random.default_rng(seed)
    weights = _weights(proportions) if by == "proportions" else np.ones(max(n_clients, 0))
    n_clients = len(weights) or n_clients
    if not 1 <= n_clients <= len(corpus):
        raise StudyError(
            f"{len(corpus):,} documents cannot be split over {n_clients:,} clients; choose 1 to "
            f"{len(corpus):,}."
        )
    return (
        _named(
            corpus,
            _spread_labels(corpus, n_clients, alpha, rng),
            "another seed or a larger alpha",
        )
        if by == "dirichlet"
        else _named(corpus, _cut(rng.permutation(len(corpus)), weights, 0.5), "closer proportions")
    )


def _named(
    corpus: Corpus, rows_of_clients: Sequence[NDArray[np.int64]], remedy: str
) -> dict[str, Corpus]:
    width = len(str(len(rows_of_clients)))
    named = {f"client-{i:0{width}}": np.sort(rows) for i, rows in enumerate(rows_of_clients, 1)}
    if empty := [name for name, rows in named.items() if not len(rows)]:
        raise StudyError(f"{', '.join(empty)} would have no document; choose {remedy}.")
    return {name: corpus.take(rows) for name, rows in named.items()}


def _weights(proportions: Sequence[float] | None) -> NDArray[np.float64]:
    weights = np.array([] if proportions is None else proportions, np.float64)
    if not (weights.size and np.all((weights > 0) & np.isfinite(weights))):
        raise StudyError(
            f"The proportions {proportions} cannot be used; give a number above 0 for each "
            "client, such as (6, 4)."
        )
    return weights


def _spread_labels(
    corpus: Corpus, n_clients: int, alpha: float | None, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Return the rows of each client, with shares of each label from a Dirichlet distribution."""
    if alpha is None or not 0 < alpha < np.inf:
        raise StudyError(f"alpha={alpha} cannot be used; give a number above 0, such as 0.5.")
    if corpus.labels is None:
        raise DataError(
            "The corpus has no labels; read it with Corpus.of(data, Columns(label=...)), or split "
            "it by 'even' or 'proportions'."
        )
    names = Column([corpus.labels], "the labels").names().to_pylist()
    _, codes, sizes = np.unique(names, return_inverse=True, return_counts=True)
    # A random start: rounding from a fixed one would send rare labels to the same clients.
    parts_of_labels = [
        _cut(rng.permutation(rows), rng.dirichlet(np.full(n_clients, alpha)), rng.random())
        for rows in np.split(np.argsort(codes, kind="stable"), np.cumsum(sizes)[:-1])
    ]
    return [np.concatenate(parts) for parts in zip(*parts_of_labels, strict=True)]


def _cut(
    rows: NDArray[np.int64], weights: NDArray[np.float64], start: float
) -> list[NDArray[np.int64]]:
    """Cut rows into parts of these proportions, each within one row of its exact size."""
    edges = np.cumsum(weights)  # start 0.5 rounds; a random start is exact on average
    return np.split(rows, np.floor(edges[:-1] / edges[-1] * len(rows) + start).astype(np.int64))
