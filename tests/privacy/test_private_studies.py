"""LDA, NMF and k-means with differential privacy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, Study, train
from fedtopics.errors import FederationError, PolicyError, StudyError
from fedtopics.federation.data_sent import ALL_SEE, TOTAL, data_sent_in
from fedtopics.federation.exposure import expose
from fedtopics.federation.memory import Memory, default_place
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import client_of
from fedtopics.methods.core.plan import ClientContext
from fedtopics.privacy import Noise, Privacy, contributions
from fedtopics.privacy.accounting import Account
from fedtopics.privacy.recipe import RECIPES
from fedtopics.report import find_run, summarise
from fedtopics.report.run import LedgerFacts
from tests.helpers.background import until
from tests.helpers.clusters import accuracy, overheard, spread
from tests.helpers.federation import train_until_killed
from tests.helpers.grpc_federation import federated
from tests.helpers.keys import key_of
from tests.helpers.models import made
from tests.helpers.recipes import (
    DIMENSION,
    METHODS,
    PUBLIC,
    WORDS,
    half_of,
    install,
    planned,
    questions,
    themed,
)

PUBLIC_FIELDS = {"clients", "vectors"}  # of words, not of documents
pytestmark = pytest.mark.usefixtures("_encoder")


@pytest.fixture
def _encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def of_themes(clients: str = "abc", n: int = 4000) -> dict[str, Corpus]:
    return {name: themed(n, seed) for seed, name in enumerate(clients)}


def trained(plan: Study, corpora: dict[str, Corpus], **how: Any) -> Any:
    return train(plan, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY), at_once=False, **how)


def test_a_study_with_a_bound_begins_with_no_model() -> None:
    with pytest.raises(StudyError, match="starts from public words, so it cannot start"):
        trained(planned("lda", 8), of_themes(n=40), start=made())


@pytest.mark.parametrize("name", METHODS)
def test_all_but_public_fields_have_noise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where noise hides all that it is added to, documents change nothing of what leaves."""
    monkeypatch.setattr(Noise, "added", lambda _, values, *__: np.zeros(np.shape(values)))
    asked = [("noisy_document_count", {}), *questions(name, np.random.default_rng(0))]
    replies = []
    for corpus in (themed(30), themed(70, 1)):
        half = half_of(corpus, name, 3)
        replies += [(function, getattr(half, function)(**how)) for function, how in asked]
    for (function, reply), (_, other) in zip(
        replies[: len(asked)], replies[len(asked) :], strict=True
    ):
        assert reply.keys() == other.keys()
        for field, value in reply.items():
            np.testing.assert_array_equal(value, other[field], err_msg=function)
            assert field in PUBLIC_FIELDS or not np.any(value), f"{field} of {function}"


def test_all_that_leaves_has_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a document, what is left is noise alone; vectors of words are public."""
    messages = overheard(monkeypatch)
    plan = planned("kmeans", 8)
    nothing = Corpus.of([["x"]] * 4).with_embeddings(np.zeros((4, DIMENSION), np.float32))
    trained(plan, of_themes("ab") | {"empty": nothing})
    sums = [(f, r) for name, f, _, r in messages.calls if name == "empty" and f != "word_vectors"]
    assert [function for function, _ in sums] == [
        "noisy_document_count",
        "noisy_key_words",
        "noisy_cluster_sums",
        "noisy_cluster_sums",
        "noisy_cluster_words",
    ]
    budget = RECIPES.find("kmeans").budget(Privacy(epsilon=8), plan.method)
    part = budget.sigma("histogram") / np.sqrt(2)  # of three clients one may be missing
    assert np.std(sums[4][1]["counts"]) == pytest.approx(part, rel=0.2)
    assert np.std(sums[1][1]["words"]) == pytest.approx(budget.sigma("words") / np.sqrt(2), rel=0.3)


def test_what_a_study_would_show() -> None:
    exposure = expose(planned("nmf", 3).with_clients("abc"), themed(300))
    shown = {row.function: row for row in exposure.rows}
    noisy = {"noisy_document_count", "noisy_word_counts", "noisy_word_products", "noisy_factors"}
    assert set(shown) == noisy | {"model: digest", "model: of the first member"}
    assert all(shown[name].calls * (shown[name].bytes or 0) > 0 for name in noisy)
    for who, epsilon in (("One other member", "20.1"), ("All 2 other members together", "83.3")):
        assert f" is at most {epsilon} times as likely with a d" in exposure.adversaries[who]


def test_factors_by_hand() -> None:
    """A document on one topic alone, and one between two, add 1 each to X' W."""
    topics = np.eye(3)[:, :2]
    points = contributions.sparse.csr_array(np.array([[1.0, 0, 0], [0.6, 0.6, 0.28**0.5]]))
    sums, products = contributions.factored(points, topics, np.ones(2))
    half = 0.5**0.5
    beside = [[0.6 * half] * 2, [0.6 * half] * 2, [0.28**0.5 * half] * 2]
    np.testing.assert_allclose(sums, np.add([[1, 0], [0, 0], [0, 0]], beside), atol=1e-9)
    shares = 0.6 * half
    np.testing.assert_allclose(
        contributions.unpacked(products, 2), [[1 + shares, shares], [shares, shares]], atol=1e-9
    )


