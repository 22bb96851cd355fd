"""F-LDA: similar topics of the clients' own LDAs are merged, and guide LDA of new documents.

Lines of Algorithm 1 are missing in the paper, which can be read in two ways. In "paper-transitive",
similarity is transitive, and topics without a partner are dropped; soon few topics remain, or one.
In "paper-pairwise", each similar pair is a topic and other topics stay. By default, a merged topic
has at most one topic of each client, topics of only one client stay, clients have a few topics
without guidance, and a missing word counts as zero.

References
----------
The F-LDA paper (federated topic modelling with guided LDA), sections 3.1 to 3.3.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.events import VocabularyAgreed
from fedtopics.contract.interfaces import Clients, Draw, Run
from fedtopics.errors import StudyError
from fedtopics.inference.lda import LDAPrior, VariationalLDA, topic_weights
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final_model import ALL, assemble_model, count_together
from fedtopics.methods.core.settings import check_known
from fedtopics.methods.core.training import Arrays, Program, RoundResult
from fedtopics.methods.core.vocabulary_agreement import adopt, count_documents
from fedtopics.methods.flda.client import FLDAClient
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.state import (
    FLDAState,
    GlobalTopic,
    LocalTopics,
    info_of,
    link_rounds,
    read_reply,
    round_facts,
    state_of_model,
)
from fedtopics.methods.flda.topic_lists import (
    Place,
    group_topics,
    mean_topic,
    pack_topics,
)
from fedtopics.methods.registry import Method
from fedtopics.metrics import cosines, usual_threshold
from fedtopics.metrics.similarity import Topic
from fedtopics.model.coherence import federated_coherence
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.model.topics import Topics
from fedtopics.text.vocabulary import Vocabulary


def global_topics(
    local: Mapping[str, LocalTopics],
    threshold: float,
    settings: FLDASettings,
    seed_ids: Sequence[int] = (),
) -> list[tuple[dict[str, float], list[Place]]]:
    """Merge similar topics of different clients (Algorithm 1), and topics with the same seed."""
    places = [(name, k) for name, sent in sorted(local.items()) for k in range(len(sent.topics))]
    together = [[at for at in places if local[at[0]].seeds[at[1]] == seed] for seed in seed_ids]
    by_client = {name: sent.topics for name, sent in local.items()}
    merged = []
    for group in group_topics(by_client, threshold, settings.linkage, [g for g in together if g]):
        if len({name for name, _ in group}) == 1 and len(local) > 1 and not settings.keep_unmatched:
            continue
        documents = [float(local[name].documents) for name, _ in group]
        shares = documents if settings.weighting == "documents" else None
        members = [local[name].topics[number] for name, number in group]
        merged.append((mean_topic(members, settings.absent_words, shares), group))
    return merged


def optimal_topics(
    local: Sequence[Topic], topics: Sequence[GlobalTopic], threshold: float
) -> list[int]:
    """Return the topics of M nearest to a client's topics (M*, Algorithm 2), each once, sorted."""
    if not local or not topics:
        return []
    alike = cosines(local, [topic.words for topic in topics])
    chosen = {int(row.argmax()) for row in alike if row.max() >= threshold}
    return [topics[number].id for number in sorted(chosen)]


def adopt_words(before: Agreement, topics: Sequence[GlobalTopic]) -> Agreement:
    total: dict[str, float] = {}
    for topic in topics:
        for word, weight in topic.words.items():
            total[word] = total.get(word, 0.0) + weight
    words = sorted(total, key=lambda word: (-total[word], word))
    adopt(before.clients, {"words": words, "total": 1, "length": 1.0})
    not_counted = np.zeros(len(words), np.int64)
    agreement = Agreement(
        before.clients, before.settings, Vocabulary(tuple(words), not_counted, not_counted)
    )
    numbers = count_documents(agreement)
    return replace(
        agreement,
        documents=numbers["counts"]["documents"],
        training=numbers["counts"]["training"],
        sizes=numbers["sizes"],
    )


