"""Compare numbers of topics: a study is trained with several numbers and seeds.

All clients are on this machine, and some documents of each are held out. The held-out loss measures
how well a model predicts one half of a held-out document's words from the other half.

References
----------
Wallach, Murray, Salakhutdinov and Mimno, Evaluation Methods for Topic Models, 2009 (document
completion). Greene, O'Callaghan and Cunningham, How Many Topics? Stability Analysis for Topic
Models, 2014.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.contract.events import OnEvent
from fedtopics.errors import StudyError, refuse
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import corpora_by_name, policies_of, train
from fedtopics.federation.study import Study
from fedtopics.files import RowFile, digest, hold
from fedtopics.inference.lda import refine
from fedtopics.inference.vectors import TINY
from fedtopics.methods.nmf.settings import NMFSettings
from fedtopics.metrics import topic_similarity, unique_words
from fedtopics.model.card import why_number
from fedtopics.model.figures import Panel, chart
from fedtopics.model.spread import jackknife_margin, margin
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus, corpus_fingerprint
from fedtopics.versions import VERSION

HELD_OUT = 0.1  # of each client's documents
SAMPLE = 0.8  # of the training documents, for all seeds except the first, to measure stability
CLOSE = 0.01  # a smaller difference of scores does not decide
LOSS = 0.03  # relative difference of held-out losses that is too large for fewer topics
DRAW = 3  # makes the random choices independent of other uses of the seed
Task = tuple[int, int]  # a training: its number of topics and its seed


@dataclass(frozen=True)
class Criterion:
    """A score by which numbers of topics are compared."""

    name: str  # of the score
    title: str  # for people
    sign: int  # 1 if higher is better, else -1

    def best(self, summary: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the numbers of topics that chance does not tell from the best."""
        reach = f"{self.name}_margin"
        scored = [row for row in summary if row.get(self.name) is not None]
        top = max(scored, key=lambda row: self.sign * row[self.name], default={})
        return [
            row["topics"]
            for row in scored
            if self.sign * (top[self.name] - row[self.name])
            <= max(CLOSE, hypot(row[reach] or 0.0, top[reach] or 0.0)) + TINY
        ]

    def reason(self, summary: Sequence[Mapping[str, Any]], best: Sequence[int]) -> str:
        """Return which numbers of topics are best, and how sure this is."""
        single = any(row[f"{self.name}_margin"] is None for row in summary if row["topics"] in best)
        doubt = f" (no difference beyond chance or {CLOSE:g})" if len(best) > 1 else ""
        doubt = " (no interval, so chance may decide)" if single else doubt
        return f"best by {self.title}: {', '.join(map(str, best))}{doubt}"


CRITERIA = (
    Criterion("npmi", "coherence (NPMI)", 1),
    Criterion("held_out", "held-out loss (nats a word)", -1),
    Criterion("stability", "stability across samples", 1),
)
SHOWN_CRITERIA = (*CRITERIA[:1], Criterion("diversity", "topic diversity", 1), *CRITERIA[1:])
"""Diversity is not a criterion, because it is highest with few topics."""


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
    """Train a study with several numbers of topics; finished trainings are not repeated.

    Parameters
    ----------
    study : Study
    topics : iterable of int
    seeds : int
        Number of trainings of each number of topics. Every training except the first has its own
        seed and a sample of the documents, so that methods without random choices also differ.
    out : path
        Folder of the models and of runs.jsonl; several studies may share it, one after the other.
    corpora : mapping of client name to whatever `Corpus.of` takes, optional
        By default the files that the study names.
    policies : mapping of client name to Policy, optional
        By default those that the study names, or else the default policy.
    on_event : function, optional
        Called with each event of training, and with an event "model" before each training.

    Returns
    -------
    list of dict
        One row per number of topics, as from `summarise_sweep`.

    Raises
    ------
    InputError
        If there are no numbers or documents, or the method chooses the number itself.
    """
    numbers = sorted(set(topics))
    refuse(
        {
            "There is nothing to train; give at least one number of topics and one seed.": (
                not numbers or seeds < 1
            ),
            "The study's method chooses the number of topics itself; to sweep over numbers, set "
            "n_components in the study to one.": bool(getattr(study.method, "candidates", ()))
            and not isinstance(study.method, NMFSettings),
        },
        error=StudyError,
    )
    tasks = [(number, study.seed + seed) for seed in range(seeds) for number in numbers]
    with hold(Path(out)):
        documents = study.corpora() if corpora is None else corpora_by_name(corpora)
        choice = choose_number(study, numbers, documents, policies, on_event)
        rows, folder = _train_all(
            study=study,
            documents=documents,
            policies=policies,
            tasks=tasks,
            out=Path(out),
            on_event=on_event,
        )
        stability = {
            number: _stability(folder / _name(task) for task in tasks if task[0] == number)
            for number in numbers
        }
    return [row | choice for row in summarise_sweep(rows, stability)]


