"""What a study would reveal of a client's documents, and to whom, as members see before they join.

The attacks behind the verdicts: docs/concepts/threat-model.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtopics.contract.payload import content_shape_and_type, flat_fields
from fedtopics.errors import StudyError
from fedtopics.federation.data_sent import (
    AFTER_COUNTS,
    ALL_SEE,
    DataSent,
    OwnWords,
    data_sent_in,
)
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import plan_of
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study, why_plain
from fedtopics.guarantees import attacked
from fedtopics.methods.core.client import ClientWords
from fedtopics.methods.core.plan import ClientContext
from fedtopics.model.card import odds
from fedtopics.privacy.accounting import ROUNDING, PrivacySettings, epsilon_of, mu_of
from fedtopics.privacy.noise import needed_parts
from fedtopics.text.corpus import Corpus

REHEARSED = 5_000  # own documents in a rehearsal of noise
WORDS = "vocabulary"  # the function by which clients count words
MOST_CLIENTS = 10  # in a rehearsal of noise
OF_GROUPS = (
    " A sum over a topic, cluster or group counts persons of all members, so it can be over one "
    "of this client."
)


@dataclass(frozen=True)
class Exposure:
    study: Study
    rows: Sequence[DataSent]
    policy: Policy = OPEN_POLICY
    unit: str = "persons"  # what the column of persons names, in the plural
    persons: int | None = None  # of these documents
    documents: int | None = None  # of the client
    texts: int | None = None  # their bytes
    words: int | None = None  # number of words that the client names
    others: Sequence[int] = ()  # persons of each other member, as somebody supposes

    @property
    def bytes(self) -> int:
        """Bytes sent in the whole study, at most, by functions whose replies have known bounds."""
        return sum(row.calls * row.bytes for row in self._sent if row.bytes is not None)

    @property
    def _sent(self) -> list[DataSent]:
        """The rows of messages: words of a secure study are sent as table, list and counts."""
        return [row for row in self.rows if not (self.study.is_secure and row.function == WORDS)]

    @property
    def steps(self) -> int:
        """Steps of the whole study, at most: each is one sum, or one reply that all see."""
        return sum(
            row.calls * (2 if AFTER_COUNTS in row.often else 1)
            for row in self._sent
            if " instead " not in row.often
        )

    @property
    def adversaries(self) -> dict[str, str]:
        """What four adversaries learn who have all that they can see and the strongest attacks."""
        study = self.study
        name = study.server.host
        host = f", which {name} runs" if name else ""
        why = f"Aggregation is plain, as {why_plain(study)}."
        server = (
            # The text is tested by the attacks that tests/protocol tries as a relay.
            "the members' names, which functions run, sizes, times, restarts and the reason of a "
            "stop; no document, word, number, total or model."
            if study.is_secure
            else f"every update of every member. {why} {self._sum} {self._computed('update')}"
            if self._noise is None
            else f"every update, with noise. {why} From these, {bound_of(self._noise)}."
        )
        more = (
            f" {name} also sees what every member sees, and can choose its own update after the "
            "sum of the others."
        )
        return {
            f"The {'relay' if study.is_secure else 'server'}{host}": (
                f"{server}{more if name else ''}".strip()
            ),
            "One other member": self._totals,
            f"All {len(study.clients) - 1} other members together": self._subtracted,
            "A reader of the model": self._model,
        }

    @property
    def _noise(self) -> PrivacySettings | None:
        return self.study.differential_privacy

    @property
    def _parts(self) -> int:
        """How many members' parts of the noise the bound needs."""
        return needed_parts(len(self.study.clients))

    def _computed(self, of: str) -> str:
        """Say what attacks computed from an "update" or from a "total" of this method."""
        batch = " in batches" if getattr(self.study.method, "learning", "") == "stochastic" else ""
        return attacked(f"{self.study.method.method_name}{batch}", of)

    @property
    def _totals(self) -> str:
        if self._noise is not None:
            return (
                f"totals with noise. From all of them and the model, {bound_of(self._noise)}, if "
                f"{self._parts} members keep their parts of the noise secret."
            )
        theirs = (
            f" and {sum(self.others):,} of the other members, as you suppose"
            if self.others and not self.study.method.draws
            else "; those of the other members are added"
        )
        shown = dict.fromkeys(row.short for row in self.rows if row.seen.endswith(ALL_SEE))
        by_name = f" By name it sees each member's {', '.join(shown)}." if shown else ""
        return (
            f"totals. {self._sum.removesuffix('.')}{theirs}. {self._computed('total')} Of a word "
            f"or topic that only two members have, each can compute the other's numbers.{by_name}"
        )

    @property
    def _subtracted(self) -> str:
        if self._noise is not None:
            # The others know their own parts of the noise; only this client's protects it.
            return (
                f"sums of this client with its own part of the noise; the study's bound needs "
                f"{self._parts} parts. From these, {bound_of(self._noise, self._parts)}. A "
                f"policy's max_epsilon counts epsilon {self._noise.epsilon:g} for this study."
            )
        of_study = self.study.vocabulary.min_persons_per_word
        groups = OF_GROUPS if self.study.is_secure and self.policy.counts_of_all else ""
        return (
            "this client's own sums, which are totals less their own updates. "
            f"{self._computed('update')} Each message is over at least "
            f"{self.policy.min_persons:,} {self.unit} of this client, and a word's count over at "
            f"least {max(self.policy.min_persons_per_word, of_study):,}; another number in it can "
            f"be over one document.{groups}"
        )

    @property
    def _model(self) -> str:
        if self._noise is not None:
            return (
                "topics, counts of words and persons, and shares of topics, all computed from sums "
                f"with noise. From these, {bound_of(self._noise)}."
            )
        limits = self.study.vocabulary
        return (
            "topics, counts of words, rounded by lot, and, exactly, each member's number of "
            "documents and shares of topics. A word is in the model only if "
            f"{limits.min_clients_per_word} or more members each have it in documents of at least "
            f"{limits.min_persons_per_word} persons. There is no noise, so a model differs with "
            "and without a person's documents: `fedtopics audit attack` measures how often a guess "
            "is right."
        )

    @property
    def _sum(self) -> str:
        """Of how many persons of this client a sum is."""
        method = self.study.method
        persons = self.persons
        falls = method.draws and "max_rounds" not in method.model_fields_set
        rounds = (  # see `Policy.max_rounds`
            min(method.max_rounds, persons // 2)
            if falls and persons is not None
            else method.max_rounds
        )
        uses_all = getattr(method, "learning", "") == "batch"
        drawn: int | None = None if uses_all else getattr(method, "batch_size", None)
        is_fixed = getattr(method, "batch_split", "") == "fixed"
        clients = 1 if is_fixed else method.clients_per_round or len(self.study.clients)
        batch = None if drawn is None else drawn // clients  # per client and round; None: all
        if batch is not None and persons is not None and persons <= rounds:
            return (
                f"{rounds:,} rounds suffice to compute the documents of all {persons:,} "
                f"{self.unit}; lower max_rounds."
            )
        of = "all documents" if batch is None else "a minibatch"
        sizes = [size for size in (batch, persons) if size is not None]
        size = f"{min(sizes):,}" if sizes else "all"
        return f"A sum over {of} is of {size} {self.unit} of this client."

    def plain(self) -> dict[str, Any]:
        return {
            "data_sent": [row.plain() for row in self.rows],
            "documents": self.documents,
            "texts": self.texts,
            "bytes": self.bytes,
            "steps": self.steps,
            "adversaries": self.adversaries,
        }


def bound_of(privacy: PrivacySettings, parts: int = 1) -> str:
    """Describe a study's bound for those who know all but one of the parts of noise it needs."""
    mu = mu_of(privacy) * math.sqrt(parts)
    epsilon = privacy.epsilon if parts == 1 else epsilon_of(mu, privacy.delta) + ROUNDING
    return odds(epsilon, privacy.delta, privacy.unit)


def expose(
    study: Study,
    corpus: Corpus | None = None,
    policy: Policy = OPEN_POLICY,
    others: Sequence[int] = (),
) -> Exposure:
    """Return what a study would reveal, of a corpus if there is one; nothing is sent.

    `others` are numbers of persons that the other members are supposed to have.
    """
    if corpus is None:
        return Exposure(study, data_sent_in(study))
    policy.check_text("this client", study.text)
    own_words = _own_words(study, corpus, policy)
    return Exposure(
        study=study,
        rows=data_sent_in(study, own_words),
        policy=policy,
        unit=corpus.unit,
        documents=len(corpus),
        persons=corpus.n_persons(),
        texts=corpus.text_bytes,
        words=own_words.number if own_words else None,
        others=others,
    )


def _own_words(study: Study, corpus: Corpus, policy: Policy) -> OwnWords | None:
    """Count the words that a client would name; None if the study asks for none."""
    if study.differential_privacy is not None or not study.method.agrees_first:
        return None
    words = ClientWords(plan_of(study), ClientContext("this client", corpus, policy))
    proposed = words.proposed(
        places=0,
        most=study.vocabulary.most_proposed(len(study.clients) or 1),
        counted_words=words.counted_words(),
    )["words"]
    contents = (content_shape_and_type(value)[0] for _, value in flat_fields({"words": proposed}))
    return OwnWords(len(proposed.names), sum(map(len, contents)))


def rehearse_noise(study: Study, corpus: Corpus, others: Sequence[int] = ()) -> str:
    """Train a private study on documents of one member, in place of all members' documents.

    Parameters
    ----------
    study : without [differential_privacy] there is nothing to rehearse.
    corpus : the documents.
    others : how many persons each other member is supposed to have. A member gets the documents of
        so many of these persons, at most all; by default it gets all.

    Returns
    -------
    What was tried, for people; "" if nothing was.

    Raises
    ------
    StudyError
        If noise hides the topics of so few documents.
    """
    if study.differential_privacy is None:
        return ""
    if len(corpus) > REHEARSED or len(study.clients) > MOST_CLIENTS:
        return (
            "Whether noise hides the topics was not tried: a rehearsal takes at most "
            f"{REHEARSED:,} documents and {MOST_CLIENTS} clients."
        )
    sizes = [corpus.n_persons(), *(others or [corpus.n_persons()] * (len(study.clients) - 1))]
    corpora = {
        name: corpus.take(np.flatnonzero(corpus.person_numbers < size))
        for name, size in zip(study.clients, sizes, strict=True)
    }
    numbers = ", ".join(f"{min(size, sizes[0]):,}" for size in sizes)
    tried = f"A rehearsal with documents of {numbers} of these {corpus.unit} at the members"
    try:
        train(study.here(study.clients), corpora, policies={})
    except StudyError as error:
        raise StudyError(f"{tried} fails: {error}") from None
    return f"{tried} ends with a model."
