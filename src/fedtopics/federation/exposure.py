"""What a study tells of a client's documents: before it joins, and by an attack on its model.

Exposure: a few rounds are rehearsed in this process, on some of the client's own documents, with
all participants made up of them, to weigh what would leave. What can be learned is told in words,
which follow from what attacks have found; see docs/threat-model.md.

Audit, by membership inference: a study is trained several times, each time on half of the
documents. The attacker knows the study, all models but one, and which documents those had, and says
of the last one for each document how much likelier it is with the document. Nothing leaves.

References
----------
Carlini and others, Membership Inference Attacks From First Principles, IEEE S&P 2022, section V.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from fedtopics.engines.local import LocalClients
from fedtopics.errors import DataError, RunError
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study, plan_of
from fedtopics.files import read_bytes
from fedtopics.harmless import visible
from fedtopics.methods.core.aggregation import flat_fields
from fedtopics.methods.core.interfaces import Moment
from fedtopics.methods.core.plan import Secret, Site
from fedtopics.model.topic_model import TopicModel
from fedtopics.privacy import Privacy
from fedtopics.privacy.accounting import mu_of
from fedtopics.secure.door import MaskedDoor
from fedtopics.secure.said import STAGES, WORD_STAGES
from fedtopics.secure.sum import SecureClients
from fedtopics.secure.words import SUMS
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import count_words

SAMPLE, OTHERS = 5_000, 300  # documents of a rehearsal: the client's own, each other's
ROUNDS = 2
MOST_CLIENTS = 10  # of a rehearsal: what a client sends hardly depends on how many others there are
LITTLE = 1_000  # documents of a sum that still tells words of some of them
FEW = 52  # documents of a sum that tells many of them wholly
ALL_SEE, ADDER_SEES, NOBODY = "all, one by one", "who adds, one by one", "as a sum alone"

AUDIT = "audit.json"  # in a run's folder, or beside a study's file
SHADOWS, FEWEST = 16, 20  # models, documents of each participant's half
FALSE_POSITIVES = 0.01  # share of the documents left out that may be taken for members
UNKNOWN = 1e-6  # probability of a word that a model does not have
SEED = 0x61756469  # keeps these draws apart from other uses of the seed
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Numbers = NDArray[np.float64]
Members = NDArray[np.bool_]  # (n_models, n_documents): whether a model was trained on a document


@dataclass(frozen=True)
class Shown:
    """One exchange: how often it is, what leaves in words, who sees it, and its bytes."""

    function: str
    often: str
    leaves: str
    seen: str
    once: int | None = None  # bytes before and after rounds
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
        total = "yes, who adds sees it in each exchange: sums are not masked"
        if self.study.masked:
            total = "no: sums are masked, and of at least three clients"
        return {
            "whether a document was there": _membership(self.study),
            "which words a single document has": _words(self.study, self.documents),
            "what one client's documents add up to": total,
        }

    def plain(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        numbers = {"documents": self.documents, "texts": self.texts, "bytes": self.bytes}
        return {"exchanges": [asdict(each) for each in self.shown], **numbers, **self.verdicts}


def expose(
    study: Study, corpus: Corpus | None = None, embedding_model: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Exposure:  # fmt: skip
    """Say what a study, with the names of its clients, would show; of a corpus how many bytes.

    `embedding_model` is where the client has the study's encoder, if it needs one; `on_progress`
    gets how many documents are embedded, and of how many. Nothing leaves.
    """
    once, rounds = Counter[str](), Counter[str]()
    if corpus is not None:
        sample = study.embedded(_some(corpus, SAMPLE), embedding_model, on_progress)
        _rehearse(study, sample, once, rounds)
    shown, to_adder = list[Shown](), NOBODY if study.masked else ADDER_SEES
    for each in study.registration.exchanges(study.method):
        name, seen = each.function, ALL_SEE if each.seen_by_all else to_adder
        weighed = (once[name], rounds[name] / ROUNDS) if corpus and corpus.text_bytes else ()
        shown.append(Shown(name, each.often, each.leaves, seen, *weighed))
    size = () if corpus is None else (len(corpus), corpus.text_bytes)
    return Exposure(study, shown, *size)


class _WeighedDoor:
    """A client's door, of which replies are weighed, those of rounds apart."""

    def __init__(self, door: Any, once: Counter[str], rounds: Counter[str]) -> None:
        self._door, self._once, self._rounds = door, once, rounds
        self._called, self._round = "", 0
        self.key = door.key if isinstance(door, MaskedDoor) else b""
        self.repeat = door.repeat

    def call(self, function: str, payload: Mapping[str, Any], moment: Moment) -> dict[str, Any]:
        reply: dict[str, Any] = self._door.call(function, payload, moment)
        self._called = payload.get("called", self._called) if function in STAGES else function
        if function in WORD_STAGES or self._called in SUMS:
            self._called = "vocabulary"
        asked = payload.get("payload", payload)
        self._round = asked.get("round", self._round if function in STAGES else 0)
        sums = self._rounds if self._round else self._once
        sums[self._called] += sum(_size(value) for _, value in flat_fields(reply))
        return reply