def _train_all(
    study: Study,
    documents: Mapping[str, Corpus],
    policies: Mapping[str, Policy] | None,
    tasks: Sequence[Task],
    out: Path,
    on_event: OnEvent,
) -> tuple[list[dict[str, Any]], Path]:
    policies = policies_of(study, documents, policies)
    study = study.with_clients(documents)
    clients = {
        name: [corpus_fingerprint(corpus), policies[name].model_dump(mode="json")]
        for name, corpus in documents.items()
    }
    identity = digest(json.dumps([VERSION, SAMPLE, study.agreed, clients], sort_keys=True))
    folder = out / "models" / identity
    runs = RowFile(out / "runs.jsonl")
    training = {}
    held_out = {}
    for name, corpus in documents.items():
        # Embedded here, because otherwise each training would do it again.
        embedded = study.embedded(corpus, study.clients[name].embedding_model)
        training[name], held_out[name] = map(embedded.take, _split(study.seed, name, len(corpus)))

    def row_of(task: Task) -> dict[str, Any]:
        return {"study": identity, "topics": task[0], "seed": task[1]}

    def work(task: Task) -> dict[str, Any]:
        number, seed = task
        fixed = {"candidates": ()} if isinstance(study.method, NMFSettings) else {}
        method = study.method.model_copy(update={"n_components": number, **fixed})
        variant = study.model_copy(update={"method": method, "seed": seed})
        sample = {
            name: corpus if seed == study.seed else corpus.take(_sample(seed, name, len(corpus)))
            for name, corpus in training.items()
        }
        model = train(variant, sample, policies=policies, on_event=on_event)
        model.save_pretrained(folder / _name(task))
        measured = {name: score[np.isfinite(score)] for name, score in model.coherence.items()}
        scores = {name: float(finite.mean()) for name, finite in measured.items() if len(finite)}
        return scores | {
            "diversity": unique_words(model.topics(10), 10),
            "held_out": held_out_loss(model, held_out, study.seed),
        }

    runs.fill(
        tasks=tasks,
        name=row_of,
        work=work,
        title=lambda task: f"{task[0]} topics, seed {task[1]}",
        on_event=on_event,
    )
    return [row for task in tasks if (row := runs.find(row_of(task)))], folder


def choose_number(
    study: Study,
    numbers: Sequence[int],
    documents: Mapping[str, Corpus],
    policies: Mapping[str, Policy] | None,
    on_event: OnEvent,
) -> dict[str, list[int]]:
    """Return the number that a study of NMF chooses itself, and the range that is about as good.

    There is none for other methods, or if there are too few documents.
    """
    if isinstance(study.method, NMFSettings):
        candidates = study.method.candidates or tuple(numbers)
        short = {"candidates": candidates, "max_rounds": 1, "coherence": "nothing"}
        variant = study.model_copy(update={"method": study.method.model_copy(update=short)})
        with suppress(StudyError):
            model = train(variant, documents, policies=policies, on_event=on_event)
            return {"choice": [model.n_topics, *model.info["range"]]}
    return {}


def _name(task: Task) -> str:
    return f"{task[0]}-{task[1]}"


def _stability(folders: Iterable[Path]) -> dict[str, float | None]:
    """Return the mean similarity (TSS per topic, 0 to 1) of the topics of two models."""
    models = [*map(TopicModel.from_pretrained, folders)]

    def likeness(a: TopicModel, b: TopicModel) -> float:
        return (
            topic_similarity(
                true=a.beta,
                inferred=b.beta,
                true_words=a.vocabulary.words,
                inferred_words=b.vocabulary.words,
            )
            / a.n_topics
        )

    # The similarity is not symmetric, so both directions are averaged.
    similarity = {
        (a, b): (likeness(models[a], models[b]) + likeness(models[b], models[a])) / 2
        for a, b in combinations(range(len(models)), 2)
    }

    def mean(chosen: NDArray[np.bool_]) -> float:
        return float(np.mean([s for (a, b), s in similarity.items() if chosen[a] and chosen[b]]))

    return {
        "stability": mean(np.ones(len(models), bool)) if similarity else None,
        # Pairs with a model in common are not independent, so whole models are left out.
        "stability_margin": (
            jackknife_margin(mean, np.arange(len(models))) if len(models) > 2 else None
        ),
    }


