"""How clients agree on a vocabulary, or adopt that of a model that is trained further."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedtopics.contract.events import VocabularyAgreed
from fedtopics.contract.interfaces import EVERYONE, Clients, Draw, Run
from fedtopics.errors import StudyError
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import COUNTED, TopicClient
from fedtopics.methods.core.plan import Plan
from fedtopics.model.topics import Topics
from fedtopics.text.rounding import coins_of, is_example
from fedtopics.text.vocabulary import Vocabulary, VocabularyLimits, agree


def reach_agreement(clients: Clients, run: Run, plan: Plan[Any], least_words: int) -> Agreement:
    """Agree on a vocabulary, or reuse that of a resumed run, or of a model to train further."""
    draw = Draw(plan.settings.clients_per_round, plan.seed)
    nothing_agreed = Agreement(clients, plan.settings)
    agreed = run.recall("agreement")
    continued = None if plan.start is None else plan.start.continued

    def work() -> dict[str, Any]:
        words_and_total = (
            _agree(nothing_agreed, plan.limits, least_words)
            if continued is None
            else _agree_on_model(nothing_agreed, plan.limits, continued)
        )
        # Only clients that have adopted the words know how many documents have none of them.
        adopt(clients, words_and_total, draw)
        return words_and_total | count_documents(
            replace(nothing_agreed, vocabulary=Vocabulary.of(words_and_total))
        )

    if agreed is not None:
        adopt(clients, agreed, draw)
    else:
        agreed = clients.round(0, work)[0]
        run.keep("agreement", agreed)
    vocabulary = Vocabulary.of(agreed)
    numbers = agreed["counts"]
    if clients.hidden:
        clients.tell(TopicClient.limit_rounds.__name__, persons=sum(agreed["persons"].values()))
    run.event(
        VocabularyAgreed(
            len(vocabulary), vocabulary.fingerprint, **numbers, few=agreed.get("few", "")
        )
    )
    return Agreement(
        clients=clients,
        settings=plan.settings,
        vocabulary=vocabulary,
        documents=agreed["total"],
        training=numbers["training"],
        length=agreed["length"],
        draw=draw,
        sizes=agreed["sizes"],
        persons=agreed["persons"],
        halved=agreed["counts"]["halved"],
        has_counts=continued is None,
        counts_first=agreed["counts_first"] > 0,
        least=max(agreed["least"], 1),
        least_clients=max(agreed["least_clients"], 1),
        coins=agreed["coins"],
    )


def _agree(nothing_agreed: Agreement, limits: VocabularyLimits, least_words: int) -> dict[str, Any]:
    # Each client keeps this many of its most frequent words, whatever the others send.
    n_clients = len(nothing_agreed.clients.names)
    reply = nothing_agreed.ask(
        TopicClient.vocabulary,
        places=limits.max_words // n_clients,
        most=limits.most_proposed(n_clients),
    )
    words = reply["words"]
    total = reply["documents"]
    _check_number(len(words.names), least_words)
    vocabulary = agree(words.names, words.values, total, limits, n_clients)
    _check_number(len(vocabulary), least_words)
    coins = coins_of(words.values[:, :2])
    vocabulary = vocabulary if is_example(total, n_clients) else vocabulary.rounded()
    clients = dict(zip(words.names, words.values[:, 2].tolist(), strict=True))
    few = Counter(clients[word] for word in vocabulary.words)
    return {
        **vocabulary.plain(),
        "total": total,
        "length": float(vocabulary.occurrences.sum() / total),
        "few": f"; {few[1]:,} of them are of one client alone, {few[2]:,} of two"
        if n_clients > 1
        else "",
        "coins": coins,
    }


def _check_number(n_words: int, least: int) -> None:
    if n_words < max(least, 2):
        fewer = f"n_components = {least}; lower n_components," if least > 2 else "2;"
        raise StudyError(
            f"The agreed vocabulary has {n_words} words, fewer than {fewer} give more documents, "
            "of more persons. The study's min_clients_per_word and min_persons_per_word, and "
            "policies with a larger min_persons_per_word, left out rarer words."
        )


def _agree_on_model(
    nothing_agreed: Agreement, limits: VocabularyLimits, model: Topics
) -> dict[str, Any]:
    """Reuse the vocabulary of a model that is trained further, where enough clients have a word.

    Clients count only these words: others would be sums of one client's documents.
    """
    reply = nothing_agreed.ask(TopicClient.known_words, words=list(model.vocabulary.words))
    total = reply["documents"]
    clients = reply["clients"]
    least = limits.clients_per_word(len(nothing_agreed.clients.names))
    mean_length = model.vocabulary.occurrences.sum() / max(sum(model.documents.values()), 1)
    return {
        **model.vocabulary.plain(),
        "total": total,
        "length": float(model.info.get("length", mean_length)),
        "coins": coins_of(clients),
        "few_have": (clients < least).tolist(),
    }


def adopt(clients: Clients, agreed: Mapping[str, Any], draw: Draw = EVERYONE) -> None:
    clients.tell(
        TopicClient.adopt.__name__,
        words=agreed["words"],
        total=max(1, round(agreed["total"] * draw.fraction_drawn(len(clients.names)))),
        length=agreed["length"],
        few_have=agreed.get("few_have", []),
    )


def count_documents(agreement: Agreement) -> dict[str, Any]:
    """Return numbers of documents: the total ("counts"), by client ("sizes"), "least" in groups."""
    replies = agreement.ask(TopicClient.document_counts)
    return {
        "counts": {name: sum(reply[name] for reply in replies.values()) for name in COUNTED},
        "sizes": {name: reply["documents"] for name, reply in replies.items()},
        "persons": {name: reply["persons"] for name, reply in replies.items()},
        **{
            limit: max(reply.get(limit, 0) for reply in replies.values())
            for limit in ("least", "least_clients", "counts_first")  # with secure aggregation
        },
    }
