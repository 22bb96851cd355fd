"""What a study would reveal of a client's documents, to whom, and in how many bytes.

`expose` makes the numbers and verdicts that a member sees before it joins; a rehearsal on this
machine counts the bytes. The attacks behind the verdicts: docs/concepts/threat-model.md.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedtopics.contract.interfaces import Call
from fedtopics.contract.payload import CountsByWord, flat_fields
from fedtopics.contract.replies import Template, WordCountBounds
from fedtopics.errors import StudyError
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import exchanges, plan_of, recipe_of
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.auto.client import total_words
from fedtopics.methods.core.plan import ClientContext, Secret
from fedtopics.methods.registry import PublishedFunction, find_method
from fedtopics.model.card import risk
from fedtopics.privacy.accounting import together
from fedtopics.protocol import vocabulary
from fedtopics.protocol.clients import ARRAYS, DATA_SENT, DOCUMENTS, MEMBERS_SEE, MODEL
from fedtopics.protocol.keys import LENGTH
from fedtopics.protocol.layout import Layout
from fedtopics.text.corpus import Corpus

REHEARSED = 5_000  # own documents in a rehearsal
REHEARSED_OTHERS = 300  # documents of each other client in a rehearsal
ROUNDS = 2
MOST_CLIENTS = 10  # in a rehearsal; the bytes hardly depend on the number of clients
SOME_READABLE = 1_000  # documents in a sum that still reveals words of some of them
READABLE = 52  # documents in a sum that reveals many of them completely
WORD = 8  # bytes
OWN = "this client"  # its name in messages
NAMED = "named"  # count of words in a rehearsal
ALL_SEE = "all members"
SERVER_SEES = "the server"
NOBODY = "totals only"


@dataclass(frozen=True)
class FunctionExposure:
    """One aggregation step: how often it happens, what it shares, who sees it, and its bytes."""

    function: str
    often: str
    data_sent: str
    seen: str
    once: int | None = None  # bytes before and after rounds
    round: float | None = None  # bytes per round


@dataclass(frozen=True)
class Exposure:
    study: Study
    shown: Sequence[FunctionExposure]
    documents: int | None = None  # of the client
    texts: int | None = None  # their bytes
    words: int | None = None  # number of words that the client names
    chosen: str = ""  # the method that "auto" would choose for these documents, and why

    @property
    def bytes(self) -> int | None:
        """Bytes sent in the whole study, if it does all its rounds."""
        if self.texts is None:
            return None
        rounds = self.study.method.max_rounds
        return sum((step.once or 0) + round(rounds * (step.round or 0)) for step in self.shown)

    @property
    def verdicts(self) -> dict[str, str]:
        """What an attacker with all shared data and the strongest known attack learns."""
        privacy = self.study.differential_privacy
        membership = (
            "yes, better than by chance: there is no noise, and a model remembers documents"
        )
        if privacy is not None:  # for a document, also where the study protects authors
            membership = in_words(together([privacy]), privacy.delta)
        return {
            "whether a document was there": membership,
            "which words a single document has": _words(self.study, self.documents),
            "what the sum over one client's documents is": (
                "no: aggregation is secure, and every sum is over all members"
                if self.study.is_secure
                else "yes, the server sees each update: aggregation is plain"
            ),
        }

    def plain(self) -> dict[str, Any]:
        numbers = {"documents": self.documents, "texts": self.texts, "bytes": self.bytes}
        return {"exchanges": [asdict(step) for step in self.shown], **numbers, **self.verdicts}


def in_words(epsilon: float, delta: float) -> str:
    factor = float(f"{np.exp(epsilon):.3g}")
    return (
        f"{risk(epsilon)}: any conclusion is at most {factor:,.8g} times as likely with the "
        f"document as without it (epsilon {epsilon:.3g}), except with probability {delta:g}"
    )


def expose(
    study: Study,
    corpus: Corpus | None = None,
    embedding_model: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    policy: Policy = OPEN_POLICY,
) -> Exposure:
    """Return what a study would reveal, with the bytes for a corpus; nothing is sent."""
    once = Counter[str]()
    rounds = Counter[str]()
    chosen = ""
    if corpus is not None and study.method.method_name == "auto":
        settings: Any = study.method
        embedded = len(corpus) if settings.embedding_of(corpus) is not None else 0
        choice, why = settings.choose(len(corpus), total_words(corpus), embedded)
        method = find_method(choice["name"]).settings(**choice)
        study = study.model_copy(update={"method": method})
        chosen = f"{choice['name']}, as {why}"
    if corpus is not None:
        most = max(REHEARSED, policy.min_documents)
        sample = study.embedded(_some(corpus, most), embedding_model, on_progress)
        _rehearse(study, sample, once, rounds, policy.in_study(study.is_secure))
        if study.is_secure:
            once.update({DOCUMENTS: WORD, MODEL: LENGTH})
    all_exchanges = exchanges(study)
    if study.is_secure:
        # With differential privacy, words are public, and no exact document count is sent.
        has_noise = study.differential_privacy is not None
        names = (MODEL, ARRAYS) if has_noise else DATA_SENT
        all_exchanges += [
            PublishedFunction(name, "once", DATA_SENT[name], name in MEMBERS_SEE) for name in names
        ]
    shown = list[FunctionExposure]()
    otherwise = NOBODY if study.is_secure else SERVER_SEES
    is_weighed = bool(corpus and corpus.text_bytes)
    for exchange in all_exchanges:
        name = exchange.function
        shown.append(
            FunctionExposure(
                function=name,
                often=exchange.often,
                data_sent=exchange.data_sent,
                seen=ALL_SEE if exchange.seen_by_all else otherwise,
                once=once[name] if is_weighed else None,
                round=rounds[name] / ROUNDS if is_weighed else None,
            )
        )
    if corpus is None:
        return Exposure(study, shown)
    return Exposure(
        study=study,
        shown=shown,
        documents=len(corpus),
        texts=corpus.text_bytes,
        words=once[NAMED],
        chosen=chosen,
    )


class _WeighedDoor:
    """A client's door that counts the bytes of replies, those in rounds separately."""

    def __init__(self, door: Door, once: Counter[str], rounds: Counter[str]) -> None:
        self._door = door
        self._once = once
        self._rounds = rounds
        self.repeat = door.repeat

    def call(self, call: Call) -> dict[str, Any]:
        reply = self._door.call(call)
        sums = self._rounds if call.payload.get("round") else self._once
        sums[call.function] += sum(_size(value) for _, value in flat_fields(reply))
        named = (len(value.names) for value in reply.values() if isinstance(value, CountsByWord))
        self._once[NAMED] += sum(named)
        return reply


