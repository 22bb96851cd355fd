"""NMF chooses the number of topics by what topics of thirds say of parts of unseen documents."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from fedtopics import NMF, Corpus, Study, train
from fedtopics.errors import StudyError
from fedtopics.federation.exposure import expose
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.sweep import recommend, sweep
from fedtopics.methods.core.client import ClientWords
from fedtopics.methods.core.plan import ClientContext, Plan, Secret
from fedtopics.methods.nmf.client import COMPANY, MOST_WORDS, NMFClient, cell_of
from fedtopics.methods.nmf.number import about_as_good, information, joint_table, kappa, score_of
from fedtopics.model.card import card, why_number
from tests.helpers.federation import ANY_WORDS, subjects, tokens_of, train_and_note

SIZE = 150  # documents of a subject
MOST = (2, 3, 4, 5, 6, 8)
FEW = MOST[:-1]  # of eight topics, last bits of sums choose among equal factorisations


def study(**method: Any) -> Study:
    small = {"name": "nmf", "n_components": "auto", "max_rounds": 2, "coherence": "nothing"}
    return Study.make(method=small | method, vocabulary=ANY_WORDS)


def documents(n_subjects: int) -> list[list[str]]:
    corpora = subjects(dict.fromkeys("abcdef"[:n_subjects], SIZE))
    return [document for corpus in corpora.values() for document in tokens_of(corpus)]


def split(texts: list[list[str]], n: int, name: str = "c") -> dict[str, Corpus]:
    return {f"{name}{i}": Corpus.of(texts[i::n]) for i in range(n)}


def client(
    texts: list[list[str]], words: list[str], policy: Policy, persons: Sequence[str] = ()
) -> NMFClient:
    plan = Plan(settings=study().method, text=study().text, limits=study().vocabulary, seed=0)
    corpus = Corpus.of(texts)
    if persons:
        corpus = replace(corpus, persons=pa.chunked_array([persons]))
    made = NMFClient(plan, ClientContext("a", corpus, policy))
    made.adopt(words, len(texts), 2.0)
    return made


@pytest.mark.parametrize("number", [3, 4, 6])
def test_the_number_of_subjects_is_chosen(number: int) -> None:
    corpora = split(documents(number), 2)
    model, events = train_and_note(
        study(), corpora, policies=dict.fromkeys(corpora, Policy(min_persons=10))
    )
    tried = {event["n_components"]: event["score"] for event in events.of("candidate")}
    assert model.n_topics == number == max(tried, key=lambda n: tried[n])
    assert model.info["numbers"] == {str(n): score for n, score in tried.items()}
    (chosen,) = events.of("number chosen")
    assert (chosen["n_components"], model.info["range"]) == (number, (number, number))
    assert chosen["reason"] == f"{number}; no other number is about as good"
    assert chosen["reason"] in card(model)


def test_a_resumed_run_keeps_the_choice(tmp_path: Path) -> None:
    corpora = split(documents(3), 2)
    given: Any = {"policies": dict.fromkeys(corpora, OPEN_POLICY), "out": tmp_path}
    model = train(study(candidates=MOST), corpora, **given)
    again = train(study(candidates=MOST), corpora, **given, resume=True)
    assert again.info["numbers"] == model.info["numbers"]
    assert [*again.info["range"]] == [*model.info["range"]]


@pytest.mark.parametrize(("candidates", "warned"), [((2, 4), 1), ((2, 4, 8), 0)])
def test_a_search_that_ends_at_its_limit_warns(
    candidates: tuple[int, ...], warned: int, recwarn: pytest.WarningsRecorder
) -> None:
    fitted = NMF("auto", candidates=candidates).fit(documents(4))
    ended = "ended at the largest candidate (4; no other number is about as good), so more"
    assert (fitted.n_components_, fitted.n_components) == (4, "auto")
    assert sum(ended in str(warning.message) for warning in recwarn) == warned


def test_wrong_settings_and_too_few_documents() -> None:
    for given, problem in (
        ({"seed_topics": [["oak"]]}, "seed_topics need a fixed number"),
        ({"candidates": (4, 3)}, "ascending order"),
    ):
        with pytest.raises(StudyError, match=problem):
            study(**given)
    few = "too few documents or words to choose"
    texts = documents(4)
    for corpora, policy in (
        ({"a": texts[:40], "b": texts[-40:]}, Policy(min_persons=20)),  # thirds of 13
        ({"a": texts[:18], "b": texts[-18:]}, OPEN_POLICY),
        ({"a": [["elm", "fir"], ["oak"], ["ash"]] * 30}, OPEN_POLICY),  # nothing to tell
    ):
        with pytest.raises(StudyError, match=few):
            train(study(), corpora, policies=dict.fromkeys(corpora, policy))
    with pytest.raises(StudyError, match="fewer than n_components = 5000"):
        train(study(candidates=(5000,)), {"a": texts}, policies={"a": OPEN_POLICY})
    with pytest.raises(StudyError, match="nmf, discriminative and fstc can choose it"):
        Study.make(method={"name": "lda", "n_components": "auto"})


# Whose documents


class Alternating(np.random.Generator):
    """Puts the first word of a document of two words into one part, and the second one into the
    other."""

    def random(self, size: Any = None) -> Any:  # type: ignore[override]
        return np.arange(size) % 2


@pytest.fixture
def fixed_divisions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Documents are in the same thirds at each client, and their words in the same parts."""
    drawn = np.random.default_rng(0).integers(0, 3, (3, 4 * SIZE))

    def thirds(of: ClientWords) -> NDArray[np.int64]:
        _, place, n = of.name.split("-")
        return np.asarray(drawn[:, int(place) :: int(n)])

    monkeypatch.setattr(ClientWords, "thirds", property(thirds))
    rng = Secret.rng
    monkeypatch.setattr(
        Secret,
        "rng",
        lambda self, purpose, *numbers: (
            Alternating(np.random.PCG64(0))
            if purpose == "parts of words"
            else rng(self, purpose, *numbers)
        ),
    )
    return iter([None])


