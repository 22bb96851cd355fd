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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from experiments.rows import Rows, digest
from scipy import sparse

from fedtopics.errors import DataError, StudyError
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.inference.theta import refine
from fedtopics.metrics import topic_similarity, unique_words
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus

HELD_OUT = 0.1  # of each client's documents
DRAW = 3  # of what is drawn, besides the study's seed
SMALLEST = 1e-12  # probability of a word
OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Criterion:
    """What numbers of topics are judged by.

    Parameters
    ----------
    name : str
        Of the score.
    title : str
        For people.
    sign : {1, -1}
        1 if more is better.
    """

    name: str
    title: str
    sign: int

    def best(self, summary: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the numbers of topics that are not worse than the best by over a deviation.

        The deviation is the best one's, over seeds or pairs of them.
        """
        known = [row for row in summary if row.get(self.name) is not None]
        if not known:
            return []
        top = max(known, key=lambda row: self.sign * row[self.name])
        least = self.sign * top[self.name] - top[f"{self.name}_deviation"]
        return [row["topics"] for row in known if self.sign * row[self.name] >= least]


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

    @property
    def folder(self) -> str:
        """Where its model is."""
        return f"models/{self.topics}-{self.seed}"


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
        Folder of the models and of runs.jsonl.
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
    numbers = sorted(set(topics))
    if not numbers or seeds < 1:
        raise StudyError("Name at least one number of topics, and one seed.")
    if getattr(study.method, "candidates", ()):
        raise StudyError(
            "The study's method chooses the number of clusters from its candidates; take them out "
            "of the study to sweep over numbers."
        )
    documents = {
        name: study.embedded(Corpus.of(data))
        for name, data in (study.corpora() if corpora is None else corpora).items()
    }
    if not documents:
        raise DataError("There are no clients; give at least one with documents.")
    rules = study.policies() if policies is None else policies
    kept, folder = Rows(Path(out) / "runs.jsonl"), Path(out)
    sizes = {name: len(corpus) for name, corpus in documents.items()}
    identity = digest(json.dumps([study.agreed, sizes], sort_keys=True))
    held = {name: _held_out(study, name, corpus) for name, corpus in documents.items()}

    def name(task: Task) -> dict[str, Any]:
        return {"study": identity, "topics": task.topics, "seed": task.seed}

    def work(task: Task) -> dict[str, Any]:
        own = _with(study, task)
        given = {client: corpus.take(held[client][0]) for client, corpus in documents.items()}
        model = train(own, given, policies=rules, on_event=on_event)
        model.save_pretrained(folder / task.folder)
        tested = {client: corpus.take(held[client][1]) for client, corpus in documents.items()}
        return _scores(model, tested, study.seed)

    tasks = [Task(number, study.seed + seed) for seed in range(seeds) for number in numbers]
    kept.fill(tasks, name, work, lambda t: f"{t.topics} topics, seed {t.seed}", on_event)
    rows = [row for task in tasks if (row := kept.find(name(task)))]
    return summarise(rows, {n: _stability(folder, tasks, n) for n in numbers})


def summarise(
    rows: Sequence[Mapping[str, Any]], stability: Mapping[int, Sequence[float]]
) -> list[dict[str, Any]]:
    """Return a row a number of topics: means and deviations over seeds, or over pairs of them.

    Parameters
    ----------
    rows : sequence of mapping
        A row a training.
    stability : mapping of number of topics to sequence of float
        How alike the topics of each two seeds are, from 0 to 1; none of a single seed.
    """
    summary = []
    for number in sorted({row["topics"] for row in rows}):
        own = [row for row in rows if row["topics"] == number]
        found: dict[str, Any] = {"topics": number, "seeds": len(own)}
        for name in sorted({name for row in own for name in row} - {"study", "topics", "seed"}):
            found |= _spread(name, [row[name] for row in own])
        summary.append(found | _spread("stability", stability[number]))
    return summary


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Return mean and deviation under their names."""
    if not len(values):
        return {name: None, f"{name}_deviation": 0.0}
    deviation = float(np.std(values, ddof=len(values) > 1))
    return {name: float(np.mean(values)), f"{name}_deviation": deviation}


def recommend(summary: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[str]]:
    """Return the numbers of topics that most criteria are content with, and why in words."""
    content = {criterion.title: criterion.best(summary) for criterion in CRITERIA}
    content = {title: numbers for title, numbers in content.items() if numbers}
    votes = {
        row["topics"]: sum(row["topics"] in numbers for numbers in content.values())
        for row in summary
    }
    most = max(votes.values())
    reasons = [
        f"{title}: {', '.join(map(str, numbers))} (within a deviation of the best)"
        for title, numbers in content.items()
    ]
    return [number for number, count in votes.items() if count == most], reasons


def _with(study: Study, task: Task) -> Study:
    method = study.method.model_copy(update={"n_components": task.topics})
    return study.model_copy(update={"method": method, "seed": task.seed})


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


def _stability(folder: Path, tasks: Sequence[Task], number: int) -> list[float]:
    """Return how alike the topics of each two seeds are, from 0 to 1: TSS a topic."""
    models = [
        TopicModel.from_pretrained(folder / task.folder) for task in tasks if task.topics == number
    ]

    def likeness(a: TopicModel, b: TopicModel) -> float:
        words = a.vocabulary.words, b.vocabulary.words
        return float(topic_similarity(a.beta, b.beta, *words) / a.n_topics)

    # Whose topics look for their likes among the other's makes a small difference.
    return [(likeness(a, b) + likeness(b, a)) / 2 for a, b in combinations(models, 2)]
