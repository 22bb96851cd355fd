"""Attacks on real secure runs: totals over few, words and groups of one member, many rounds."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedtopics import Corpus, Policy, Study, train
from fedtopics.errors import FederationError, PolicyError, StudyError
from fedtopics.federation.participant import check_policy
from fedtopics.methods.core.minibatches import number_drawn
from fedtopics.protocol import vocabulary
from fedtopics.protocol.clients import SecureClients
from fedtopics.protocol.record import unpacked_record
from tests.helpers.clusters import overheard
from tests.helpers.grpc_federation import federated

RNG = np.random.default_rng(2)
COMMON = [f"common{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
NAMES = ("north", "south", "west")
OPEN = {"min_persons": 1, "min_persons_per_word": 1}


def corpora(n: int = 300, letters: int = 1, lone: int = 0) -> dict[str, Corpus]:
    """Texts of common words; each member has names that nobody else has, in ten documents each."""
    members = {}
    for member in NAMES:
        texts = [" ".join(RNG.choice(COMMON, 10)) for _ in range(n)]
        for number in range(lone):
            for row in RNG.choice(n, 10, replace=False):
                texts[row] += f" {member}{'abcdefghij'[number]}"
        persons = [str(row // letters) for row in range(n)]
        column = pa.chunked_array([persons]) if letters > 1 else None
        members[member] = Corpus(
            pa.chunked_array([[*map(str, range(n))]]), pa.chunked_array([texts]), persons=column
        )
    return members


def study(**method: Any) -> Study:
    settings = {"name": "lda", "n_components": 2, "max_rounds": 2, "coherence": "nothing"}
    vocabulary = method.pop("vocabulary", {})
    return Study.make(name="few", method=settings | method, vocabulary=vocabulary)


def on_disk(folder: Path) -> set[str]:
    """The functions whose totals some member has on its disk."""
    return {
        entry.function
        for file in folder.glob("*/state/totals")
        for entry in unpacked_record(file.read_bytes())[0]
    }


@pytest.mark.parametrize(
    ("method", "letters", "least", "opened"),
    [
        ({"learning": "stochastic", "batch_size": 600}, 1, 700, set()),
        ({"name": "gfedntm", "network": "neurallda", "batch_size": 80}, 1, 100, set()),
        ({"name": "nmf"}, 3, 500, {"client sizes"}),
        (
            {"name": "nmf", "coherence": "documents"},
            1,
            700,
            {
                "client sizes",
                "document_counts",
                "word_products",
                "factor_sums",
                "topic_shares",
                "word_sums",
            },
        ),
    ],
    ids=["minibatches", "gradients", "persons", "halves"],
)
def test_too_small_a_total_is_never_opened(
    method: Any, letters: int, least: int, opened: set[str], tmp_path: Path
) -> None:
    """One member wants more persons in a sum than the study has: before it, all stop."""
    strict = Policy(**OPEN, min_persons_in_sum=least)
    policies = dict.fromkeys(NAMES, Policy(**OPEN)) | {"north": strict}
    plan = study(**method)
    with pytest.raises((FederationError, PolicyError)):
        federated(plan, corpora(letters=letters), tmp_path, policies=policies)
    functions = on_disk(tmp_path)
    assert not functions & {"expected_counts", "gradients", "batch_sums", "word_pairs"}
    assert opened <= functions
    assert opened != {"client sizes"} or functions <= {"client sizes", ""}, "not even the words"


def test_a_dry_run_refuses_small_minibatches() -> None:
    strict = Policy(**OPEN, min_persons_in_sum=700)
    plan = study(learning="stochastic", batch_size=600).with_clients(NAMES)
    with pytest.raises(
        PolicyError, match=r"over at least 700 persons, but this one would be over 600"
    ):
        check_policy(strict, plan, corpora()["north"], "north")
    check_policy(
        strict,
        study(learning="stochastic", batch_size=700).with_clients(NAMES),
        corpora()["north"],
        "north",
    )


@pytest.mark.parametrize(
    ("wanted", "persons", "drawn"),
    [(20, 100, 20), (5, 100, 10), (95, 100, 100), (90, 100, 90), (60, 15, 15), (2000, 100, 100)],
)
def test_what_a_minibatch_leaves_out_is_nothing_or_of_enough(
    wanted: int, persons: int, drawn: int
) -> None:
    """The total of all documents less that of a minibatch would be that of the rest."""
    assert number_drawn(wanted, persons, smallest=10) == drawn


def test_a_model_that_is_continued_counts_no_word_of_one_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its words can be any, such as those of a dictionary of names."""
    model = train(study(vocabulary={"min_clients_per_word": 1}), corpora(lone=3))
    words = model.vocabulary.words
    messages = overheard(monkeypatch)
    train(study(), corpora(lone=3), start=model, vocabulary="keep")
    for member in NAMES:
        for reply in messages.of("all_expected_counts", member):
            assert {words[row] for row in reply["counts"].index} == {
                word for word in words if word.startswith("common")
            }
    assert len(words) == len(COMMON) + 9


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The totals of tables that members open, and the lists of words."""
    opened: list[Any] = []
    real_sum = SecureClients._sum

    def spied(self: Any, function: str, template: Any, own: Any) -> Any:
        total = real_sum(self, function, template, own)
        opened.append((function, self._member.study, total))
        return total

    monkeypatch.setattr(SecureClients, "_sum", spied)
    return opened


def test_a_dictionary_tells_that_somebody_has_a_word_and_no_number(
    tables: list[Any], tmp_path: Path
) -> None:
    """Words of one member are in the table as a mark; they are not listed, nor in the model."""
    model = federated(study(), corpora(lone=5), tmp_path, policy=Policy()).model
    _, run, total = next(entry for entry in tables if entry[0] == vocabulary.TABLE)
    assert set(total) == {"documents", "clients"}
    names = [f"{member}{letter}" for member in NAMES for letter in "abcde"]
    tried = vocabulary.clients_with([*names, *COMMON, "nobody"], run, total["clients"])
    assert tried[:-1].tolist() == [1] * 15 + [3] * 26
    assert set(model.vocabulary.words) == set(COMMON)
    lists = next(entry for entry in tables if entry[0] == vocabulary.COUNTS)[2]
    assert len(lists["clients"]) == len(COMMON), "and no other word was listed"


def test_names_of_persons_are_not_even_marked(tables: list[Any], tmp_path: Path) -> None:
    """Ten letters of one person are one person: no dictionary finds her name."""
    members = corpora(n=300, letters=10)
    for name, corpus in members.items():
        texts = [
            f"{text} {name}{'abcdefghij'[row // 10 % 10]}x{row // 100}"
            for row, text in enumerate(corpus.documents.to_pylist())
        ]
        members[name] = Corpus(corpus.ids, pa.chunked_array([texts]), persons=corpus.persons)
    federated(study(), members, tmp_path, policy=Policy())
    _, run, total = next(entry for entry in tables if entry[0] == vocabulary.TABLE)
    names = [f"{name}{letter}x{n}" for name in NAMES for letter in "abcdefghij" for n in range(3)]
    assert vocabulary.clients_with(names, run, total["clients"]).sum() == 0


@pytest.mark.parametrize("added", [1, 2])
def test_a_liar_in_the_table_stops_the_run(
    added: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A member that marks all buckets would make the others list words that only they have."""
    real = vocabulary.table_of
    lists: list[Any] = []

    def lied(own: Any, run: bytes, size: int) -> Any:
        return real(own, run, size) + added * ("westa" in own.names)

    monkeypatch.setattr(vocabulary, "table_of", lied)
    monkeypatch.setattr(vocabulary, "words_to_list", lambda *of: lists.append(of) or [])
    with pytest.raises(FederationError):
        federated(study(), corpora(lone=5), tmp_path, policy=Policy())
    assert not lists
    assert vocabulary.LISTED not in on_disk(tmp_path)


