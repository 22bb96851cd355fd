"""Reconstruct documents from the sums of many rounds, as a server that keeps all updates.

LDA's replies say how often each word occurs in a round's minibatch. Who knows which documents are
in which minibatch has an equation a round: as many rounds as documents are enough. gFedNTM's
replies say which words occur: a document has none of those that one of its minibatches has not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks import tapped
from benchmarks.attacks.tapped import Tap, bag_of, federate, rows_of, vocabulary_of
from fedtopics.federation.study import Study
from fedtopics.text.corpus import Corpus

Bag = NDArray[np.float64]
Corpora = Mapping[str, Corpus]
NETWORK: dict[str, Any] = {"name": "gfedntm", "norm": "local", "hidden": [20, 20]}
CERTAIN = 0.2  # of a count: nearer to a whole number than this, it is that


@dataclass(frozen=True)
class Recovery:
    """What an attack tells of a client's documents."""

    documents: int
    solved: int  # with all counts of all words
    recall: float  # of a document's words among as many that the attack finds likeliest
    guessing: float  # the same, of the client's most frequent words: the yardstick

    def __str__(self) -> str:
        return (
            f"{self.solved} of {self.documents} documents exactly, recall {self.recall:.1%} "
            f"(the most frequent words: {self.guessing:.1%})"
        )


def study_of(rounds: int, batch: int, clients: int, **method: Any) -> Study:
    """Make a study in which each client takes so many documents a round."""
    defaults = {
        "name": "lda",
        **({} if "name" in method else {"learning": "stochastic"}),
        "n_components": 20,
        "initialisation": "random",
        "coherence": "nothing",
        "batch_size": batch * clients,
        "max_rounds": rounds,
    }
    return Study.make(method=defaults | method, seed=7)


def minibatch_counts(tap: Tap) -> Bag:
    """Return how often each word occurs in each round's minibatch, as LDA's replies say it."""
    replies = [rows_of(reply) for _, reply in tap.replies("expected_counts")]
    return np.array([rows.dense().sum(1) for rows in replies])


def solve(member: NDArray[np.bool_], counts: Bag) -> Bag:
    return np.asarray(np.linalg.lstsq(member.astype(float), counts, rcond=1e-9)[0])


def judge(solution: Bag, actual: Bag) -> Recovery:
    rounded = np.round(solution)
    sure = (np.abs(solution - rounded) < CERTAIN).all(1)
    true = {row.tobytes() for row in actual}
    solved = sum(row.tobytes() in true for row in rounded[sure] + 0.0)  # -0.0 is 0.0
    return told(solved, solution, actual)


def told(solved: int, scores: Bag, actual: Bag) -> Recovery:
    frequent = np.broadcast_to(actual.sum(0), actual.shape)
    return Recovery(len(actual), solved, recall(scores, actual), recall(frequent, actual))


def recall(scores: Bag, actual: Bag) -> float:
    shares = []
    for score, row in zip(scores, actual > 0, strict=True):
        n = int(row.sum())
        if n:
            shares.append(row[np.argsort(-score, kind="stable")[:n]].mean())
    return float(np.mean(shares))


def attack_lda(study: Study, corpora: Corpora, taps: Mapping[str, Tap]) -> Recovery:
    """Solve the first client's replies for its documents."""
    first = next(iter(corpora))
    return attack_lda_total(study, corpora, {first: taps[first]})


def attack_lda_total(study: Study, corpora: Corpora, taps: Mapping[str, Tap]) -> Recovery:
    """Solve the totals of clients, without any single reply."""
    planned = study.with_clients(corpora)
    members = [
        tapped.membership(planned, name, tap.calls, len(corpora[name]), "expected_counts")
        for name, tap in taps.items()
    ]
    words = vocabulary_of(next(iter(taps.values())).calls)
    total = np.sum([minibatch_counts(tap) for tap in taps.values()], axis=0)
    solution = solve(np.concatenate(members, axis=1), total)
    # Minibatches are as large in each round, so that a count more for all of one client's documents
    # and less for another's is as good; but of each client, some document does not have the word.
    if len(members) > 1:
        parts = np.split(solution, np.cumsum([member.shape[1] for member in members])[:-1])
        solution = np.concatenate([part - part.min(0) for part in parts])
    return judge(solution, np.concatenate([bag_of(corpora[name], words) for name in taps]))


