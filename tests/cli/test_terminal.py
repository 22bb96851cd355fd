"""The terminal obeys no text that others wrote, in whatever way it is shown."""

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.live import Live
from rich.table import Table

from fedtopics.cli import privacy
from fedtopics.errors import FederationError
from fedtopics.escaping import for_terminal
from fedtopics.federation.data_sent import DataSent
from fedtopics.federation.study_tables import About
from fedtopics.terminal import display, run_display
from fedtopics.terminal.display import Terminal
from tests.helpers.command_line import Typed
from tests.helpers.hostile import NO_WORDS

TEXT = "[bold]x[/nothing] :skull: " + "".join(NO_WORDS)
OWN = re.compile(r"\x1b\[\??[\d;]*[A-Za-z]|\r")  # colours, and what a live table is redrawn by


@pytest.fixture(params=[True, False], ids=["terminal", "file"])
def screen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[StringIO]:
    """What is shown; in the end, all of it is lines that print, and rich's own commands."""
    file = StringIO()
    console = Terminal(file=file, force_terminal=request.param, width=4000, height=50)
    for module in (display, run_display, privacy):
        monkeypatch.setattr(module, "console", console)
    yield file
    shown = file.getvalue()
    text = OWN.sub("", shown) if request.param else shown
    assert for_terminal(text) == text
    assert "[2J" not in "".join(OWN.findall(shown)).replace("\\x1b[2J", "")


def test_tables(screen: StringIO) -> None:
    row = {"function": TEXT, "replies": 1, "documents": 2, "values": 3, "bytes": 4, "totals": 0}
    row["masked"] = True
    display.print_ledger(TEXT, [row])
    assert screen.getvalue().count(r"\x1b[31mred") == 2


def test_what_goes_on(screen: StringIO) -> None:
    table = Table(TEXT, title=TEXT)
    table.add_row(TEXT)
    with display.status(TEXT):
        pass
    with display.embedding_status(TEXT) as on_progress:
        on_progress(1, 2)
    with Live(table, console=display.console):
        display.say(TEXT)
    with run_display.RunDisplay() as progress:
        progress({"event": "embedding", "client": TEXT, "done": 2, "documents": 2})
    assert screen.getvalue().count(r"\x1b[31mred") >= 4


def test_events_of_others(screen: StringIO) -> None:
    """Whatever an event says of a client, or a server in an offer."""
    said = {"client": TEXT, "reason": TEXT, "missing": {TEXT: TEXT}, "clients": [TEXT], "round": 1}
    topics = [{"id": 1, "words": [TEXT]}]
    rows = [DataSent(TEXT, TEXT, 1, *[TEXT] * 4, numbers=2, bytes=None, bounds=TEXT)]
    more = {
        "address": TEXT,
        "received": [TEXT],
        "method": TEXT,
        "documents": 3,
        "least": 2,
        "words": 4,
        "whose": TEXT,
        "few": TEXT,
        "model": TEXT,
        "rounds": 5,
        "vocabulary": "keep",
        "seconds": 1.0,
        "fingerprint": TEXT,
        "function": TEXT,
        "error": TEXT,
        "folder": TEXT,
        "unknown": 1,
        "majority": 2,
        "loss": 0.5,
        "times": 41.0,
        "digest": TEXT,
        "factor": 0.5,
        "text": TEXT,
        "left_out": True,
        "empty": 1,
        "source": TEXT,
        "step": 2,
        "n_components": 3,
        "score": 0.5,
        "approvals": 1,
        "needed": 2,
        "page": TEXT,
        "exposure": SimpleNamespace(
            steps=9,
            bytes=4,
            chosen=TEXT,
            words=3,
            documents=None,
            rows=rows,
            persons=None,
            study=SimpleNamespace(
                method=SimpleNamespace(max_rounds=6, draws=False),
                is_secure=True,
                differential_privacy=None,
            ),
            adversaries={TEXT: TEXT},
        ),
    }
    with run_display.RunDisplay() as server:
        for kind in (*display.SENTENCES, *run_display.MEMBER_SENTENCES):
            for shown in (server, run_display.RunDisplay(run_display.MEMBER_SENTENCES, "a")):
                shown({"event": kind, **more, **said})
        changes = {
            "arrived": {TEXT: 1},
            "topics": topics,
            "new": [1],
            "vanished": topics,
            "round": 2,
            "threshold": 0.5,
        }
        server({"event": "round", **more, **said, **changes})
    study = SimpleNamespace(
        fingerprint=TEXT,
        name=TEXT,
        observers=[TEXT],
        aggregation="secure",
        is_secure=True,
        server=SimpleNamespace(host=TEXT),
        about=About.model_construct(purpose=TEXT),
        method=SimpleNamespace(method_name=TEXT, number="2"),
        described={"settings": {"method.network": TEXT}},
        clients=[TEXT],
    )
    data_sent = [row.plain() for row in rows]
    offer = {"study": study, "data_sent": data_sent, "seen": TEXT, "policy": TEXT}
    run_display.show_offer(offer | {"known": False})
    assert screen.getvalue().count(r"\x1b[31mred") > 30


def test_an_error_is_one_line_whoever_wrote_it(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise FederationError(f"The server says: {TEXT}\nfedtopics: all is well")

    wicked = tmp_path / "\x1b[2J\nfedtopics: all is well\u202e"
    wicked.mkdir()
    code, _, err = typed("topics", wicked)
    assert (code, err.count("\n")) == (2, 1)
    assert r"\x1b[2J\nfedtopics: all is well\u202e" in err
    code, _, err = typed("topics", tmp_path, "--words", "\x1b[2J")
    assert r"\x1b[2J" in err
    monkeypatch.setattr("fedtopics.model.topic_model.TopicModel.from_pretrained", fails)
    code, _, err = typed("models", "compare", tmp_path, tmp_path)
    assert code == 4
    assert for_terminal(err) == err
