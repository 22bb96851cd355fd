"""A training of the F-LDA experiments, and all that is scored of it."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.costs import what_left
from experiments.flda.rounds import SHOWN, Round, first, merge_again
from experiments.flda.subjects import Subjects, first_words, found, found_own
from fedtopics.contract.events import OnEvent
from fedtopics.errors import StudyError
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.metrics import coherence_of, mean_cosine_dissimilarity, unique_words
from fedtopics.metrics.similarity import Topic
from fedtopics.model.shown_words import WordRanking
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus


@dataclass(frozen=True)
class Trained:
    """A model of some clients, or of a pool of them, and what its rounds merged, if any."""

    clients: tuple[str, ...]
    model: TopicModel | None
    """None if the paper's way to merge has left no topic."""
    scores: dict[str, float]
    rounds: list[Round]

    @property
    def topics(self) -> list[Topic]:
        """The first words of the model's topics."""
        return [] if self.model is None else first_words(self.model, SHOWN)


def train_and_score(
    study: Study,
    names: tuple[str, ...],
    clients: Mapping[str, Corpus],
    reference: Sequence[Any],
    on_event: OnEvent,
) -> Trained:
    """Train a model and score it; its scores say what left one client for it, and the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        model = None
        refused = None
        policies = dict.fromkeys(clients, Policy())
        begun = time.process_time()
        try:
            model = train(study, clients, out=out, on_event=on_event, policies=policies)
        except StudyError as error:
            refused = error
        seconds = time.process_time() - begun
        rounds = []
        if isinstance(study.method, FLDASettings) and len(clients) > 1:
            rounds = merge_again(study.method, out)
        if refused and not (rounds and not rounds[-1].state.topics):
            raise refused
        sent = what_left(out)
    scores = {**score_all(model, reference, len(rounds)), "training_seconds": seconds, **sent}
    return Trained(names, model, scores, rounds)


def score_all(
    model: TopicModel | None, documents: Sequence[Any], n_rounds: int
) -> dict[str, float]:
    """Score a model by its words in order of weight, and as it shows them; none is not a number."""
    if model is None:
        none = dict.fromkeys(("c_v", "diversity", "unique", "shown_c_v", "shown_diversity"), np.nan)
        return none | {"topics": 0.0, "rounds": float(n_rounds)}
    shown = score(model, documents, model.word_ranking)
    return {
        **score(model, documents, WordRanking(1.0)),
        "shown_c_v": shown["c_v"],
        "shown_diversity": shown["diversity"],
        "rounds": float(model.info["rounds"]),
    }


def all_found(subjects: Subjects, trained: Sequence[Trained]) -> float:
    """Return how well all subjects are found, the mean over models."""
    return float(np.mean([found(subjects.topics, one.topics) for one in trained]))


def own_found(
    subjects: Subjects, by_client: Mapping[str, Sequence[int]], trained: Sequence[Trained]
) -> dict[str, float]:
    """Return how well clients' own subjects are found in each's model, and in each's M*."""
    topics = {client: one.topics for one in trained for client in one.clients}
    scores = {"found_own": found_own(subjects.topics, by_client, topics)}
    if rounds := trained[0].rounds:
        optimal = {
            client: [first(topic) for topic in rounds[-1].own(client)] for client in by_client
        }
        scores["found_in_own"] = found_own(subjects.topics, by_client, optimal)
    return scores


def in_words(topics: Sequence[Topic]) -> list[list[tuple[str, float]]]:
    """Return the words of each topic with their weights."""
    return [[(word, round(weight, 3)) for word, weight in topic.items()] for topic in topics]


def score(model: TopicModel, documents: Sequence[Any], reading: WordRanking) -> dict[str, float]:
    """Return c_v, diversity, the share of distinct words, and the number of topics."""
    topics = model.words_by(reading, SHOWN)
    index = model.vocabulary.index
    beta = np.zeros_like(model.beta)
    for number, words in enumerate(topics):
        columns = [index[word] for word in words]
        beta[number, columns] = model.beta[number, columns]
    return {
        "c_v": float(coherence_of(topics, documents, "c_v").mean()),
        "diversity": mean_cosine_dissimilarity(beta),
        "unique": unique_words(topics, SHOWN),
        "topics": float(len(topics)),
    }
