"""The client side of F-LDA: LDA of a client's new documents, guided by all clients' topics."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from fedtopics.contract.events import Arrived, Skipped
from fedtopics.contract.published import EACH_ROUND, LAST, Over, Reply, published
from fedtopics.contract.replies import LONGEST, counts
from fedtopics.errors import of_client
from fedtopics.inference.gibbs import load_tomotopy, sample_topics
from fedtopics.inference.lda import LDAPrior
from fedtopics.methods.core.client import TopicClient, frequent
from fedtopics.methods.core.groups import Thetas, persons_by_label
from fedtopics.methods.core.plan import ClientContext, Plan
from fedtopics.methods.flda.arrivals import Arrivals
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.topic_lists import pack_topics, topic_lists, unpack_topics
from fedtopics.methods.lda.method import posterior_means
from fedtopics.metrics.similarity import Topic
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import count_words, persons_by_word


class FLDAClient(TopicClient[FLDASettings]):
    """LDA of the documents that arrived since the last round, without words that few contain."""

    remembers = True

    def __init__(self, plan: Plan[FLDASettings], site: ClientContext) -> None:
        load_tomotopy()  # here, so that a missing package is noticed before any data is sent
        super().__init__(plan, site)
        with of_client(site.name):
            self._arrivals = Arrivals(site.corpus, self.settings, site.folder, site.growing)

    @published(
        "For each topic that is the largest in new documents of enough persons: its first words "
        "(only words in enough of these documents) and their weights; which of all clients' topics "
        "guided it; how many words belong to it. The number of documents; if too few documents "
        "are new, only that number. Topics are merged, not summed, so all participants see each "
        "client's topics.",
        "topics as lists of words",
        often=EACH_ROUND,
        reply=lambda settings: topic_lists(settings.n_local, settings.n_words),
        over=Over("new documents"),
        seen_by_all=True,
        has_words=False,
    )
    def local_topics(
        self,
        /,
        round: int,
        ids: list[int],
        seeds: dict[str, list[int]],
        first: list[int],
        **packed: Any,
    ) -> Reply:
        """Compute topics of the new documents, guided by all clients' topics (Algorithm 3)."""
        topics = dict(zip(ids, unpack_topics(packed) or [], strict=False))
        chosen = [id_ for id_ in seeds.get(self.name, first) if id_ in topics]
        least = max(self.settings.min_new_documents, self.min_persons)

        def is_enough(corpus: Corpus) -> bool:
            return len(corpus) >= least and corpus.n_persons() >= self.min_persons

        corpus = self._arrivals.take(round, is_enough)
        few = not is_enough(corpus)
        event = Skipped if few else Arrived
        self.site.notify(event(self.name, round, len(corpus), least))
        if few:
            return _reply([], [], [], 0)
        self.persons = corpus.n_persons()
        return self._sampled(corpus, [topics[id_] for id_ in chosen], chosen, round)

    def _sampled(
        self, corpus: Corpus, guides: list[dict[str, float]], ids: list[int], round_: int
    ) -> Reply:
        words, bag = self._informative_words(corpus)
        if not bag.nnz:
            return _reply([], [], [], len(corpus))
        n_topics = self.settings.n_local if self.settings.refill or not guides else len(guides)
        seed = self.secret.seed("gibbs", round_) % 2**32
        sampled = sample_topics(bag, words, n_topics, self.settings, guides, seed)
        owners = corpus.owners_of(np.flatnonzero(np.diff(bag.indptr)))
        persons = persons_by_label(sampled.main, n_topics, owners)
        numbers = np.flatnonzero(persons >= self.min_persons).tolist()
        topics = {
            number: topic
            for number in numbers
            if (topic := sampled.topic(number, self.settings.n_words))
        }
        guided = [  # a topic was not guided if its guide has no word in it
            number < len(ids) and bool(topic.keys() & guides[number].keys())
            for number, topic in topics.items()
        ]
        seeds = [ids[n] if is_guided else -1 for n, is_guided in zip(topics, guided, strict=True)]
        return _reply([*topics.values()], seeds, sampled.occurrences[[*topics]], len(corpus))

    def _informative_words(self, corpus: Corpus) -> tuple[list[str], sparse.csr_array]:
        """Count the words that are in neither too few nor too many documents."""
        counted = count_words(corpus, self.text, names=self.names)
        frequency = np.bincount(counted.counts.indices, minlength=len(counted.words))
        persons = persons_by_word(counted.counts, corpus.owners)
        most = self.limits.max_document_share * len(corpus)
        numbers = np.flatnonzero((persons >= self.rarest) & (frequency <= most))
        by_frequency = numbers[np.argsort(-frequency[numbers], kind="stable")]
        words = [counted.words[number] for number in by_frequency[: self.limits.max_words]]
        bag = counted.columns({word: column for column, word in enumerate(words)})
        return words, frequent(bag, self.rarest, persons_by_word(bag, corpus.owners))

    def adopt(
        self, words: list[str], total: int, length: float, few_have: Sequence[bool] = ()
    ) -> None:
        """Adopt the words of all clients' topics, for the documents of all rounds so far."""
        self.corpus = self._arrivals.used()
        vars(self).pop("counts", None)  # of the documents before
        super().adopt(words, total, length, few_have)
        if self.corpus.n_persons(self.usable) < self.min_persons:  # too few to send any sums
            self.usable = self.usable[:0]
            self._training = 0
            self.bag = self.bag[self.usable]
            self.corpus = self.corpus.take([])

    @published(
        "For each word that documents of enough persons contain, the number of documents with it "
        "and its number of occurrences; zeros for other words; the number of documents.",
        "counts of words",
        often=LAST,
        reply=lambda agreement: {
            "containing": counts(len(agreement.vocabulary), per_document=1),
            "occurrences": counts(len(agreement.vocabulary), per_document=LONGEST),
        },
        over=Over("documents of all rounds"),
    )
    def word_counts(self) -> Reply:
        return {
            "containing": persons_by_word(self.bag),
            "occurrences": np.asarray(self.bag.sum(0), np.int64),
            "documents": self.over(np.arange(self.bag.shape[0])),
        }

    def n_topics(self, **model: Any) -> int:
        return int(model["topics"].shape[1])

    def thetas(self, **model: Any) -> Thetas:
        topics = model["topics"]
        return posterior_means(
            self.bag, self.usable, topics, LDAPrior(n_components=topics.shape[1])
        )


def _reply(
    topics: Sequence[Topic], seeds: Sequence[int], occurrences: Any, documents: int
) -> Reply:
    return pack_topics(topics) | {
        "seeds": np.array(seeds, np.int64),
        "occurrences": np.array(occurrences, np.float64),
        "documents": documents,
    }
