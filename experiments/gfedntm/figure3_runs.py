"""The runs of the synthetic experiment: which model on which clients' documents, and its scores."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from fedtopics.contract.events import OnEvent
from fedtopics.datasets import SyntheticClients, synthetic_lda
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.inference.lda import refine
from fedtopics.metrics import align_words, document_similarity, topic_similarity
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus

N_TOPICS = 50
CLIENTS = tuple(f"client{number}" for number in range(5))
REFERENCES = ("random", "even", "oracle")


@dataclass(frozen=True)
class Case:
    """One corpus: how many topics all clients share, how peaked topics are, how mixed documents."""

    shared: int = 10
    eta: float = 0.01
    alpha: float = 0.1
    n_documents: int = 10_000
    n_validation: int = 1_000

    @property
    def is_first(self) -> bool:
        """Whether it is the setting that both series of the paper have."""
        return (self.shared, self.eta) == (Case.shared, Case.eta)


@dataclass(frozen=True)
class Recipe:
    """A model and its settings."""

    title: str
    method: Mapping[str, Any]
    refined: bool = True  # whether theta can be, by topics that are probabilities of words


@dataclass(frozen=True)
class Task:
    """One training: a recipe in a scenario, or a reference that needs none."""

    case: Case
    model: str
    scenario: str  # "federated", "centralised", or the client that is alone
    seed: int


def alone(case: Case, seed: int) -> tuple[str, ...]:
    """Return the clients that are alone: all in the first setting; else one, as all are alike."""
    return CLIENTS if case.is_first else (CLIENTS[seed % len(CLIENTS)],)


@lru_cache(maxsize=1)
def drawn(case: Case, seed: int) -> SyntheticClients:
    """Draw the documents; the last ones are kept."""
    return synthetic_lda(
        n_topics=N_TOPICS,
        shared_topics=case.shared,
        eta=case.eta,
        alpha=case.alpha,
        n_documents=case.n_documents,
        n_validation=case.n_validation,
        seed=seed,
    )


@lru_cache(maxsize=1)
def corpora(case: Case, seed: int) -> tuple[dict[str, Corpus], Corpus]:
    """Return each client's documents, and those for validation of all together."""
    clients = drawn(case, seed)
    validation = [documents.corpus() for documents in clients.validation.values()]
    return {name: docs.corpus() for name, docs in clients.training.items()}, Corpus.pool(validation)


def run(task: Task, recipe: Recipe, on_event: OnEvent) -> dict[str, Any]:
    """Train and score."""
    everyone, validation = corpora(task.case, task.seed)
    if task.scenario == "federated":
        clients = everyone
    elif task.scenario == "centralised":
        clients = {"all": Corpus.pool(everyone.values())}
    else:
        clients = {task.scenario: everyone[task.scenario]}
    seconds: list[float] = []

    def timed(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            seconds.append(event["seconds"])
        on_event(event)

    study = study_of(recipe, task.seed)
    policies = dict.fromkeys(clients, OPEN_POLICY)
    model = train(study, clients, policies=policies, on_event=timed)
    truth = drawn(task.case, task.seed)
    theta = _theta(truth)
    scores = {
        "tss": topic_similarity(truth.beta, model.beta, truth.words, model.vocabulary.words),
        "dss": document_similarity(theta, model.transform(validation)),
    }
    if recipe.refined:
        refined = model.transform(validation, refine=True, readout="root")
        scores["dss_refined"] = document_similarity(theta, refined)
    return {
        **scores,
        "readings": dict(_readings(model, truth)),
        "rounds": model.info["rounds"],
        "seconds": sum(seconds),
    }


def study_of(recipe: Recipe, seed: int) -> Study:
    """Return the study of a recipe: every word counts, and no coherence is needed."""
    method = {"n_components": N_TOPICS, "coherence": "nothing", "relevance": 1.0, **recipe.method}
    limits = {"min_persons_per_word": 1, "min_clients_per_word": 1, "max_document_share": 1.0}
    return Study.make(seed=seed, method={"name": "gfedntm", **method}, vocabulary=limits)


def _readings(model: TopicModel, truth: SyntheticClients) -> Iterator[tuple[str, float]]:
    """Score what the authors' scripts make of the same weights, and what the decoder does."""
    if "beta_logits" not in model.weights:
        return
    words = model.vocabulary.words
    logits = model.weights["beta_logits"].double().numpy()
    once = softmax(align_words(logits, words, truth.words), 1)
    twice = softmax(once, 1)
    thrice = softmax(twice, 1)
    yield "softmax once", topic_similarity(truth.beta, once)
    yield "softmax twice", topic_similarity(truth.beta, twice)
    yield (
        "softmax three times, columns shifted",
        topic_similarity(truth.beta[:, 1:], thrice[:, :-1]),
    )
    yield "as the decoder uses it", topic_similarity(truth.beta, model.beta, truth.words, words)


def reference(name: str, case: Case, seed: int) -> dict[str, float]:
    """Score what needs no training: topics drawn from the prior, even topics, the true topics."""
    truth = drawn(case, seed)
    rng = np.random.default_rng([seed, 1])
    theta = _theta(truth)
    n_words = len(truth.words)
    n = len(theta)
    if name == "random":
        beta = rng.dirichlet(np.full(n_words, case.eta), N_TOPICS)
        estimate = rng.dirichlet(np.full(N_TOPICS, case.alpha), n)
    elif name == "even":
        beta = np.full((1, n_words), 1 / n_words)
        estimate = np.ones((n, 1))
    else:
        beta = truth.beta
        estimate = _oracle(truth)
    tss = topic_similarity(truth.beta, beta)
    return {"tss": tss, "dss": document_similarity(theta, estimate)}


def _theta(truth: SyntheticClients) -> NDArray[np.float64]:
    """Return the true theta of the documents for validation."""
    return np.concatenate([documents.theta for documents in truth.validation.values()])


def _oracle(truth: SyntheticClients) -> NDArray[np.float64]:
    """Find theta with the true topics, as every model's is refined."""
    parts = [documents.counts for documents in truth.validation.values()]
    counts = sparse.vstack(parts, format="csr", dtype=np.float64)
    even = np.full((counts.shape[0], N_TOPICS), 1 / N_TOPICS)
    return refine(counts, truth.beta, 1 / N_TOPICS, even, "root")
