"""Replies of one client of four that cannot be, in each method: it is named, the rest go on."""

from typing import Any

import numpy as np
import pytest

from fedtopics import Study
from tests.helpers.bent import Reply, bend_replies
from tests.helpers.federation import ANY_WORDS, DIMENSION, embedded, subjects, train_and_note

SIZES = {"east": 60, "north": 50, "south": 50, "west": 60}
CANNOT = "contains numbers outside the agreed bounds"
LDA = {"name": "lda", "max_rounds": 2, "batch_size": 100}
NETWORK = {
    "name": "gfedntm",
    "max_rounds": 4,
    "hidden": [8, 8],
    "validation_share": 0.3,
    "validate_every": 2,
}
EMBEDDED = {"embedding": {"dimension": DIMENSION}, "coherence": "nothing"}
NUMBERS = {"candidates": [2, 3], "start": {"tries": 2}}
CHOSEN = {"name": "discriminative", "max_rounds": 3, **NUMBERS, **EMBEDDED}
FLDA = {"name": "flda", "max_rounds": 1, "min_new_documents": 10}


def in_all(counted: Reply) -> Reply:
    """Say that each window holds all words."""
    return {"pairs": np.full_like(counted["pairs"], counted["windows"])}


def in_windows(size: str, bend: Any) -> Any:
    """Bend what is said of windows of a size, in the half of documents where words are scored."""
    return lambda reply: {size: reply[size] | bend(reply[size])}


def many_topics(reply: Reply) -> Reply:
    times = 4000 // max(len(reply["seeds"]), 1)
    names = ("index", "weights", "seeds", "occurrences")
    return {name: np.concatenate([reply[name]] * times) for name in names}


def many_clusters(reply: Reply) -> Reply:
    return {name: np.concatenate([reply[name]] * 100) for name in ("centres", "counts")}


def no_chance(reply: Reply) -> Reply:
    pairs = reply["documents"] * (reply["documents"] - 1) / 2
    return {"pairs": {"together": pairs, "first": pairs, "second": pairs, "chance": 0.0}}


def as_many(field: str, number: Any) -> Any:
    return lambda reply: {field: number} if field in reply else {}


WINDOWS = "contains impossible numbers of windows"
BENT: dict[str, tuple[dict[str, Any], str, Any, str]] = {
    "words in all windows": (LDA, "word_pairs", in_windows("1/10", in_all), f"'1/10' {WINDOWS}"),
    "words in all documents": (LDA, "word_pairs", in_windows("1/0", in_all), f"'1/0' {WINDOWS}"),
    "windows of no document": (
        LDA,
        "word_pairs",
        in_windows("1/0", as_many("windows", 10**6)),
        f"'1/0.windows' {CANNOT}",
    ),
    "bound": (LDA, "all_expected_counts", as_many("bound", -1e9), f"'bound' {CANNOT}"),
    "loss": (NETWORK, "topic_gradients", as_many("loss", 1e9), f"'loss' {CANNOT}"),
    "validation": (NETWORK, "validation_loss", as_many("loss", -1e9), f"'loss' {CANNOT}"),
    "topics": (
        FLDA,
        "local_topics",
        many_topics,
        "instead of ('up to 8 topics', 'up to 30 shown')",
    ),
    "documents of a round": (
        FLDA,
        "local_topics",
        as_many("documents", 10**12),
        f"'documents' {CANNOT}",
    ),
    "clusters": (
        {"name": "kmeans", "algorithm": "k-fed", **EMBEDDED},
        "own_centres",
        many_clusters,
        "instead of ('up to 4 clusters', 7)",
    ),
    "distances": (
        {"name": "kmeans", "max_rounds": 3, **EMBEDDED},
        "cluster_sums",
        lambda reply: {n: np.full_like(reply[n], 1e6) for n in {"distances"} & {*reply}},
        f"'distances' {CANNOT}",
    ),
    "clusterings": (
        CHOSEN,
        "agreeing_pairs",
        no_chance,
        "'pairs' contains impossible numbers of pairs",
    ),
}


@pytest.mark.parametrize("case", BENT)
def test_what_cannot_be_is_left_out_and_told(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, function, bend, fault = BENT[case]

    def bent(called: str, reply: Reply) -> Reply:
        return reply | bend(reply) if called == function else reply

    bend_replies(monkeypatch, "west", bent)
    plan = Study.make(method={"n_components": 4, **method}, vocabulary=ANY_WORDS)
    model, events = train_and_note(plan, embedded(subjects(SIZES)), at_once=False)
    said = events.of("bad reply")
    assert {event["client"] for event in said} == {"west"}
    assert all(fault in event["reason"] for event in said), said
    assert {"east", "north", "south"} <= model.documents.keys()
    assert np.isfinite(model.beta).all()
