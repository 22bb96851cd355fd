"""Thresholds count persons: who has many documents counts once, in words, groups and replies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedtopics import Corpus, Policy, Study
from fedtopics.errors import DataError, PolicyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.methods.clusters.sums import flows
from fedtopics.methods.core.groups import PersonShares, enough_have, persons_by_label
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.plan import Secret
from fedtopics.text.vocabulary import persons_by_word
from tests.helpers.grpc_federation import federated
from tests.helpers.methods import METHODS

WORDS = {
    theme: [f"{theme}{letter}" for letter in "abcdefghij"] for theme in ("tree", "boat", "bread")
}
PATIENTS = [f"zz{name}" for name in ("abel", "bora", "cora", "dina", "edda", "finn", "gero")]


def of_persons(texts: list[str], persons: Any) -> Corpus:
    return replace(
        Corpus.of(texts), persons=pa.chunked_array([[str(person) for person in persons]])
    )


def hospital(seed: int, named: bool) -> Corpus:
    """Letters of 40 persons; seven patients write eight each, with their names in all of them."""
    rng = np.random.default_rng(seed)
    texts, whose = [], []
    for person in range(40):
        theme = list(WORDS.values())[person % 3]
        for _ in range(8 if person < len(PATIENTS) else 2):
            words = rng.choice(theme, 12).tolist()
            name = [PATIENTS[person]] * 2 if person < len(PATIENTS) else []
            texts.append(" ".join([*name, *words]))
            whose.append(person)
    corpus = of_persons(texts, whose) if named else Corpus.of(texts)
    points = rng.normal(size=(len(texts), 7)) + 4 * np.eye(7)[[person % 3 for person in whose]]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return corpus.with_embeddings(points.astype(np.float32))


def powers(shares: Any, whose: Any) -> list[float]:
    counted = PersonShares(np.asarray(whose), 1)
    counted.add(slice(None), np.asarray(shares, float)[:, None])
    return [values.item() for values in counted.powers().values()]


@pytest.mark.parametrize(
    ("shares", "whose", "number"),
    [
        (np.ones(50), np.zeros(50, int), 1.0),
        (np.ones(59), np.r_[np.zeros(50, int), np.arange(1, 10)], 10.0),
        (np.r_[1, np.full(1000, 0.01)], np.arange(1001), 1.21),
        (np.full(100, 0.02), np.arange(100), 100.0),
        (np.r_[np.ones(50), np.full(9, 0.5)], np.r_[np.zeros(50, int), np.arange(1, 10)], 6.76),
    ],
    ids=["one person", "one with fifty", "hidden by crumbs", "diffuse", "halves"],
)
def test_a_person_counts_once(shares: Any, whose: Any, number: float) -> None:
    """Counter-examples: the number of persons whose shares are alike."""
    squares, fourths = powers(shares, whose)
    assert squares**2 / fourths == pytest.approx(number, abs=0.01)
    assert enough_have(np.array([squares]), np.array([fourths]), 10).all() == (number >= 10)


def test_the_others_hide_the_largest_share() -> None:
    """If a group passes, the others' squares are at least sqrt(k) - 1 times the largest."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        shares = rng.random(60) ** rng.integers(1, 60)
        squares, fourths = powers(shares, np.arange(60))
        if squares**2 >= 10 * fourths:
            assert squares - shares.max() ** 2 >= (np.sqrt(10) - 1) * shares.max() ** 2 - 1e-9


documents = st.lists(
    st.tuples(st.integers(0, 4), st.sets(st.integers(0, 6)), st.integers(0, 2), st.integers(0, 2)),
    min_size=1,
    max_size=20,
)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(documents)
def test_counts_are_those_of_sets(rows: list[tuple[int, set[int], int, int]]) -> None:
    """Words, labels and moves, counted one by one."""
    owners = np.array([row[0] for row in rows])
    bag = sparse.csr_array(np.array([[word in row[1] for word in range(7)] for row in rows], int))
    assert persons_by_word(bag, owners).tolist() == [
        len({who for who, words, *_ in rows if word in words}) for word in range(7)
    ]
    assert persons_by_word(bag, None).tolist() == bag.sum(0).tolist()
    before, now = (np.array([row[place] for row in rows]) for place in (2, 3))
    assert persons_by_label(now, 3, owners).tolist() == [
        len({who for who, *_, label in rows if label == of}) for of in range(3)
    ]
    moves = flows(before, now, 3, owners)
    assert np.diag(moves).tolist() == [
        len({w for w, _, a, b in rows if a == b == of}) for of in range(3)
    ]
    movers = {who for who, _, a, b in rows if a != b}
    assert (moves.sum() - np.trace(moves)) == pytest.approx(len(movers)), "each once, in parts"
    assert (flows(before, now, 3, None).sum()) == len(rows)


