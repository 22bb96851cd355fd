"""Small corpora with embeddings that lie in clusters, and studies of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from fedtopics import Corpus, Policy, Study, TopicModel, train
from fedtopics.contract.interfaces import Call
from fedtopics.datasets import split_clients
from fedtopics.federation.door import Door
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.program import client_of
from fedtopics.inference.vectors import unit_rows
from fedtopics.methods.core.plan import ClientContext
from fedtopics.methods.core.settings import filled
from fedtopics.metrics import clustering_accuracy
from tests.helpers.federation import ANY_WORDS, assert_same_bits, tokens_of, train_until_killed

DIMENSION = 16  # of the embeddings
CLUSTERS = 5
FAMILIES = ("apple", "bread", "cloud", "dance", "eagle", "field", "grape", "house")


def corpus_of(
    embeddings: Any, labels: NDArray[np.int64] | None = None, texts: list[list[str]] | None = None
) -> Corpus:
    """A corpus of these embeddings; texts are of words of the label's family."""
    embeddings = np.asarray(embeddings, np.float32)
    labels = np.zeros(len(embeddings), np.int64) if labels is None else labels
    if texts is None:
        families = ([f"{FAMILIES[k % 8]}{n}" for n in range(6)] * 2 for k in labels)
        texts = [family[i % 6 : i % 6 + 3] for i, family in enumerate(families)]
    return replace(Corpus.of(texts), labels=pa.chunked_array([labels])).with_embeddings(embeddings)


def blobs(n: int, n_clusters: int = CLUSTERS, spread: float = 0.5, seed: int = 0) -> Corpus:
    """Documents in clusters around random directions, whose words are of their cluster's family."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_clusters, DIMENSION))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    labels = rng.choice(n_clusters, n)
    noise = rng.normal(size=(n, DIMENSION)) * spread / np.sqrt(DIMENSION)
    return corpus_of(centres[labels] + noise, labels)


def spread(corpus: Corpus, n_clients: int, alpha: float | None = None) -> dict[str, Corpus]:
    """The same documents at so many clients; with alpha, each client has labels of its own."""
    if n_clients == 1:
        return {"all": corpus}
    how: dict[str, Any] = {"by": "even"} if alpha is None else {"by": "dirichlet", "alpha": alpha}
    return split_clients(corpus, n_clients=n_clients, **how)


def planned(name: str, **method: Any) -> Study:
    small: dict[str, Any] = {
        "name": name,
        "n_components": CLUSTERS,
        "embedding": {"dimension": DIMENSION},
        "coherence": "nothing",
    }
    if name == "fstc":
        network = {"local_steps": 10, "batch_size": 50, "hidden": 8, "learning_rate": 0.01}
        small |= {"max_rounds": 4, "network": network, "transports": 5, "start": {"tries": 2}}
        small |= {"separation": {"tolerance": 0.02}}
    return Study.make(
        method=filled(method, small),
        vocabulary={**ANY_WORDS, "max_document_share": 1.0},
        aggregation="plain",
    )


def trained(plan: Study, corpora: Mapping[str, Any], **how: Any) -> TopicModel:
    """The model of clients that let out everything, to the bit that of all engines."""
    return train(
        plan, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY), **{"at_once": False, **how}
    )


def half(
    plan: Study,
    corpus: Corpus,
    policy: Policy = OPEN_POLICY,
    name: str = "a",
    folder: Path | None = None,
) -> Any:
    """A client that took up a vocabulary."""
    client: Any = client_of(plan, ClientContext(name, plan.embedded(corpus), policy, folder))
    words = sorted({word for batch in corpus.batches() for text in batch for word in text})
    client.adopt(words, len(corpus), 3.0)
    return client


def each_apart(n: int, policy: Policy, **method: Any) -> Any:
    """A half whose documents' embeddings are the unit vectors: a sum says of whom it is."""
    return half(
        planned("kmeans", **{"embedding": {"dimension": n}} | method), corpus_of(np.eye(n)), policy
    )


def labels_of(corpus: Corpus) -> NDArray[np.int64]:
    assert corpus.labels is not None
    return np.array(corpus.labels.to_pylist())


texts_of = tokens_of


def accuracy(model: TopicModel, corpora: Mapping[str, Corpus]) -> float:
    predicted = np.concatenate([model.main_topics(corpus) for corpus in corpora.values()])
    return clustering_accuracy(
        np.concatenate([labels_of(corpus) for corpus in corpora.values()]), predicted
    )


class StoppedError(Exception):
    """Ends a run before its time."""


def gone_on(
    plan: Study, corpora: Mapping[str, Corpus], folder: Path, stop: int, **how: Any
) -> TopicModel:
    train_until_killed(stop, plan, corpora, run=trained, out=folder)
    return trained(plan, corpora, out=folder, resume=True, **how)


