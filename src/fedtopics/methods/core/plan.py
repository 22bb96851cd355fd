"""Plans and sites: a program is made from a plan, a client side from a plan and a site.

References
----------
Krawczyk and Eronen, HMAC-based Extract-and-Expand Key Derivation Function (HKDF), RFC 5869.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedtopics.contract.events import Event
from fedtopics.errors import RunError, StudyError, check_choice, refuse
from fedtopics.files import make_folder, read_bytes, write_durably
from fedtopics.inference.merged import Merged
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.metrics import align_words
from fedtopics.metrics.similarity import heaviest
from fedtopics.model.topics import Topics
from fedtopics.text.corpus import Corpus
from fedtopics.text.growing import Follow
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import VocabularyLimits

LENGTH = 32  # bytes


@dataclass(frozen=True)
class Secret:
    """The source of all random choices of one client in one study.

    An attacker who knows the minibatches could reconstruct documents from sums of many rounds.
    """

    key: bytes = field(repr=False)
    seeded: bool = False  # derived from the study's seed, which others know

    @classmethod
    def from_seed(cls, seed: int, client: str) -> Secret:
        """Derive a client's secret from a study's seed, for reproducible simulations."""
        return cls(hashlib.sha256(json.dumps([seed, client]).encode()).digest(), True)

    @classmethod
    def keep(cls, path: Path) -> Secret:
        """Read the secret in a file, or generate one and write it there for its owner only."""
        if not path.exists():
            make_folder(path.parent)
            write_durably(path, os.urandom(LENGTH))
        key = read_bytes(path)
        if len(key) != LENGTH:
            raise RunError(
                f"{path} does not contain a secret of {LENGTH} bytes; restore it, or delete it if "
                "this client no longer takes part in any study."
            )
        return cls(key)

    def of_run(self, study: str) -> Secret:
        """Return the secret of one run; a secret from a seed is the same in all runs."""
        return self if self.seeded else Secret(self.derive("run", study))

    def rng(self, purpose: str, *numbers: int) -> np.random.Generator:
        """Return a generator for a purpose, such as the minibatch of a round and attempt."""
        return np.random.default_rng(int.from_bytes(self.derive(purpose, *numbers)))

    def seed(self, purpose: str, *numbers: int) -> int:
        return int.from_bytes(self.derive(purpose, *numbers)[:8]) >> 1

    def derive(self, purpose: str, *context: int | str) -> bytes:
        return HKDF(
            SHA256(), LENGTH, salt=None, info=json.dumps([purpose, *context]).encode()
        ).derive(self.key)


Words = Literal["keep", "agree"]
"""Whether a model keeps its vocabulary, or clients agree on a new one."""
TINY = 1e-300


@dataclass(frozen=True)
class WarmStart:
    words: Sequence[str]
    topics: NDArray[np.float64]  # p(topic, word) of shape (n_topics, n_words)
    model: Topics | None = None  # the model with these topics
    # "keep" trains the model further: clients send no words, and the numbers of rounds continue
    # those of the model. "agree" starts from the model's topics in an agreed vocabulary.
    vocabulary: Words = "agree"
    adds_documents: bool = False  # only new documents are used, and added to the model's own

    @classmethod
    def of(
        cls, source: Any, vocabulary: Words = "agree", adds_documents: bool = False
    ) -> WarmStart:
        """Start from a TopicModel that finds topics, or from a pair (beta, words)."""
        if isinstance(source, cls):
            return source
        check_choice(vocabulary, "vocabulary", get_args(Words))
        if isinstance(source, Topics):
            if source.shows_clusters:
                raise StudyError(
                    f"The model to begin with has clusters of {_method(source)} instead of topics; "
                    "begin with a model from a method that finds topics."
                )
            return cls(
                words=source.vocabulary.words,
                topics=source.share[:, None] * source.beta,
                model=source,
                vocabulary=vocabulary,
                adds_documents=adds_documents,
            )
        if vocabulary == "keep":
            raise StudyError(
                'A pair of beta and words has no vocabulary to keep; set vocabulary to "agree", or '
                "give a TopicModel."
            )
        try:  # wrong types and wrong numbers get the same advice
            beta, words = source
            topics = np.asarray(beta, np.float64)
            usable = np.isfinite(topics).all() and (topics >= 0).all() and topics.sum() > 0
            if topics.ndim != 2 or topics.shape[1] != len(words) or not usable:
                raise ValueError
        except (TypeError, ValueError):
            raise StudyError(
                "The topics to begin with cannot be used; give a TopicModel, or a pair of beta, of "
                "shape (n_topics, n_words), not negative and not all zero, and its words."
            ) from None
        return cls(list(words), topics / topics.sum())

    @property
    def continued(self) -> Topics | None:
        return self.model if self.vocabulary == "keep" else None

    @property
    def added(self) -> Topics | None:
        """The model, if it is trained further and new documents are added to its own."""
        return self.continued if self.adds_documents else None

    @property
    def rounds(self) -> int:
        return 0 if self.continued is None else self.continued.info.get("rounds", 0)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.vocabulary} {self.adds_documents}\n".encode())
        digest.update("\n".join(self.words).encode())
        digest.update(
            np.ascontiguousarray(self.topics).tobytes()
            if self.model is None
            else fingerprint_of(self.model).encode()
        )
        return digest.hexdigest()

    @property
    def origin(self) -> dict[str, Any]:
        return (
            {}
            if self.model is None
            else {
                "model": fingerprint_of(self.model),
                "method": _method(self.model),
                "rounds": self.model.info.get("rounds", 0),
                "vocabulary": self.vocabulary,
            }
        )

    def added_to(self, model: Topics) -> Topics:
        """Return the new model with the documents of the old one added, if `adds_documents`."""
        before = self.added
        if before is None:
            return model
        old, new = (np.array(m.info.get("ids", range(m.n_topics))) for m in (before, model))
        same = (new[:, None] == old).astype(float)
        none = np.zeros(len(new))
        shares = {}
        documents = {}
        for name in sorted({*before.documents, *model.documents}):
            n_old = before.documents.get(name, 0)
            n_new = model.documents.get(name, 0)
            share = same @ before.shares[name] if n_old else none
            # Shares of topics that no longer exist are missing, so the others are scaled up to 1.
            theta = n_old * share / max(share.sum(), TINY) + n_new * model.shares.get(name, none)
            shares[name] = theta / max(n_old + n_new, 1)
            documents[name] = n_old + n_new
        old_sums = align_words(
            before.word_sums, words=before.vocabulary.words, wanted=model.vocabulary.words
        )
        return replace(
            model,
            documents=documents,
            shares=shares,
            word_sums=model.word_sums + same @ old_sums,
        )

    def check_method(self, method: str) -> None:
        if (before := self.continued) is not None:
            refuse(
                {
                    f"The model was trained by {_method(before)} and the study trains {method}; "
                    'set vocabulary to "agree" to begin with the model\'s topics.': (
                        _method(before) != method
                    ),
                    "The model has merged topics and cannot be trained further; use the model "
                    'before the merge, or set vocabulary to "agree" to begin with the model\'s '
                    "topics.": before.inference.name == Merged.name,
                },
                error=StudyError,
            )

    def check_number(self, n_topics: int) -> None:
        if len(self.topics) != n_topics:
            raise StudyError(
                f"There are {len(self.topics)} topics to begin with, but the study has "
                f"n_components = {n_topics}; set n_components to the number of topics."
            )

    def lists(self, n_words: int) -> list[dict[str, float]]:
        topics = self.topics / np.maximum(self.topics.sum(1, keepdims=True), TINY)
        return [heaviest(topic, self.words, n_words) for topic in topics]

    def on(self, words: Sequence[str]) -> NDArray[np.float64]:
        """Return p(topic, word) of these words, 0 for new words; StudyError if all are new."""
        topics = align_words(self.topics, self.words, words)
        if not topics.any():
            raise StudyError(
                "The topics to begin with contain no word that the clients agreed on; begin "
                "without these topics."
            )
        return topics


def default_vocabulary(model: Topics | None, settings: TopicSettings, text: TextRules) -> Words:
    """Return "keep" if a model to start from has the study's method and rules, else "agree"."""
    is_like_it = (
        model is not None
        and model.info.get("method") == settings.method_name
        and model.text == text
    )
    return "keep" if is_like_it else "agree"