def of_two_words() -> list[list[str]]:
    rng = np.random.default_rng(1)
    words = [[f"{subject}{i}" for i in range(12)] for subject in "abcd"]
    texts = [
        [words[subject][i] for i in rng.choice(12, 2, replace=False)]
        for subject in range(4)
        for _ in range(SIZE)
    ]
    return [texts[row] for row in rng.permutation(len(texts))]


def scores_of(n: int, aggregation: str = "plain", backwards: bool = False) -> dict[str, float]:
    texts = of_two_words()
    corpora = {f"c-{i}-{n}": Corpus.of(texts[i::n]) for i in range(n)}
    corpora = dict(reversed(corpora.items())) if backwards else corpora
    plan = study(candidates=FEW).model_copy(update={"aggregation": aggregation})
    model = train(plan, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY), at_once=False)
    return model.info["numbers"]


@pytest.mark.usefixtures("fixed_divisions")
def test_scores_do_not_depend_on_whose_documents_they_are() -> None:
    pooled = scores_of(1)
    for scores in (scores_of(2), scores_of(3), scores_of(3, "secure")):
        np.testing.assert_allclose([*scores.values()], [*pooled.values()], rtol=0, atol=1e-9)
    assert scores_of(3, backwards=True) == scores_of(3), "not on the order of clients"


def test_clients_whose_subjects_differ_choose_the_same_number() -> None:
    corpora = {name: Corpus.of(documents(4)[i * SIZE :][:SIZE]) for i, name in enumerate("abcd")}
    model = train(study(candidates=MOST), corpora, policies=dict.fromkeys("abcd", OPEN_POLICY))
    assert model.n_topics == 4


# Persons