def coherence_of_topics(
    before: Agreement, topics: Sequence[GlobalTopic], settings: FLDASettings
) -> float:
    """Return the mean coherence (C_V) of topics in all clients' documents; -1 without topics."""
    if not topics:
        return -1.0
    shown = min(WORDS_SHOWN, *(len(topic.words) for topic in topics))
    words = [list(topic.words)[:shown] for topic in topics]
    within = cast(Literal["windows", "documents"], settings.coherence)
    counts = count_together(adopt_words(before, topics), words, within, [ALL])
    return float(federated_coherence(counts[ALL], words, within)["c_v"].mean())


def count_topic_words(
    before: Agreement, topics: Sequence[GlobalTopic], eta: float
) -> tuple[Agreement, NDArray[np.float64]]:
    """Count the topics' words at the clients; for absent clients, counts follow from the topics."""
    agreement = adopt_words(before, topics)
    n = len(agreement.vocabulary)
    counted = agreement.ask(FLDAClient.word_counts)
    pseudo_counts = np.full((n, len(topics)), eta)
    remembered = np.ones(n)
    for number, topic in enumerate(topics):
        rows = [agreement.vocabulary.index[word] for word in topic.words]
        weights = np.array(list(topic.words.values()))
        pseudo_counts[rows, number] += max(topic.occurrences, 1.0) * weights / weights.sum()
        remembered[rows] += topic.occurrences * weights
    occurrences = np.maximum(counted["occurrences"], remembered.astype(np.int64))
    vocabulary = Vocabulary(agreement.vocabulary.words, counted["containing"], occurrences)
    vocabulary = vocabulary if agreement.is_example else vocabulary.rounded()
    return replace(agreement, vocabulary=vocabulary), pseudo_counts


