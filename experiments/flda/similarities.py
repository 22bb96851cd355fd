"""Is the cosine the similarity to take? Beside others, on pairs of topics with a known answer.

Pairs are of three kinds, and in none does a similarity of words say which are the same:

- those that a person labelled, of which words are kept, but no weights;
- topics that are known, as two clients would count their words who tell them apart without fault;
- topics that two clients' LDA found in documents drawn from known topics, of which they share some.
  One is the true topic with whose share of the documents its own share goes together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from experiments.flda.models import ALONE, DATA_SETS
from experiments.flda.rounds import SHOWN
from experiments.flda.subjects import first_words
from fedtopics.datasets import synthetic_lda
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.flda.labelled_pairs import TopicPair, read_pairs
from fedtopics.metrics import cosines
from fedtopics.metrics.similarity import Topic

PAIRS = Path(__file__).parents[2] / "benchmarks" / "results" / "flda"
CLEAR = 0.7  # the least correlation by which a topic is a true one
SENT = 30  # words of a topic
Values = NDArray[np.float64]
Measure = Callable[[Sequence[Topic], Sequence[Topic]], Values]
Judged = tuple[list[Topic], list[Topic], NDArray[np.bool_], NDArray[np.bool_]]
"""Topics of two clients, which pairs of them have an answer, and which are the same."""


@dataclass(frozen=True)
class Counted:
    """Topics whose words two clients count."""

    eta: float  # Dirichlet prior: the larger, the more words topics have in common
    words: int  # that a client counts of each topic
    common: float = 0.0  # share of these that all topics have alike

    @property
    def name(self) -> str:
        """What its rows are called."""
        common = f", {self.common:.0%} of them common" if self.common else ""
        return f"known topics, eta {self.eta:g}, {self.words} words{common}"

    def make(self, seed: int, quick: bool) -> Judged:
        """Draw the topics, and count."""
        n_topics = 10 if quick else 50
        n_words = 2000
        rng = np.random.default_rng([seed, 8])
        specific = rng.dirichlet(np.full(n_words, self.eta), n_topics)
        every = rng.dirichlet(np.full(n_words, 0.05))
        beta = (1 - self.common) * specific + self.common * every
        one, other = ([_most(rng.multinomial(self.words, row)) for row in beta] for _ in range(2))
        same = np.eye(n_topics, dtype=bool)
        return one, other, np.ones_like(same), same


@dataclass(frozen=True)
class FoundByLDA:
    """Topics that two clients find in documents drawn from topics of this eta."""

    eta: float

    @property
    def name(self) -> str:
        """What its rows are called."""
        return f"topics found by LDA, eta {self.eta:g}"

    def make(self, seed: int, quick: bool) -> Judged:
        """Draw documents, and let each client find topics."""
        made = synthetic_lda(
            2,
            n_words=500,
            n_topics=14,
            shared_topics=6,
            eta=self.eta,
            n_validation=1,
            seed=seed,
            n_documents=150 if quick else 700,
            lengths=(30, 60),
        )
        topics = []
        truth = []
        for client in made.training.values():
            method = ALONE | {"coherence": "nothing"} | ({"iterations": 40} if quick else {})
            model = train(Study.make(seed=seed, method=method), {"alone": client.corpus()})
            topics.append(first_words(model, SENT))
            truth.append(
                true_topics(client.theta, model.transform(client.corpus()).astype(np.float64))
            )
        one = truth[0][:, None]
        other = truth[1][None]
        return topics[0], topics[1], (one >= 0) & (other >= 0), one == other


MADE = (
    Counted(0.1, 100),
    Counted(0.5, 100),
    Counted(0.1, 300, 0.5),
    FoundByLDA(0.05),
    FoundByLDA(0.2),
)
BY_NAME: dict[str, Counted | FoundByLDA] = {made.name: made for made in MADE}


def _most(counts: NDArray[np.int64]) -> Topic:
    """Return a topic's most frequent words."""
    most = np.argsort(-counts, kind="stable")[:SENT]
    return {f"term{word}": float(counts[word]) for word in most if counts[word]}


def _shares(topics: Sequence[Topic], words: Mapping[str, int]) -> Values:
    """Return the weights of topics as rows that sum to 1."""
    shares = np.zeros((len(topics), len(words)))
    for row, topic in enumerate(topics):
        shares[row, [words[word] for word in topic]] = list(topic.values())
    shares /= shares.sum(1, keepdims=True)
    return shares


def _both(rows: Sequence[Topic], columns: Sequence[Topic]) -> tuple[Values, Values]:
    every = dict.fromkeys(word for topic in (*rows, *columns) for word in topic)
    words = {word: number for number, word in enumerate(every)}
    return _shares(rows, words), _shares(columns, words)


