"""The scores of the AMWMD experiment, as tables and as sentences on what they show.

No sentence knows the outcome: which claims hold is read off the scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.report import Table

ALONE_TOPICS = 10
FEDERATED_TOPICS = (10, 25)
OTHER_SEED = "own, other seed"
ALL_OTHERS = "all of others"
CONTROLS = (
    "centralised 10",
    "centralised 25",
    "random 10",
    "random 25",
    "10 of others",
    "25 of others",
    ALL_OTHERS,
    OTHER_SEED,
)
BEYOND_SEEDS = 2.0  # deviations between seeds, from which a difference counts as more than theirs


@dataclass(frozen=True)
class Scores:
    """AMWMD of the clients' own topics against models, the mean over topics.

    `documents` are numbers of documents by client; `models` begin with the clients' own, in that
    order; `values` have the shape (n_seeds, n_clients, n_models); `trainings` name each trained
    model, its seed and its cost.
    """

    data_set: str
    documents: Mapping[str, int]
    models: tuple[str, ...]
    values: NDArray[np.float64]
    trainings: Sequence[Mapping[str, Any]] = ()

    def of(self, model: str) -> NDArray[np.float64]:
        """Return the scores of a model, shape (n_seeds, n_clients).

        "best other" is, client by client and seed by seed, the closest of the other clients.
        """
        if model != "best other":
            return self.values[:, :, self.models.index(model)]
        n_clients = len(self.documents)
        is_own = np.eye(n_clients, dtype=bool)
        best: NDArray[np.float64] = np.where(is_own, np.inf, self.values[:, :, :n_clients]).min(2)
        return best

    def plain(self) -> dict[str, Any]:
        """Return them with the sums, the sentences and what these are made of, for JSON."""
        return {
            "data_set": self.data_set,
            "documents": dict(self.documents),
            "models": list(self.models),
            "mean": self.values.mean(0).tolist(),
            "deviation": _deviation(self.values).tolist(),
            "sum": (self.values.mean(0) * ALONE_TOPICS).tolist(),
            "by_seed": self.values.tolist(),
            "trainings": list(self.trainings),
            "findings": [
                {
                    "statement": finding.statement,
                    "outcome": finding.outcome,
                    "clients": finding.n_closer,
                    "closer_by": finding.gain,
                    "deviation": finding.deviation,
                    "text": str(finding),
                }
                for finding in findings(self)
            ],
        }


@dataclass(frozen=True)
class Finding:
    """Whether one model lies closer to the clients' topics than another.

    Scores of the model that is said to be closer, and of the other, are (n_seeds, n_clients).
    """

    statement: str
    closer: NDArray[np.float64]
    farther: NDArray[np.float64]

    @property
    def n_closer(self) -> int:
        """Clients for which it is so, in the mean over seeds."""
        return int((self.closer.mean(0) < self.farther.mean(0)).sum())

    @property
    def outcome(self) -> str:
        """In words."""
        if not self.n_closer:
            return "does not hold"
        return "holds" if self.n_closer == self.closer.shape[1] else "holds in part"

    @property
    def gain(self) -> float:
        """By how much closer, in the mean over clients and seeds."""
        return float((self.farther - self.closer).mean())

    @property
    def deviation(self) -> float:
        """How much that differs between seeds."""
        return float(_deviation((self.farther - self.closer).mean(1)))

    def __str__(self) -> str:
        side = "closer" if self.gain >= 0 else "farther"
        return (
            f"{self.statement}: {self.outcome}, for {self.n_closer} of {self.closer.shape[1]} "
            f"clients; on average {self.closer.mean():.3f} against {self.farther.mean():.3f}, "
            f"{abs(self.gain):.3f} {side}{self._beside_seeds()}."
        )

    def _beside_seeds(self) -> str:
        """Hold the difference against that between seeds."""
        if len(self.closer) < 2:
            return ""
        if abs(self.gain) < BEYOND_SEEDS * self.deviation:
            return f", no more than seeds differ (deviation {self.deviation:.3f})"
        return f", more than seeds differ (deviation {self.deviation:.3f})"


def _deviation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation over seeds, the first axis; zero if there is one seed."""
    deviation: NDArray[np.float64] = values.std(0, ddof=1) if len(values) > 1 else 0 * values[0]
    return deviation


