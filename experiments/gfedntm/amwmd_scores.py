"""AMWMD of clients' topics against trained models and against controls, which are drawn here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.gfedntm.amwmd_claims import ALL_OTHERS, FEDERATED_TOPICS, OTHER_SEED, Scores
from experiments.gfedntm.word_mover import WordVectors, amwmd
from fedtopics.errors import DataError
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.text.corpus import Corpus

DRAWS = 10  # random models, and draws from the other clients' topics, that are averaged

Topics = list[list[str]]


@dataclass(frozen=True)
class Trained:
    """What is kept of a model: topics of ten words, its vocabulary with frequencies, its cost."""

    topics: Topics
    words: list[str]
    occurrences: list[int]
    cost: Mapping[str, float] | None = None


def score(
    name: str,
    clients: Mapping[str, Corpus],
    trained: Mapping[tuple[str, int], Trained],
    seeds: Sequence[int],
    vectors_of: Callable[[Sequence[str]], WordVectors],
    draws: int = DRAWS,
) -> Scores:
    """Compare each client's own topics with the topics of every model, seed by seed.

    `trained` has, by name and seed, the clients' own models, "federated K" and "centralised K". A
    DataError says that the vectors know no word of a client's topic.
    """
    models = [
        [_models(one, list(clients), trained, seed, draws) for one in clients] for seed in seeds
    ]
    every = (topic for row in models for one in row for topic in _topics_of(one))
    vectors = vectors_of(sorted({word for topic in every for word in topic}))
    values = [
        [
            _amwmd(client, trained[client, seed].topics, models[seed][row], vectors)
            for row, client in enumerate(clients)
        ]
        for seed in seeds
    ]
    documents = {client: len(corpus) for client, corpus in clients.items()}
    trainings = [
        {"model": model, "seed": seed} | ({"cost": one.cost} if one.cost else {})
        for (model, seed), one in trained.items()
    ]
    return Scores(name, documents, tuple(models[0][0]), np.array(values), trainings)


def _models(
    client: str,
    clients: Sequence[str],
    trained: Mapping[tuple[str, int], Trained],
    seed: int,
    n_draws: int,
) -> dict[str, list[Topics]]:
    """Return the topics of every model that a client's topics are held against.

    A model that is drawn is drawn several times; the others are there once.
    """
    others = [t for name in clients if name != client for t in trained[name, seed].topics]
    other_seed = seed + 1 if (client, seed + 1) in trained else 0
    models = {name: [trained[name, seed].topics] for name in clients}
    for kind in ("federated", "centralised"):
        for n in FEDERATED_TOPICS:
            models[f"{kind} {n}"] = [trained[f"{kind} {n}", seed].topics]
    words = trained[f"federated {FEDERATED_TOPICS[0]}", seed]
    for n in FEDERATED_TOPICS:
        draws = [np.random.default_rng([seed, n, draw]) for draw in range(n_draws)]
        models[f"random {n}"] = [_random_topics(words, n, rng) for rng in draws]
        models[f"{n} of others"] = [_some(others, n, rng) for rng in draws]
    models[ALL_OTHERS] = [others]
    models[OTHER_SEED] = [trained[client, other_seed].topics]
    return models


def _random_topics(model: Trained, n_topics: int, rng: np.random.Generator) -> Topics:
    """Draw topics of different words, each word as often as it occurs."""
    share = np.array(model.occurrences) / sum(model.occurrences)
    n_words = min(WORDS_SHOWN, len(model.words))
    drawn = [rng.choice(len(share), n_words, replace=False, p=share) for _ in range(n_topics)]
    return [[model.words[i] for i in topic] for topic in drawn]


def _some(topics: Topics, n_topics: int, rng: np.random.Generator) -> Topics:
    """Draw some of the topics; all if there are no more."""
    drawn = rng.choice(len(topics), min(n_topics, len(topics)), replace=False)
    return [topics[i] for i in drawn]


def _topics_of(models: Mapping[str, Sequence[Topics]]) -> Iterator[list[str]]:
    """Go through the topics of all draws of all models."""
    return (topic for draws in models.values() for topics in draws for topic in topics)


def _amwmd(
    client: str, client_topics: Topics, models: Mapping[str, Sequence[Topics]], vectors: WordVectors
) -> list[float]:
    """Return the AMWMD of a client's own topics against each model, the mean over topics."""
    if not all(len(vectors.unit(topic)) for topic in client_topics):
        raise DataError(f"The word vectors know no word of a topic of client {client!r}.")
    return [
        float(np.mean([amwmd(client_topics, topics, vectors).mean for topics in draws]))
        for draws in models.values()
    ]