@pytest.mark.parametrize("name", METHODS)
def test_with_noise_the_themes_are_found_by_what_a_study_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked so often as it says, in as many rounds as it has, and once more their number."""
    corpora = of_themes()
    messages = overheard(monkeypatch)
    plan = planned(name, 3, max_rounds=6)
    model = trained(plan, corpora)
    asked = [function for client, function, _, _ in messages.calls if client == "a"]
    said = {row.function: row.calls for row in data_sent_in(plan) if row.seen == TOTAL}
    assert {function: asked.count(function) for function in asked} == said
    assert len(asked) == 6 + 1
    assert accuracy(model, corpora) > 0.9
    assert {len({word[:6] for word in topic}) for topic in model.topics(5)} == {1}
    assert model.info["method"] == name
    assert list(model.documents) == ["all"], "nothing is said of a client"
    assert model.documents["all"] != 12_000, "their number has noise as well"
    assert abs(model.documents["all"] - 12_000) < 300
    assert model.share.sum() == pytest.approx(1, abs=0.01), "shares have three digits"
    read = type(model).from_pretrained(model.save_pretrained(tmp_path / name))
    assert read.topics() == model.topics()
    assert read.documents == model.documents
    np.testing.assert_array_equal(read.transform(corpora["a"]), model.transform(corpora["a"]))


def test_topics_with_given_words() -> None:
    corpora = of_themes()
    for theme in range(3):
        words = PUBLIC[theme * WORDS : theme * WORDS + 2]
        model = trained(planned("nmf", 8, seed_topics=[words]), corpora)
        assert {word[:6] for word in model.topics(8)[0]} == {words[0][:6]}


@pytest.mark.parametrize("name", METHODS)
def test_sums_of_several_are_those_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the noise, which is left out here."""
    monkeypatch.setattr(Noise, "added", lambda _, values, *__: np.asarray(values, float))
    corpus = themed(3000)
    plan = planned(name, 50)
    alone = trained(plan.model_copy(update={"aggregation": "plain"}), {"all": corpus})
    several = trained(plan, spread(corpus, 3))
    # Rounding may say which topic of a sketch is found first.
    order = [np.argsort([topic[0] for topic in model.topics()]) for model in (alone, several)]
    np.testing.assert_allclose(several.beta[order[1]], alone.beta[order[0]], rtol=1e-4)
    copies = 3000 - half_of(corpus, name).summed
    assert 3000 - copies <= several.documents["all"] <= 3000, "copies at one client count once"
    for topic in several.topics():
        assert len({word[:6] for word in topic}) == 1, "ten words of a theme"


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_run_goes_on_without_asking_twice(
    stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = spread(themed(9000), 3)
    plan = planned("kmeans", 8, max_rounds=6)
    whole = trained(plan, corpora)
    train_until_killed(stop, plan, corpora, run=trained, out=tmp_path)
    messages = overheard(monkeypatch)
    resumed = trained(plan, corpora, out=tmp_path, resume=True)
    assert len([call for call in messages.calls if call[0] == "client-1"]) == 6 - stop + 1
    for name, weight in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], weight)


@pytest.mark.parametrize("name", METHODS)
def test_too_few_documents_are_refused(name: str) -> None:
    with pytest.raises(StudyError, match=r"at epsilon 1 noise hides the rest. Ask for fewer"):
        trained(planned(name, 1), spread(themed(90), 3))


def test_a_half_looks_at_no_other_documents() -> None:
    plan = planned("nmf", 3)
    site = ClientContext("a", themed(20).with_embeddings(None), OPEN_POLICY)
    half: Any = client_of(plan, site)
    with pytest.raises(PolicyError, match="it has no public words yet"):
        half.noisy_word_counts()
    assert type(half).__name__ == "NoisyNMFClient"
    assert type(client_of(planned("nmf"), site)).__name__ == "NMFClient"