PAPER = (
    (
        "Claim 1 of the paper: the federated model of 10 topics is closer to each client's own "
        "topics than any other client's model",
        "federated 10",
        "best other",
    ),
    (
        "Claim 2 of the paper: the federated model of 25 topics is closer than that of 10",
        "federated 25",
        "federated 10",
    ),
    (
        "Control, the number of topics alone: 25 random topics are closer than 10 random topics",
        "random 25",
        "random 10",
    ),
)
FARTHER = {  # controls that federated models should be closer than, and in words
    "random {n}": "{n} random topics",
    "{n} of others": "{n} topics drawn from all other clients' models",
    ALL_OTHERS: "all topics of all other clients together",
    OTHER_SEED: "the client's own model with another seed",
    "centralised {n}": "centralised {n}",
}
ONLY = {ALL_OTHERS: 25, OTHER_SEED: 10}  # the number of topics where there is one
STATEMENTS = (
    *PAPER,
    *(
        (
            f"Control: federated {n} is closer than {words.format(n=n)}",
            f"federated {n}",
            model.format(n=n),
        )
        for model, words in FARTHER.items()
        for n in FEDERATED_TOPICS
        if ONLY.get(model, n) == n
    ),
)


def findings(scores: Scores) -> list[Finding]:
    """Return what the scores say on the paper's two claims, and what the controls say."""
    return [
        Finding(text, scores.of(closer), scores.of(farther)) for text, closer, farther in STATEMENTS
    ]


def sentences(scores: Scores) -> list[str]:
    """Return the findings in words, and how much of claim 2 more topics explain by themselves."""
    answers = findings(scores)
    federated = answers[1].gain
    random = answers[2].gain
    explained = (
        f"From 10 to 25 topics, random topics come {random:.3f} closer and federated topics "
        f"{federated:.3f}"
    )
    if federated > 0 and 0 <= random <= federated:  # otherwise it is no share of anything
        explained += f": {random / federated:.0%} of what the federated models gain from them"
    said = [*map(str, answers[:3]), f"{explained}.", *map(str, answers[3:])]
    if len(scores.values) < 2:
        said.append("This is one seed: how much seeds differ, and what is chance, it cannot tell.")
    return said


def summary(every: Sequence[Scores]) -> Table:
    """Return the scores of each model and data set, means over clients and seeds."""

    def cell(scores: Scores, model: str) -> str:
        values = scores.of(model)
        spread = f" ± {_deviation(values.mean(1)):.3f}" if len(values) > 1 else ""
        return f"{values.mean():.3f}{spread}"

    models = ("best other", *(f"federated {n}" for n in FEDERATED_TOPICS), *CONTROLS)
    rows = tuple((model, *(cell(scores, model) for scores in every)) for model in models)
    header = ("model", *(scores.data_set for scores in every))
    return Table("All data sets: means over clients, and deviation between seeds", header, rows)


def tables(scores: Scores) -> Iterator[Table]:
    """Return the paper's figure as a table, and the controls beside it; means over seeds."""
    names = {name: f"{number} {name}" for number, name in enumerate(scores.documents, 1)}
    federated = [f"federated {n}" for n in FEDERATED_TOPICS]
    mean = scores.values.mean(0)
    columns = [scores.models.index(model) for model in (*scores.documents, *federated)]
    yield Table(
        f"{scores.data_set}: AMWMD of each client's topics (rows) against the models of the "
        "clients, by number, and federated models",
        ("client", *(str(number) for number in range(1, len(names) + 1)), *federated),
        tuple(
            (names[client], *("-" if at == row else f"{mean[row, at]:.3f}" for at in columns))
            for row, client in enumerate(names)
        ),
    )
    models = ("best other", *federated, *CONTROLS)
    by_model = [scores.of(model) for model in models]
    yield Table(
        f"{scores.data_set}: the best of the other clients, federated models, and the controls "
        "(rows), against the topics of each client, by number",
        ("model", *(name.split()[0] for name in names.values()), "mean", "deviation"),
        tuple(
            (
                model,
                *(f"{value:.3f}" for value in values.mean(0)),
                f"{values.mean():.3f}",
                f"{_deviation(values.mean(1)):.3f}" if len(values) > 1 else "-",
            )
            for model, values in zip(models, by_model, strict=True)
        ),
    )
