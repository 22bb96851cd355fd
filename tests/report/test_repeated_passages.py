"""Passages that many documents of a client have are named to that client, and to nobody else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.federation.door import Door
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.methods.base import Moment
from fedtopics.model.topic_model import TopicModel
from fedtopics.report import find_run, summarise, write_report
from fedtopics.report.render import html, markdown
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from tests.helpers.command_line import Typed
from tests.helpers.federation import subjects, tokens_of
from tests.helpers.grpc_federation import Outcome, federated
from tests.helpers.hostile import HOSTILE_WORDS, hostile
from tests.helpers.report_runs import report_of, tables_of

SIZES = {"north": 40, "south": 40}
FOOTERS = {
    "north": [f"north{i}" for i in (17, 4, 31, 9, 22, 0, 38, 13, 26, 7)],
    "south": [f"south{i}" for i in (5, 29, 11, 36, 2, 19, 33, 8, 24, 15)],
}
STUDY = Study.make(
    name="footers",
    method={"name": "lda", "n_components": 3, "max_rounds": 4},
    text={"repeats": "cap"},
    vocabulary={"max_document_share": 1.0},
)


def documents() -> dict[str, Corpus]:
    """Words at random, below which every second document has its client's footer."""
    return {
        name: Corpus.of(
            [
                words + FOOTERS[name] if row % 2 == 0 else words
                for row, words in enumerate(tokens_of(corpus))
            ]
        )
        for name, corpus in subjects(SIZES).items()
    }


def own_page(folder: Path, corpus: Corpus) -> tuple[Any, str, str]:
    """A client's report of its own documents: its summary, and the files."""
    model, facts = find_run(folder)
    summary = summarise(TopicModel.from_pretrained(model), facts, documents=corpus)
    page = write_report(summary, folder / "report-with-documents.html")
    return summary, page.read_text("utf-8"), page.with_suffix(".md").read_text("utf-8")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome, list[Any]]:
    """A study between machines, and all replies that left its clients."""
    folder, left, call = tmp_path_factory.mktemp("footers"), [], Door.call

    def listening(self: Door, function: str, payload: Any, moment: Moment) -> Any:
        reply = call(self, function, payload, moment)
        left.append((function, payload, reply))
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Door, "call", listening)
        outcome = federated(STUDY, documents(), folder, policy=Policy(min_documents=10))
    return folder, outcome, left


@pytest.mark.parametrize("name", SIZES)
def test_a_client_sees_its_own_passages(
    name: str, finished: tuple[Path, Outcome, list[Any]]
) -> None:
    folder, _, _ = finished
    summary, page, twin = own_page(folder / name, documents()[name])
    footer = " ".join(FOOTERS[name])
    assert summary["repeats"]["passages"][0]["documents"] == 20
    bag = TopicModel.from_pretrained(folder / name / "model").count(documents()[name])
    usual = np.bincount(bag.indices, minlength=bag.shape[1]) >= 5
    said = re.search(r"(\d+) of (\d+) words", summary["repeats"]["sentence"])
    assert said is not None
    assert int(said[2]) == bag.sum(0)[usual].sum()
    assert 180 <= int(said[1]) < 190, "and a word before the footer, here and there"
    for text in (page, twin):
        assert said[0] in text
        assert "the study leaves out of training" in text
    assert tables_of(page)["Repeated passages"][1] == [footer, "20", "180"]
    assert f"| {footer} | 20 | 180 |" in twin
    assert "and passages of them" in page


def everything(folder: Path, outcome: Outcome, left: list[Any]) -> str:
    """All that the server has: its folder, what it said, what it was sent, and its report."""
    report_of(folder / "server")
    files = [path.read_bytes() for path in (folder / "server").rglob("*") if path.is_file()]
    with np.printoptions(threshold=10**9):
        sent = repr(left)
    return b"\n".join(files).decode("latin-1") + json.dumps(outcome.events) + sent


