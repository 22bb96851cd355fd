"""Ten outputs describe the data sent of one study, all from the published functions."""

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedtopics import Study
from fedtopics.contract.published import description_of
from fedtopics.contract.replies import sums
from fedtopics.federation.data_sent import ALL_SEE, DataSent, data_sent_in
from fedtopics.federation.exposure import expose
from fedtopics.federation.verify import verify
from fedtopics.methods.core.final_model import LastSums
from fedtopics.methods.nmf.client import FactorSums
from fedtopics.model.topic_model import TopicModel
from fedtopics.report import find_run, summarise
from fedtopics.report.dpia import assess
from fedtopics.report.dpia_document import form_as_markdown
from fedtopics.report.render import markdown
from fedtopics.report.run import LedgerFacts
from fedtopics.terminal import display, run_display
from tests.helpers.federation import ANY_WORDS, embedded, subjects
from tests.helpers.grpc_federation import federated
from tests.helpers.methods import METHODS
from tests.helpers.pages import DOCS

CORPORA = embedded(subjects({"north": 40, "south": 30}))
FLDA = {"name": "flda", "n_components": 2, "min_new_documents": 10}
IN_BATCHES = {"name": "lda", "n_components": 3, "learning": "stochastic", "batch_size": 32}
CASES = METHODS | {"flda": FLDA, "lda in batches": IN_BATCHES}
Outputs = dict[str, Callable[[], str]]


def planned(case: str) -> Study:
    method = CASES[case] | {"max_rounds": 2}
    if "name" not in method:
        method = {"name": "gfedntm", "n_components": 3, "hidden": [8, 8], **method}
    return Study.make(
        method=method,
        vocabulary=ANY_WORDS,
        aggregation="plain" if case == "flda" else "secure",
    ).with_clients(CORPORA)


def outputs_of(plan: Study, folder: Path) -> Outputs:
    """Train a study between two members; return what describes its data sent, by output."""
    outcome = federated(plan, CORPORA, folder, seeded=False)
    member = folder / "north"
    (offer,) = (e for e in outcome.partners["north"].events if e["event"] == "offer")
    rows = [*LedgerFacts.read(member / "ledger.jsonl").data_sent.values()]
    before = folder / "before.toml"
    before.write_text(plan.to_toml(), "utf-8")

    def report() -> str:
        place, facts = find_run(member)
        return markdown(summarise(TopicModel.from_pretrained(place), facts))

    return {
        "check": lambda: printed(run_display.show_exposure, expose(plan)),
        "join --dry-run": lambda: printed(run_display.show_offer, offer),
        "ledger": lambda: (member / "ledger.jsonl").read_text("utf-8"),
        "audit log": lambda: printed(run_display.explain_functions, rows),
        "report": report,
        "model card": lambda: (member / "model/README.md").read_text("utf-8"),
        "DPIA before": lambda: form_as_markdown(assess(before)),
        "DPIA after": lambda: form_as_markdown(assess(member)),
        "verify": lambda: "\n".join(c.text for c in verify(member) if c.what == "data sent"),
        "reference": lambda: (DOCS / "reference/clients.md").read_text("utf-8"),
    }


def printed(show: Callable[..., None], *content: Any) -> str:
    with display.console.capture() as shown:
        show(*content)
    return shown.get()


def disagreements(rows: Sequence[DataSent], outputs: Mapping[str, Callable[[], str]]) -> set[str]:
    """Return the outputs that lack a function of the table, or describe it otherwise."""
    texts = {name: html.unescape(re.sub(r"[\\`*]", "", made())) for name, made in outputs.items()}
    sent = set(re.findall(r"^\| ([\w: ]+) \|", texts["report"], re.M))
    return {
        name
        for name, text in texts.items()
        for row in rows
        if row.function in sent and not re.search(says(name, row), text)
    }


def says(output: str, row: DataSent) -> str:
    """Return a pattern of what an output has to say of a function."""
    wanted = {
        "model card": [row.often, row.short, row.seen],
        "report": [row.often, row.data_sent, row.seen],
        "reference": [row.data_sent],
        "verify": [],
        "ledger": [json.dumps(row.plain())[1:-1]],
        "DPIA before": [row.often, row.over, row.data_sent, row.bounds, row.seen],
        "DPIA after": [row.often, row.over, row.data_sent, row.bounds, row.seen],
    }.get(output, [row.often, row.over, row.seen, row.data_sent, row.bounds])
    clean = [re.escape(re.sub(r"[\\`*]", "", text)) for text in (row.function, *wanted)]
    if output == "verify":
        return rf"{re.escape(row.seen)}: [^;]*\b{clean[0]}\b"
    return r"[^\n]*\n?[^\n]*?".join(clean) if output != "ledger" else clean[-1]


@pytest.mark.parametrize("case", CASES)
def test_ten_outputs_describe_the_same(case: str, tmp_path: Path) -> None:
    plan = planned(case)
    outputs = outputs_of(plan, tmp_path)
    rows = data_sent_in(plan)
    assert disagreements(rows, outputs) == set()
    entries = LedgerFacts.read(tmp_path / "north/ledger.jsonl").rows
    table = {row.function: row for row in rows}
    for entry in entries:
        row = table[entry["function"]]
        assert entry["replies"] <= 2 * row.calls  # groups are counted first
        assert row.bytes is None or entry["bytes"] <= entry["replies"] * row.bytes
        if plan.is_secure and entry["replies"]:
            assert entry["masked"] == (row.seen != ALL_SEE)


MUTANTS = {
    "another text": (FactorSums.factor_sums, {"data_sent": "Nothing."}),
    "a wrong bound": (FactorSums.factor_sums, {"reply": lambda: {"sums": sums(2, most=7)}}),
    "called summed": (LastSums.topic_shares, {"seen_by_all": False}),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outputs, list[DataSent]]:
    plan = planned("nmf")
    return outputs_of(plan, tmp_path_factory.mktemp("nmf")), data_sent_in(plan)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_an_output_that_differs_is_noticed(
    mutant: str, trained: tuple[Outputs, list[DataSent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, rows = trained
    function, change = MUTANTS[mutant]
    monkeypatch.setitem(vars(function), "published", replace(description_of(function), **change))
    assert disagreements(rows, outputs) == {"check", "DPIA before", "verify"}
