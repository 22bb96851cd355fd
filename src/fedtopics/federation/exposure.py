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
from fedtopics.federation.data_sent import AFTER_COUNTS, DataSent, OwnWords, data_sent_in
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import plan_of
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study, why_plain
from fedtopics.methods.core.client import ClientWords
from fedtopics.methods.core.plan import ClientContext
from fedtopics.model.card import odds
from fedtopics.privacy.accounting import PrivacySettings, epsilon_of, mu_of
from fedtopics.privacy.noise import needed_parts
from fedtopics.text.corpus import Corpus

REHEARSED = 5_000  # own documents in a rehearsal of noise
MOST_CLIENTS = 10  # in a rehearsal of noise
SOME_READABLE = 1_000  # documents in a sum that still reveals words of some of them
READ = (
    "From a sum over 52 persons, our attacks computed up to 52 complete documents; from sums over "
    f"fewer than {SOME_READABLE:,}, words of single documents."
)
OF_GROUPS = (
    " A sum over a topic, cluster or period can be over fewer of them, as it counts persons of all "
    "members."
)
WITHOUT_NOISE = (
    "There is no noise, so a model differs with and without a person's documents: `fedtopics audit "
    "attack` measures how often a guess is right."
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
        return sum(row.calls * row.bytes for row in self.rows if row.bytes is not None)

    @property
    def steps(self) -> int:
        """Steps of the whole study, at most: each is one sum, or one reply that all see."""
        return sum(
            row.calls * (2 if AFTER_COUNTS in row.often else 1)
            for row in self.rows
            if " instead " not in row.often
        )

    @property
    def adversaries(self) -> dict[str, str]:
        """What four adversaries learn who have all that they can see and the strongest attacks."""
        study = self.study
        host = f", which {study.server.host} runs" if study.server.host else ""
        why = f"Aggregation is plain, as {why_plain(study)}."
        server = {f"The server{host}": f"every update of every member. {why} {self._sum} {READ}"}
        if study.is_secure:
            # The text is tested by the attacks that tests/protocol tries as a relay.
            server = {
                f"The relay{host}": "who takes part, which functions run, when, and how many "
                "bytes; no document, word, number, total or model."
            }
        return server | {
            "One other member": self._totals,
            f"All {len(study.clients) - 1} other members together": self._subtracted,
            "A reader of the model": self._model,
        }

    @property
    def _noise(self) -> PrivacySettings | None:
        return self.study.differential_privacy

    @property
    def _totals(self) -> str:
        if self._noise is not None:
            return f"totals with noise. From all of them and the model, {bound_of(self._noise)}."
        theirs = "; those of the other members are added"
        if self.others and not self.study.method.draws:
            theirs = f" and {sum(self.others):,} of the other members, as you suppose"
        return (
            f"totals. {self._sum.removesuffix('.')}{theirs}. {READ} It also sees each member's "
            "numbers of documents, persons and words, and which of the words in question a member "
            "has."
        )

    @property
    def _subtracted(self) -> str:
        if self._noise is not None:
            # The others know their own parts of the noise; only this client's protects it.
            parts = needed_parts(len(self.study.clients))
            return (
                "sums of this client with its own part of the noise. The bound of the study needs "
                f"{parts} such parts; with one, {bound_of(self._noise, parts)}."
            )
        groups = OF_GROUPS if self.study.is_secure and self.policy.counts_of_all else ""
        return (
            "this client's own sums, which are totals less their own updates. Each is over at "
            f"least {self.policy.min_persons:,} {self.unit} of this client.{groups}"
        )

    @property
    def _model(self) -> str:
        if self._noise is not None:
            return f"topics with their words. From them, {bound_of(self._noise)}."
        limits = self.study.vocabulary
        least = max(self.policy.min_persons_per_word, limits.min_persons_per_word)
        return (
            "topics, rounded counts of documents and words, and each member's shares of topics. A "
            f"word of this client is in topics only if {least:,} or more of its {self.unit} and "
            f"{limits.min_clients_per_word} or more clients have it. {WITHOUT_NOISE}"
        )

    @property
    def _sum(self) -> str:
        """Of how many persons of this client a sum is."""
        method = self.study.method
        rounds = method.max_rounds
        persons = self.persons
        if method.draws and "max_rounds" not in method.model_fields_set and persons is not None:
            rounds = min(rounds, persons // 2)  # see `Policy.max_rounds`
        clients = method.clients_per_round or len(self.study.clients)
        batch: int | None = getattr(method, "batch_size", None)  # per client and round; None: all
        if getattr(method, "learning", "") == "batch":
            batch = None
        elif batch is not None and getattr(method, "batch_split", "") != "fixed":
            batch //= clients
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
    epsilon = privacy.epsilon if parts == 1 else epsilon_of(mu, privacy.delta)
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
    site = ClientContext("this client", corpus, policy)
    words = ClientWords(plan_of(study), site)
    most = study.vocabulary.most_proposed(len(study.clients) or 1)
    proposed = words.proposed(0, most, words.counted_words())["words"]
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
            f"There was no rehearsal with noise: it is for at most {REHEARSED:,} documents and "
            f"{MOST_CLIENTS} clients."
        )
    owners = np.arange(len(corpus)) if corpus.owners is None else corpus.owners
    sizes = [corpus.n_persons(), *(others or [corpus.n_persons()] * (len(study.clients) - 1))]
    corpora = {
        name: corpus.take(np.flatnonzero(owners < size))
        for name, size in zip(study.clients, sizes, strict=True)
    }
    numbers = ", ".join(f"{min(size, sizes[0]):,}" for size in sizes)
    tried = f"A rehearsal with documents of {numbers} of these {corpus.unit} at the members"
    try:
        train(study.here(study.clients), corpora, policies={})
    except StudyError as error:
        raise StudyError(f"{tried} fails: {error}") from None
    return f"{tried} ends with a model."