def attack_gfedntm(study: Study, corpora: Corpora, taps: Mapping[str, Tap]) -> Recovery:
    """Leave of each document the words that all of its minibatches have."""
    name, corpus = next(iter(corpora.items()))
    tap = taps[name]
    planned = study.with_clients(corpora)
    words = vocabulary_of(tap.calls)
    member = tapped.membership(planned, name, tap.calls, len(corpus), "gradients")
    present = np.zeros((len(member), len(words)))
    for row, (_, reply) in zip(present, tap.replies("gradients"), strict=True):
        row[rows_of(reply).index] = 1
    times = np.maximum(member.sum(0), 1)[:, None]
    of_own = member.T.astype(float) @ present / times
    # Words that every minibatch has tell nothing: those that others have less often come first.
    scores = np.where(of_own == 1, 2 - present.mean(0), of_own)
    actual = (bag_of(corpus, words, least=1) > 0).astype(float)
    solved = int(((of_own == 1) == (actual > 0)).all(1).sum())
    return told(solved, scores, actual)


def rare_words(study: Study, corpora: Corpora, taps: Mapping[str, Tap]) -> tuple[int, int, int]:
    """Count words that few of the first client's documents have, which others made agreed words."""
    name, corpus = next(iter(corpora.items()))
    function = "expected_counts" if study.method.method_name == "lda" else "gradients"
    frequency = (bag_of(corpus, vocabulary_of(taps[name].calls), least=0) > 0).sum(0)
    rare = {*np.flatnonzero((frequency > 0) & (frequency < tapped.RARE)).tolist()}
    named: set[int] = set()
    for _, reply in taps[name].replies(function):
        named |= set(rows_of(reply).index.tolist())
    return len(rare), len(rare & named), sum(int(frequency[word] == 1) for word in rare & named)


def lines(data: Path | None, quick: bool) -> Iterator[str]:
    """Reconstruct documents from the sums of many rounds, as a server that keeps all updates."""
    size, rounds, batch = (120, 60, 16) if quick else (500, 600, 52)
    corpora = tapped.documents_of(data, 5, size)
    study = study_of(rounds, batch, len(corpora))
    _, taps = federate(study, corpora)
    of = f"{size} documents, {rounds} rounds, minibatches of {batch}"
    yield f"LDA, one client's replies, {of}: {attack_lda(study, corpora, taps)}"
    fifth = {name: corpus.take(range(size // 5)) for name, corpus in corpora.items()}
    few = study_of(rounds * 3 // 2, batch // 2, len(fifth))
    solved = attack_lda_total(few, fifth, federate(few, fifth)[1])
    less = f"{size // 5} documents each, {rounds * 3 // 2} rounds, minibatches of {batch // 2}"
    yield f"LDA, the total of five clients, {less}: {solved}"
    study = study_of(rounds, batch, len(corpora), **NETWORK, n_components=10)
    solved = attack_gfedntm(study, corpora, federate(study, corpora)[1])
    yield f"gFedNTM, words of documents, {of}: {solved}"


def rare_lines(data: Path | None, quick: bool) -> Iterator[str]:
    """Words of few of a client's documents that its replies name: others made them agreed words."""
    size, rounds = (150, 10) if quick else (500, 100)
    corpora = tapped.documents_of(data, 5, size)
    for title, method in (("gFedNTM", NETWORK), ("LDA", {})):
        study = study_of(rounds, 52, len(corpora), **method)
        rare, left, single = rare_words(study, corpora, federate(study, corpora)[1])
        yield (
            f"{title}, {size} documents, {rounds} rounds: {left} of {rare} rare words left, "
            f"{single} of them in one document"
        )
