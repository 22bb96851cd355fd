"""Record what an attacker has: the study, the program, and all data that a client got and sent.

A federation in one process whose doors are tapped; and clients of the attacker's own, who do with
made-up documents what the victim did with its own.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.common import parquet
from fedtopics.contract.interfaces import Call
from fedtopics.contract.payload import SparseRows
from fedtopics.federation.door import Door
from fedtopics.federation.finished_model import finished
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import Policy
from fedtopics.federation.program import client_of, program_of
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study
from fedtopics.methods.core.plan import ClientContext, Secret
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus

CURIOUS = Policy(min_persons_per_word=1)  # of the attacker's own clients; all words count
RARE = 5  # documents: a word of fewer does not leave, by the default policy


@dataclass
class Tap:
    """A door at which somebody listens; `calls` are (what was called, with what, the reply)."""

    door: Any
    site: Mapping[str, Any] = field(default_factory=dict)  # the client's secret, to judge attacks
    calls: list[tuple[str, tuple[Any, ...], Any]] = field(default_factory=list)

    @property
    def half(self) -> Any:
        return self.door._client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.door, name)
        if not callable(attribute):
            return attribute

        def tapped(*given: Any) -> Any:
            reply = attribute(*given)
            if isinstance(given[0], Call):
                given = (given[0].function, given[0].payload, given[0].position)
            self.calls.append((name, given, reply))
            return reply

        return tapped

    def replies(self, function: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        for _, given, reply in self.calls:
            if given[0] == function and reply is not None:
                yield given[1], reply


def door_of(
    study: Study, name: str, corpus: Corpus, policy: Policy | None = None, **site: Any
) -> Any:
    rules = policy or Policy()
    half = client_of(study, ClientContext(name, study.embedded(corpus), rules, **site))
    return Door(name, half, rules, Ledger(study.method.method_name, study.fingerprint))


def federate(
    study: Study,
    corpora: Mapping[str, Corpus],
    engine: Any = LocalClients,
    key: Callable[[str], bytes] = lambda _: os.urandom(32),
    policy: Policy | None = None,
) -> tuple[TopicModel, dict[str, Tap]]:
    """Train, each client with a secret of its own; return the model, and what doors heard."""
    study = study.with_clients(corpora)
    taps = {}
    for name, corpus in corpora.items():
        site = {"secret": Secret(key(name))}
        taps[name] = Tap(door_of(study, name, corpus, policy, **site), site)
    run = RunFolder(None, study.identity(None), study.checkpoint_every, False, None)
    return finished(study, None, program_of(study).train(engine(taps), run)), taps


def membership(
    study: Study,
    name: str,
    calls: Sequence[tuple[str, tuple[Any, ...], Any]],
    n: int,
    function: str,
    **site: Any,
) -> NDArray[np.bool_]:
    """Guess which of a client's n documents were in which minibatch, shape (n_calls, n)."""
    words = vocabulary_of(calls)
    padding = [[words[-1]] * 2]  # a document of no word would not be usable
    corpus = Corpus.of([[words[i]] for i in range(n)] if n <= len(words) else padding * n)
    all_words = study.vocabulary.model_copy(update={"min_persons_per_word": 1})
    study = study.model_copy(update={"vocabulary": all_words})
    door = door_of(study, name, corpus, CURIOUS, **site)
    rows = []
    for verb, given, _ in calls:
        if given[0] == "vocabulary":
            continue
        reply = getattr(door, verb)(Call(*given))
        if given[0] == function:
            index = rows_of(reply).index
            row = np.zeros(n, bool)
            row[index[index < n]] = True
            rows.append(row)
    return np.array(rows)


def vocabulary_of(calls: Sequence[tuple[str, tuple[Any, ...], Any]]) -> list[str]:
    return next(list(given[1]["words"]) for _, given, _ in calls if given[0] == "adopt")


def rows_of(reply: Mapping[str, Any]) -> SparseRows:
    table = reply.get("counts") or reply["weights"]["encoder_words"]
    if isinstance(table, SparseRows):
        return table
    present = np.flatnonzero(np.abs(table).reshape(len(table), -1).any(1))
    return SparseRows(present, np.asarray(table)[present], len(table))


def bag_of(corpus: Corpus, words: Sequence[str], least: int = RARE) -> NDArray[np.float64]:
    """Count the words that enough of a client's documents have: what there is to be found."""
    bag = counted([document for batch in corpus.batches() for document in batch], words)
    bag[:, (bag > 0).sum(0) < least] = 0
    return bag


def counted(texts: Sequence[Sequence[str]], words: Sequence[str]) -> NDArray[np.float64]:
    column = {word: i for i, word in enumerate(words)}
    bag = np.zeros((len(texts), len(words)))
    for row, text in zip(bag, texts, strict=True):
        for word in text:
            if word in column:
                row[column[word]] += 1
    return bag


def documents_of(data: Path | None, n_clients: int, size: int, seed: int = 0) -> dict[str, Corpus]:
    """Return clients' tokenised documents: 20ng's, or synthetic ones where there is no data."""
    rng = np.random.default_rng(seed)
    if data is not None:
        texts = pq.read_table(parquet(data, "20ng"))["tokens"].to_pylist()
        texts = [texts[i] for i in rng.permutation(len(texts))[: n_clients * size]]
    else:
        texts = synthetic(n_clients * size, seed=seed)
    return {f"client{i}": Corpus.of(texts[i * size : (i + 1) * size]) for i in range(n_clients)}


def synthetic(n: int, n_words: int = 900, topics: int = 12, seed: int = 0) -> list[list[str]]:
    """Draw documents of about sixty words, most of two topics; words are as skewed as in texts."""
    rng = np.random.default_rng(seed)
    skew = 1 / (np.arange(n_words) + 8.0)
    beta = np.array([rng.permutation(skew) * rng.gamma(0.3, 1, n_words) for _ in range(topics)])
    beta = 0.7 * beta / beta.sum(1, keepdims=True) + 0.3 * skew / skew.sum()
    texts = []
    for theta in rng.dirichlet(np.full(topics, 0.15), n):
        drawn = rng.choice(n_words, rng.integers(30, 90), p=theta @ beta)
        texts.append([f"w{word}" for word in drawn])
    return texts
