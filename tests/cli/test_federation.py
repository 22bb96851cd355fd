"""What a user types to federate, right and wrong: one sentence and the documented exit code."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fedtopics.engines.handshake import Proposal
from fedtopics.secure.said import ADDED

from fedtopics import __version__, cli
from fedtopics.cli import display
from fedtopics.federation.study import Study
from fedtopics.methods.registry import versions
from tests.helpers.command_line import Typed
from tests.helpers.grpc_federation import HOST, Background, authority, of_server, until
from tests.helpers.sockets import offering

NAMES = ("east", "north", "south")
READ = (
    "41 documents, 1 of them empty, from column 'text' of north.csv, separated by \",\"; "
    "they stay. The first ones have 8, 8, 8 words"
)
STUDY = """
[method]
n_components = 3
max_rounds = 6
[federation]
gather = 20
[clients.east]
[clients.north]
[clients.south]
"""


@pytest.fixture(scope="module")
def authority_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    authority(folder / "other", "north")
    return authority(folder / "pki", *NAMES, "stranger")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority_made: Path) -> Path:
    """A study, its authority, and documents."""
    rng = np.random.default_rng(0)
    for name in NAMES:
        words = np.array([f"{name}{chr(97 + i)}" for i in range(26)])
        rows = [f"{i},{' '.join(rng.choice(words, 8))}\n" for i in range(40)]
        (tmp_path / f"{name}.csv").write_text("id,text\n" + "".join(rows) + "40,\n")
    (tmp_path / "study.toml").write_text(STUDY)
    shutil.copytree(authority_made, tmp_path / "pki")
    shutil.copytree(authority_made.parent / "other", tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(display, "console", display.Terminal(width=100))
    return tmp_path


# Wrong input

SERVER = ["server", "study.toml"]
CLIENT = ["client", "--server", "localhost:1", "--data", "north.csv"]
NORTH = ["--identity", "pki/clients/north"]
INSECURE = ["--insecure", "--name", "north"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["server"], "Missing argument 'STUDY'."),
        (SERVER, "Give --pki DIR, or --insecure on one machine, not both."),
        (["server", "nowhere.toml", "--pki", "pki"], "nowhere.toml cannot be used: No such file"),
        ([*SERVER, "--pki", "nowhere"], "There is no folder nowhere with an identity."),
        ([*SERVER, "--pki", "pki/clients/north"], "holds the identity of a client"),
        ([*SERVER, "--pki", "pki", "--resume"], "There is no run in runs/study to resume"),
        (["server", "empty.toml", "--pki", "pki"], "The study names no clients; add a table"),
        (["client"], "Missing option '--server'."),
        (CLIENT, "Give --identity DIR, or --insecure with --name on one machine."),
        ([*CLIENT, "--identity", "pki"], "pki is an authority, not an identity"),
        ([*CLIENT, "--identity", "pki/server"], "pki/server holds the identity of a server"),
        ([*CLIENT, *NORTH, "--data", "nowhere.csv"], "There is no file or folder nowhere.csv"),
        ([*CLIENT, *NORTH, "--policy", "policy.toml"], "there is no key 'min_document'"),
        ([*CLIENT, *NORTH, "--out", "north.csv"], "north.csv is a file; name a folder with --out."),
        (["doctor", "--server", "localhost:1"], "Missing option '--identity'."),
        (["doctor", *NORTH, "--server", "localhost:1", "--policy", "p.toml"], "go with --data"),
    ],
)
def test_wrong_input(arguments: list[str], message: str, folder: Path, typed: Typed) -> None:
    (folder / "empty.toml").write_text("[method]\nn_components = 3\n")
    (folder / "policy.toml").write_text("min_document = 3\n")
    code, out, err = typed(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_server_without_certificates_says_who_may_take_part(folder: Path, typed: Typed) -> None:
    text = STUDY.replace("gather = 20", "gather = 0\nwait = 0")
    (folder / "study.toml").write_text(text)
    code, out, _ = typed(*SERVER, "--insecure", "--listen", "127.0.0.1:0")
    assert code == 4  # nobody comes
    first, second, *_ = out.splitlines()
    assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+ for .*", first)
    assert second.startswith("There are no certificates: any process on this machine can take part")
    code, out, _ = typed(*SERVER, "--pki", "pki", "--listen", "127.0.0.1:0", "--out", "other-run")
    assert (code, "listening on" in out, "no certificates" in out) == (4, True, False)


# With servers that refuse, and clients that do


def proposal(folder: Path, **change: Any) -> Proposal:
    study = Study.read(folder / "study.toml")
    proposed = {
        "product": __version__,
        "method": "gfedntm",
        "method_version": versions("gfedntm")["gfedntm"],
        "study": study.agreed,
        "fingerprint": study.fingerprint,
    }
    return Proposal(**(proposed | change))


@pytest.mark.parametrize(
    ("identity", "change", "message"),
    [
        ("pki/clients/stranger", {}, "The server says: The study has no client named 'stranger';"),
        ("other/clients/north", {}, "the server's certificate is not from this identity's author"),
        ("pki/clients/north", {"product": "9.9.9"}, f"has version {__version__} of fedtopics, the"),
        ("pki/clients/north", {"fingerprint": "beef"}, "The server calls its study beef, what it"),
    ],
)
def test_a_client_that_does_not_fit(
    identity: str, change: dict[str, Any], message: str, folder: Path, typed: Typed
) -> None:
    given = of_server(folder / "pki")
    with offering(NAMES, credentials=given, proposal=proposal(folder, **change)) as f:
        arguments = ["--data", "north.csv", "--identity", identity]
        code, _, err = typed("client", "--server", f"localhost:{f.hub.port}", *arguments)
        assert code == 4
        assert message in err


def test_a_dry_run(folder: Path, typed: Typed) -> None:
    with offering(NAMES, proposal=proposal(folder)) as f:
        address = ["--server", f"{HOST}:{f.hub.port}", *INSECURE, "--data", "north.csv"]
        code, out, _ = typed("client", *address, "--dry-run")
        assert code == 0
        assert f"north: {READ}" in out
        assert f"The server's study {proposal(folder).fingerprint:.16}: gfedntm with prodlda" in out
        for function in ("vocabulary", "counted", "forward", "loss", "backward", "shares", "pairs"):
            assert function in out
        assert "twice a round" in out
        assert "the policy allows this; nothing has left" in out
        assert "bytes, of 41 documents whose texts have" in " ".join(out.split())
        assert "Can others learn which words a single document has? Yes, " in out
        code, out, _ = typed("client", *address, "--dry-run", "--json")
        events = [json.loads(line) for line in out.splitlines()]
        assert [event["event"] for event in events] == ["documents", "offer", "allowed"]
        assert events[0]["source"].startswith("column 'text' of north.csv")
        assert events[1]["study"] == json.loads(json.dumps(proposal(folder).study))
        assert events[2]["exposure"]["documents"] == 41
        assert not f.node.members["north"].link
        Path("taken").write_text("")
        assert typed("client", *address, "--dry-run", "--out", "taken")[0] == 0
    assert not (folder / "runs").exists()


# From the first command to the last


def said_by(arguments: list[object]) -> Background:
    """Type a command beside others."""
    return Background(
        lambda: cli.app([str(argument) for argument in arguments], standalone_mode=False)
    )


def test_a_federation(
    folder: Path, typed: Typed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = ""

    def listening() -> str | None:
        nonlocal heard
        heard += capsys.readouterr().out
        found = re.search(r'"event": "listening".*"address": "127\.0\.0\.1:(\d+)"', heard)
        return found[1] if found else None

    server = said_by([*SERVER, "--pki", "pki", "--listen", f"{HOST}:0", "--json"])
    until(listening)
    address = f"localhost:{listening()}"
    clients = [
        said_by(
            ["client", "--server", address, "--identity", f"pki/clients/{name}"]
            + ["--data", f"{name}.csv", "--out", name]
            + (["--json"] if name == "south" else [])
        )
        for name in NAMES
    ]
    for each in (*clients, server):
        until(lambda each=each: not each.running, 60.0)  # whole processes' work, in one
        each.result()
    heard += capsys.readouterr().out

    lines = [line for line in heard.splitlines() if line.startswith("{")]
    events = [json.loads(line) for line in lines]
    rounds = [event for event in events if event["event"] == "round"]
    numbers = sorted(event["round"] for event in rounds)
    assert numbers == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6], "south says what the server says"
    assert {tuple(event["clients"]) for event in rounds} == {NAMES}
    calls = [event["function"] for event in events if event["event"] == "call"]
    assert (calls.count(ADDED), calls.count("shares")) == (37, 1), "five masked sums a round"
    for name in ("east", "north"):
        assert f"{name}: {READ.replace('north', name)}" in heard
        assert f"{name}: joined study {Study.read('study.toml').fingerprint:.16}" in heard
        assert f"{name}: the model is in {name}/model; the topics of 41 documents" in heard
    for name in NAMES:
        assert pq.read_table(f"{name}/theta.parquet").num_rows == 41

    stands = [json.loads(typed("status", place, "--json")[1]) for place in ("runs/study", "north")]
    for found in stands:
        assert (found["state"], found["running"], found["round"]) == ("finished", False, 6)
        assert {name: c["rounds"] for name, c in found["clients"].items()} == dict.fromkeys(
            NAMES, 6
        )
        assert len(found["topics"]) == 3
    assert stands[0]["topics"] == stands[1]["topics"]

    code, out, _ = typed("topics", "runs/study/model", "--json", "--words", 3)
    assert code == 0
    assert {name for row in json.loads(out) for name in row["clients"]} == set(NAMES)
    code, out, _ = typed("ledger", "north")
    assert code == 0
    assert "What left north" in out
    assert "*: left in masked sums alone" in out
    assert (folder / "runs/study/report.html").exists(), "the server's"
    assert typed("report", "north")[0] == 0
    assert (folder / "north/report.md").exists()
    code, _, err = typed(*SERVER, "--pki", "pki", "--listen", f"{HOST}:0")
    assert code == 2
    assert "There is a run in runs/study already; go on with --resume" in err
