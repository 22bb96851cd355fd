"""What a study would show of a client's documents, before it joins: to whom, how many bytes.

Bytes are weighed, not guessed: a few rounds are rehearsed in this process, on some of the client's
own documents, with all participants made up of them, and nothing leaves. What can be learned from
what is shown is told in words, which follow from what attacks have found; see
docs/threat-model.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc

from fedtopics.engines.local import LocalClients
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger, flat_fields
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study, plan_of
from fedtopics.methods.base import Moment
from fedtopics.methods.plan import Site
from fedtopics.methods.secret import Secret
from fedtopics.privacy.account import together
from fedtopics.secure.door import MaskedDoor
from fedtopics.secure.said import STAGES, WORD_STAGES
from fedtopics.secure.sum import SecureClients
from fedtopics.secure.words import SUMS
from fedtopics.text.corpus import Corpus

SAMPLE, OTHERS = 5_000, 300  # documents of a rehearsal: the client's own, each other's
ROUNDS = 2
MOST_CLIENTS = 10  # of a rehearsal: what a client sends hardly depends on how many others there are
LITTLE = 1_000  # documents of a sum that still tells words of some of them
FEW = 52  # documents of a sum that tells many of them wholly
ALL_SEE, ADDER_SEES, NOBODY = "all, one by one", "who adds, one by one", "as a sum alone"


@dataclass(frozen=True)
class Shown:
    """One exchange: how often it is, what leaves in words, who sees it, and its bytes."""

    function: str
    often: str
    leaves: str
    seen: str
    once: int | None = None  # bytes of what is not in rounds
    round: float | None = None  # bytes a round


@dataclass(frozen=True)
class Exposure:
    """What a study would show of some documents."""

    study: Study
    shown: Sequence[Shown]
    documents: int | None = None  # of the client
    texts: int | None = None  # their bytes

    @property
    def bytes(self) -> int | None:
        """What leaves in the whole study, if it does all its rounds."""
        if self.texts is None:
            return None
        rounds = self.study.method.max_rounds
        return sum((each.once or 0) + round(rounds * (each.round or 0)) for each in self.shown)

    @property
    def verdicts(self) -> dict[str, str]:
        """What could be learned by who has all that is shown, and the strongest attack known."""
        return {
            "whether a document was there": _membership(self.study),
            "which words a single document has": _words(self.study, self.documents),
            "what one client's documents add up to": _client(self.study),
        }

    def plain(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        numbers = {"documents": self.documents, "texts": self.texts, "bytes": self.bytes}
        return {"exchanges": [asdict(each) for each in self.shown], **numbers, **self.verdicts}


def expose(
    study: Study, corpus: Corpus | None = None, embedding_model: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Exposure:  # fmt: skip
    """Say what a study would show; of these documents how many bytes. Nothing leaves.

    Parameters
    ----------
    study : Study
        With the names of its clients.
    corpus : Corpus, optional
        The client's documents.
    embedding_model : str, optional
        Where the client has the study's encoder, if it needs one.
    on_progress : function, optional
        Gets how many documents are embedded, and of how many.
    """
    scale, texts = _Scale(), None
    to_adder = NOBODY if study.masked else ADDER_SEES
    if corpus is not None:
        texts = _bytes_of(corpus)
        sample = study.embedded(_some(corpus, SAMPLE), embedding_model, on_progress)
        _rehearse(study, sample, scale)
    shown = []
    for each in study.registration.exchanges(study.method):
        seen = ALL_SEE if each.seen_by_all else to_adder
        name = each.function
        weighed = (scale.once[name], scale.rounds[name] / ROUNDS) if texts else (None, None)
        shown.append(Shown(name, each.often, each.leaves, seen, *weighed))
    return Exposure(study, shown, None if corpus is None else len(corpus), texts)


@dataclass
class _Scale:
    """What weighs replies of one client."""

    once: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)


class _WeighedDoor:
    """A client's door, of which replies are weighed."""

    def __init__(self, door: Door | MaskedDoor, scale: _Scale) -> None:
        self._door = door
        self._scale = scale
        self._called, self._round = "", 0

    @property
    def key(self) -> bytes:
        return self._door.key if isinstance(self._door, MaskedDoor) else b""

    def call(self, function: str, payload: Mapping[str, Any], moment: Moment) -> dict[str, Any]:
        reply = self._door.call(function, payload, moment)
        self._called = payload.get("called", self._called) if function in STAGES else function
        if function in WORD_STAGES or self._called in SUMS:
            self._called = "vocabulary"
        asked = payload.get("payload", payload)
        self._round = asked.get("round", self._round if function in STAGES else 0)
        sums = self._scale.rounds if self._round else self._scale.once
        sums[self._called] += sum(_size(value) for _, value in flat_fields(reply))
        return reply

    def repeat(
        self, function: str, payload: Mapping[str, Any], moment: Moment
    ) -> dict[str, Any] | None:
        return self._door.repeat(function, payload, moment)