def _rehearse(study: Study, corpus: Corpus, once: Counter[str], rounds: Counter[str]) -> None:
    """Do a few rounds without noise, which adds no byte; weigh the client with these documents."""
    names = sorted(study.clients)[:MOST_CLIENTS]
    short = study.with_clients(names).model_copy(update={"privacy": None})
    if study.privacy is None:  # else there are few, and all are done
        short = short.with_rounds(ROUNDS)
    plan, method = plan_of(short), study.registration
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
    doors[names[0]] = _WeighedDoor(doors[names[0]], once, rounds)
    clients: Any = LocalClients(doors)
    if short.masked:
        clients = SecureClients(clients, method.drawn(short.method), limits=short.vocabulary)
    method.server(plan).train(clients, RunFolder(None, short.fingerprint))


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


def _membership(study: Study) -> str:
    bound = study.privacy
    if bound is None:
        return "yes, better than by chance: there is no noise, and the model remembers"
    return (
        f"hardly: by at most a factor of {np.exp(bound.epsilon):,.3g} (epsilon {bound.epsilon:g}) "
        f"more likely than without it, but for cases of probability {bound.delta:g}"
    )


def _words(study: Study, documents: int | None) -> str:
    if study.privacy is not None:
        return "hardly: within the same bound"
    method, rounds = study.method, study.method.max_rounds
    clients = method.clients_per_round or len(study.clients)
    batch: int | None = getattr(method, "batch_size", None)  # of a client in a round; None: all
    if getattr(method, "learning", "") == "batch":
        batch = None
    elif batch is not None and getattr(method, "batch_split", "") != "fixed":
        batch //= clients
    if batch is not None and documents is not None and documents <= rounds:
        solved = f"sums of {rounds:,} rounds can be solved for {documents:,} documents"
        return f"yes, all: {solved}; lower max_rounds"
    own = min((each for each in (batch, documents) if each is not None), default=None)
    if own is None:
        return f"yes, if sums are of fewer than about {LITTLE:,} documents"
    number = own * clients if study.masked else own
    told = f"sums are of about {number:,} documents"
    if number < LITTLE:
        much = "many documents wholly" if number <= FEW else "some words of some documents"
        return f"yes, {much}: {told}"
    return f"hardly: {told}"


class Audit(BaseModel):
    """How well the attack tells members from other documents, and the most that epsilon allows."""

    model_config = ConfigDict(frozen=True)

    study: str  # fingerprint
    shadows: int = Field(ge=1)
    documents: int = Field(ge=1)  # that it was tried on, in all models
    auc: Share  # how often a member scores higher than another document; .5 by chance
    found: Share  # of the members, at `FALSE_POSITIVES`
    allowed: tuple[Share, Share] | None  # AUC and found, by the study's bound
    path: Path = Field(Path(AUDIT), exclude=True)
    sha256: str = Field("", exclude=True)

    @classmethod
    def read(cls, path: Path, study: str) -> Audit:
        """Read the audit of a study with this fingerprint; RunError if it is not one."""
        try:
            found = cls.model_validate_json(content := read_bytes(path))
        except (OSError, ValidationError):
            remedy = f"write one with: fedtopics audit STUDY --data FILE -o {path}"
            raise RunError(f"{path} is not an audit; {remedy}") from None
        if found.study != study:
            of = f"{path} is an audit of the study {visible(found.study)}, not of {study}"
            raise RunError(f"{of}; audit this one, or take the file away.")
        sha256 = hashlib.sha256(content).hexdigest()
        return found.model_copy(update={"path": path, "sha256": sha256})