def assert_same_result(actual: TopicModel, expected: TopicModel) -> None:
    assert actual.weights.keys() == expected.weights.keys()
    assert_same_bits(actual, expected)
    assert actual.info == expected.info


@dataclass
class Messages:
    calls: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    def of(self, function: str, client: str) -> list[dict[str, Any]]:
        return [
            reply for name, called, _, reply in self.calls if (name, called) == (client, function)
        ]

    def leaves(self) -> Iterator[Any]:
        for _, _, payload, reply in self.calls:
            yield from _values(payload)
            yield from _values(reply)


def _values(content: Any) -> Iterator[Any]:
    if isinstance(content, Mapping):
        for value in content.values():
            yield from _values(value)
    else:
        yield content


def overheard(monkeypatch: pytest.MonkeyPatch) -> Messages:
    messages = Messages()
    call = Door.call

    def listening(self: Door, asked: Call) -> dict[str, Any]:
        reply = call(self, asked)
        messages.calls.append((self.client, asked.function, dict(asked.payload), reply))
        return reply

    monkeypatch.setattr(Door, "call", listening)
    return messages


CANARY = "quetzalcoatl"


def assert_nothing_else_leaves(
    plan: Study, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Messages:
    """Run a study under the usual policy, with a rare word; look for it and for embeddings."""
    corpus = blobs(300)
    texts = texts_of(corpus)
    texts[7] = [*texts[7], CANARY]
    corpus = replace(corpus, documents=Corpus.of(texts).documents)
    corpora = spread(corpus, 3)
    messages = overheard(monkeypatch)
    events = list[dict[str, Any]]()
    model = train(plan, corpora, out=folder, on_event=events.append)
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert {"ledger.jsonl", "model.safetensors", "events.jsonl"} <= {path.name for path in written}
    for path in written:
        assert CANARY.encode() not in path.read_bytes(), path
    assert CANARY not in f"{events}{list(messages.leaves())}"
    assert CANARY not in model.vocabulary.words
    embeddings = unit_rows(np.asarray(corpus.embeddings, np.float64))
    asked = (payload.get("origin", ()) for _, _, payload, _ in messages.calls)
    origins = [origin for origin in asked if len(origin) == DIMENSION]
    alone = np.concatenate([embeddings, *(unit_rows(embeddings - x) for x in origins[:1])])
    for value in messages.leaves():
        if getattr(value, "shape", (0,))[-1:] == (DIMENSION,):
            vectors = unit_rows(np.asarray(value, np.float64).reshape(-1, DIMENSION))
            assert np.abs(vectors @ alone.T).max() < 1 - 1e-6, "that is a document's embedding"
    return messages


def assert_sound(model: TopicModel, corpora: Any) -> None:
    """Numbers are finite, and there is a row a document; of empty ones nothing is known."""
    for weight in model.weights.values():
        assert np.isfinite(weight).all()
    for corpus in corpora.values():
        theta = model.transform(corpus)
        main = model.main_topics(corpus)
        assert theta.shape == (len(corpus), model.n_topics)
        np.testing.assert_allclose(theta.sum(1), 1, rtol=1e-5)
        empty = np.array([not text for text in texts_of(corpus)])
        np.testing.assert_array_equal(main[empty], -1)
        np.testing.assert_allclose(theta[empty], 1 / model.n_topics)
        np.testing.assert_array_equal(main[~empty], theta[~empty].argmax(1))


def empty(n: int) -> Corpus:
    return corpus_of(np.zeros((n, DIMENSION)), texts=[[]] * n)


def _with_empty() -> dict[str, Corpus]:
    corpora = spread(blobs(80), 2)
    first = corpora["client-1"]
    embeddings = np.array(first.embeddings)
    texts = texts_of(first)
    for row in (0, 5, 39):
        embeddings[row] = 0
        texts[row] = []
    return {**corpora, "client-1": corpus_of(embeddings, labels_of(first), texts)}


def _of_two_texts() -> dict[str, Corpus]:
    """Fewer different documents than clusters."""
    corpus = corpus_of(np.tile(np.eye(DIMENSION)[:2], (30, 1)), np.tile([0, 1], 30))
    return {"a": corpus, "b": corpus}


ODD: dict[str, Callable[[], dict[str, Corpus]]] = {
    "empty documents among others": _with_empty,
    "a client of three documents": lambda: {"a": blobs(80), "b": blobs(3)},
    "a single client": lambda: {"a": blobs(80)},
    "two texts": _of_two_texts,
}
"""What a study of five clusters has to cope with."""