def _rehearse(study: Study, corpus: Corpus, scale: _Scale) -> None:
    """Do a few rounds with these documents, and others that have some of them; weigh the first.

    Without noise, which adds no byte, and hides what so few documents have.
    """
    names = sorted(study.clients)[:MOST_CLIENTS]
    short, method = study.with_clients(names), study.registration
    if study.privacy is None:  # else there are few, and all are done
        short = short.with_rounds(ROUNDS)
    short = short.model_copy(update={"privacy": None})
    plan = plan_of(short)
    doors: dict[str, Any] = {}
    for name in names:
        secret = Secret.from_seed(short.seed, name)
        own = corpus if name == names[0] else _some(corpus, OTHERS)
        site = Site(name, own, OPEN_POLICY, secret=secret, masked=short.masked)
        half, ledger = method.client(plan, site), Ledger(method.name, short.fingerprint)
        door: Any = Door(name, half, OPEN_POLICY, ledger)
        if short.masked:
            door = MaskedDoor(door, name, secret.derive("masked sums"), lambda _: bytes(64))
        doors[name] = door
    doors[names[0]] = _WeighedDoor(doors[names[0]], scale)
    run = RunFolder(None, short.fingerprint)
    clients: Any = LocalClients(doors)
    if short.masked:
        drawn = method.drawn(short.method)
        clients = SecureClients(clients, drawn, limits=short.vocabulary)
    method.server(plan).train(clients, run)


def _some(corpus: Corpus, most: int) -> Corpus:
    """Return so many documents, from all over a corpus."""
    return corpus.take(np.linspace(0, len(corpus) - 1, min(most, len(corpus)), dtype=int))


def _size(value: Any) -> int:
    """Return about how many bytes a part of a reply has on the wire."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value if isinstance(value, bytes) else str(value).encode())


def _bytes_of(corpus: Corpus) -> int:
    """Return how many bytes the texts, or the tokens, of documents have."""
    documents = corpus.documents
    flat = documents if not hasattr(documents.type, "value_type") else pc.list_flatten(documents)
    return int(pc.sum(pc.binary_length(flat)).as_py() or 0)


# In words


def _membership(study: Study) -> str:
    if study.privacy is not None:
        epsilon = together([study.privacy])  # for a document, where the study protects authors
        return (
            f"hardly: by at most a factor of {np.exp(epsilon):,.3g} (epsilon {epsilon:.3g}) more "
            f"likely than without it, but for cases of probability {study.privacy.delta:g}"
        )
    return "yes, better than by chance: there is no noise, and the model remembers"


def _words(study: Study, documents: int | None) -> str:
    if study.privacy is not None:
        return "hardly: within the same bound"
    rounds = study.method.max_rounds
    if documents is not None and _batch(study) is not None and documents <= rounds:
        return (
            f"yes, all: sums of {rounds:,} rounds can be solved for {documents:,} documents; lower "
            "max_rounds"
        )
    number = _documents_of_a_sum(study, documents)
    if number is None:
        return f"yes, if sums are of fewer than about {LITTLE:,} documents"
    told = f"sums are of about {number:,} documents"
    if number <= FEW:
        return f"yes, many documents wholly: {told}"
    if number < LITTLE:
        return f"yes, some words of some documents: {told}"
    return f"hardly: {told}"


def _client(study: Study) -> str:
    if study.masked:
        return "no: sums are masked, and of at least three clients"
    return "yes, who adds sees it in each exchange: sums are not masked"


def _documents_of_a_sum(study: Study, documents: int | None) -> int | None:
    """Return of how many documents what is seen in a round is, if that is known."""
    drawn = study.method.clients_per_round or len(study.clients)
    batch = _batch(study)
    if batch is None:
        return None if documents is None else documents * (drawn if study.masked else 1)
    share = batch // drawn if documents is None else min(batch // drawn, documents)
    return share * (drawn if study.masked else 1)


def _batch(study: Study) -> int | None:
    """Return how many documents all clients draw for a round; None if they take all."""
    batch: int | None = getattr(study.method, "batch_size", None)
    if batch is None or getattr(study.method, "learning", "") == "batch":
        return None
    drawn = study.method.clients_per_round or len(study.clients)
    return batch * drawn if getattr(study.method, "batch_split", "") == "fixed" else batch
