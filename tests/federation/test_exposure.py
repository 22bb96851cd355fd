"""What a study would show of one's documents is what it shows, to whom, in at most these bytes."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedtopics import Columns, Corpus, Policy, Study, train
from fedtopics.errors import StudyError
from fedtopics.federation import exposure
from fedtopics.federation.data_sent import (
    ALL_SEE,
    NUMBER_AS_TEXT,
    SERVER_SEES,
    TOTAL,
    DataSent,
)
from fedtopics.federation.exposure import expose
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.methods.registry import METHODS, find_method
from fedtopics.privacy import Privacy, PrivacySettings
from fedtopics.privacy.accounting import ROUNDING, epsilon_of, mu_of
from tests.helpers.federation import ANY_WORDS, DIMENSION, embedded, subjects
from tests.helpers.ledgers import lines_that_left
from tests.helpers.noted import noted
from tests.helpers.recipes import PUBLIC, install, themed
from tests.helpers.recipes import planned as with_noise
from tests.helpers.studies import read, written

SIZES = {"east": 60, "north": 60, "south": 60}
WHOLE = {"batch_size": 60, "max_rounds": 40, "coherence": "nothing"}


def small(name: str, **method: Any) -> Study:
    of_method = {"gfedntm": {"hidden": [16, 12]}}.get(name, {})
    needs = find_method(name).settings.model_fields
    embedding = {"embedding": {"dimension": DIMENSION}} if "embedding" in needs else {}
    return Study.make(
        method={"name": name, "n_components": 3, **of_method, **embedding, **method},
        aggregation="plain",
        vocabulary=ANY_WORDS,
        federation={"outliers": "none"},
    ).with_clients(SIZES)


def rows_of(plan: Study, corpus: Corpus | None = None) -> dict[str, DataSent]:
    return {row.function: row for row in expose(plan, corpus).rows}


def test_bytes_are_those_of_the_replies(tmp_path: Path) -> None:
    same = dict.fromkeys(SIZES, subjects(SIZES)["east"])
    plan = small("lda", **WHOLE)
    model = train(plan, same, policies=dict.fromkeys(same, OPEN_POLICY), out=tmp_path)
    lines = lines_that_left(tmp_path / "clients/east/ledger.jsonl")
    sent = {line["function"]: line["bytes"] for line in lines}
    n_words = len(model.vocabulary)
    limits = plan.vocabulary.model_copy(update={"max_words": n_words})
    rows = rows_of(plan.model_copy(update={"vocabulary": limits}), same["east"])
    most = {name: row.bytes or 0 for name, row in rows.items()}
    shorter = NUMBER_AS_TEXT - len("60")  # of the number of documents
    assert sent["vocabulary"] == most["vocabulary"] - shorter
    assert sent["word_sums"] == most["word_sums"] - shorter == 8 * 3 * n_words + len("60")
    assert 0 < sent["all_expected_counts"] <= most["all_expected_counts"] < 8 * 4 * n_words + 60


@pytest.mark.parametrize("name", ["gfedntm", "lda", "nmf", "kmeans", "mixture"])
def test_a_run_sends_what_the_table_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else, as often and with as many bytes at most; and who sees what is as it says."""
    corpora = embedded(subjects(SIZES))
    called = noted(monkeypatch, LocalClients, "call")
    plan = small(name, max_rounds=2)
    train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY), out=tmp_path, at_once=False)
    rows = rows_of(plan, corpora["east"])
    lines = lines_that_left(tmp_path / "clients/east/ledger.jsonl")
    assert [line for line in lines if line["bytes"] > (rows[line["function"]].bytes or 0)] == []
    calls = Counter(line["function"] for line in lines)
    assert {name: n for name, n in calls.items() if n > rows[name].calls} == {}
    assert (
        {given[1] for given, _ in called}
        == {name for name in calls if rows[name].seen == ALL_SEE}
        != set()
    )