def test_ledger_and_report_of_a_run(tmp_path: Path) -> None:
    """A client's own ledger says of how many documents a reply is, which does not leave."""
    corpora = of_themes()
    model = trained(planned("kmeans", 8, max_rounds=5), corpora, out=tmp_path)
    rows = {
        row["function"]: row for row in LedgerFacts.read(tmp_path / "clients/a/ledger.jsonl").rows
    }
    documents = len(half_of(corpora["a"], "kmeans").corpus)  # copies count once
    assert rows["noisy_cluster_sums"]["replies"] == 2
    assert {row["documents"] for row in rows.values()} == {documents}
    told = summarise(model, find_run(tmp_path)[1])["left"]["functions"]
    texts = {row["function"]: row["data_sent"] for row in told}
    assert all("noise" in texts[name] for name in rows if name != "word_vectors")


def test_a_client_goes_by_its_policy_and_its_account(tmp_path: Path) -> None:
    """The method is the one that the study names, and what it may say is written down first."""
    plan = planned("nmf", 3).with_clients(["east", "north", "west"])
    policy = Policy(max_epsilon=4)
    part = Participation(key_of("north"), themed(100), policy, tmp_path / "out")
    part.review(plan)
    part.consider(plan, part.state_folder(plan))
    part.close()
    assert Account(Memory.read(default_place("north")).header.account).epsilon == 3
    again = planned("lda", 3).with_clients(["east", "north", "west"])
    with pytest.raises(PolicyError, match=r"used 3, and with this one it would be 4\.42"):
        Participation(key_of("north"), themed(100), policy, tmp_path / "more").review(again)
    of_sums = Policy(min_persons_in_sum=200)
    alone = Policy(methods=("lda",))
    for other, says in (of_sums, "must be without min_persons_in_sum"), (alone, "nmf"):
        with pytest.raises(PolicyError, match=says):
            Participation(key_of("north"), themed(100), other, tmp_path / "other").review(plan)


def test_a_study_between_machines(tmp_path: Path) -> None:
    """All leaves masked, with noise of the clients' own secrets, and is accounted for."""
    corpora = {name: themed(4000, seed) for seed, name in enumerate(("east", "north", "west"))}
    policies = {}
    for name in corpora:
        path = tmp_path / f"{name}.toml"
        path.write_text('max_epsilon = 9\naggregation = "secure"\n')
        policies[name] = Policy.read(path)
    plan = planned("nmf", 8)
    model = federated(plan, corpora, tmp_path, policies=policies, seeded=False).model
    assert accuracy(model, corpora) > 0.9
    seen = {row["function"]: row["seen"] for row in model.info["data_sent"]}
    assert model.info["masked"]
    assert {name for name in seen if seen[name] == ALL_SEE} == {
        "model: digest",
        "model: of the first member",
    }
    assert model.info["privacy"] == plan.differential_privacy.promise.plain | {"seeded": False}
    rows = LedgerFacts.read(tmp_path / "north/ledger.jsonl").rows
    left = {row["function"] for row in rows if row["masked"]}
    assert left == {name for name in seen if seen[name] == TOTAL}
    assert Account(Memory.read(tmp_path / "memories/north").header.account).epsilon == 8


def test_a_study_that_fails_is_charged_what_left(tmp_path: Path) -> None:
    """Noise hides the words of few documents: their number and the words' counts have left."""
    corpora = {name: themed(40, seed) for seed, name in enumerate(("east", "north", "west"))}
    policies = dict.fromkeys(corpora, Policy(min_persons=1, max_epsilon=4))
    plan = planned("nmf", 3)
    # Who is first tells the others, who may get that before they have computed it.
    with pytest.raises((StudyError, FederationError), match="words surely occur"):
        federated(plan, corpora, tmp_path, policies=policies, seeded=False)

    def account() -> Account:
        return Account(Memory.read(tmp_path / "memories/north").header.account)

    until(lambda: account().entries[0].share < 1)  # who learns of the error last
    (entry,) = account().entries
    budget = RECIPES.find("nmf").budget(plan.differential_privacy, plan.method)
    assert entry.share == pytest.approx(budget.shares["documents"] + budget.shares["words"])
    assert 0.5 < account().epsilon < 0.8
    more = Study.make(
        method={"name": "nmf", "n_components": 9},
        differential_privacy={"epsilon": 3, "words": PUBLIC[:50]},
    ).with_clients("abc")
    with pytest.raises(StudyError, match="lists 42 public words, fewer than 10 words for each of"):
        Participation(key_of("north"), themed(40), Policy(), tmp_path / "x").review(more)
