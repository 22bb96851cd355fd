"""A model whose numbers are round."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import TopicModel
from fedtopics.errors import ModelError
from fedtopics.escaping import visible
from fedtopics.inference.lda import LDAPrior, VariationalLDA
from fedtopics.model.effects import Effects, GroupTable
from fedtopics.model.folder import content_digest
from fedtopics.model.shown_words import DEFAULT_RANKING, WordRanking
from fedtopics.networks import find_network
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary

WORDS = ("oak", "elm", "flu", "tea", "__init__")
BETA = np.array([[4, 3, 1, 1, 1], [1, 1, 2, 2, 4], [2, 2, 2, 2, 2]]) / 10


def edit_config(folder: Path, **changes: Any) -> None:
    """Change a model's config, with a digest that fits: the folder is as its person wanted it."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    del config["digest"]
    words = json.loads((folder / "vocabulary.json").read_text())
    path.write_text(json.dumps(config | {"digest": content_digest(config, words)}))


def refused(folder: Path) -> str:
    """What is said of a folder that cannot be used: a sentence that prints."""
    with pytest.raises(ModelError) as error:
        TopicModel.from_pretrained(folder)
    said = str(error.value)
    assert visible(said) == said
    assert len(said) < 600
    return said


def made(**changes: Any) -> TopicModel:
    fields: dict[str, Any] = {
        "inference": VariationalLDA(5, LDAPrior(n_components=3)),
        "weights": {"pseudo_counts": BETA.T * 10},
        "shared": {},
        "vocabulary": Vocabulary(WORDS, np.full(5, 9), np.array([30, 25, 20, 15, 10])),
        "text": TextRules(),
        "shares": {"north": np.array([0.5, 0.25, 0.25]), "south": np.array([0.0, 1.0, 0.0])},
        "documents": {"north": 30, "south": 10},
        "word_sums": np.array([[2.0, 0, 0, 0, 6], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]]),
        "word_ranking": WordRanking(1.0),
        "coherence": {"npmi": np.array([0.5, np.nan, -0.25])},
        "labels": {0: "Trees | shrubs"},
    }
    return TopicModel(**(fields | changes))


def effect(formula: str, term: str = "yes", persons: int = 400, **changed: Any) -> Effects:
    """Differences of 3, -1 and -2 points of 1,200 documents of three clients."""
    fields: dict[str, Any] = {
        "formula": formula,
        "terms": (term,),
        "coefficients": np.array([[0.03, -0.01, -0.02]]),
        "covariances": np.full((3, 1, 1), 0.005**2),
        "classical": np.full((1, 3), 0.005),
        "groups": np.array([persons / 2]),
        "documents": 1200,
        "persons": persons,
        "clients": 3,
    }
    return Effects(**(fields | changed))


def table(column: str, *groups: str, persons: int = 400, documents: int = 600) -> GroupTable:
    """Groups with the same shares of topics."""
    n = len(groups)
    return GroupTable(
        columns=(column,),
        groups=groups,
        shares=np.tile([0.3, 0.3, 0.4], (n, 1)),
        errors=np.full((n, 3), 0.01),
        documents=np.full(n, documents),
        persons=np.full(n, persons),
    )


def with_network(**settings: Any) -> TopicModel:
    """A small network of three topics."""
    import torch

    kind = find_network("prodlda")
    inference: Any = kind(5, kind.settings_type(n_components=3, hidden=(4, 4), **settings))
    return made(
        inference=inference,
        weights=inference.initial_weights(0),
        shared={"decoder": {"topics": torch.zeros(3, 5), "theta_mean": torch.zeros(3)}},
    )


def model_of(topics: list[dict[str, float]], shares: list[float], words: str = "") -> TopicModel:
    """A model whose topics are these words, in their order, and whose share of all is given."""
    sorted_words = sorted({word for topic in topics for word in topic} | {*words})
    counts = np.array([[topic.get(word, 0.0) for word in sorted_words] for topic in topics])
    ones = np.ones(len(sorted_words), np.int64)
    return made(
        inference=VariationalLDA(len(sorted_words), LDAPrior(n_components=len(topics))),
        weights={"pseudo_counts": counts.T},
        vocabulary=Vocabulary(tuple(sorted_words), ones, ones),
        shares={"east": np.array(shares)},
        documents={"east": 10},
        word_sums=counts,
        coherence={},
        labels={},
        word_ranking=DEFAULT_RANKING,
    )
