"""What a report says: numbers of the model and its run, and nothing that it must not say."""

import html as markup
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedtopics import Corpus, TopicModel
from fedtopics.errors import RunError
from fedtopics.methods.registry import find_method
from fedtopics.report import find_run, summarise, write_report
from fedtopics.report.render import html, markdown
from fedtopics.report.run import LedgerFacts, RunFacts
from fedtopics.report.summary import Summary, client_similarity
from tests.helpers.command_line import Done, Refused, Typed
from tests.helpers.ledgers import lines_that_left
from tests.helpers.models import made
from tests.helpers.report_runs import (
    CANARY,
    RUNS,
    Reported,
    csv_of,
    embedded,
    reported,
    reported_model,
    tables_of,
)


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return reported(request.param, tmp_path_factory)


@pytest.fixture
def copied(demo: Reported, tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo.folder, tmp_path / "run"))


def rows_of(markdown: str, first: str) -> list[list[str]]:
    """The rows of a Markdown table, by its first header; cells as they are escaped."""
    lines = iter(markdown.splitlines())
    for line in lines:
        if line.startswith(f"| {first} |"):
            break
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows[1:]


def test_shares_counts_and_coherence_are_the_models(run: Reported) -> None:
    model = run.model
    topics = run.summary["topics"]
    total = sum(model.documents.values())
    assert [topic["topic"] for topic in topics] == np.argsort(-model.share, kind="stable").tolist()
    shown = run.tables[f"{run.summary['kind'].capitalize()}s by share"]
    for topic, row, cells in zip(topics, run.csv, shown[1:], strict=True):
        k = topic["topic"]
        assert topic["share"] == pytest.approx(model.share[k])
        assert topic["count"] == round(model.share[k] * total)
        assert topic["words"] == model.topics(10)[k]
        assert topic["clients"].keys() == model.shares.keys()
        assert topic["coherence"] == {name: s[k] for name, s in model.coherence.items()}
        assert float(row["share"]) == topic["share"]
        assert int(row["count"]) == topic["count"]
        assert {n: float(row[f"coherence_{n}"]) for n in model.coherence} == topic["coherence"]
        assert row["words"] == " ".join(topic["words"])
        assert cells[0] == f"{k} {', '.join(topic['words'][:3])} {row['words']}"
        assert cells[1] == f"{topic['share']:.1%}"
        if topic["coherence"]:
            assert f"NPMI): {topic['coherence']['npmi']:.2f}</p>" in run.html
        assert f'data-number="{k}" data-share="{topic["share"]}"' in run.html
    assert sum(float(row["share"]) for row in run.csv) == pytest.approx(
        1, abs=0.001 * len(topics)
    ), "rounded by lot"


def test_word_lists_are_the_models_at_every_lambda(run: Reported) -> None:
    lists = embedded(run.html)
    assert list(lists) == [str(topic["topic"]) for topic in run.summary["topics"]]
    words = run.model.vocabulary.words
    for k, top_words in enumerate(run.model.topics(30)):
        full, orders = lists[str(k)]
        assert [word for word, *_ in full[:30]] == top_words, "as it is read"
        assert len(orders) == 11
        assert {place for order in orders for place in order} <= {*range(len(full))}
        for word, here, overall in full[::7]:
            column = words.index(word)
            assert here == pytest.approx(run.model.word_shares[k, column], rel=1e-3)
            assert overall == pytest.approx(run.model.vocabulary.frequency[column], rel=1e-3)
    for step in range(11):
        for k, ranked in enumerate(run.model.topics(30, step / 10)):
            full, orders = lists[str(k)]
            assert [full[place][0] for place in orders[step]] == ranked, step


def test_who_moved_the_model_too_far_is_named() -> None:
    clipped = [
        {"event": "clipped", "client": "west", "round": number, "times": times}
        for number, times in ((3, 41.2), (9, 90.4))
    ]
    run = RunFacts("run", events=[{"event": "round", "round": 1, "seconds": 1.0}, *clipped])
    said = (
        "west moved the model up to 90 times as far per document as the others from round 3, "
        "so its updates had less weight."
    )
    summary = summarise(made(), run)
    assert html(summary).count(said) == markdown(summary).count(said) == 1


