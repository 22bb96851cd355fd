"""F-LDA: topics of each client's own LDA, merged by similarity, guide its LDA of new documents.

Round 1 is regular LDA at each client. The server merges topics that are alike (Algorithm 1) and
finds for each client those that are its own (Algorithm 2); they guide the client's LDA of the
documents that came since (Algorithm 3). No vocabulary is agreed on: topics are lists of words.
`FLDA` is what the server executes, `FLDAClient` what a client does.

Taken word by word the algorithms collapse to a few topics, or one: merging is transitive, what has
no partner goes, and the next round has no more topics than are left. That is preset "paper". By
default a merged topic has at most one topic of a client, what one client alone has stays, clients
have a few topics without guidance, and a word counts as zero where a topic lacks it.

References
----------
The F-LDA paper (federated topic modelling with guided LDA), sections 3.1 to 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError, StudyError
from fedtopics.inference.gibbs import Topic, load_tomotopy, sample_topics
from fedtopics.inference.theta import LDAPrior, VariationalLDA, topic_weights
from fedtopics.methods.aggregation import Template
from fedtopics.methods.agreement import ADOPTED, Agreement, describe
from fedtopics.methods.base import Clients, Run
from fedtopics.methods.client import Documents, TopicClient, in_order
from fedtopics.methods.flda.state import (
    GlobalTopic,
    Local,
    State,
    go_on,
    read_replies,
    resumed,
    what_happened,
)
from fedtopics.methods.flda.topic_lists import (
    TOPICS,
    Place,
    group_topics,
    mean_topic,
    pack_topics,
    unpack_topics,
)
from fedtopics.methods.settings import FLDASettings
from fedtopics.methods.warm_start import Start
from fedtopics.metrics import cosines, usual_threshold
from fedtopics.model.coherence import federated_coherence
from fedtopics.model.shown_words import SHOWN
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.arrivals import Arrivals
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import (
    TextRules,
    Vocabulary,
    VocabularyLimits,
    count_words,
    fingerprint,
)

LOCAL: Template = {**TOPICS, "seeds": ("topics",), "occurrences": ("topics",), "documents": ()}


def global_topics(
    local: Mapping[str, Local],
    threshold: float,
    settings: FLDASettings,
    seed_ids: Sequence[int] = (),
) -> list[tuple[dict[str, float], list[Place]]]:
    """Merge topics of different clients that are alike (Algorithm 1).

    Parameters
    ----------
    local : mapping of client name to Local
    threshold : float
        The paper's gamma.
    settings : FLDASettings
        `linkage`, `absent_words`, `weighting`, `keep_unmatched`.
    seed_ids : list of int
        Topics that began with these are the same wherever they are.

    Returns
    -------
    list of (words with their weights, the client topics that were merged)
    """
    places = [(name, k) for name, sent in sorted(local.items()) for k in range(len(sent.topics))]
    together = [[at for at in places if local[at[0]].seeds[at[1]] == seed] for seed in seed_ids]
    sent_topics = {name: sent.topics for name, sent in local.items()}
    found = []
    for group in group_topics(sent_topics, threshold, settings.linkage, [g for g in together if g]):
        owners = {name for name, _ in group}
        if len(owners) == 1 and len(local) > 1 and not settings.keep_unmatched:
            continue
        documents = [float(local[name].documents) for name, _ in group]
        shares = documents if settings.weighting == "documents" else None
        members = [local[name].topics[number] for name, number in group]
        found.append((mean_topic(members, settings.absent_words, shares), group))
    return found


def optimal_topics(
    local: Sequence[Topic], topics: Sequence[GlobalTopic], threshold: float
) -> list[int]:
    """Replace each of a client's topics by the global one that is most like it (Algorithm 2).

    Parameters
    ----------
    local : list of topics
        The paper's T_i.
    topics : list of GlobalTopic
        M.
    threshold : float
        A topic that is like none of M to this degree is removed.

    Returns
    -------
    list of int
        Ids of M*, each once, in the order of M.
    """
    if not local or not topics:
        return []
    alike = cosines(local, [topic.words for topic in topics])
    chosen = {int(row.argmax()) for row in alike if row.max() >= threshold}
    return [topics[number].id for number in sorted(chosen)]


class FLDA:
    """The server's half.

    Parameters
    ----------
    settings : FLDASettings
    text : TextRules
    limits : VocabularyLimits
    seed : int
    start : Start, optional
        Topics that guide the first round; a model of this method goes on where it was.
    """

    def __init__(
        self,
        settings: FLDASettings,
        text: TextRules,
        limits: VocabularyLimits,
        seed: int,
        start: Start | None = None,
    ) -> None:
        self.settings = settings
        self.text = text
        self.limits = limits
        self.seed = seed
        self.start = start

    def train(self, clients: Clients, run: Run) -> TopicModel:
        """Alternate: topics of new documents at the clients, their merging at the server."""
        settings = self.settings
        saved = run.restore()
        state = self._first() if saved is None else State.of(saved)
        last = settings.max_rounds
        if self.start is not None and self.start.further is not None:
            last = self.start.done + (1 if self.start.once else settings.max_rounds)
        if state.reason:
            last = state.round
        draw = settings.draw(self.seed)
        for round_ in run.rounds(state.round, last):
            work = partial(self._round, clients, state, round_, run)
            state, report = clients.round(round_, work, draw)
            run.event("round", **state.history[-1], **report)
            run.checkpoint(state.checkpoint())
            if state.reason:
                run.event("stopped", round=round_, reason=state.reason)
                break
        model = partial(self._model, clients, state, run)
        return clients.round(state.round + 1, model)[0]

    def _first(self) -> State:
        """Begin with topics that are given, or with none."""
        if self.start is not None and self.start.further is not None:
            return resumed(self.start.further)
        given = [dict.fromkeys(words, 1 / len(words)) for words in self.settings.seed_topics]
        known = [] if self.start is None else self.start.lists(self.settings.n_words)
        topics = [
            GlobalTopic(number, words, [], 0.0, seed=number < len(given))
            for number, words in enumerate([*given, *known])
        ]
        return State(topics, next_id=len(topics))

    def _round(self, clients: Clients, state: State, round_: int, run: Run) -> State:
        """Let the clients find topics, merge them, and see which are new (Algorithm 3)."""
        settings = self.settings
        first = self._seeds(state, [topic.id for topic in state.topics])
        replies = clients.call(
            "local_topics",
            LOCAL,
            round=round_,
            ids=[topic.id for topic in state.topics],
            seeds={name: self._seeds(state, ids) for name, ids in state.optimal.items()},
            first=first,
            **pack_topics([self._guide(topic) for topic in state.topics]),
        )
        local = read_replies(replies)
        run.keep(f"topics-{round_:05d}", {name: asdict(sent) for name, sent in local.items()})
        heard = {name: sent for name, sent in local.items() if sent.documents}
        after = self._merged(state, heard, round_)
        reason, scores = "", {}
        if after.idle >= settings.patience:
            reason = "no client has enough new documents"
        elif settings.stop == "coherence" and heard:
            after.coherence = self._coherence(clients, after)
            scores = {"coherence": after.coherence}
            if after.coherence < state.coherence:
                reason = "the topics are less coherent than those of the round before, which stay"
                after = replace(state, round=round_)
        told = what_happened(state, after, local, settings.n_components) | scores
        return replace(after, reason=reason, history=[*state.history, told])

    def _guide(self, topic: GlobalTopic) -> Topic:
        """Return what guides clients to a topic: what it is, and the words that were given."""
        if not topic.seed or topic.id >= len(self.settings.seed_topics):
            return topic.words
        given = self.settings.seed_topics[topic.id]
        return mean_topic([topic.words, dict.fromkeys(given, 1 / len(given))], "zero")

    def _seeds(self, state: State, ids: Sequence[int]) -> list[int]:
        """Return the topics that guide a client: at most n_components, given ones first."""
        seeds = [topic.id for topic in state.topics if topic.seed]
        seeds += [id_ for id_ in ids if id_ not in seeds]
        return seeds[: self.settings.n_components]

    def _merged(self, state: State, local: Mapping[str, Local], round_: int) -> State:
        """Make M of the topics of a round, and M* of each client."""
        settings = self.settings
        if not local:
            return replace(state, round=round_, idle=state.idle + 1)
        sent = {name: reply.topics for name, reply in local.items()}
        threshold = settings.threshold or usual_threshold(sent)
        seed_ids = [topic.id for topic in state.topics if topic.seed]
        merged = global_topics(local, threshold, settings, seed_ids)
        topics, next_id = go_on(state, local, merged, threshold, settings)
        own = {name: optimal_topics(each, topics, threshold) for name, each in sent.items()}
        return replace(
            state,
            topics=topics,
            round=round_,
            idle=0,
            next_id=next_id,
            threshold=threshold,
            seen=state.seen + sum(reply.documents for reply in local.values()),
            optimal=state.optimal | own,
        )

    # The end: what the topics are in words that all clients count.

    def _adopt(self, clients: Clients, topics: Sequence[GlobalTopic]) -> Agreement:
        total: dict[str, float] = {}
        for topic in topics:
            for word, weight in topic.words.items():
                total[word] = total.get(word, 0.0) + weight
        words = sorted(total, key=lambda word: (-total[word], word))
        counts = clients.prepare("adopt", ADOPTED, words=words, total=1, length=1.0)
        none = np.zeros(len(words), np.int64)
        vocabulary = Vocabulary(tuple(words), none, none)
        return Agreement(clients, vocabulary, counts["documents"], counts["training"], 1.0)

    def _coherence(self, clients: Clients, state: State) -> float:
        topics = state.topics[: self.settings.n_components]
        if not topics:
            return -1.0
        shown = min(SHOWN, *(len(topic.words) for topic in topics))
        words = [list(topic.words)[:shown] for topic in topics]
        agreement, within = self._adopt(clients, topics), self.settings.coherence
        assert within != "nothing"  # noqa: S101 - the settings refuse it
        ask = partial(agreement.sum, "pairs")
        scores = federated_coherence(ask, [words], within)[0]
        return float(scores["c_v"].mean())

    def _model(self, clients: Clients, state: State, run: Run) -> TopicModel:
        settings = self.settings
        topics = state.topics[: settings.n_components]
        if not topics:
            raise StudyError(
                "No topic is left: no two clients have one that is alike, or none has enough "
                "documents. Lower threshold or min_new_documents, or keep unmatched topics."
            )
        agreement = self._adopt(clients, topics)
        known = {"containing": (len(agreement.vocabulary),)}
        known["occurrences"] = known["containing"]
        counted = agreement.sum("word_counts", known)
        pseudo_counts = np.full((len(agreement.vocabulary), len(topics)), settings.eta)
        remembered = np.ones(len(agreement.vocabulary))
        for number, topic in enumerate(topics):
            rows = [agreement.vocabulary.index[word] for word in topic.words]
            weights = np.array(list(topic.words.values()))
            pseudo_counts[rows, number] += max(topic.occurrences, 1.0) * weights / weights.sum()
            remembered[rows] += topic.occurrences * weights
        # Words of earlier documents, or of a client that is away: lift divides by how many.
        occurrences = np.maximum(counted["occurrences"], remembered.astype(np.int64))
        vocabulary = Vocabulary(agreement.vocabulary.words, counted["containing"], occurrences)
        run.event(
            "vocabulary",
            words=len(vocabulary),
            fingerprint=vocabulary.fingerprint,
            documents=agreement.documents,
            without_known_word=agreement.documents - agreement.training,
        )
        numbers = {topic.id: number for number, topic in enumerate(topics)}
        optimal = {
            name: [numbers[id_] for id_ in ids if id_ in numbers]
            for name, ids in sorted(state.optimal.items())
        }
        make = partial(
            TopicModel,
            inference=VariationalLDA(len(vocabulary), LDAPrior(n_components=len(topics))),
            weights={"pseudo_counts": torch.from_numpy(pseudo_counts)},
            shared={},
            text=self.text,
            info={
                "method": "flda",
                "rounds": state.round,
                "seed": self.seed,
                "seen": state.seen,
                "threshold": state.threshold,
                "optimal": optimal,
                "ids": [topic.id for topic in topics],
                "clients": [topic.clients for topic in topics],
                "eta": settings.eta,
                "seeds": sum(topic.seed for topic in topics),
                "next_id": state.next_id,
                "history": state.history,
            },
        )
        settings = settings.model_copy(update={"n_components": len(topics)})
        agreement = replace(agreement, vocabulary=vocabulary)
        trained = {"topics": topic_weights(pseudo_counts)}
        return describe(agreement, settings, trained, make, self.start)


class FLDAClient(TopicClient[FLDASettings]):
    """The client's half: LDA of the documents that came since the last round.

    A word that fewer of a round's documents have than the policy allows is left out before any
    topic is found, and a topic that is the largest of too few documents does not leave.

    Parameters are those of `TopicClient`; its workplace has the new documents.
    """

    method = "flda"
    version = 1
    published = ("local_topics", "adopt", "word_counts", "shares", "word_sums", "pairs")

    def __init__(self, name: str, corpus: Corpus, *args: Any) -> None:
        load_tomotopy()  # or say that it is missing before anything leaves
        super().__init__(name, corpus, *args)
        try:
            self._arrivals = Arrivals(
                corpus, self.settings, self.workplace.folder, self.workplace.grown
            )
        except DataError as error:
            raise DataError(f"Client {name!r}: {error}") from None
        self._asked = 0
        self._lists: set[str] = set()

    @staticmethod
    def rounds(settings: FLDASettings) -> dict[str, str]:
        """Say which functions a study calls before its end with these settings, and how often."""
        end = dict.fromkeys(("adopt", "word_counts"), "once, at the end")
        return {"local_topics": "each round"} | end

    @classmethod
    def schedule(cls, settings: FLDASettings) -> dict[str, str]:
        """Say how often a study with these settings calls which function."""
        calls = super().schedule(settings)
        if settings.stop == "coherence":
            calls |= dict.fromkeys(("adopt", "pairs"), "each round, and at the end")
        return calls

    def local_topics(
        self,
        round: int,  # noqa: A002
        ids: list[int],
        seeds: dict[str, list[int]],
        first: list[int],
        **packed: Any,
    ) -> dict[str, Any]:
        """Find topics of the documents that are new, guided by those of the server.

        Parameters
        ----------
        round : int
        ids : list of int
            Of the server's topics.
        seeds : mapping of client name to ids
            The client's own among them, M*.
        first : list of int
            Of who has none: a client that is new, or was away.
        **packed
            The server's topics, see `pack_topics`.

        Leaves the client
            Of each topic that is the largest of enough of the new documents: its first words, each
            in enough of these documents, with their weights; which of the server's topics guided
            it; how many words of the documents are of it. The number of documents. If too few
            documents are new, nothing but that.
        """
        self._asked += 1
        known = unpack_topics(packed)
        topics = dict(zip(ids, known or [], strict=False))
        chosen = [id_ for id_ in seeds.get(self.name, first) if id_ in topics]
        least = max(self.settings.min_new_documents, self.min_documents)
        corpus = self._arrivals.take(round, least)
        few = len(corpus) < least
        told = {"client": self.name, "round": round, "documents": len(corpus), "least": least}
        self.workplace.tell({"event": "skipped" if few else "arrived", **told})
        if few:
            return _sent([], [], [], 0)
        return self._sampled(corpus, [topics[id_] for id_ in chosen], chosen, round)

    def _sampled(
        self, corpus: Corpus, guides: list[dict[str, float]], ids: list[int], round_: int
    ) -> dict[str, Any]:
        settings = self.settings
        words, counts = self._usual_words(corpus)
        if not counts.nnz:
            return _sent([], [], [], len(corpus))
        n_topics = settings.n_local if settings.refill or not guides else len(guides)
        seed = int(np.random.SeedSequence([*self._seed, round_]).generate_state(1)[0])
        found = sample_topics(counts, words, n_topics, settings, guides, seed)
        kept: list[int] = np.flatnonzero(found.main >= self.min_documents).tolist()
        topics = {number: found.topic(number, settings.n_words) for number in kept}
        kept = [number for number in kept if topics[number]]
        led = [  # what has none of the words that guided it, was not guided
            number < len(ids) and bool(topics[number].keys() & guides[number].keys())
            for number in kept
        ]
        return _sent(
            [topics[number] for number in kept],
            [ids[number] if guided else -1 for number, guided in zip(kept, led, strict=True)],
            found.occurrences[kept],
            len(corpus),
        )

    def _usual_words(self, corpus: Corpus) -> tuple[list[str], sparse.csr_array]:
        """Count the words that are neither in too few documents nor in too many."""
        counted = count_words(corpus, self._text)
        frequency = np.bincount(counted.counts.indices, minlength=len(counted.words))
        most = self._limits.max_document_share * len(corpus)
        kept = np.flatnonzero((frequency >= self._rarest) & (frequency <= most))
        kept = kept[np.argsort(-frequency[kept], kind="stable")][: self._limits.max_words]
        words = [counted.words[column] for column in kept]
        return words, counted.columns({word: number for number, word in enumerate(words)})

    def adopt(self, words: list[str], total: int, length: float) -> dict[str, Any]:
        """Take up the words of the server's topics, for all documents of the rounds so far.

        Parameters are those of `TopicClient.adopt`; only the words count.

        Leaves the client
            Numbers of documents: all, and those with and without one of the words.
        """
        self._lists.add(fingerprint(words))  # again after a break: the same
        if len(self._lists) > self.questions:
            raise StudyError(
                f"Client {self.name!r} was asked about more lists of words than there were rounds; "
                "find out what the server runs."
            )
        self._corpus = self._arrivals.used()
        counts = super().adopt(words, total, length)
        if len(self.known) < self.min_documents:  # as good as none
            self.known = self.known[:0]
            self.bag = self.bag[self.known]
            self._corpus = self._corpus.take([])
            counts = dict.fromkeys(counts, 0)
        return counts

    @property
    def questions(self) -> int:
        """How many lists of words the server may ask about: one a round, and one at the end."""
        return self._asked + 1

    def word_counts(self, vocabulary: str) -> dict[str, Any]:
        """Count the documents with each word of the topics, and its occurrences.

        Leaves the client
            Two numbers for each word that enough of the documents have, zeros for the rest; the
            number of documents.
        """
        self.check(vocabulary)
        kept = self._frequency >= self._rarest
        occurrences = np.asarray(self.bag.sum(0), np.int64) * kept
        return {
            "containing": self._frequency * kept,
            "occurrences": occurrences,
            "documents": self.bag.shape[0],
        }

    def count(self, words: Mapping[str, int]) -> sparse.csr_array:
        """Count these words in the documents of the rounds so far, each in its column."""
        return count_words(self._corpus, self._text, words).counts

    def n_topics(self, **model: Any) -> int:
        """Return the number of topics of the server's model, which rounds may change."""
        return int(model["topics"].shape[1])

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, NDArray[np.float64]]]:
        """Find theta of all documents by variational inference, some at a time."""
        from fedtopics.inference.variational import infer  # a server need not compile it

        topics = model["topics"]
        prior = LDAPrior(n_components=topics.shape[1])
        for rows in in_order(self.known):
            found = infer(self.bag[rows], topics, prior.theta_prior, prior.inner_steps)
            yield rows, found.read("mean")


def _sent(
    topics: Sequence[Topic], seeds: Sequence[int], occurrences: Any, documents: int
) -> dict[str, Any]:
    return pack_topics(topics) | {
        "seeds": np.array(seeds, np.int64),
        "occurrences": np.array(occurrences, np.float64),
        "documents": documents,
    }