@pytest.mark.parametrize("n", [54, 100, 271])
def test_a_combination_of_thirds_is_over_many_persons(n: int) -> None:
    """Other weights than 0 are those of at least nine of 27 groups, whatever the combination."""
    thirds = client([["oak", "elm"]] * n, ["oak", "elm"], Policy(min_persons=10)).thirds
    groups, sizes = np.unique(thirds, axis=1, return_counts=True)
    assert groups.shape == (3, 27) and set(sizes) <= {n // 27, n // 27 + 1}
    indicators = (thirds[:, :, None] == np.arange(3)).transpose(1, 0, 2).reshape(n, 9)
    for signs in np.random.default_rng(0).integers(-1, 2, (2000, 9)):
        touched = int((indicators @ signs != 0).sum())
        assert not touched or touched >= 9 * (n // 27)


def test_a_client_of_few_persons_is_in_no_third() -> None:
    texts = [["oak", "elm"], ["fir", "elm"]] * 26  # 52 documents: groups of one or two
    few = client(texts, ["oak", "elm", "fir"], Policy(min_persons=10, min_persons_per_word=2))
    reply = few.function("products_of_thirds")(np.ones(3), np.ones((9, 3, 2)))
    assert not reply["products"].any() and reply["documents"] == 0
    read = few.function("topics_of_parts")(np.ones(3), np.ones((9, 3, 2)), [2])
    assert not read["cells"].any() and read["documents"] == 0
    persons = ["same"] * 27 + [f"p{i}" for i in range(27)]
    assert (
        client(texts + texts[:2], ["oak"], Policy(min_persons=10), persons=persons).thirds < 0
    ).all()


def test_sums_of_a_word_that_is_rare_in_a_third_are_those_of_all_documents() -> None:
    """Else a third would be over two persons with "ash" or so; its sums are a third of all six."""
    texts = [["oak", "elm"]] * 60 + [["ash", "elm"]] * 6 + [["oak", "fir"]] * 60
    policy = Policy(min_persons=10, min_persons_per_word=5)
    of_client = client(texts, ["oak", "elm", "ash", "fir"], policy)
    reply = of_client.function("products_of_thirds")(np.ones(4), np.stack([np.eye(4)] * 9))
    products = reply["products"]
    whole = of_client.function("word_products")(np.ones(4), np.eye(4))["products"]
    oak, elm, ash = range(3)
    for pair in [(ash, ash), (ash, elm), (elm, ash), (ash, oak)]:
        np.testing.assert_allclose(products[:, *pair], whole[pair] / 3, atol=1e-12)
    # Other sums are those of each third; together they are those of all documents.
    np.testing.assert_allclose(products[:3].sum(0), whole, atol=1e-12)
    in_third = [(of_client.thirds[0][:60] == third).sum() / 2 for third in range(3)]
    np.testing.assert_allclose(products[:3, oak, elm], in_third, atol=1e-12)
    assert len(set(in_third)) > 1 and reply["documents"] >= 10


def test_cells_of_few_persons_are_left_out_with_company() -> None:
    """Topics are words. Documents of "oak elm" name both; 10 to 20 persons are left out."""
    words = ["oak", "elm", "ash"]
    texts = [["oak", "elm"]] * 70 + [["elm", "ash"]] * 50 + [["oak", "ash"]] * 4
    topics = np.stack([np.eye(3)] * 9)
    read = {}
    for least in (1, 10):
        policy = Policy(min_persons=least, min_persons_per_word=1)
        of_client = client(texts, words, policy)
        read[least] = of_client.function("topics_of_parts")(np.ones(3), topics, [3])
        assert read[least]["documents"] == len(texts)
    oak, elm, ash = range(3)
    pairs = cell_of(np.array([oak, elm, oak]), np.array([elm, ash, ash]))
    for table in range(2):
        everybody = read[1]["cells"][table]
        assert everybody.sum() == 6 * len(texts), "a document is read six times"
        assert 0 < everybody[pairs[2]] <= 4 * 6
        shown = read[10]["cells"][table]
        assert (shown[pairs[:2]] > 0).all() and not shown[pairs[2]]
        hidden = everybody[pairs[:2]].sum() - shown[pairs[:2]].sum()
        assert 0 < hidden <= 20 * 6 and not shown[COMPANY]


def test_a_person_with_many_documents_is_one_in_a_cell() -> None:
    words = ["oak", "elm", "ash"]
    texts = [["oak", "elm"]] * 80 + [["elm", "ash"]] * 40
    persons = [f"p{i}" for i in range(80)] + ["same"] * 40
    of_client = client(texts, words, Policy(min_persons=10, min_persons_per_word=1), persons)
    shown = of_client.function("topics_of_parts")(np.ones(3), np.stack([np.eye(3)] * 9), [3])
    together = cell_of(np.array([0, 1]), np.array([1, 2]))
    assert shown["cells"][0][together[0]] > 0 and not shown["cells"][0][together[1]]


# Scores by hand


def test_scores_of_tables() -> None:
    table = np.array([[30.0, 10.0], [10.0, 50.0]])
    expected = 0.3 * np.log(0.3 / 0.16) + 0.5 * np.log(0.5 / 0.36) + 0.2 * np.log(0.1 / 0.24)
    assert information(table, documents=50) == pytest.approx(expected - 1 / 100)
    assert kappa(table) == pytest.approx((0.8 - 0.52) / 0.48)
    score = score_of(table, table, documents=50)
    assert score == pytest.approx((expected - 0.01) * kappa(table))
    assert score_of(table, np.ones((2, 2)), documents=50) == 0, "information below its bias"
    assert score_of(np.zeros((2, 2)), np.zeros((2, 2)), documents=0) == 0
    assert cell_of(np.array([0, 1, 0, 2]), np.array([0, 0, 1, 1])).tolist() == [1, 2, 2, 5]
    exact = joint_table(np.array([0, 30, 20, 50]), readings=100, number=1)
    assert exact.tolist() == table.tolist()
    # Without the cell of both topics, its 20 readings are as those of independent parts.
    hidden = joint_table(np.array([7, 30, 0, 50]), readings=100, number=1)
    share = 30 / 80
    np.testing.assert_allclose(hidden[0], [30 + 20 * share**2, 20 * share * (1 - share)])


def test_the_range_is_around_the_best_number() -> None:
    scores = {2: 0.95, 3: 0.1, 4: 0.9, 5: 1.0, 6: 0.91, 8: 0.89, 10: 0.99}
    assert about_as_good(scores) == (4, 6)
    assert about_as_good({2: 1.0, 3: 0.9}) == (2, 3)
    assert why_number(5, (4, 6)) == "5; 4 to 6 are about as good"
    assert why_number(5, ()) == "5"


# Where people read of it


def test_check_shows_the_steps_before_a_study() -> None:
    exposure = expose(study().with_clients("abc"))
    rows = {row.function: row for row in exposure.rows}
    assert (rows["products_of_thirds"].calls, rows["topics_of_parts"].calls) == (2, 1)
    assert rows["products_of_thirds"].numbers == 9 * MOST_WORDS * 180 + 1
    assert "products_of_thirds" not in {
        row.function for row in expose(study(n_components=4).with_clients("abc")).rows
    }


def test_a_sweep_gives_the_same_number(tmp_path: Path) -> None:
    corpora = split(documents(3), 2)
    policies = dict.fromkeys(corpora, OPEN_POLICY)
    model = train(study(candidates=(2, 3, 4)), corpora, policies=policies)
    for method in ({"n_components": 7}, {"candidates": (2, 3, 4)}):
        given: Any = {"corpora": corpora, "policies": policies}
        summary = sweep(study(**method), [2, 3, 4], 1, tmp_path, **given)
        best, reasons = recommend(summary)
        assert best == model.n_topics == 3
        assert reasons == [
            "best by what topics say of other documents: 3; no other number is about as good"
        ]
    few = sweep(study(n_components=7), [2, 3], 1, tmp_path, corpora={"a": documents(2)[:20]})
    assert "choice" not in few[0] and recommend(few)[0] in (2, 3)