def test_the_server_has_no_passage(finished: tuple[Path, Outcome, list[Any]]) -> None:
    """Nowhere are four words of a footer in their order, whatever is between them."""
    folder, outcome, left = finished
    _, own, _ = own_page(folder / "north", documents()["north"])
    told = everything(folder, outcome, left)
    assert "north17" in told, "each of its words is in enough documents by itself"
    assert '<h3 id="scores">Scores</h3>' in told
    assert "Repeated passages" not in told
    assert [of for of in FOOTERS if has_part(FOOTERS[of], own)] == ["north"]
    assert not any(has_part(footer, told) for footer in FOOTERS.values())


def has_part(footer: list[str], text: str) -> bool:
    parts = (footer[start : start + 4] for start in range(len(footer) - 3))
    return any(re.search(r"[^a-z0-9]+".join(part), text) for part in parts)


def test_a_clients_files_have_passages_only_where_it_asks(
    finished: tuple[Path, Outcome, list[Any]],
) -> None:
    """Ledger, events, model and the report to pass on have none, of its own or of the other's."""
    folder, _, _ = finished
    for name in SIZES:
        report_of(folder / name)
        own_page(folder / name, documents()[name])
        files = [path for path in (folder / name).rglob("*") if path.is_file()]
        with_it = {
            (path.name, of)
            for path in files
            for of, footer in FOOTERS.items()
            if " ".join(footer[:4]) in path.read_text("utf-8", errors="replace")
        }
        assert with_it == {
            ("report-with-documents.html", name), ("report-with-documents.md", name),
        }  # fmt: skip


def test_a_run_of_all_clients_shows_passages_of_given_documents_alone(typed: Typed) -> None:
    """`run` has one report for all clients: none is in it."""
    notice = "the harbour master asks every captain and pilot to keep all moorings free of ice"
    rows = [f"north-{number},{number} {notice}" for number in range(30)]
    Path("north.csv").write_text("id,text\n" + "\n".join(rows) + "\n")
    study = '[method]\nname = "lda"\nn_components = 2\nmax_rounds = 2\n[vocabulary]\n'
    clients = '[clients.north]\ndata = "north.csv"\n[clients.south]\ndata = "south.csv"\n'
    Path("study.toml").write_text(f"{study}{clients}")
    typed("run", "study.toml", "--out", "out")
    passage = "harbour master asks captain pilot moorings free ice"
    assert "harbour" in Path("out/report.md").read_text()
    for path in Path("out").rglob("*"):
        assert not path.is_file() or passage not in path.read_text(errors="replace")
    typed("report", "out", "--with-documents", "north.csv")
    page = Path("out/report-with-documents.html").read_text()
    assert 'which the study counts like all others (repeats = "keep")' in markdown_of(page)
    assert passage in page


def markdown_of(page: str) -> str:
    return page.replace("&#34;", '"')


def test_passages_are_escaped() -> None:
    model = hostile()
    corpus = Corpus.of([[*HOSTILE_WORDS]] * 6)
    summary = summarise(model, documents=corpus)
    (passage,) = summary["repeats"]["passages"]
    assert passage["words"] == [*HOSTILE_WORDS]
    page, twin = html(summary), markdown(summary)
    assert page.count("<script") == 2
    assert "<b>" not in page
    assert "<img" not in page
    row = next(line for line in twin.splitlines() if "| 6 |" in line and "quoted" in line)
    assert row.count("|") - row.count(r"\|") == 4


def test_documents_without_passages_are_said_to_have_none() -> None:
    summary = summarise(hostile(), documents=["", "R&D"])
    assert summary["repeats"]["passages"] == []
    assert "0 of 0 words" in summary["repeats"]["sentence"]
    assert 'aria-label="Repeated passages"' not in html(summary)
    assert "Repeated passages" not in html(summarise(hostile()))
    assert TextRules().repeats == "keep"