class _SecureClients(LocalClients):
    """Clients that also count the vectors of secure sums."""

    def __init__(self, doors: Mapping[str, Any], once: Counter[str], rounds: Counter[str]) -> None:
        super().__init__(doors, hidden=True)
        self._once = once
        self._rounds = rounds

    def sum(self, function: str, template: Template, **payload: Any) -> dict[str, Any]:
        sums = self._rounds if payload.get("round") else self._once
        before = sums[function]
        total = super().sum(function, template, **payload)
        sums[function] = before
        if any(isinstance(field, WordCountBounds) for field in template.values()):
            words = next(value.names for value in total.values() if isinstance(value, CountsByWord))
            size = vocabulary.buckets_for(total["documents"])
            sums[vocabulary.TABLE] += self._vector(vocabulary.template_of(size))
            sums[vocabulary.LISTED] += _size(words)
            sums[vocabulary.COUNTS] += self._vector(vocabulary.template_of(len(words)))
        else:
            sums[function] += self._vector(template)
        return total

    def _vector(self, template: Template) -> int:
        return WORD * (Layout.of(template, self.names, len(self.names)).size + 1)


def _rehearse(
    study: Study, corpus: Corpus, once: Counter[str], rounds: Counter[str], policy: Policy
) -> None:
    """Do a few rounds without noise, which adds no bytes, and count this client's bytes."""
    names = [OWN, *sorted(study.clients)[1:MOST_CLIENTS]]
    short = study.here(names)
    method = study.registration
    recipe = recipe_of(study)
    if recipe is None:  # with privacy there are few rounds: do them all
        short = short.with_rounds(ROUNDS)
        plan = plan_of(short)
    else:
        plan = replace(plan_of(short), privacy=None, budget=recipe.budget(None, short.method))
    maker = recipe or method
    doors: dict[str, Any] = {}
    for name in names:
        is_own = name == names[0]
        rules = policy if is_own else OPEN_POLICY
        context = ClientContext(
            name=name,
            corpus=corpus if is_own else _some(corpus, REHEARSED_OTHERS),
            policy=rules,
            secret=Secret.from_seed(short.seed, name),
            masked=study.is_secure,
        )
        ledger = Ledger(method=method.name, study=short.fingerprint)
        doors[name] = Door(name, maker.client(plan, context), rules, ledger)
    doors[names[0]] = _WeighedDoor(doors[names[0]], once, rounds)
    clients = _SecureClients(doors, once, rounds) if study.is_secure else LocalClients(doors)
    maker.program(plan).train(clients, RunFolder(None, short.fingerprint))


def rehearse_noise(study: Study, corpus: Corpus) -> None:
    """Train a private study on few documents for all members; StudyError if noise hides them."""
    is_small = len(corpus) <= REHEARSED and len(study.clients) <= MOST_CLIENTS
    if study.differential_privacy is None or not is_small:
        return
    try:
        train(study.here(study.clients), dict.fromkeys(study.clients, corpus), policies={})
    except StudyError as error:
        raise StudyError(f"With such documents at all members, the study fails: {error}") from None


def _some(corpus: Corpus, most: int) -> Corpus:
    return corpus.take(np.linspace(0, len(corpus) - 1, min(most, len(corpus)), dtype=int))


def _size(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value if isinstance(value, bytes) else str(value).encode())


def _words(study: Study, documents: int | None) -> str:
    if study.differential_privacy is not None:
        return f"{risk(study.differential_privacy.epsilon)}, within the same bound"
    method = study.method
    rounds = study.method.max_rounds
    clients = method.clients_per_round or len(study.clients)
    batch: int | None = getattr(method, "batch_size", None)  # per client and round; None: all
    if getattr(method, "learning", "") == "batch":
        batch = None
    elif batch is not None and getattr(method, "batch_split", "") != "fixed":
        batch //= clients
    if batch is not None and documents is not None and documents <= rounds:
        solved = f"the sums of {rounds:,} rounds suffice to compute all {documents:,} documents"
        return f"yes, all: {solved}; lower max_rounds"
    of_client = min((size for size in (batch, documents) if size is not None), default=None)
    in_sum = 0 if batch is None else batch * (clients if study.is_secure else 1)
    if of_client is None or (documents is None and in_sum >= SOME_READABLE):
        return f"yes, if a sum is over fewer than about {SOME_READABLE:,} documents"
    others = " and those of the others, whose number is not known yet" if study.is_secure else ""
    reason = f"a sum is over {of_client:,} of these documents{others}"
    if of_client <= READABLE:
        return f"yes, many complete documents: {reason}"
    if of_client < SOME_READABLE:
        return f"yes, some words of some documents: {reason}"
    return f"hardly: {reason}"
