"""How many topics: a study trained with several numbers of topics and seeds, side by side.

All clients are on this machine. Some documents of each are held out of the training; how well a
model predicts one half of a held-out document's words from the other is its held-out loss.

References
----------
Wallach, Murray, Salakhutdinov and Mimno, Evaluation Methods for Topic Models, 2009 (document
completion). Greene, O'Callaghan and Cunningham, How Many Topics? Stability Analysis for Topic
Models, 2014.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fedtopics.errors import DataError, StudyError
from fedtopics.extras import VERSION
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.files import RowFile, digest
from fedtopics.inference.lda import refine
from fedtopics.methods.core.events import OnEvent
from fedtopics.metrics import topic_similarity, unique_words
from fedtopics.model.figures import Panel, chart
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus, fingerprint

HELD_OUT = 0.1  # of each client's documents
DRAW = 3  # of what is drawn, besides the study's seed
SMALLEST = 1e-12  # probability of a word


@dataclass(frozen=True)
class Criterion:
    """What numbers of topics are judged by."""

    name: str  # of the score
    title: str  # for people
    sign: int  # 1 if more is better, else -1

    def best(self, summary: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the numbers of topics that are not worse than the best by over a deviation.

        The deviation is the best one's, over seeds or pairs of them.
        """
        scored = [row for row in summary if row.get(self.name) is not None]
        if not scored:
            return []
        top = max(scored, key=lambda row: self.sign * row[self.name])
        least = self.sign * top[self.name] - top[f"{self.name}_deviation"]
        return [row["topics"] for row in scored if self.sign * row[self.name] >= least]


CRITERIA = (
    Criterion("npmi", "coherence (NPMI)", 1),
    Criterion("held_out", "held-out loss (nats a word)", -1),
    Criterion("stability", "stability across seeds", 1),
)
SHOWN = (*CRITERIA[:1], Criterion("diversity", "topic diversity", 1), *CRITERIA[1:])
"""Diversity is shown and no criterion: it is highest with few topics."""


@dataclass(frozen=True)
class Task:
    """One training."""

    topics: int
    seed: int

    def __str__(self) -> str:
        return f"{self.topics} topics, seed {self.seed}"


def sweep(
    study: Study,
    topics: Iterable[int],
    seeds: int,
    out: str | Path,
    *,
    corpora: Mapping[str, Any] | None = None,
    policies: Mapping[str, Policy] | None = None,
    on_event: OnEvent = lambda _: None,
) -> list[dict[str, Any]]:
    """Train a study with several numbers of topics; what is done already is not done again.

    Parameters
    ----------
    study : Study
    topics : iterable of int
        Numbers of topics.
    seeds : int
        How many seeds each is trained with, from the study's on.
    out : path
        Folder of the models and of runs.jsonl; several studies may share it.
    corpora : mapping of client name to whatever `Corpus.of` takes, optional
        By default the files that the study names.
    policies : mapping of client name to Policy, optional
        By default those that the study names, or else the default policy.
    on_event : function, optional
        Called with {"event": "model", "name", "done", "models"} before each training, and with the
        events of training.

    Returns
    -------
    list of dict
        A row a number of topics, as of `summarise`.

    Raises
    ------
    StudyError
        If there is no number, or the method finds the number of topics by itself.
    DataError
        If there are no documents.
    """
    numbers = _checked(study, topics, seeds)
    tasks = [Task(number, study.seed + seed) for seed in range(seeds) for number in numbers]
    trainings = _Trainings(study, corpora, policies, Path(out), on_event)
    kept = RowFile(Path(out) / "runs.jsonl")
    kept.fill(tasks, trainings.name, trainings.train, str, on_event)
    rows = [row for task in tasks if (row := kept.find(trainings.name(task)))]
    return summarise(rows, {number: trainings.stability(tasks, number) for number in numbers})


def _checked(study: Study, topics: Iterable[int], seeds: int) -> list[int]:
    numbers = sorted(set(topics))
    if not numbers or seeds < 1:
        raise StudyError("Name at least one number of topics, and one seed.")
    if getattr(study.method, "candidates", ()):
        raise StudyError(
            "The study's method chooses the number of clusters from its candidates; take them out "
            "of the study to sweep over numbers."
        )
    return numbers


class _Trainings:
    """The trainings of a study on its clients' documents, of which each holds some out.

    Studies that differ in anything that a model depends on have rows and folders of their own.
    """

    def __init__(
        self,
        study: Study,
        corpora: Mapping[str, Any] | None,
        policies: Mapping[str, Policy] | None,
        out: Path,
        on_event: OnEvent,
    ) -> None:
        sources = study.corpora() if corpora is None else corpora
        if not sources:
            raise DataError("There are no clients; give at least one with documents.")
        documents = {name: Corpus.of(data) for name, data in sources.items()}
        self._study = study.with_clients(documents)
        self._policies = study.policies() if policies is None else policies
        self._on_event = on_event
        self._identity = self._identify(documents)
        self._folder = out / "models" / self._identity
        self._training, self._tested = {}, {}
        for name, corpus in documents.items():
            embedded = self._study.embedded(corpus, self._study.clients[name].embedding_model)
            rows, held_out = _held_out(study, name, corpus)
            self._training[name] = embedded.take(rows)
            self._tested[name] = embedded.take(held_out)

    def _identify(self, documents: Mapping[str, Corpus]) -> str:
        """Return a digest of what the models depend on, besides topics and seed."""
        clients = {
            name: [fingerprint(corpus), self._policies.get(name, Policy()).model_dump(mode="json")]
            for name, corpus in documents.items()
        }
        return digest(json.dumps([VERSION, self._study.agreed, clients], sort_keys=True))

    def name(self, task: Task) -> dict[str, Any]:
        """Return what the row of a training is found by."""
        return {"study": self._identity, "topics": task.topics, "seed": task.seed}

    def train(self, task: Task) -> dict[str, Any]:
        """Train, save the model and return its scores."""
        method = self._study.method.model_copy(update={"n_components": task.topics})
        study = self._study.model_copy(update={"method": method, "seed": task.seed})
        model = train(study, self._training, policies=self._policies, on_event=self._on_event)
        model.save_pretrained(self._model(task))
        return _scores(model, self._tested, self._study.seed)

    def stability(self, tasks: Sequence[Task], number: int) -> list[float]:
        """Return how alike the topics of each two seeds are, from 0 to 1: TSS a topic."""
        places = [self._model(task) for task in tasks if task.topics == number]
        models = [TopicModel.from_pretrained(place) for place in places]

        def likeness(a: TopicModel, b: TopicModel) -> float:
            words = a.vocabulary.words, b.vocabulary.words
            return float(topic_similarity(a.beta, b.beta, *words) / a.n_topics)

        # Whose topics look for their likes among the other's makes a small difference.
        return [(likeness(a, b) + likeness(b, a)) / 2 for a, b in combinations(models, 2)]

    def _model(self, task: Task) -> Path:
        return self._folder / f"{task.topics}-{task.seed}"


