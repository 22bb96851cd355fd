"""What a study would show of one's documents is what it shows, to whom, in bytes."""

from pathlib import Path
from typing import Any

import pytest

from fedtopics import Policy, Study, train
from fedtopics.errors import StudyError
from fedtopics.federation import exposure
from fedtopics.federation.exposure import expose
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.program import exchanges
from fedtopics.methods.registry import METHODS, exchanges_of, find_method
from fedtopics.privacy import Privacy
from fedtopics.privacy.recipe import data_sent_by
from tests.helpers.federation import DIMENSION, embedded, subjects
from tests.helpers.recipes import PUBLIC, install, themed
from tests.helpers.recipes import planned as with_noise
from tests.helpers.studies import read, written

SIZES = {"east": 60, "north": 60, "south": 60}
WHOLE = {"batch_size": 60, "max_rounds": 40, "coherence": "nothing"}


def small(name: str, **method: Any) -> Study:
    of_method = {"gfedntm": {"hidden": [16, 12]}}.get(name, {})
    needs = find_method(name).settings.model_fields
    embedding = {"embedding": {"dimension": DIMENSION}} if "embedding" in needs else {}
    settings = {"name": name, "n_components": 3, **of_method, **embedding, **method}
    return Study.make(
        method=settings,
        aggregation="plain",
        vocabulary={"min_document_frequency": 1},
        federation={"outliers": "none"},
    ).with_clients(SIZES)


def test_bytes_are_those_of_the_replies() -> None:
    corpora = subjects(SIZES)
    same = dict.fromkeys(SIZES, corpora["east"])
    plan = small("lda", **WHOLE)
    sent_of = {sent.function: sent for sent in expose(plan, corpora["east"]).shown}
    model = train(plan, same, policies=dict.fromkeys(same, OPEN_POLICY))
    n_topics = plan.method.n_components
    n_words = len(model.vocabulary)
    assert sent_of["word_sums"].once == 8 * n_topics * n_words + len(str(len(corpora["east"])))
    rows = sent_of["expected_counts"].round
    assert rows is not None
    assert 0 < rows <= 8 * (n_topics + 1) * n_words + 30
    assert sent_of["vocabulary"].round == 0


def test_secure_updates_have_eight_bytes_a_number() -> None:
    corpora = subjects(SIZES)
    plan = small("lda", **WHOLE)
    plain, masked = (
        {sent.function: sent for sent in expose(one, corpora["east"]).shown}
        for one in (plan, plan.model_copy(update={"aggregation": "secure"}))
    )
    assert (masked["word_sums"].once or 0) >= (plain["word_sums"].once or 0)
    assert masked["word_sums"].seen == exposure.NOBODY
    assert plain["word_sums"].seen == exposure.SERVER_SEES
    assert masked["shares"].seen == plain["shares"].seen == exposure.ALL_SEE


@pytest.mark.parametrize("name", ["gfedntm", "lda", "nmf", "kmeans", "mixture", "auto"])
def test_who_sees_what_is_what_the_programs_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies are seen one by one in no function but those that say so."""
    corpora = embedded(subjects(SIZES))
    called: set[str] = set()
    plain = LocalClients.call

    def listen(self: LocalClients, function: str, *arguments: Any, **payload: Any) -> Any:
        called.add(function)
        return plain(self, function, *arguments, **payload)

    monkeypatch.setattr(LocalClients, "call", listen)
    plan = small(name, max_rounds=2)
    train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY))
    assert called <= {exchange.function for exchange in exchanges(plan) if exchange.seen_by_all}
    assert called


def test_every_method_says_what_leaves_and_who_sees_it() -> None:
    for name in METHODS.names:
        method = find_method(name)
        declared = exchanges_of(method.client, method.settings())
        assert {"shares", "word_sums", "pairs"} <= {exchange.function for exchange in declared}
        assert all(exchange.data_sent and exchange.often for exchange in declared)
        for function, of_client in method.client.functions().items():
            sentence = data_sent_by(name, function)
            seen_by_all = vars(of_client)["seen_by_all"]
            assert seen_by_all == ("all participants" in sentence.lower()), (name, function)


def verdicts(**settings: Any) -> dict[str, str]:
    plan = Study.make(**{"method": {"name": "lda"}, **settings}).with_clients(SIZES)
    return expose(plan).verdicts


def test_verdicts() -> None:
    few = verdicts(method={"name": "lda", "batch_size": 52})
    assert few["which words a single document has"].startswith("yes, many complete documents")
    many = verdicts(method={"name": "lda", "batch_size": 2048}, aggregation="secure")
    assert many["which words a single document has"].startswith("yes, if a sum is over fewer")
    assert many["what the sum over one client's documents is"].startswith("no")
    assert many["whether a document was there"].startswith("yes")


def test_a_study_with_noise_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few documents would be refused with noise, which adds no byte."""
    install(monkeypatch)
    plan = with_noise("lda", 1).with_clients(SIZES)
    exposed = expose(plan, themed(300))
    sizes = {sent.function: sent.once for sent in exposed.shown}
    assert (sizes["occurrences"] or 0) >= 8 * len(PUBLIC)
    assert exposed.bytes is not None
    seen = {sent.function: sent.seen for sent in exposed.shown}
    assert {name for name in seen if seen[name] != exposure.NOBODY} == {"model", "arrays"}


def test_a_private_study_that_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    plan = with_noise("nmf", 1).with_clients(SIZES)
    with pytest.raises(StudyError, match="With such documents at all members, the study fails: "):
        exposure.rehearse_noise(plan, themed(60))
    exposure.rehearse_noise(plan.model_copy(update={"differential_privacy": None}), themed(60))


def test_a_bound_is_said() -> None:
    plan = Study.make(method={"name": "lda"}, differential_privacy={"epsilon": 1})
    private = plan.with_clients(SIZES)
    said = expose(private).verdicts["whether a document was there"]
    assert said.startswith("somewhat: any conclusion is at most 2.72 times as likely")
    factors = {0.3: "hardly", 2.9: "somewhat", 12: "yes, the bound is so weak that it protects"}
    assert all(exposure.in_words(e, 1e-6).startswith(word) for e, word in factors.items())
    of_authors = Privacy(epsilon=1, unit="author", most_documents=1)
    private = private.model_copy(update={"differential_privacy": of_authors})
    said = expose(private).verdicts["whether a document was there"]
    assert "(epsilon 2.12)" in said, "without the document, another of its author is in the sums"


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studies").mkdir()
    north = '[clients.a]\ndata = "../data/a.csv"\npolicy = "p.toml"\n'
    written(tmp_path / "studies", north + '[clients.b]\ndata = "/data/b.csv"\n')
    monkeypatch.chdir(tmp_path)
    study = Study.read("studies/study.toml")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("text\none\n")
    (tmp_path / "studies" / "p.toml").write_text("min_documents = 2\n")
    monkeypatch.chdir("/")
    a = study.clients["a"]
    assert a.read("a").documents.to_pylist() == ["one"]
    assert a.data.resolve() == tmp_path / "data" / "a.csv"
    assert study.clients["b"].data == Path("/data/b.csv")
    assert study.policies() == {"a": Policy(min_documents=2), "b": Policy()}


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
