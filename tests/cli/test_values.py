"""A value that stops a command is shown to who typed it, and is in no file and no message."""

import pickle
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tblib import pickling_support

from fedtopics import Columns, Corpus
from fedtopics.contract.events import Event
from fedtopics.errors import DataError
from fedtopics.federation.progress import recording
from fedtopics.protocol.client_side import cause_of
from fedtopics.protocol.roster import Key
from fedtopics.text.growing import Follow
from tests.helpers.command_line import fedtopics
from tests.helpers.models import made

CANARY = "canary-31.31.2026"
STUDY = """
[method]
name = "nmf"
n_components = 2
max_rounds = 2
[method.over_time]
begin = 2026-01-01
end = 2026-12-31
[vocabulary]
min_clients_per_word = 1
[server]
address = "localhost:1"
certificate = "server.pem"
"""
CLIENT = '[clients.{0}]\ncertificate = "{0}.pem"\ndata = "north.csv"\ntime = "written"\n'


@pytest.fixture
def place(here: Path) -> Path:
    """A model, a study with keys, and documents of which one has no time."""
    made().save_pretrained("model")
    for name in ("north", "south", "west", "server"):
        Key.create(here / name, name)
    (here / "study.toml").write_text(
        STUDY + "".join(map(CLIENT.format, ("north", "south", "west")))
    )
    rows = [f"oak elm tea,{day:02}.01.2026" for day in range(1, 31)]
    (here / "north.csv").write_text("\n".join(["text,written", *rows, f"flu tea,{CANARY}", ""]))
    return here


OWN = ["--data", "north.csv", "--columns", "time=written"]
JOIN = ["join", "study.toml", "--key", "north", "--out", "run", "--timeout", 1, *OWN]
COMMANDS = {
    "transform": (["transform", "model", "north.csv", "--by-time", "written"], True),
    "check": (["check", "study.toml", *OWN], True),
    "train": (["train", "study.toml", "--out", "run"], True),
    "join": (JOIN, False),
    "dry run": ([*JOIN, "--dry-run", "--json"], False),
}


@pytest.mark.parametrize(("arguments", "is_shown"), COMMANDS.values(), ids=COMMANDS)
def test_a_value_is_on_the_terminal_and_not_in_the_journal(
    arguments: list[object],
    is_shown: bool,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for is_terminal in (False, True):  # else it may be a log
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        assert fedtopics(monkeypatch, *arguments) == 2
        out, err = capsys.readouterr()
        assert "timestamp of document 31" in err
        assert err.endswith(f"\nvalue: {CANARY}\n") is (is_shown and is_terminal)
        assert (out + err).count(CANARY) == (is_shown and is_terminal)
    files = filter(Path.is_file, place.rglob("*"))
    assert [path.name for path in files if CANARY.encode() in path.read_bytes()] == ["north.csv"]


def test_what_is_notified_or_sent_has_no_value(place: Path) -> None:
    columns = Columns(time="written", date_format="%d.%m.%Y")
    reasons: list[str] = []
    Follow(place / "north.csv", columns, reasons.append)()
    with pytest.raises(DataError, match=r"Row 31 of column 'written' of .* does not fit") as error:
        Corpus.read(place / "north.csv", columns)
    assert (error.value.value, CANARY in str(error.value)) == (CANARY, False)
    assert reasons == [str(error.value)]
    events: list[Event] = []
    with suppress(DataError), recording(events.append):
        raise error.value
    assert [event.plain()["reason"] for event in events] == reasons
    assert CANARY not in cause_of(error.value)
    pickling_support.install(DataError)  # as Dask does, to send the errors before it along
    sent = pickle.dumps(error.value)
    assert (CANARY.encode() in sent, str(pickle.loads(sent))) == (False, reasons[0])  # noqa: S301