def audit(
    study: Study, documents: Corpus, shadows: int = SHADOWS,
    on_progress: Callable[[int, int], None] | None = None,
) -> Audit:  # fmt: skip
    """Attack a study's model with one's own documents; nothing leaves this process.

    `study` names its clients, among whom the documents are dealt. More `shadows`, an even number of
    models, make the attack stronger; `on_progress` gets how many are trained, and of how many.
    DataError if there are too few documents.
    """
    names = list(study.clients)
    if len(documents) // 2 // len(names) < FEWEST:
        raise DataError(f"An audit needs {2 * FEWEST} documents per client; give more documents.")
    corpus, rng = study.embedded(documents), np.random.default_rng([study.seed, SEED])
    n = len(corpus)
    drawn = np.array([rng.permutation(n) < n // 2 for _ in range(shadows // 2)])
    halves = np.stack([drawn, ~drawn], axis=1).reshape(-1, n)  # a document is in one of each pair
    scores, owners = np.empty(halves.shape), np.array(names)[np.arange(n) % len(names)]
    for number, members in enumerate(halves):
        dealt = {}
        for name in names:  # with the number, as a client's secret follows from its name
            dealt[f"{name}-{number}"] = corpus.take(np.flatnonzero(members & (owners == name)))
        model = train(study, dealt, policies=dict.fromkeys(dealt, OPEN_POLICY))
        scores[number] = likelihoods(model, corpus)
        if on_progress is not None:
            on_progress(number + 1, len(halves))
    auc, found = rates(likelihood_ratios(scores, halves), halves)
    size = {"shadows": len(halves), "documents": scores.size}
    most = allowed(study.privacy)
    return Audit(study=study.fingerprint, auc=auc, found=found, allowed=most, **size)


def likelihoods(model: TopicModel, corpus: Corpus) -> Numbers:
    """Return the mean log-likelihood of each document's words by a model; 0 for an empty one."""
    counts = model.count(corpus).astype(np.float64).tocoo()
    rows, columns = counts.coords
    theta = model.transform(corpus).astype(np.float64)
    shares = np.einsum("nk,kn->n", theta[rows], model.beta[:, columns])
    known = np.bincount(rows, counts.data * np.log(np.maximum(shares, UNKNOWN)), len(corpus))
    lengths = count_words(corpus, model.text).counts.sum(1)
    unknown = lengths - np.bincount(rows, counts.data, len(corpus))
    return np.asarray((known + unknown * math.log(UNKNOWN)) / np.maximum(lengths, 1))


def likelihood_ratios(scores: Numbers, members: Members) -> Numbers:
    """Return how much likelier scores are with a document, taking others for normal."""
    found = np.empty_like(scores)
    for target in range(len(scores)):
        others = np.arange(len(scores)) // 2 != target // 2  # of which half have each document
        inside, score = members[others], scores[others]
        with_it = np.where(inside, score, 0).sum(0) / np.maximum(inside.sum(0), 1)
        without = np.where(inside, 0, score).sum(0) / np.maximum((~inside).sum(0), 1)
        variance = ((score - np.where(inside, with_it, without)) ** 2).mean(0) + 1e-12
        away = (scores[target] - without) ** 2 - (scores[target] - with_it) ** 2
        found[target] = away / (2 * variance)
    return found


def rates(scores: Numbers, members: Members) -> tuple[float, float]:
    """Return the AUC of scores, and the share of the members found at `FALSE_POSITIVES`."""
    inside, outside = scores[members], scores[~members]
    ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)]
    auc = (ranks.sum() - len(inside) * (len(inside) + 1) / 2) / (len(inside) * len(outside))
    threshold = np.quantile(outside, 1 - FALSE_POSITIVES)
    return float(auc), float((inside > threshold).mean())


def allowed(privacy: Privacy | None) -> tuple[float, float] | None:
    """Return the most that any attack can do on what a study releases with this bound."""
    if privacy is None:
        return None
    mu = mu_of(privacy)
    return float(ndtr(mu / math.sqrt(2))), float(ndtr(ndtri(FALSE_POSITIVES) + mu))