def test_secure_updates_have_eight_bytes_a_number() -> None:
    plan = small("gfedntm", norm="server")
    plain, masked = (
        rows_of(plan.model_copy(update={"aggregation": kind})) for kind in ("plain", "secure")
    )
    assert (plain["gradients"].bytes or 0) < 8 * (plain["gradients"].numbers or 0)
    assert (masked["gradients"].bytes or 0) >= 8 * (masked["gradients"].numbers or 0)
    assert masked["word_sums"].seen == TOTAL
    assert plain["word_sums"].seen == SERVER_SEES
    assert masked["topic_shares"].seen == plain["topic_shares"].seen == ALL_SEE


def test_every_method_says_what_leaves_and_who_sees_it() -> None:
    for name in METHODS.names:
        method = find_method(name)
        often = method.client.in_study(method.settings())
        assert {"topic_shares", "word_sums", "word_pairs"} <= often.keys()
        assert all(map(str, often.values()))
        for function, of in method.client.functions().items():
            assert of.short
            assert of.seen_by_all == ("all participants" in of.data_sent.lower()), (name, function)


def adversaries(corpus: Corpus | None = None, **settings: Any) -> list[str]:
    plan = Study.make(**{"method": {"name": "lda"}, **settings}).with_clients(SIZES)
    return [f"{who}: {text}" for who, text in expose(plan, corpus).adversaries.items()]


def test_four_adversaries() -> None:
    relay, one, together, reader = adversaries(method={"name": "nmf"}, aggregation="secure")
    assert relay.startswith("The relay: the members' names, which functions run, sizes, times, r")
    assert "A sum over all documents is of all persons of this client; those of the" in one
    assert together.startswith("All 2 other members together: this client's own sums, which are")
    assert together.endswith("so it can be over one of this client.")
    assert "2 or more members each have it in documents of at least 5 persons." in reader
    minibatches = {"name": "lda", "learning": "stochastic", "batch_size": 52}
    server, one, together, _ = adversaries(method=minibatches, aggregation="plain")
    assert server.startswith("The server: every update of every member. Aggregation is plain, as")
    assert "is of 17 persons of this client." in server
    assert together.endswith("another number in it can be over one document.")
    assert (
        "500 rounds suffice to compute the documents of all 300 documents"
        in adversaries(themed(300), method=minibatches | {"max_rounds": 500})[1]
    )


def test_sentences_name_what_the_column_of_persons_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,patient\n" + "oak tree,p1\nelm tree,p2\noak,p2\n" * 9)
    few = {"method": {"name": "nmf"}, "vocabulary": ANY_WORDS}
    corpus = Corpus.read(tmp_path / "a.csv", Columns(person="patient"))
    assert "of 2 patients of this client" in adversaries(corpus, **few)[1]
    assert corpus.whose == "of 2 patients, at most 18 of one"
    assert Corpus.read(tmp_path / "*.csv", Columns(person="patient")).unit == "patients"
    assert Corpus.read(tmp_path / "a.csv", Columns()).unit == "documents"