def summarise(
    rows: Sequence[Mapping[str, Any]], stability: Mapping[int, Sequence[float]]
) -> list[dict[str, Any]]:
    """Return a row a number of topics: means and deviations over seeds, or over pairs of them.

    `rows` has a row a training, None for a score that it has not; `stability` by number of topics
    how alike the topics of each two seeds are, from 0 to 1.
    """
    summary = []
    for number in sorted({row["topics"] for row in rows}):
        trained = [row for row in rows if row["topics"] == number]
        scores: dict[str, Any] = {"topics": number, "seeds": len(trained)}
        for name in sorted({name for row in trained for name in row} - {"study", "topics", "seed"}):
            scores |= _spread(name, [row[name] for row in trained])
        summary.append(scores | _spread("stability", stability[number]))
    return summary


def _spread(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    """Return mean and deviation under their names; trainings without a score do not count."""
    scores = [value for value in values if value is not None]
    if not scores:
        return {name: None, f"{name}_deviation": 0.0}
    deviation = float(np.std(scores, ddof=len(scores) > 1))
    return {name: float(np.mean(scores)), f"{name}_deviation": deviation}


def recommend(summary: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[str]]:
    """Return the numbers of topics that most criteria are content with, and why in words."""
    content = {criterion.title: criterion.best(summary) for criterion in CRITERIA}
    content = {title: numbers for title, numbers in content.items() if numbers}
    tested = [row["topics"] for row in summary]
    votes = {number: sum(number in best for best in content.values()) for number in tested}
    most = max(votes.values())
    reasons = [
        f"{title}: {', '.join(map(str, numbers))} (within a deviation of the best)"
        for title, numbers in content.items()
    ]
    return [number for number, count in votes.items() if count == most], reasons


def _held_out(study: Study, name: str, corpus: Corpus) -> tuple[Any, Any]:
    """Return the rows to train on and those held out, the same for every number and seed."""
    seed = [study.seed, int.from_bytes(name.encode()), DRAW]
    shuffled = np.random.default_rng(seed).permutation(len(corpus))
    n_held = int(len(corpus) * HELD_OUT)
    return np.sort(shuffled[n_held:]), np.sort(shuffled[:n_held])


def _scores(model: TopicModel, tested: Mapping[str, Corpus], seed: int) -> dict[str, Any]:
    scores = {name: float(np.mean(score)) for name, score in model.coherence.items()}
    return scores | {
        "diversity": unique_words(model.topics(10), 10),
        "held_out": held_out_loss(model, tested, seed),
    }


def held_out_loss(model: TopicModel, corpora: Mapping[str, Corpus], seed: int) -> float:
    """Return the mean negative log-likelihood of a word, given half of its document's words.

    Theta follows from one half of a document's words by variational steps with the model's topics,
    and a word of the other half has the probability theta beta.

    Parameters
    ----------
    model : TopicModel
    corpora : mapping of client name to Corpus
    seed : int
        Of the halves.

    Returns
    -------
    float
        In nats; nan where there is no word.
    """
    total = words = 0.0
    for name in sorted(corpora):
        counts = model.count(corpora[name])
        rng = np.random.default_rng([seed, int.from_bytes(name.encode()), DRAW + 1])
        seen = sparse.csr_array(counts)
        seen.data = rng.binomial(counts.data.astype(np.int64), 0.5).astype(np.float32)
        hidden = (counts - seen).tocoo()
        even = np.full((seen.shape[0], model.n_topics), 1 / model.n_topics)
        theta = refine(seen, model.beta, 1 / model.n_topics, even, "mean")
        shares = np.einsum("nk,kn->n", theta[hidden.coords[0]], model.beta[:, hidden.coords[1]])
        total -= float(hidden.data @ np.log(np.maximum(shares, SMALLEST)))
        words += float(hidden.data.sum())
    return total / words if words else float("nan")


def chart_of(summary: Sequence[Mapping[str, Any]]) -> str:
    """Return how scores change with the number of topics as SVG: a panel a score."""
    whole = [c for c in SHOWN if all(row.get(c.name) is not None for row in summary)]
    panels = [
        Panel(
            c.title,
            "topics",
            [(row["topics"], row[c.name]) for row in summary],
            [row[f"{c.name}_deviation"] for row in summary],
        )
        for c in whole
    ]
    return chart(panels)
