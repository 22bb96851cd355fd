"""The client side of F-LDA: LDA of a client's new documents, guided by all clients' topics."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from fedtopics.contract.events import Arrived, Skipped
from fedtopics.contract.interfaces import published
from fedtopics.errors import DataError
from fedtopics.inference.gibbs import load_tomotopy, sample_topics
from fedtopics.inference.lda import LDAPrior
from fedtopics.methods.core.client import TopicClient, frequent
from fedtopics.methods.core.final_model import document_frequency
from fedtopics.methods.core.groups import Thetas
from fedtopics.methods.core.plan import ClientContext, Plan
from fedtopics.methods.flda.arrivals import Arrivals
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.topic_lists import pack_topics, unpack_topics
from fedtopics.methods.lda.client import posterior_means
from fedtopics.metrics.similarity import Topic
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import count_words


class FLDAClient(TopicClient[FLDASettings]):
    """LDA of the documents that arrived since the last round, without words that few contain."""

    remembers = True

    def __init__(self, plan: Plan[FLDASettings], site: ClientContext) -> None:
        load_tomotopy()  # here, so that a missing package is noticed before any data is sent
        super().__init__(plan, site)
        try:
            self._arrivals = Arrivals(site.corpus, self.settings, site.folder, site.growing)
        except DataError as error:
            raise DataError(f"Client {site.name!r}: {error}") from None

    @staticmethod
    def rounds(settings: FLDASettings) -> dict[str, str]:
        end = dict.fromkeys(("counted", "word_counts"), "once, at the end")
        return {"local_topics": "each round"} | end

    @classmethod
    def schedule(cls, settings: FLDASettings) -> dict[str, str]:
        calls = cls.rounds(settings) | cls.end(settings)
        if settings.stop == "coherence":
            calls |= dict.fromkeys(("counted", "pairs"), "each round, and at the end")
        return calls

    @published(
        "For each topic that is the largest in enough of the new documents: its first words (only "
        "words in enough of these documents) and their weights; which of all clients' topics "
        "guided it; how many words belong to it. The number of documents; if too few documents "
        "are new, only that number. Topics are merged, not summed, so all participants see each "
        "client's topics.",
        seen_by_all=True,
    )
    def local_topics(
        self,
        round: int,
        ids: list[int],
        seeds: dict[str, list[int]],
        first: list[int],
        **packed: Any,
    ) -> dict[str, Any]:
        """Compute topics of the new documents, guided by all clients' topics (Algorithm 3)."""
        topics = dict(zip(ids, unpack_topics(packed) or [], strict=False))
        chosen = [id_ for id_ in seeds.get(self.name, first) if id_ in topics]
        least = max(self.settings.min_new_documents, self.min_documents)
        corpus = self._arrivals.take(round, least)
        few = len(corpus) < least
        event = Skipped if few else Arrived
        self.site.notify(event(self.name, round, len(corpus), least))
        if few:
            return _reply([], [], [], 0)
        return self._sampled(corpus, [topics[id_] for id_ in chosen], chosen, round)

    def _sampled(
        self, corpus: Corpus, guides: list[dict[str, float]], ids: list[int], round_: int
    ) -> dict[str, Any]:
        settings = self.settings
        words, counts = self._informative_words(corpus)
        if not counts.nnz:
            return _reply([], [], [], len(corpus))
        n_topics = settings.n_local if settings.refill or not guides else len(guides)
        seed = self.secret.seed("gibbs", round_) % 2**32
        sampled = sample_topics(counts, words, n_topics, settings, guides, seed)
        numbers = np.flatnonzero(sampled.main >= self.min_documents).tolist()
        topics = {number: sampled.topic(number, settings.n_words) for number in numbers}
        topics = {number: topic for number, topic in topics.items() if topic}
        guided = [  # a topic was not guided if its guide has no word in it
            number < len(ids) and bool(topic.keys() & guides[number].keys())
            for number, topic in topics.items()
        ]
        seeds = [ids[n] if is_guided else -1 for n, is_guided in zip(topics, guided, strict=True)]
        return _reply([*topics.values()], seeds, sampled.occurrences[[*topics]], len(corpus))

    def _informative_words(self, corpus: Corpus) -> tuple[list[str], sparse.csr_array]:
        """Count the words that are in neither too few nor too many documents."""
        counted = count_words(corpus, self.text)
        frequency = np.bincount(counted.counts.indices, minlength=len(counted.words))
        most = self.limits.max_document_share * len(corpus)
        numbers = np.flatnonzero((frequency >= self.rarest) & (frequency <= most))
        by_frequency = numbers[np.argsort(-frequency[numbers], kind="stable")]
        words = [counted.words[number] for number in by_frequency[: self.limits.max_words]]
        bag = counted.columns({word: column for column, word in enumerate(words)})
        return words, frequent(bag, self.rarest, document_frequency(bag))

    def adopt(self, words: list[str], total: int, length: float) -> None:
        """Adopt the words of all clients' topics, for the documents of all rounds so far."""
        self.corpus = self._arrivals.used()
        vars(self).pop("counts", None)  # of the documents before
        super().adopt(words, total, length)
        if len(self.usable) < self.min_documents:  # too few documents to send any sums
            self.usable = self.usable[:0]
            self._training = 0
            self.bag = self.bag[self.usable]
            self.corpus = self.corpus.take([])

    @published(
        "For each word that enough of the documents contain, the number of documents with it and "
        "its number of occurrences; zeros for other words; the number of documents."
    )
    def word_counts(self, vocabulary: str) -> dict[str, Any]:
        self.check(vocabulary)
        occurrences = np.asarray(self.bag.sum(0), np.int64)
        counted = {"containing": document_frequency(self.bag), "occurrences": occurrences}
        return counted | {"documents": self.bag.shape[0]}

    def n_topics(self, **model: Any) -> int:
        return int(model["topics"].shape[1])

    def thetas(self, **model: Any) -> Thetas:
        prior = LDAPrior(n_components=self.n_topics(**model))
        return posterior_means(self.bag, self.usable, model["topics"], prior)


def _reply(
    topics: Sequence[Topic], seeds: Sequence[int], occurrences: Any, documents: int
) -> dict[str, Any]:
    return pack_topics(topics) | {
        "seeds": np.array(seeds, np.int64),
        "occurrences": np.array(occurrences, np.float64),
        "documents": documents,
    }