def test_a_study_with_noise_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few documents would be refused with noise, which adds no byte."""
    install(monkeypatch)
    exposed = expose(with_noise("lda", 1).with_clients(SIZES), themed(300))
    rows = {row.function: row for row in exposed.rows}
    assert rows["noisy_word_counts"].bytes == 8 * len(PUBLIC)
    assert exposed.bytes >= sum(row.calls * (row.bytes or 0) for row in rows.values()) > 0
    assert {name for name, row in rows.items() if row.seen != TOTAL} == {
        "model: digest",
        "model: of the first member",
    }


def test_a_private_study_that_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    plan = with_noise("nmf", 1).with_clients(SIZES)
    with pytest.raises(StudyError, match=r"documents of 60, 60, 60 of these documents .* fails: "):
        exposure.rehearse_noise(plan, themed(60))
    with pytest.raises(StudyError, match=r"documents of 60, 20, 60 of these documents .* fails: "):
        exposure.rehearse_noise(plan, themed(60), [20, 900])
    assert (
        exposure.rehearse_noise(plan.model_copy(update={"differential_privacy": None}), themed(60))
        == ""
    )
    assert "was not tried: a rehearsal takes" in exposure.rehearse_noise(
        plan.with_clients(range(11)), themed(9)
    )


def test_a_bound_is_said() -> None:
    """With a part of the noise alone, as all others know theirs, the bound is another one."""
    private = Study.make(method={"name": "lda"}, differential_privacy={"epsilon": 1})
    _, one, together, reader = expose(private.with_clients(SIZES)).adversaries.values()
    assert "any conclusion is at most 2.72 times as likely with a document as without" in one
    assert "(epsilon 1), plus a probability of 1 in 1,000,000." in reader
    assert "the study's bound needs 2 parts. From these, any conclusion is" in together
    of_two = mu_of(Privacy(epsilon=1)) * 2**0.5
    assert f"(epsilon {epsilon_of(of_two, 1e-6) + ROUNDING:.3g})" in together
    of_authors = PrivacySettings(epsilon=1, unit="person", most_documents=1)
    private = private.model_copy(update={"differential_privacy": of_authors})
    one = expose(private.with_clients(SIZES)).adversaries["One other member"]
    assert "is at most 2.72 times as likely with a person's documents as without" in one


def test_persons_of_the_others_are_supposed() -> None:
    study = Study.make(method={"name": "nmf"}, aggregation="secure").with_clients(SIZES)
    corpus = themed(300)
    theirs = "; those of the other members are added"
    for others, rest in (((), theirs), ((1700, 500), " and 2,200 of the other members, as you")):
        totals = expose(study, corpus, others=others).adversaries["One other member"]
        assert f"A sum over all documents is of 300 documents of this client{rest}" in totals


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studies").mkdir()
    north = '[clients.a]\ndata = "../data/a.csv"\npolicy = "p.toml"\n'
    written(tmp_path / "studies", north + '[clients.b]\ndata = "/data/b.csv"\n')
    monkeypatch.chdir(tmp_path)
    study = Study.read("studies/study.toml")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("text\none\n")
    (tmp_path / "studies" / "p.toml").write_text("min_persons = 2\n")
    monkeypatch.chdir("/")
    a = study.clients["a"]
    assert a.read("a").documents.to_pylist() == ["one"]
    assert a.data.resolve() == tmp_path / "data" / "a.csv"
    assert study.clients["b"].data == Path("/data/b.csv")
    assert study.policies() == {"a": Policy(min_persons=2), "b": Policy()}


def test_documents_of_the_clients(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("body,title\none,no\ntwo,no\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.txt").write_text("three")
    study = read(tmp_path, '[clients.a]\ndata = "a.csv"\ntext = "title"\n[clients.b]\ndata = "b"\n')
    documents = {name: corpus.documents.to_pylist() for name, corpus in study.corpora().items()}
    assert documents == {"a": ["no", "no"], "b": ["three"]}


def test_rules_of_a_clients_own_make_lists_of_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\nx,"<p>Die Wälder</p>"\ny,\n', encoding="utf-8")
    (tmp_path / "own.toml").write_text('languages = "de"\nlemmas = true\n', encoding="utf-8")
    study = read(tmp_path, '[clients.a]\ndata = "a.csv"\ntext_rules = "own.toml"\n')
    corpus = study.clients["a"].read("a")
    assert corpus.documents.to_pylist() == [["wald"], []]
    assert corpus.raw is not None
    assert corpus.raw.to_pylist() == ["<p>Die Wälder</p>", ""]
    assert corpus.ids.to_pylist() == ["x", "y"]


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("lemmas = true", "needs languages"),
        ("lemma = true", "there is no key 'lemma'"),
        ("lemmas", "cannot be used: "),
        ("lemmas = " + 5000 * "[", "nested too deeply"),
        ("lemmas = " + 5000 * "1", "cannot be used: "),
        ("", "there is no such file"),
    ],
)
def test_rules_that_cannot_be_used(tmp_path: Path, rules: str, says: str) -> None:
    (tmp_path / "a.csv").write_text("text\noak\n")
    if rules:
        (tmp_path / "own.toml").write_text(rules)
    study = read(tmp_path, '[clients.a]\ndata = "a.csv"\ntext_rules = "own.toml"\n')
    with pytest.raises(StudyError, match=rf"The rules .*own\.toml cannot be used: .*{says}|{says}"):
        study.clients["a"].read("a")
