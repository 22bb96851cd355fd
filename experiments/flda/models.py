"""What the F-LDA experiments train: data sets, and a model for each row of their tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

CLIENTS = ("client1", "client2", "client3")
N_ROUNDS = 3
N_TOPICS = 10
MANY_ROUNDS = 6  # of half as many documents
REPEATED_ROUNDS = 10  # of the same documents


@dataclass(frozen=True)
class DataSet:
    """Texts in one file, and what the paper says of a set of this kind."""

    name: str  # of the file, without .parquet
    a_round: int  # new documents of a client; the paper has 1,000
    gamma: float  # the paper's threshold
    column: str = "text"


DATA_SETS = (
    DataSet("medical_questions", 280, 0.45, "question"),  # without the doctors' answers
    DataSet("depression_tweets", 1000, 0.2),
)


@dataclass(frozen=True)
class Model:
    """One row of the table."""

    title: str
    where: str  # "pooled", "alone", "federated"
    rounds: int  # of documents that it sees: those of the first round, or of all so far
    method: Mapping[str, Any]
    literal: bool = False  # whether topics are merged with the paper's threshold
    dealt: Literal["at random", "by subject"] = "at random"  # how clients come by documents
    size: float = 1.0  # documents of a round, as a share of the data set's


FLDA: dict[str, Any] = {"name": "flda", "n_components": N_TOPICS, "coherence": "documents"}
REGULAR = FLDA | {"max_rounds": 1}
ALONE = REGULAR | {"spare_topics": 0}
GUIDED = ALONE | {"max_rounds": 2}
STREAM = FLDA | {"documents_per_round": 0}  # filled in for the data set
REPEATED = FLDA | {"max_rounds": REPEATED_ROUNDS}  # each round takes all documents
READINGS: dict[str, dict[str, Any]] = {
    "transitive": {"preset": "paper-transitive", "stop": "documents"},
    "pairwise": {"preset": "paper-pairwise", "stop": "documents"},
}
# In the same engine, so that what rounds have in common by chance can be seen.
ANEW: dict[str, Any] = {"memory": 0.0, "strength": 0.0}
OTHERS: dict[str, Any] = {"n_components": N_TOPICS, "coherence": "documents"}


def _literal(reading: str) -> dict[str, Model]:
    """Return the rows of a reading of the paper's algorithms, round by round."""
    title = f"the paper, {reading}, round"
    method = READINGS[reading]
    return {
        f"{reading}-{n}": Model(
            f"{title} {n}", "federated", n, (REGULAR if n == 1 else STREAM) | method, True
        )
        for n in range(1, N_ROUNDS + 1)
    }


ALL_ROUNDS = "regular LDA, documents of 3 rounds"
RANDOM = {
    "pooled": Model("regular LDA", "pooled", 1, ALONE),
    "pooled-guided": Model("guided LDA", "pooled", 1, GUIDED),
    "pooled-all": Model(ALL_ROUNDS, "pooled", 3, ALONE),
    "alone": Model("regular LDA", "alone", 1, ALONE),
    "alone-guided": Model("guided LDA", "alone", 1, GUIDED),
    "alone-all": Model(ALL_ROUNDS, "alone", 3, ALONE),
    **_literal("transitive"),
    **_literal("pairwise"),
    "federated": Model("regular LDA", "federated", 1, REGULAR),
    "federated-all": Model(ALL_ROUNDS, "federated", 3, REGULAR),
    "flda-2": Model("F-LDA, round 2", "federated", 2, STREAM),
    "flda-3": Model("F-LDA, round 3", "federated", 3, STREAM),
    "lda": Model(
        "variational LDA", "federated", 3, OTHERS | {"name": "lda", "learning": "stochastic"}
    ),
    "prodlda": Model("ProdLDA", "federated", 3, OTHERS | {"name": "gfedntm"}),
}
SKEWED = {
    f"skewed-{name}": replace(model, dealt="by subject")
    for name, model in RANDOM.items()
    if name not in ("pooled-guided", "alone-guided", "lda", "prodlda")
}
WAYS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "flda": ("F-LDA", {}, False),
    "transitive": ("the paper, transitive", READINGS["transitive"], True),
    "pairwise": ("the paper, pairwise", READINGS["pairwise"], True),
    "anew": ("regular LDA anew in each round", ANEW, False),
}
NEW_DOCUMENTS = {
    f"{name}-new": Model(title, "federated", MANY_ROUNDS, STREAM | method, literal, size=0.5)
    for name, (title, method, literal) in WAYS.items()
}
SAME_DOCUMENTS = {
    f"{name}-same": Model(title, "federated", 1, REPEATED | method, literal)
    for name, (title, method, literal) in WAYS.items()
}
MODELS = RANDOM | SKEWED | NEW_DOCUMENTS | SAME_DOCUMENTS