def test_a_score_that_is_none_is_left_out(tmp_path: Path) -> None:
    page = reported_model(made(), tmp_path)  # of topic 1 there is no NPMI
    assert [row["coherence_npmi"] for row in page.csv] == ["", "0.5", "-0.25"]
    assert "nan" not in page.html.partition("<title>")[2].lower()
    assert [row[3] for row in rows_of(page.markdown, "topic")] == ["", "0.50", "-0.25"]
    assert page.summary["scores"][0]["value"] == pytest.approx(0.125)
    none = reported_model(made(coherence={"npmi": np.full(3, np.nan)}), tmp_path)
    scores = [score["name"] for score in none.summary["scores"]]
    assert scores == ["topic diversity", "mean cosine dissimilarity"]


def hidden_in(summary: Summary) -> set[tuple[int, str]]:
    return {
        (topic["topic"], name)
        for topic in summary["topics"]
        for name, share in topic["clients"].items()
        if share is None
    }


def test_exactly_what_stands_for_too_few_documents_is_hidden(run: Reported) -> None:
    model = run.model
    topics = run.summary["topics"]
    few = {
        (k, name)
        for name, share in model.shares.items()
        for k in range(model.n_topics)
        if share[k] * model.documents[name] < 10
    }
    assert run.summary["min_documents"] == 10
    assert hidden_in(run.summary) == few
    assert len(few) < model.n_topics * len(model.shares)
    names = sorted(model.shares)
    kind = run.summary["kind"]
    tables = [run.tables[f"{kind.capitalize()}s of {name}"] for name in names]
    rows = zip(topics, run.csv, zip(*tables, strict=True), rows_of(run.markdown, kind), strict=True)
    for topic, row, cells, plain in rows:
        for place, name in enumerate(names):
            share = model.shares[name][topic["topic"]]
            hidden = (topic["topic"], name) in few
            assert cells[place][1] == ("" if hidden else f"{100 * share:.0f} %")
            assert plain[5 + place] == ("" if hidden else f"{share:.1%}")
            assert row[f"share_{name}"] == ("" if hidden else str(share))
            assert topic["clients"][name] == (None if hidden else share)
    specific = {(x["topic"], c["name"]) for c in run.summary["clients"] for x in c["specific"]}
    assert specific
    assert not specific & few


HIDDEN = made(
    shares={"north": np.array([0.6173, 0.2291, 0.1536]), "south": np.array([0.0472, 0.82, 0.1328])},
    documents={"north": 30, "south": 50},
)  # 18.5, 6.9 and 4.6 documents; 2.4, 41 and 6.6


def forms_of(share: float) -> list[str]:
    """How a page, its twin or its table may write a share."""
    inner = [f"--share:{share:.3f}", f"{share:.4f}"[1:], f"{share:.1%}", str(share)]
    return [*inner, f">{100 * share:.0f} %<", f">{share:.0%}<", f": {share:.0%}"]


def test_what_is_hidden_is_nowhere_in_the_page(tmp_path: Path) -> None:
    page = reported_model(HIDDEN, tmp_path)
    everything = page.html + csv_of(page.html) + page.markdown
    hidden = hidden_in(page.summary)
    assert hidden == {(0, "south"), (1, "north"), (2, "north"), (2, "south")}
    for name, shares in HIDDEN.shares.items():
        for k, share in enumerate(shares.tolist()):
            written = [form for form in forms_of(share) if form in everything]
            assert bool(written) == ((k, name) not in hidden), written


@pytest.mark.parametrize(
    ("least", "hidden"),
    [
        (7, {(0, "south"), (2, "south")}),
        (8, {(0, "south"), (2, "south"), (1, "north"), (2, "north")}),
        (15, {(0, "south"), (1, "south"), (2, "south"), (1, "north"), (2, "north")}),
    ],
)
def test_the_threshold_can_be_chosen(least: int, hidden: set[tuple[int, str]]) -> None:
    summary = summarise(made(), min_documents=least)
    assert hidden_in(summary) == hidden
    assert f"stands for fewer than {least} documents" in markdown(summary)


def test_similarity_of_two_clients_by_hand() -> None:
    similarity = client_similarity(made())
    # The roots of (0.5, 0.25, 0.25) and (0, 1, 0) have the product 0.5.
    far = 1 - np.sqrt(1 - 0.5)
    np.testing.assert_allclose(similarity, [[1, far], [far, 1]], atol=1e-7)
    table = tables_of(html(summarise(made())))["Similarity of clients"]
    assert table == [["", "north", "south"], ["north", "1.00", "0.29"], ["south", "0.29", "1.00"]]


