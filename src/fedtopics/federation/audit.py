"""Attacks on a study as a tool for stewards, on their own documents: who was there, what is told.

Half of the documents are in the study and half are not, in several trainings of it; all
participants have some of them. Some documents are canaries, of words that do not belong together:
the worst case. It is an attack on a study and its documents, not on one run, whose model has no
document that was left out on purpose.

By the model, the attack knows all models but one, who was in those, and the settings and public
seed of the study; of the last model it says of each document how much likelier it is with the
document than without. By what left, see `transcript_attacks`: agreement is judged beside the other
trainings likewise.

References
----------
Carlini and others, Membership Inference Attacks From First Principles, IEEE S&P 2022, section V.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from fedtopics.errors import DataError
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.study import Study
from fedtopics.federation.transcript import Numbers, Replay, play
from fedtopics.federation.transcript_attacks import Read, TranscriptAttack
from fedtopics.model.topic_model import TopicModel
from fedtopics.privacy import Privacy
from fedtopics.privacy.accounting import mu_of
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import WordCounts, count_words

SHADOWS = 16  # models
FALSE = 0.01  # of the documents that were not there, so many are taken for one that was
CANARIES = 100
ASKED = 200  # other documents of which it is asked what they add to all that leaves
UNKNOWN = 1e-6  # probability of a word that a model does not have
FEWEST = 20  # documents of each participant's half
SEED = 0x61756469  # keeps these draws apart from other uses of the seed


@dataclass(frozen=True)
class Guess:
    """How well an attack says which documents were there.

    Attributes
    ----------
    auc : float
        How often it finds that of two documents that was there the likelier one; .5 by chance.
    found : float
        Share of those that were there that it finds, where it takes one of a hundred others for
        such.
    documents : int
        That it was tried on, in all models.
    """

    auc: float
    found: float
    documents: int


@dataclass(frozen=True)
class Findings:
    """What attacks found: who was there, by attack, and what was read of usual documents."""

    members: Mapping[str, Guess]
    read: Read


def audit(
    study: Study, documents: Corpus, shadows: int = SHADOWS,
    policies: Mapping[str, Policy] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Findings:  # fmt: skip
    """Find out what a study's model, and all that leaves in it, tell of documents.

    Parameters
    ----------
    study : Study
        With the names of its clients, among whom the documents are dealt.
    documents : Corpus
    shadows : int
        How many models are trained, an even number; more make the attacks stronger.
    policies : mapping of client name to Policy, optional
        By default those that let out all.
    on_progress : function, optional
        Gets how many models are trained, and how many there are.

    Returns
    -------
    Findings
        Who was there: by the `model`, by `model and others` of which is known who is in them, by
        the `transcript`, model included, and others likewise, by the transcript if all other
        documents are known (`all but one known`); all but the first for canaries as well.
        DataError if there are too few documents.
    """
    rng = np.random.default_rng([study.seed, SEED])
    corpus, is_canary = _with_canaries(documents, study, rng)
    if len(corpus) // 2 // len(study.clients) < FEWEST:
        raise DataError(
            f"An audit trains on half of the documents, dealt among {len(study.clients)} clients, "
            f"each of which needs {FEWEST}; give more documents."
        )
    members = _halves(shadows, len(corpus), rng)
    asked = np.append(rng.permutation(len(documents))[:ASKED], np.flatnonzero(is_canary))
    scores = np.empty(members.shape)
    agreeing, known = np.empty((2, len(members), len(asked)))
    read, trainings = [], _Trainings(study, corpus, asked, policies or {})
    for number, rows in enumerate(members):
        model, attack, told = trainings.attacked(number, rows)
        scores[number] = likelihoods(model, corpus)
        agreeing[number], known[number] = attack.agreeing, attack.known
        read.append(told)
        if on_progress is not None:
            on_progress(number + 1, len(members))
    judged = _guesses(scores, agreeing, known, members, asked, is_canary)
    return Findings(judged, Read.of(read))


def allowed(privacy: Privacy | None) -> Guess | None:
    """Return the most that any attack can do on what a study releases with this bound."""
    if privacy is None:
        return None
    mu = privacy.sensitivity * mu_of(privacy)
    return Guess(float(ndtr(mu / math.sqrt(2))), float(ndtr(ndtri(FALSE) + mu)), 0)


def likelihoods(model: TopicModel, corpus: Corpus) -> Numbers:
    """Return the mean log-likelihood of each document's words by a model; 0 for an empty one."""
    counts = model.count(corpus).astype(np.float64).tocoo()
    theta = model.transform(corpus).astype(np.float64)
    rows, columns = counts.coords
    shares = np.einsum("nk,kn->n", theta[rows], model.beta[:, columns])
    known = np.bincount(rows, counts.data * np.log(np.maximum(shares, UNKNOWN)), len(corpus))
    of_all = count_words(corpus, model.text).counts.sum(1)
    words = np.bincount(rows, counts.data, len(corpus))
    found: Numbers = (known + (of_all - words) * math.log(UNKNOWN)) / np.maximum(of_all, 1)
    return found