@pytest.mark.parametrize(("least", "alone"), [(1, True), (2, False)])
def test_a_group_of_one_member(least: int, alone: bool, tables: list[Any], tmp_path: Path) -> None:
    """Its sum in the total is the member's own, unless a policy has min_clients_per_group = 2."""
    middles = 3 * np.eye(6)
    members = {}
    for member in NAMES:
        groups = RNG.integers(1, 4, 120)
        groups[:40] = 0 if member == "north" else groups[:40]
        points = middles[groups] + RNG.normal(size=(120, 6)) / 4
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        texts = [f"{COMMON[group]} {COMMON[9]} {COMMON[8]}" for group in groups]
        members[member] = Corpus.of(texts).with_embeddings(points.astype(np.float32))
    plan = study(name="kmeans", n_components=4, max_rounds=10, embedding={"dimension": 6})
    federated(plan, members, tmp_path, policy=Policy(min_clients_per_group=least))
    sums = [
        total["sums"] for name, _, total in tables if name == "cluster_sums" and "sums" in total
    ]
    of_north = members["north"].embeddings[:40].sum(0)
    assert any(np.abs(row - of_north).max() < 1e-3 for row in sums[-1].reshape(-1, 6)) == alone
    left_out = sum(not row.any() for row in sums[-1].reshape(-1, 6))
    assert alone or left_out >= 2, "another one is left out, so no subtraction finds it"


def test_rounds_over_different_clients_are_not_secure() -> None:
    """Their totals differ by clients: four totals over three of four clients tell each."""
    names = ["a", "b", "c", "d"]
    drawn = {"method": {"name": "lda", "clients_per_round": 3}}
    assert not Study.make(**drawn).with_clients(names).is_secure
    with pytest.raises(StudyError, match="clients_per_round gives totals of different clients"):
        Study.make(**drawn, aggregation="secure")
    assert Study.make(**drawn).with_clients(names[:3]).is_secure, "all take part"


def test_rounds_of_minibatches_are_half_as_many_as_persons(tmp_path: Path) -> None:
    """The method's own number falls; a larger one is refused, unless the policy says otherwise."""
    network = {"name": "gfedntm", "network": "neurallda", "batch_size": 20}
    own = study(**network).model_dump(mode="json")
    del own["method"]["max_rounds"]
    plan = Study.make(name="few", method=own["method"])
    model = federated(plan, corpora(n=20), tmp_path / "own", policy=Policy(**OPEN)).model
    assert model.info["rounds"] == 30
    many = study(**network, max_rounds=31)
    with pytest.raises(FederationError, match="allows 30 rounds"):
        federated(many, corpora(n=20), tmp_path / "many", policy=Policy(**OPEN))
    allowed = federated(
        many, corpora(n=20), tmp_path / "more", policy=Policy(**OPEN, max_rounds=31)
    )
    assert allowed.model.info["rounds"] == 31


def test_a_policy_can_ask_for_words_of_more_clients() -> None:
    corpus = corpora()["north"]
    strict = Policy(**OPEN, min_clients_per_word=3)
    with pytest.raises(PolicyError, match="shares words of 2 clients, but the policy"):
        check_policy(
            strict,
            study(learning="stochastic", batch_size=700).with_clients(NAMES),
            corpus,
            "north",
        )