def hellinger(rows: Sequence[Topic], columns: Sequence[Topic]) -> Values:
    """Return 1 less the squared Hellinger distance of weights, which is Bhattacharyya's measure."""
    one, other = _both(rows, columns)
    return np.asarray(np.sqrt(one) @ np.sqrt(other).T)


def jensen_shannon(rows: Sequence[Topic], columns: Sequence[Topic]) -> Values:
    """Return 1 less the Jensen-Shannon divergence of weights, in bits."""
    one, other = _both(rows, columns)

    def entropy(shares: Values) -> Values:
        return np.asarray(-(shares * np.log2(np.where(shares > 0, shares, 1))).sum(-1))

    middle = entropy((one[:, None] + other[None]) / 2)
    return np.asarray(1 - (middle - (entropy(one)[:, None] + entropy(other)[None]) / 2))


def jaccard(rows: Sequence[Topic], columns: Sequence[Topic]) -> Values:
    """Return which share of both topics' ten first words they have in common, Jaccard's measure."""
    ones, others = ([set(list(topic)[:SHOWN]) for topic in topics] for topics in (rows, columns))
    return np.array([[len(one & other) / len(one | other) for other in others] for one in ones])


MEASURES: dict[str, Measure] = {
    "cosine": cosines,
    "hellinger": hellinger,
    "jensen_shannon": jensen_shannon,
    "jaccard": jaccard,
}


def judge(values: Values, same: NDArray[np.bool_]) -> dict[str, float | None]:
    """Return how well a similarity tells pairs that are the same from others.

    The area under the ROC curve, None where all pairs are alike, and the share of pairs that the
    best threshold decides rightly.

    Examples
    --------
    >>> judge(np.array([0.1, 0.4, 0.3, 0.9]), np.array([False, False, True, True]))
    {'auc': 0.75, 'accuracy': 0.75}
    """
    cuts = [*np.unique(values), np.inf]
    accuracy = max(float(((values >= cut) == same).mean()) for cut in cuts)
    ranks = rankdata(values)
    n_same = int(same.sum())
    above = ranks[same].sum() - n_same * (n_same + 1) / 2
    auc = above / (n_same * (len(same) - n_same)) if 0 < n_same < len(same) else None
    return {"auc": auc and float(auc), "accuracy": accuracy}


def true_topics(true: Values, inferred: Values) -> NDArray[np.int64]:
    """Return which true topic each topic found is, by shares of documents; -1 where none is clear.

    Both have a row a document.
    """
    with np.errstate(invalid="ignore", divide="ignore"):  # a topic may have the same share of all
        both = np.corrcoef(true.T, inferred.T)[: true.shape[1], true.shape[1] :]
    both = np.nan_to_num(both, nan=-1.0)
    return np.where(both.max(0) >= CLEAR, both.argmax(0), -1)


def of_made(made: Counted | FoundByLDA, seed: int, quick: bool = False) -> dict[str, Any]:
    """Judge all similarities by topics that were made."""
    one, other, decided, same = made.make(seed, quick)
    scores = {name: judge(f(one, other)[decided], same[decided]) for name, f in MEASURES.items()}
    return {"pairs": int(decided.sum()), "same": int(same[decided].sum()), "scores": scores}


def of_labelled(pairs: Sequence[TopicPair]) -> dict[str, Any]:
    """Judge the cosine, and words in common, by a person's labels."""
    labelled = [pair for pair in pairs if pair.same is not None]
    same = np.array([pair.same for pair in labelled], bool)
    topics = [
        [dict.fromkeys(words.split(), 1.0) for words in (pair.first, pair.second)]
        for pair in labelled
    ]
    common = np.array([jaccard([first], [second])[0, 0] for first, second in topics])
    cosine = np.array([pair.cosine for pair in labelled])
    scores = {"cosine": judge(cosine, same), "jaccard": judge(common, same)}
    return {"pairs": len(labelled), "same": int(same.sum()), "scores": scores}


def tasks(seeds: Sequence[int]) -> list[tuple[str, int]]:
    """List the kinds of pairs, each with its seeds; a person's labels have none, which is 0."""
    return [(data.name, 0) for data in DATA_SETS] + [(name, s) for name in BY_NAME for s in seeds]


def judged(name: str, seed: int, quick: bool) -> dict[str, Any]:
    """Judge similarities by pairs of this name."""
    if name in BY_NAME:
        return of_made(BY_NAME[name], seed, quick)
    return of_labelled(read_pairs(PAIRS / f"pairs-{name}.csv"))


def made_of(name: str, quick: bool) -> str:
    """Return what pairs of this name depend on."""
    if name in BY_NAME:
        return f"{BY_NAME[name]} {ALONE} {CLEAR} {SENT} {quick}"
    return (PAIRS / f"pairs-{name}.csv").read_text("utf-8")