def likelihood_ratios(scores: Numbers, members: NDArray[np.bool_]) -> Numbers:
    """Return of each model and document how much likelier its score is with the document.

    Scores with and without it, in the other models, are taken for normal with one deviation. They
    come in pairs, of which just one has a document: a model's other half is left out with it, so
    that as many of the rest have the document as have it not.
    """
    found = np.empty_like(scores)
    for target in range(len(scores)):
        others = np.arange(len(scores)) // 2 != target // 2
        means = {
            there: np.where(members[others] == there, scores[others], 0).sum(0)
            / np.maximum((members[others] == there).sum(0), 1)
            for there in (True, False)
        }
        rest = scores[others] - np.where(members[others], means[True], means[False])
        variance = (rest**2).mean(0) + 1e-12
        away = {there: (scores[target] - mean) ** 2 for there, mean in means.items()}
        found[target] = (away[False] - away[True]) / (2 * variance)
    return found


def guess(scores: Numbers, members: NDArray[np.bool_]) -> Guess:
    """Return how well scores, of any shape, say who was a member."""
    inside, outside = scores[members], scores[~members]
    ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)]
    auc = (ranks.sum() - len(inside) * (len(inside) + 1) / 2) / (len(inside) * len(outside))
    threshold = np.quantile(outside, 1 - FALSE)
    return Guess(float(auc), float((inside > threshold).mean()), scores.size)


def _guesses(
    scores: Numbers, agreeing: Numbers, known: Numbers, members: NDArray[np.bool_],
    asked: NDArray[np.int64], is_canary: NDArray[np.bool_],
) -> dict[str, Guess]:  # fmt: skip
    """Judge by attack and kind of documents what models, and what left, say of them."""
    there, is_made_up = members[:, asked], is_canary[asked]
    by_model = likelihood_ratios(scores, members)
    by_sums = likelihood_ratios(agreeing, there) + by_model[:, asked]
    attacks = {
        "model": (scores, members, is_canary),
        "model and others": (by_model, members, is_canary),
        "transcript": (by_sums, there, is_made_up),
        "all but one known": (known, there, is_made_up),
    }
    guesses = {}
    for name, (said, who, canary) in attacks.items():
        guesses[name] = guess(said[:, ~canary], who[:, ~canary])
        guesses[f"{name}, canaries"] = guess(said[:, canary], who[:, canary])
    del guesses["model, canaries"]  # whose words are unlikely in any case
    return guesses


def _halves(shadows: int, n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw which documents are in which model, each in one of a pair."""
    drawn = np.array([rng.permutation(n) < n // 2 for _ in range(math.ceil(shadows / 2))])
    return np.stack([drawn, ~drawn], axis=1).reshape(-1, n)


@dataclass(frozen=True)
class _Trainings:
    """Trainings on some of the documents each time, and attacks on what leaves in them."""

    study: Study
    corpus: Corpus
    asked: NDArray[np.int64]
    policies: Mapping[str, Policy]

    def attacked(
        self, number: int, members: NDArray[np.bool_]
    ) -> tuple[TopicModel, TranscriptAttack, Read]:
        """Train on some documents, attack what left; return also the model.

        Names end with the training's number, as secrets follow from them; the seed is public.
        """
        clients = {f"{name}-{number}": name for name in self.study.clients}
        rules = {name: self.policies.get(of, OPEN_POLICY) for name, of in clients.items()}
        names = np.array(list(clients))
        owners = names[np.arange(len(self.corpus)) % len(names)]
        dealt = {
            name: self.corpus.take(np.flatnonzero(members & (owners == name))) for name in clients
        }
        plan = self.study.with_clients(clients)
        model, calls = play(plan, dealt, rules)
        replay, some = Replay(plan, calls), self.corpus.take(self.asked)
        attack = TranscriptAttack(owners[self.asked], members[self.asked], int(members.sum()))
        for seen in replay.exchanges(dealt, some):
            attack.look(seen)
        counts = self._counted.columns({word: i for i, word in enumerate(replay.words)})
        frequency = np.bincount(counts[members].indices, minlength=counts.shape[1])
        return model, attack, attack.read(counts[self.asked], frequency)

    @cached_property
    def _counted(self) -> WordCounts:
        return count_words(self.corpus, self.study.text)


def _with_canaries(
    documents: Corpus, study: Study, rng: np.random.Generator
) -> tuple[Corpus, NDArray[np.bool_]]:
    """Add documents of words that other documents have, each of another one."""
    counted = count_words(documents, study.text)
    words, counts = counted.words, counted.counts
    lengths = np.diff(counts.indptr)
    full = np.flatnonzero(lengths)
    canaries: list[Any] = []
    for _ in range(min(CANARIES, len(documents) // 10)):
        drawn = rng.choice(full, int(np.median(lengths[full])))
        canaries.append([words[rng.choice(counts[[row]].indices)] for row in drawn])
    if not documents.is_tokenised:
        canaries = [" ".join(words) for words in canaries]
    texts = Corpus(documents.ids, documents.documents, authors=documents.authors)
    made = Corpus.of(pa.array(canaries, documents.documents.type))
    if documents.authors is not None:
        made = replace(made, authors=pa.chunked_array([[""] * len(made)]))  # each of somebody else
    both = Corpus.pool([texts, made])
    return study.embedded(both), np.arange(len(both)) >= len(documents)