class FLDA(Program[FLDASettings, FLDAState]):
    """The method's program; topics that the plan starts from guide the first round."""

    saves_every_round = True
    starts_from_any_number = True

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Agree on no vocabulary: topics are lists of words until the end."""
        return Agreement(
            clients, self.settings, draw=Draw(self.settings.clients_per_round, self.plan.seed)
        )

    def first_state(self, agreement: Agreement, run: Run) -> FLDAState:
        if self.continued is not None:
            return state_of_model(self.continued)
        seeds = [dict.fromkeys(words, 1 / len(words)) for words in self.settings.seed_topics]
        others = [] if self.plan.start is None else self.plan.start.lists(self.settings.n_words)
        topics = [
            GlobalTopic(number, words, [], 0.0, seed=number < len(seeds))
            for number, words in enumerate([*seeds, *others])
        ]
        return FLDAState(topics, next_id=len(topics))

    def exchange(
        self, agreement: Agreement, state: FLDAState, round_: int
    ) -> tuple[dict[str, LocalTopics], FLDAState]:
        """Let the clients run guided LDA (Algorithm 3); update M and M* (Algorithms 1 and 2)."""
        replies = agreement.ask(
            FLDAClient.local_topics,
            round=round_,
            ids=[topic.id for topic in state.topics],
            seeds={name: self._guiding_ids(state, ids) for name, ids in state.optimal.items()},
            first=self._guiding_ids(state, [topic.id for topic in state.topics]),
            **pack_topics([self._guide(topic) for topic in state.topics]),
        )
        local = {name: read_reply(reply) for name, reply in replies.items()}
        with_documents = {name: sent for name, sent in local.items() if sent.documents}
        after = self._merged(state, with_documents, round_)
        if self.settings.stop == "coherence" and with_documents:
            after.coherence = coherence_of_topics(
                agreement, after.topics[: self.settings.n_components], self.settings
            )
        return local, after

    def step(
        self,
        agreement: Agreement,
        state: FLDAState,
        reply: tuple[dict[str, LocalTopics], FLDAState],
        round_: int,
    ) -> RoundResult[FLDAState]:
        """Record the round; with stop="coherence", keep the previous topics if they are better."""
        local, after = reply
        reason = (
            "no client has enough new documents" if after.idle >= self.settings.patience else ""
        )
        scored = self.settings.stop == "coherence" and not after.idle
        coherence = after.coherence
        if scored and coherence < state.coherence:
            reason = "topics are less coherent than those of the previous round, which are kept"
            after = replace(state, round=round_)
        facts = round_facts(state, after, local, self.settings.n_components)
        if scored:
            facts["coherence"] = coherence
        after = replace(after, history=[*state.history, facts])
        return RoundResult(
            after,
            facts,
            reason=reason,
            files={f"topics-{round_:05d}": {name: asdict(sent) for name, sent in local.items()}},
        )

    def save(self, state: FLDAState) -> Arrays:
        return {"state": np.frombuffer(json.dumps(asdict(state)).encode(), np.uint8)}

    def load(self, agreement: Agreement, arrays: Arrays) -> FLDAState:
        plain = json.loads(arrays["state"].tobytes())
        return FLDAState(**plain | {"topics": [GlobalTopic(**topic) for topic in plain["topics"]]})

    def _guide(self, topic: GlobalTopic) -> Topic:
        if not topic.seed or topic.id >= len(self.settings.seed_topics):
            return topic.words
        seeds = self.settings.seed_topics[topic.id]
        return mean_topic([topic.words, dict.fromkeys(seeds, 1 / len(seeds))], "zero")

    def _guiding_ids(self, state: FLDAState, ids: Sequence[int]) -> list[int]:
        """Return the ids of the topics that guide a client: at most n_components, seeds first."""
        guides = [topic.id for topic in state.topics if topic.seed]
        guides += [id_ for id_ in ids if id_ not in guides]
        return guides[: self.settings.n_components]

    def _merged(self, state: FLDAState, local: Mapping[str, LocalTopics], round_: int) -> FLDAState:
        """Compute M from the topics of a round, and M* of each client."""
        if not local:
            return replace(state, round=round_, idle=state.idle + 1)
        sent = {name: reply.topics for name, reply in local.items()}
        threshold = self.settings.threshold or usual_threshold(sent)
        seed_ids = [topic.id for topic in state.topics if topic.seed]
        merged = global_topics(local, threshold, self.settings, seed_ids)
        topics, next_id = link_rounds(state, local, merged, threshold, self.settings)
        return replace(
            state,
            topics=topics,
            round=round_,
            idle=0,
            next_id=next_id,
            threshold=threshold,
            seen=state.seen + sum(reply.documents for reply in local.values()),
            optimal={
                **state.optimal,
                **{name: optimal_topics(lists, topics, threshold) for name, lists in sent.items()},
            },
        )

    def model(self, agreement: Agreement, state: FLDAState, rounds: int, run: Run) -> Topics:
        topics = state.topics[: self.settings.n_components]
        if not topics:
            raise StudyError(
                "No topic remains: no two clients have similar topics, or none has enough "
                "documents; give more documents, keep unmatched topics, or lower threshold or "
                "min_new_documents."
            )
        # A seed topic that no client has sent needs a word that some client has sent.
        sent = {word for topic in state.topics if topic.clients for word in topic.words}
        check_known({t.id: [*t.words] for t in state.topics if t.seed and not t.clients}, sent)
        agreement, pseudo_counts = count_topic_words(agreement, topics, self.settings.eta)
        run.event(
            VocabularyAgreed(
                words=len(agreement.vocabulary),
                fingerprint=agreement.vocabulary.fingerprint,
                documents=agreement.documents,
                without_known_word=agreement.documents - agreement.training,
            )
        )
        info: Any = info_of(state, topics, self.settings.eta)
        return assemble_model(
            agreement,
            self.settings.model_copy(update={"n_components": len(topics)}),
            {"topics": topic_weights(pseudo_counts)},
            self.made(
                VariationalLDA(len(agreement.vocabulary), LDAPrior(n_components=len(topics))),
                {"pseudo_counts": pseudo_counts},
                rounds,
                **info,
            ),
            self.plan.start,
        )


METHOD = Method(
    name="flda",
    title="F-LDA",
    settings=FLDASettings,
    program=FLDA,
    client=FLDAClient,
    starts_from_models=True,
    takes_new_documents=True,
)