def test_rounds_are_those_of_events_and_ledgers(run: Reported) -> None:
    lines = (run.folder / "events.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if event["event"] == "round"]
    left: Counter[int] = Counter()
    for path in run.folder.glob("clients/*/ledger.jsonl"):
        for reply in lines_that_left(path):
            left[reply["round"]] += reply["bytes"]
    assert events
    for event, shown in zip(events, run.summary["rounds"], strict=True):
        assert shown["bytes"] == left[event["round"]] > 0
        assert shown["clients"] == len(event["clients"]) == len(run.model.shares)
        assert [shown.get(n) for n in ("round", "seconds", "loss", "documents")] == [
            event.get(n) for n in ("round", "seconds", "loss", "documents")
        ]
    assert f"<p>{len(events):,} rounds in " in run.html
    assert f"All {len(run.model.shares)} clients took part in every round." in run.html
    drawn = set(re.findall(r'<figure id="figure-([\w-]+)"', run.html))
    assert drawn >= {"map", "seconds"}
    assert "clients" not in drawn, "they are always the same"
    assert ("loss" in drawn) == ("loss" in run.summary["rounds"][0])


def test_topics_over_rounds_are_the_historys(tmp_path_factory: pytest.TempPathFactory) -> None:
    run = reported("flda", tmp_path_factory)
    told = run.summary["over_rounds"]
    assert [row["round"] for row in told] == [1, 2, 3]
    for past, row in zip(run.model.info["history"], told, strict=True):
        named = {topic["id"]: topic["words"] for topic in past["topics"]}
        assert row["new"] == [named[id_] for id_ in past["new"]]
        assert row["vanished"] == [topic["words"] for topic in past["vanished"]]
        assert (row["documents"], row["topics"]) == (past["documents"], len(past["topics"]))
    (new,), (gone,) = told[2]["new"], told[2]["vanished"]
    assert {word.rstrip("0123456789") for word in new} == {"dance"}
    assert {word.rstrip("0123456789") for word in gone} == {"cloud"}
    assert run.tables["Topics over rounds"][3] == ["3", "180", "3", " ".join(new), " ".join(gone)]
    assert rows_of(run.markdown, "round")[2] == ["3", "180", "3", " ".join(new), " ".join(gone)]


def test_what_left_is_the_sum_of_the_ledgers(run: Reported) -> None:
    ledgers = {
        path.parent.name: LedgerFacts.read(path).rows
        for path in sorted(run.folder.glob("clients/*/ledger.jsonl"))
    }
    rows = [row for ledger in ledgers.values() for row in ledger]
    left = run.summary["left"]
    functions = find_method(run.model.info["method"]).client.functions()
    assert {row["function"] for row in left["functions"]} == {row["function"] for row in rows}
    for row in left["functions"]:
        same = [other for other in rows if other["function"] == row["function"]]
        assert row["replies"] == sum(other["replies"] for other in same)
        assert row["bytes"] == sum(other["bytes"] for other in same)
        assert row["documents"] == min(other["documents"] for other in same)
        assert row["data_sent"] == functions[row["function"]].data_sent != ""
        assert markup.escape(row["data_sent"], quote=False).replace("'", "&#39;") in run.html
    assert left["clients"] == [
        {
            "name": name,
            "replies": sum(row["replies"] for row in ledger),
            "bytes": sum(row["bytes"] for row in ledger),
        }
        for name, ledger in ledgers.items()
    ]
    table = run.tables["Data sent, by function"]
    assert [row[1] for row in table[1:]] == [row["function"] for row in left["functions"]]


def test_a_rare_word_is_in_no_report(run: Reported) -> None:
    everything = run.html + csv_of(run.html) + run.markdown + repr(run.summary)
    assert CANARY not in everything
    assert any(CANARY in text for corpus in run.corpora.values() for text in texts_of(corpus))
    assert run.model.topics(1)[0][0] in everything


def texts_of(corpus: Corpus) -> list[str]:
    return [text for batch in corpus.texts() for text in batch]


def test_no_sentence_of_a_document_is_in_a_report(demo: Reported) -> None:
    page = demo.html + demo.markdown
    texts = [text for corpus in demo.corpora.values() for text in texts_of(corpus) if text]
    # Three words as a document has them; topics may have two by chance.
    pieces = {" ".join(text.split()[:3]) for text in texts}
    assert len(pieces) > 200
    assert not [piece for piece in pieces if piece in page]


def test_the_same_bytes_again(run: Reported, tmp_path: Path) -> None:
    folder, facts = find_run(run.folder)
    summary = summarise(TopicModel.from_pretrained(folder), facts)
    assert summary == run.summary
    again = write_report(summary, tmp_path / "deep" / "page.html")
    assert again.read_bytes() == run.page.read_bytes()
    assert again.with_suffix(".md").read_bytes() == run.page.with_suffix(".md").read_bytes()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("events.jsonl", "{\n"),
        ("events.jsonl", "[1]\n"),
        ("events.jsonl", '{"event": "round", "loss": 1}\n'),
        ("events.jsonl", '{"event": "round", "round": "two"}\n'),
        ("study.toml", "[method"),
        ("study.toml", 'method = "lda"'),
        ("study.toml", "\udcff"),
    ],
)
def test_a_damaged_file_is_one_sentence(file: str, content: str, copied: Path) -> None:
    (copied / file).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(RunError) as error:
        find_run(copied)
    assert str(error.value) == (
        f"{copied / file} is damaged; correct it, or remove it from the folder."
    )
    (copied / file).unlink()
    find_run(copied)