def summarise_sweep(
    rows: Sequence[Mapping[str, Any]], stability: Mapping[int, Mapping[str, float | None]]
) -> list[dict[str, Any]]:
    """Return one row per number of topics: means and half of their 95 % intervals."""
    summary = []
    for number in sorted({row["topics"] for row in rows}):
        trained = [row for row in rows if row["topics"] == number]
        scores: dict[str, Any] = {"topics": number, "seeds": len(trained)}
        for name in sorted({name for row in trained for name in row} - {"study", "topics", "seed"}):
            values = [row[name] for row in trained if row.get(name) is not None]
            scores[name] = float(np.mean(values)) if values else None
            scores[f"{name}_margin"] = margin(values)
        summary.append({**scores, **stability[number]})
    return summary


def recommend(summary: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Return the number of topics that NMF chooses itself, or is best by most criteria, and why.

    Of several numbers that are best, it is the smallest whose held-out loss is close to the lowest.
    """
    best_by = {criterion: numbers for criterion in CRITERIA if (numbers := criterion.best(summary))}
    losses = {row["topics"]: row.get("held_out") or 0.0 for row in summary}
    votes = {number: sum(number in best for best in best_by.values()) for number in losses}
    most = max(votes.values())
    reasons = [criterion.reason(summary, numbers) for criterion, numbers in best_by.items()]
    if choice := summary[0].get("choice"):
        number, *good = choice
        return number, [f"best by what topics say of other documents: {why_number(number, good)}"]
    tied = [number for number, count in votes.items() if count == most]
    enough = min(losses[number] for number in tied) * (1 + LOSS)
    best = min(number for number in tied if losses[number] <= enough)
    if len(tied) > 1:
        reasons.append(
            f"{', '.join(map(str, tied))} are best by equally many scores; {best} is the smallest "
            f"of them with a held-out loss within {LOSS:.0%} of the lowest"
        )
    return best, reasons


def _draws(seed: int, client: str, use: int) -> np.random.Generator:
    """Return random choices about a client's documents, other ones for each use."""
    return np.random.default_rng([seed, int.from_bytes(client.encode()), DRAW + use])


def _split(seed: int, client: str, documents: int) -> tuple[Any, Any]:
    """Return the rows to train on and the held-out rows, equal for all numbers and seeds."""
    shuffled = _draws(seed, client, 0).permutation(documents)
    n_held = int(documents * HELD_OUT)
    return np.sort(shuffled[n_held:]), np.sort(shuffled[:n_held])


def _sample(seed: int, client: str, documents: int) -> Any:
    return np.sort(
        _draws(seed, client, 2).permutation(documents)[: max(int(documents * SAMPLE), 1)]
    )


def held_out_loss(model: TopicModel, corpora: Mapping[str, Corpus], seed: int) -> float:
    """Return the mean negative log-likelihood of a word, given half of its document's words.

    Variational steps estimate theta from one half; a word of the other has probability theta beta.

    Parameters
    ----------
    model : TopicModel
    corpora : mapping of client name to Corpus
    seed : int
        Seed of the random split into halves.

    Returns
    -------
    float
        In nats per word; nan without words.
    """
    total = words = 0.0
    for name in sorted(corpora):
        counts = model.count_words(corpora[name])
        seen = sparse.csr_array(counts)
        seen.data = (
            _draws(seed, name, 1).binomial(counts.data.astype(np.int64), 0.5).astype(np.float32)
        )
        hidden = (counts - seen).tocoo()
        even = np.full((seen.shape[0], model.n_topics), 1 / model.n_topics)
        theta = refine(seen, model.beta, 1 / model.n_topics, even, "mean")
        shares = np.einsum("nk,kn->n", theta[hidden.coords[0]], model.beta[:, hidden.coords[1]])
        total -= float(hidden.data @ np.log(np.maximum(shares, TINY)))
        words += float(hidden.data.sum())
    return total / words if words else float("nan")


def chart_of(summary: Sequence[Mapping[str, Any]]) -> str:
    return chart(
        [
            Panel(
                criterion.title,
                "topics",
                [(row["topics"], row[criterion.name]) for row in summary],
                [row[f"{criterion.name}_margin"] or 0.0 for row in summary],
            )
            for criterion in SHOWN_CRITERIA
            if all(row.get(criterion.name) is not None for row in summary)
        ]
    )
