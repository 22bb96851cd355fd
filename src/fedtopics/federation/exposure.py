"""What a study would reveal of a client's documents, and to whom, as members see before they join.

The attacks behind the verdicts: docs/concepts/threat-model.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedtopics.contract.payload import content_shape_and_type, flat_fields
from fedtopics.errors import StudyError
from fedtopics.federation.data_sent import AFTER_COUNTS, DataSent, OwnWords, data_sent_in
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import plan_of
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.core.client import ClientWords
from fedtopics.methods.core.plan import ClientContext
from fedtopics.model.card import odds
from fedtopics.privacy.accounting import together
from fedtopics.text.corpus import Corpus

REHEARSED = 5_000  # own documents in a rehearsal of noise
MOST_CLIENTS = 10  # in a rehearsal of noise
SOME_READABLE = 1_000  # documents in a sum that still reveals words of some of them
READ = (
    "our attacks computed up to 52 complete documents from a sum over 52, and words of single "
    f"documents from sums over fewer than {SOME_READABLE:,}"
)


@dataclass(frozen=True)
class Exposure:
    study: Study
    rows: Sequence[DataSent]
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
    def verdicts(self) -> dict[str, str]:
        """What an attacker with all shared data and the strongest known attack learns."""
        privacy = self.study.differential_privacy
        used = "whether a person's documents were used"
        if privacy is None:
            membership = {
                used: "yes: there is no noise, and a model differs with and without them; "
                "`fedtopics audit attack` measures how often a guess is right"
            }
        else:
            membership = (
                {}
                if privacy.unit == "document"
                else {used: odds(privacy.epsilon, privacy.delta, "person")}
            )
            # Without the document, another one of its person can take its place.
            for_document = odds(together([privacy]), privacy.delta, "document")
            membership |= {"whether a document was there": for_document}
        return membership | {
            "which words a single person's documents have": _words(
                self.study, self.persons, self.others
            ),
            "what the sum over one client's documents is": self._sum_of_one,
        }

    @property
    def _sum_of_one(self) -> str:
        others = len(self.study.clients) - 1
        if not self.study.is_secure:
            return "yes: aggregation is plain, so the server sees each update"
        if self.study.differential_privacy is not None:
            return f"within the same bound, by all {others} other members together"
        if others < 1:
            return "only all other members together, by subtraction"
        return (
            f"all {others} other members together can, by subtraction; the relay, or fewer "
            "members, see only sums over more clients, except of a topic, cluster or word that no "
            "other client has"
        )

    def plain(self) -> dict[str, Any]:
        return {
            "data_sent": [row.plain() for row in self.rows],
            "documents": self.documents,
            "texts": self.texts,
            "bytes": self.bytes,
            "steps": self.steps,
            **self.verdicts,
        }


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


def rehearse_noise(study: Study, corpus: Corpus) -> None:
    """Train a private study on few documents for all members; StudyError if noise hides them."""
    is_small = len(corpus) <= REHEARSED and len(study.clients) <= MOST_CLIENTS
    if study.differential_privacy is None or not is_small:
        return
    try:
        train(study.here(study.clients), dict.fromkeys(study.clients, corpus), policies={})
    except StudyError as error:
        raise StudyError(f"With such documents at all members, the study fails: {error}") from None


def _words(study: Study, persons: int | None, others: Sequence[int]) -> str:
    if study.differential_privacy is not None:
        return "within the same bound"
    method = study.method
    rounds = study.method.max_rounds
    if method.draws and "max_rounds" not in method.model_fields_set and persons is not None:
        rounds = min(rounds, persons // 2)  # see `Policy.max_rounds`
    clients = method.clients_per_round or len(study.clients)
    batch: int | None = getattr(method, "batch_size", None)  # per client and round; None: all
    if getattr(method, "learning", "") == "batch":
        batch = None
    elif batch is not None and getattr(method, "batch_split", "") != "fixed":
        batch //= clients
    if batch is not None and persons is not None and persons <= rounds:
        return (
            f"yes, all: {rounds:,} rounds suffice to compute the documents of all {persons:,} "
            "persons; lower max_rounds"
        )
    of_client = min((size for size in (batch, persons) if size is not None), default=None)
    in_sum = 0 if batch is None else batch * (clients if study.is_secure else 1)
    if of_client is None or (persons is None and in_sum >= SOME_READABLE):
        return f"yes, if a sum is over fewer than {SOME_READABLE:,} persons: {READ}"
    theirs = ""
    if study.is_secure and others and batch is None:
        theirs = f" and {sum(others):,} of the other members, as you suppose"
    elif study.is_secure:
        theirs = " and those of the other members, whose number is not known yet"
    return f"a sum is over {of_client:,} of these persons{theirs}; {READ}"