def fingerprint_of(model: Topics) -> str:
    digest = hashlib.sha256("\n".join(model.vocabulary.words).encode())
    for owner, tensors in sorted({"": model.weights, **model.shared}.items()):
        for name, tensor in sorted(tensors.items()):
            array = np.asarray(tensor)
            digest.update(f"\n{owner}/{name} {array.shape} {array.dtype}\n".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def _method(model: Topics) -> str:
    return model.info.get("method", "an unknown method")


Settings = TypeVar("Settings", bound=TopicSettings)


@dataclass(frozen=True)
class Plan(Generic[Settings]):
    """The part of a study from which its program and its client sides are made."""

    settings: Settings
    text: TextRules
    limits: VocabularyLimits
    seed: int
    start: WarmStart | None = None  # used only by the program


class Limits(Protocol):
    @property
    def min_persons(self) -> int:
        """Least number of documents that a reply sums over."""

    @property
    def min_persons_per_word(self) -> int:
        """Least number of documents that contain a word that is shared."""

    @property
    def min_clients_per_group(self) -> int:
        """Least number of clients of a group, with secure aggregation."""

    @property
    def counts_of_all(self) -> bool:
        """Whether, with secure aggregation, group sizes are counted over all clients' documents."""

    def names_in(self, text: TextRules) -> frozenset[str]:
        """Return the names that are never counted, in the form that words have."""


@dataclass(frozen=True)
class ClientContext:
    """A client: its documents, its policy, and resources of its computer."""

    name: str
    corpus: Corpus  # the documents at the start
    policy: Limits
    folder: Path | None = None  # where the client stores its state for a restart
    notify: Callable[[Event], None] = lambda _: None  # receives events for the client itself
    embedding_model: str | None = None  # name or local folder of the study's embedding model
    growing: Follow | None = None  # reads the documents again if they grow during the study
    secret: Secret | None = None  # by default derived from the study's seed and the name
    masked: bool = False  # whether secure aggregation hides replies
    apart: bool = False  # whether the others are on other machines
    is_part: bool = False  # whether these are only a part of the client's documents