def test_minibatches_and_held_out_documents() -> None:
    """A minibatch has one document of a person; nobody is on both sides."""
    owners = np.repeat(np.arange(30), np.arange(1, 31))
    usable = np.arange(100, 100 + len(owners))
    drawn = Minibatches(
        usable, Secret.from_seed(1, "a"), 12, validation_share=0.2, smallest=5, owners=owners
    )
    whose = dict(zip(usable.tolist(), owners.tolist(), strict=True))
    held = {whose[row] for row in drawn.held.tolist()}
    training = {whose[row] for row in drawn.training.tolist()}
    assert len(held) == 6
    assert not held & training
    batches = [drawn.draw(number) for number in range(1, 400)]
    for batch in batches:
        assert len({whose[row] for row in batch.tolist()}) == len(batch) == 12
    assert np.array_equal(batches[4], drawn.draw(5)), "the same again"
    assert not np.array_equal(batches[4], drawn.draw(5, attempt=2))
    counted = np.bincount([whose[row] for batch in batches for row in batch.tolist()])
    assert np.corrcoef(counted[sorted(training)], sorted(training))[0, 1] > 0.8, "by documents"


CASES = {name: method for name, method in METHODS.items() if "local steps" not in name}
CASES["gfedntm"] = CASES["gfedntm"] | {"name": "gfedntm", "n_components": 3}
CASES["fstc"] = CASES["fstc"] | {"network": CASES["fsccl"]["network"]}
CASES["flda"] = {"name": "flda", "n_components": 3, "max_rounds": 2, "iterations": 20}


def names_in(folder: Path) -> int:
    """Count the patients whose names are in files of a folder."""
    content = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    return sum(name.encode() in content for name in PATIENTS)


@pytest.mark.parametrize("case", CASES)
def test_names_of_patients_are_nowhere(case: str, tmp_path: Path) -> None:
    """In the vocabulary, model, report, ledgers, events and checkpoints, whatever the method."""
    method = {**CASES[case], "coherence": "documents"}
    plan = Study.make(name="study", method=method, vocabulary={"min_clients_per_word": 1})
    left = {}
    for named in (True, False):
        corpora = {name: hospital(seed, named) for seed, name in enumerate("abc")}
        events: list[Any] = []
        train(plan.here(corpora), corpora, out=tmp_path / str(named), on_event=events.append)
        left[named] = names_in(tmp_path / str(named))
        left[named] += sum(name in str(events) for name in PATIENTS)
    assert left[True] == 0
    assert left[False] == len(PATIENTS), "the attack finds them if documents count"


def test_an_observer_of_a_secure_run_sees_no_name(tmp_path: Path) -> None:
    """Nor is a name in what members keep of all totals and calls."""
    corpora = {name: hospital(seed, True) for seed, name in enumerate("abc")}
    plan = Study.make(name="study", method={"name": "nmf", "n_components": 3, "max_rounds": 2})
    federated(plan, corpora, tmp_path, policy=Policy(), seeded=False)
    assert [*tmp_path.rglob("totals")]
    assert names_in(tmp_path) == 0


def test_a_reply_over_one_person_is_refused() -> None:
    """Fifty letters of nine persons are nine persons, before anything is sent."""
    texts = [" ".join(words) for words in (WORDS["tree"], WORDS["boat"], WORDS["bread"]) * 20][:50]
    corpora = {name: of_persons(texts, np.arange(50) // 6) for name in "abc"}
    plan = Study.make(method={"name": "nmf", "n_components": 2}).here(corpora)
    with pytest.raises(PolicyError, match=r"documents of 9 persons, but its policy requires 10"):
        train(plan, corpora, policies=dict.fromkeys(corpora, Policy(min_persons_per_word=1)))
    alone = {name: Corpus.of(texts) for name in "abc"}
    train(plan, alone, policies=dict.fromkeys(corpora, Policy(min_persons_per_word=1)))


def test_documents_of_unknown_persons() -> None:
    """They are refused, unless unknown_persons counts them as one; person_column asks for all."""
    corpus = of_persons(["tree boat"] * 30, [*range(12), "", *range(17)])
    required = Policy(person_column="required")
    with pytest.raises(PolicyError, match=r"requires a column of persons.*--columns person=NAME"):
        required.check_persons("north", Corpus.of(["tree"]))
    with pytest.raises(PolicyError, match=r"Document 13 of client 'north' has no person"):
        required.check_persons("north", corpus)
    Policy(unknown_persons="one").check_persons("north", corpus)
    assert corpus.n_persons() == 18, "those without a person are one"
    assert corpus.whose == "of 18 persons, at most 2 of one"
    with pytest.raises(PolicyError, match="Document 13 of client 'a'"):
        train(Study.make(method={"name": "nmf"}), dict.fromkeys("abc", corpus))


def test_too_rare_words_for_persons() -> None:
    corpus = of_persons(["tree boat bread oak"] * 30, [0] * 30)
    with pytest.raises(DataError, match="No word is in the documents of 5 or more persons"):
        train(
            Study.make(method={"name": "nmf"}),
            dict.fromkeys("abc", corpus),
            policies=dict.fromkeys("abc", OPEN_POLICY),
        )
