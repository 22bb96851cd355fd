"""F-LDA's model, and the counts of its topics' words in all clients' documents."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.inference.lda import LDAPrior, VariationalLDA, topic_weights
from fedtopics.methods.core.agreement import Agreement, adopt, counted
from fedtopics.methods.core.events import VocabularyAgreed
from fedtopics.methods.core.final import ALL, count_pairs, describe
from fedtopics.methods.core.interfaces import Clients, Run
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.replies import LONGEST, counts
from fedtopics.methods.core.settings import check_known
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.state import FLDAState, GlobalTopic, info_of
from fedtopics.model.coherence import federated_coherence
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.model.topics import Topics
from fedtopics.text.vocabulary import Vocabulary


def adopt_words(clients: Clients, topics: Sequence[GlobalTopic]) -> Agreement:
    total: dict[str, float] = {}
    for topic in topics:
        for word, weight in topic.words.items():
            total[word] = total.get(word, 0.0) + weight
    words = sorted(total, key=lambda word: (-total[word], word))
    adopt(clients, {"words": words, "total": 1, "length": 1.0})
    found = counted(clients, words)
    none = np.zeros(len(words), np.int64)
    vocabulary, of_all = Vocabulary(tuple(words), none, none), found["counts"]
    sizes = of_all["documents"], of_all["training"], 1.0
    return Agreement(clients, vocabulary, *sizes, sizes=found["sizes"])


def coherence_of(clients: Clients, topics: Sequence[GlobalTopic], settings: FLDASettings) -> float:
    """Return the mean coherence (C_V) of topics in all clients' documents; -1 without topics."""
    if not topics:
        return -1.0
    shown = min(WORDS_SHOWN, *(len(topic.words) for topic in topics))
    words = [list(topic.words)[:shown] for topic in topics]
    ask = partial(count_pairs, adopt_words(clients, topics), part=ALL)
    within = cast(Literal["windows", "documents"], settings.coherence)
    return float(federated_coherence(ask, words, within)["c_v"].mean())


def count_topic_words(
    clients: Clients, topics: Sequence[GlobalTopic], eta: float
) -> tuple[Agreement, NDArray[np.float64]]:
    """Count the topics' words at the clients; for absent clients, counts follow from the topics."""
    agreement = adopt_words(clients, topics)
    n, index = len(agreement.vocabulary), agreement.vocabulary.index
    template = {"containing": counts(n, each=1), "occurrences": counts(n, each=LONGEST)}
    counted = agreement.sum("word_counts", template)
    pseudo_counts, remembered = np.full((n, len(topics)), eta), np.ones(n)
    for number, topic in enumerate(topics):
        rows = [index[word] for word in topic.words]
        weights = np.array(list(topic.words.values()))
        pseudo_counts[rows, number] += max(topic.occurrences, 1.0) * weights / weights.sum()
        remembered[rows] += topic.occurrences * weights
    occurrences = np.maximum(counted["occurrences"], remembered.astype(np.int64))
    vocabulary = Vocabulary(agreement.vocabulary.words, counted["containing"], occurrences)
    return replace(agreement, vocabulary=vocabulary), pseudo_counts


def model_of(plan: Plan[FLDASettings], agreement: Agreement, state: FLDAState, run: Run) -> Topics:
    topics = state.topics[: plan.settings.n_components]
    if not topics:
        raise StudyError(
            "No topic remains: no two clients have similar topics, or none has enough documents; "
            "give more documents, keep unmatched topics, or lower threshold or min_new_documents."
        )
    known = {word for topic in state.topics if topic.clients for word in topic.words}
    check_known({t.id: [*t.words] for t in state.topics if t.seed and not t.clients}, known)
    agreement, pseudo_counts = count_topic_words(agreement.clients, topics, plan.settings.eta)
    vocabulary, documents = agreement.vocabulary, agreement.documents
    seen = documents, documents - agreement.training
    run.event(VocabularyAgreed(len(vocabulary), vocabulary.fingerprint, *seen))
    make = partial(
        Topics, inference=VariationalLDA(len(vocabulary), LDAPrior(n_components=len(topics))),
        weights={"pseudo_counts": pseudo_counts}, shared={}, text=plan.text,
        info=info_of(state, topics, plan.settings.eta, plan.seed),
    )  # fmt: skip
    settings = plan.settings.model_copy(update={"n_components": len(topics)})
    return describe(agreement, settings, {"topics": topic_weights(pseudo_counts)}, make, plan.start)
