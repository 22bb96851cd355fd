"""What a study with privacy says: which settings it can have, how its budget is shared out."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from fedtopics.errors import StudyError
from fedtopics.federation.data_sent import TOTAL, data_sent_in
from fedtopics.federation.study import Study
from fedtopics.privacy import Budget, Privacy
from fedtopics.privacy.accounting import mu_of
from fedtopics.privacy.lda import alpha_of
from fedtopics.privacy.recipe import RECIPES
from fedtopics.text.rules import TextRules
from tests.helpers.recipes import METHODS, planned

BOUND = {"epsilon": 3}
YEARS = {"period": "year", "begin": "2020-01-01", "end": "2022-01-01"}


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ({"name": "lda", "learning": "stochastic"}, 'set learning = "batch"'),
        ({"name": "lda", "initialisation": "anchors"}, "leave out initialisation"),
        ({"name": "lda", "coherence": "windows"}, 'set coherence = "nothing"'),
        ({"name": "lda", "max_rounds": 2}, "max_rounds between 3 and 50; the first 2 find"),
        ({"name": "nmf", "max_rounds": 51}, "set max_rounds between 3 and 50"),
        ({"name": "kmeans", "max_rounds": 3}, "set max_rounds between 4 and 50"),
        ({"name": "nmf", "tolerance": 0.1}, "leave out stop_when and tolerance"),
        ({"name": "nmf", "stop_when": {"loss": 1.0}}, "leave out stop_when and tolerance"),
        ({"name": "nmf", "over_time": YEARS}, "leave out over_time"),
        ({"name": "kmeans", "algorithm": "k-fed"}, 'set algorithm = "lloyd"'),
        ({"name": "kmeans", "representation": "bow"}, "leave out representation"),
        ({"name": "nmf", "n_components": "auto"}, "set n_components to a number"),
        ({"name": "discriminative"}, r"no advantage .* does \(lda, nmf, kmeans\), or leave out"),
        ({"name": "flda"}, r"Gibbs sampling .* does \(lda, nmf, kmeans\), or leave out"),
        ({"name": "mixture"}, "nothing limits what a document adds to its sums"),
    ],
)
def test_what_cannot_have_a_bound_says_why(method: dict[str, Any], why: str) -> None:
    with pytest.raises(StudyError, match=f"{method['name']} does not support .*{why}"):
        Study.make(method=method, differential_privacy=BOUND)
    Study.make(method=method)


@pytest.mark.parametrize(
    ("clients", "more", "why"),
    [
        (2, {}, "which needs three clients"),
        (3, {"method": {"name": "lda", "clients_per_round": 3}}, "leave out clients_per_round"),
        (9, {"federation": {"outliers": "median"}}, "leave out federation.outliers"),
        (1001, {}, "at most 1,000 clients"),
    ],
)
def test_sums_have_all_parts_of_the_noise(clients: int, more: Any, why: str) -> None:
    given = {"method": {"name": "lda"}, "clients": {f"c{n}": {} for n in range(clients)}}
    with pytest.raises(StudyError, match=why):
        Study.make(**given | more, differential_privacy=BOUND)


@pytest.mark.parametrize("name", METHODS)
def test_sums_with_noise_have_names_of_their_own(name: str) -> None:
    """A ledger names method and function: by both it is clear what left."""
    study = planned(name, 3)
    functions = RECIPES.find(name).client.functions()
    assert not functions.keys() & study.registration.client.functions().keys()
    sent = {row.function: row.data_sent for row in data_sent_in(study) if row.seen == TOTAL}
    assert sent == {function: of.data_sent for function, of in functions.items()}


@pytest.mark.parametrize("name", ["gfedntm", "fstc", "fsccl"])
def test_networks_cannot_have_a_bound(name: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(StudyError, match=f"{name} does not support .*, or leave out differential_"):
        Study.make(method={"name": name}, differential_privacy=BOUND)


def test_settings_with_a_bound() -> None:
    """What a study does not name is what can have a bound; what it names stays."""
    study = Study.make(method={"name": "lda"}, differential_privacy=BOUND)
    assert study.method.model_dump(include={"learning", "coherence", "max_rounds"}) == {
        "learning": "batch",
        "coherence": "nothing",
        "max_rounds": 4,
    }
    assert Study.make(method={"name": "lda", "learning": "stochastic"}).method.max_rounds == 200
    assert study.with_rounds(9).method.max_rounds == 9
    assert RECIPES.find("lda").repeats(study.with_rounds(9).method) == 7
    least = Study.make(method={"name": "lda", "alpha": 5e-324}, differential_privacy=BOUND).method
    assert alpha_of(least) == 1e-12, "of less, shares of topics are no numbers"


def test_public_words_are_different_ones() -> None:
    for wrong in (["tea", "tea"], ["\u202etea"]):
        with pytest.raises(StudyError, match="words must be printable, and must not be"):
            Study.make(method={"name": "nmf"}, differential_privacy={**BOUND, "words": wrong})


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("rounds", [1, 2, 47])
def test_releases_share_one_budget(name: str, rounds: int) -> None:
    """However many rounds there are."""
    plan = planned(name, 3)
    promised = Privacy(epsilon=3)
    recipe = RECIPES.find(name)
    shares = recipe.budget(promised, plan.with_rounds(recipe.rounds_once + rounds).method).shares
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0
    budget = Budget(promised, shares)
    spent = sum(budget.sigma(name) ** -2 for name in shares)
    assert spent == pytest.approx(mu_of(promised) ** 2, rel=1e-2)
    assert spent <= mu_of(promised) ** 2


def public_words(study: Study) -> list[str]:
    words = study.differential_privacy.words  # type: ignore[union-attr]
    method = study.method
    return RECIPES.find(method.method_name).public_words(words, method, TextRules())


def test_public_words_of_an_encoder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = {"[CLS]": 0, "the": 1, "of": 2, "tea": 3, "##s": 4}
    encoder = SimpleNamespace(folder=tmp_path)
    monkeypatch.setattr("fedtopics.privacy.recipe.sentence_encoder", lambda _: encoder)

    def write(kind: str) -> None:
        (tmp_path / "tokenizer.json").write_text(
            json.dumps({"model": {"type": kind, "vocab": pieces}})
        )

    write("WordPiece")
    study = Study.make(method={"name": "nmf"}, differential_privacy=BOUND)
    assert public_words(study) == ["tea"], "no stop word, no part of a word"
    write("BPE")
    with pytest.raises(StudyError, match="give a public list as words"):
        public_words(study)


@pytest.mark.parametrize("name", METHODS)
def test_a_study_without_public_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says why, and what to do, before anything leaves."""

    def missing(model: str) -> None:
        raise StudyError(f"The model {model!r} cannot be loaded.")

    monkeypatch.setattr("fedtopics.privacy.recipe.sentence_encoder", missing)
    with pytest.raises(StudyError, match="words of documents are secret; list words") as told:
        public_words(Study.make(method={"name": name}, differential_privacy=BOUND))
    assert str(told.value).endswith("cannot be loaded.")
    words = [f"milk{letter}" for letter in "abcdefghijklmnopqrst"]
    listed = Study.make(
        method={"name": name, "n_components": 2}, differential_privacy=BOUND | {"words": words}
    )
    assert public_words(listed) == words