def test_examples_are_of_their_topic(run: Reported, tmp_path: Path) -> None:
    corpus = next(iter(run.corpora.values()))
    summary = summarise(run.model, run.facts, documents=corpus)
    page = write_report(summary, tmp_path / "own.html")
    theta, _, order = run.model.ranked([corpus])
    main = run.model.main_topics(corpus)
    texts = np.array([" ".join(text.split()) for text in texts_of(corpus)])
    content = page.read_text(encoding="utf-8")
    assert sum(len(examples) for examples in summary["examples"].values()) > 3
    for topic, examples in summary["examples"].items():
        rows = [row for row in np.argsort(-order[:, topic], kind="stable") if main[row] == topic]
        assert [example["text"] for example in examples] == texts[rows[:3]].tolist()
        assert [example["share"] for example in examples] == pytest.approx(theta[rows[:3], topic])
        for example in examples:
            assert f"<li>{example['share']:.1%}: {example['text']}</li>" in content
    assert "Do not share." in content
    assert "**Do not share:**" in page.with_suffix(".md").read_text(encoding="utf-8")
    assert "Do not share" not in run.html + run.markdown


@pytest.mark.usefixtures("folder")
def test_run_and_report(typed: Typed) -> None:
    code, out, _ = typed("train", "study.toml", "--out", "out")
    assert (code, out.count("The report:")) == (0, 1)
    assert "out/report.html\n" in out
    first = Path("out/report.html").read_text()
    assert CANARY not in first
    Path("out/report.html").unlink()
    Path("out/report.md").unlink()
    assert typed("report", "out") == (
        0,
        "The report is out/report.html; the same as Markdown is out/report.md.\n",
        "",
    )
    assert Path("out/report.html").read_text() == first
    assert Path("out/report.md").read_text().startswith("# study\n")

    assert typed("report", "out/model", "-o", "there/page.html", "--min-documents", 40)[0] == 0
    page = Path("there/page.html").read_text()
    assert "fewer than 40 documents" in page
    assert tables_of(page)["Data sent, by function"]
    assert Path("there/page.md").exists()


@pytest.mark.usefixtures("trained")
def test_a_report_with_documents(typed: Typed, done: Done, refused: Refused) -> None:
    out = done("report", "out", "--examples-from", "north.csv")
    assert out.endswith("It contains beginnings of documents: do not share it.\n")
    page = Path("out/report-with-documents.html").read_text()
    texts = [line.split(",")[1] for line in Path("north.csv").read_text().splitlines()[1:]]
    assert any(text in page for text in texts)
    assert "Do not share." in page
    assert not any(text in Path("out/report.html").read_text() for text in texts)
    assert page.partition('<section id="own">')[2].count("<circle") == len(texts)
    titles = re.findall("<title>.*?</title>", page)
    assert not any(text in title for text in texts for title in titles)
    typed("report", "out", "--examples-from", "north.csv", "--with-text")
    page = Path("out/report-with-documents.html").read_text()
    assert sum(text in title for text in texts for title in re.findall("<title>.*?</title>", page))
    assert 'id="own"' not in Path("out/report.html").read_text()
    said = "error: --with-text needs --examples-from FILE.\n"
    assert typed("report", "out", "--with-text")[2] == said
    assert "no column 'abstract'" in refused(
        "report", "out", "--examples-from", "north.csv", "--columns", "text=abstract"
    )


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["report", "nowhere"],
            "There is no model in nowhere; name the folder of a model, or of a",
        ),
        (["report", "out", "--min-documents", "0"], "Invalid value for '--min-documents'"),
        (["report", "out", "--examples-from", "nowhere.csv"], "no file or folder nowhere.csv"),
        (["report", "out", "-o", "page.md"], "page.md has to end in .html"),
    ],
)
def test_wrong_reports(arguments: list[str], message: str, refused: Refused) -> None:
    made().save_pretrained("out")
    assert message in refused(*arguments)
