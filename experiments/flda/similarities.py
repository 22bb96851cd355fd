"""Is the cosine the similarity to take? Beside others, on pairs of topics with a known answer.

Two clients' documents are drawn from topics that are known, of which they share half. Each client
finds topics by itself. One of these is that true topic with whose share of the documents its own
share goes together; two topics of different clients are the same if they are the same true topic.
So no similarity of words says which pairs are the same. The other pairs are those that a person
labelled, of which words are kept, but no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
CLEAR = 0.5  # the least correlation by which a topic is a true one
SENT = 30  # words of a topic
Values = NDArray[np.float64]
Measure = Callable[[Sequence[Topic], Sequence[Topic]], Values]


@dataclass(frozen=True)
class Drawn:
    """Documents of two clients that are drawn from known topics.

    Parameters
    ----------
    eta : float
        Dirichlet prior of the topics: the larger it is, the more words they have in common.
    documents : int
        Of each client.
    """

    eta: float
    documents: int = 700

    @property
    def name(self) -> str:
        """What its rows are called."""
        return f"drawn, eta = {self.eta:g}"


DRAWN = (Drawn(0.02), Drawn(0.1), Drawn(0.5))


def _shares(topics: Sequence[Topic], words: Mapping[str, int]) -> Values:
    """Return the weights of topics as rows that sum to 1."""
    shares = np.zeros((len(topics), len(words)))
    for row, topic in enumerate(topics):
        shares[row, [words[word] for word in topic]] = list(topic.values())
    return shares / shares.sum(1, keepdims=True)


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
        return -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(-1)

    middle = entropy((one[:, None] + other[None]) / 2)
    return np.asarray(1 - (middle - (entropy(one)[:, None] + entropy(other)[None]) / 2))


def jaccard(rows: Sequence[Topic], columns: Sequence[Topic]) -> Values:
    """Return which share of both topics' ten first words they have in common, Jaccard's measure."""
    ones, others = ([set(list(topic)[:SHOWN]) for topic in topics] for topics in (rows, columns))
    return np.array([[len(one & other) / len(one | other) for other in others] for one in ones])


MEASURES: dict[str, Measure] = {
    "cosine": cosines, "hellinger": hellinger, "jensen_shannon": jensen_shannon, "jaccard": jaccard,
}  # fmt: skip


def judge(values: Values, same: NDArray[np.bool_]) -> dict[str, float]:
    """Return how well a similarity tells pairs that are the same from others.

    Examples
    --------
    >>> judge(np.array([0.1, 0.4, 0.3, 0.9]), np.array([False, False, True, True]))
    {'auc': 0.75, 'accuracy': 0.75}
    """
    from sklearn.metrics import roc_auc_score

    cuts = [*np.unique(values), np.inf]
    accuracy = max(float(((values >= cut) == same).mean()) for cut in cuts)
    return {"auc": float(roc_auc_score(same, values)), "accuracy": accuracy}


def true_topics(true: Values, own: Values) -> NDArray[np.int64]:
    """Return which true topic each topic found is, by shares of documents; -1 where none is clear.

    Both have a row a document.
    """
    both = np.corrcoef(true.T, own.T)[: true.shape[1], true.shape[1] :]
    both = np.nan_to_num(both, nan=-1.0)
    return np.where(both.max(0) >= CLEAR, both.argmax(0), -1)


def of_drawn(drawn: Drawn, seed: int, quick: bool = False) -> dict[str, Any]:
    """Let two clients find topics of drawn documents, and judge all similarities."""
    documents = 200 if quick else drawn.documents
    made = synthetic_lda(
        2, n_words=2000, n_topics=15, shared_topics=5, eta=drawn.eta, n_documents=documents,
        n_validation=1, lengths=(30, 60), seed=seed,
    )  # fmt: skip
    topics, truth = [], []
    for own in made.training.values():
        method = ALONE | ({"iterations": 50} if quick else {})
        model = train(Study.make(seed=seed, method=method), {"alone": own.corpus()})
        topics.append(first_words(model, SENT))
        truth.append(true_topics(own.theta, model.transform(own.corpus())))
    clear = truth[0][:, None].clip(max=0) + truth[1][None].clip(max=0) == 0
    same = truth[0][:, None] == truth[1][None]
    scores = {name: judge(f(*topics)[clear], same[clear]) for name, f in MEASURES.items()}
    return {"pairs": int(clear.sum()), "same": int(same[clear].sum()), "scores": scores}


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
    """List pairs that similarities are judged by, and seeds; a person's labels have one."""
    drawn = [(each.name, seed) for each in DRAWN for seed in seeds]
    return [(data.name, 0) for data in DATA_SETS] + drawn


def judged(name: str, seed: int, quick: bool) -> dict[str, Any]:
    """Judge similarities on pairs of this name."""
    by_name = {each.name: each for each in DRAWN}
    if name in by_name:
        return of_drawn(by_name[name], seed, quick)
    return of_labelled(read_pairs(PAIRS / f"pairs-{name}.csv"))


def made_of(name: str) -> str:
    """Return what pairs of this name depend on."""
    by_name = {each.name: each for each in DRAWN}
    if name in by_name:
        return f"{asdict(by_name[name])} {ALONE} {CLEAR} {SENT}"
    return (PAIRS / f"pairs-{name}.csv").read_text("utf-8")
