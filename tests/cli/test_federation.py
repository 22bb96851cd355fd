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

from fedtopics import __version__, cli, pki
from fedtopics.cli import display, members
from fedtopics.engines.handshake import Proposal
from fedtopics.federation.study import Study
from fedtopics.methods.registry import versions
from fedtopics.secure.said import ADDED
from tests.helpers.command_line import Typed
from tests.helpers.grpc_federation import HOST, Background, authority, of_server, until
from tests.helpers.sockets import offering

NAMES = ("east", "north", "south")
pytestmark = pytest.mark.usefixtures("without_figures")
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
        ([*SERVER, "--pki", "pki", "--insecure"], "Give --pki DIR, or --insecure on one machine"),
        (["server", "nowhere.toml", "--pki", "pki"], "nowhere.toml cannot be used: No such file"),
        ([*SERVER, "--pki", "nowhere"], "There is no folder nowhere with an identity."),
        ([*SERVER, "--pki", "pki/clients/north"], "holds the identity of a client"),
        ([*SERVER, "--pki", "pki", "--resume"], "There is no run in runs/study to resume"),
        (["server", "empty.toml", "--pki", "pki"], "The study names no clients; add a table"),
        (["server", "north.csv", "--pki", "pki"], "The study north.csv cannot be used"),
        ([*SERVER, "--pki", "pki", "--nope"], "No such option"),
        (["client"], "Missing option '--server'."),
        (["client", "--server", "localhost:1"], "Missing option '--data'."),
        (CLIENT, "Give --identity DIR, or --insecure with --name on one machine."),
        ([*CLIENT, *NORTH, "--insecure"], "Give --identity DIR, or --insecure with --name"),
        ([*CLIENT, "--insecure"], "Give --identity DIR, or --insecure with --name"),
        ([*CLIENT, *NORTH, "--name", "north"], "Give --identity DIR, or --insecure with --name"),
        ([*CLIENT, "--identity", "nowhere"], "There is no folder nowhere with an identity."),
        ([*CLIENT, "--identity", "pki"], "pki is an authority, not an identity"),
        ([*CLIENT, "--identity", "pki/server"], "pki/server holds the identity of a server"),
        ([*CLIENT, *NORTH, "--data", "nowhere.csv"], "There is no file or folder nowhere.csv"),
        ([*CLIENT, *NORTH, "--text", "body"], "no column 'body'"),
        ([*CLIENT, *NORTH, "--policy", "nowhere.toml"], "The policy nowhere.toml cannot be used"),
        ([*CLIENT, *NORTH, "--policy", "policy.toml"], "there is no key 'min_document'"),
        ([*CLIENT, *NORTH, "--out", "north.csv"], "north.csv is a file; name a folder with --out."),
        (["doctor"], "Missing option '--server'."),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SERVER, "--insecure"], "works on this machine alone, not with 0.0.0.0; leave it out"),
        ([*SERVER, "--insecure", "--listen", "10.0.0.7:1"], "alone, not with 10.0.0.7; leave it"),
        ([*SERVER, "--pki", "pki", "--listen", "here:there"], "'here:there' is no address; write"),
        ([*SERVER, "--pki", "pki", "--listen", "203.0.113.9:7557"], "cannot listen on 203.0.113.9"),
        ([*CLIENT, *INSECURE, "--server", "10.0.0.7:1"], "alone, not with 10.0.0.7; leave it out"),
        ([*CLIENT, *INSECURE, "--server", "example.org"], "alone, not with example.org; leave it"),
        (
            [*CLIENT, *INSECURE, "--dry-run", "--wait", "1"],
            "localhost:1 does not answer; find out why with: fed",
        ),
        ([*CLIENT, *NORTH, "--server", "a:b"], "'a:b' is no address; write HOST:PORT"),
        (["doctor", *NORTH, "--server", "localhost:1"], "This client cannot take part yet; see"),
    ],
)
def test_what_cannot_federate(arguments: list[str], message: str, typed: Typed) -> None:
    code, _, err = typed(*arguments)
    assert code == 4
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


def test_an_ended_certificate(typed: Typed) -> None:
    pki.issue("pki", "north", days=0, renew=True)
    code, _, err = typed(*CLIENT, *NORTH)
    assert code == 2
    assert re.search(r'Certificate of client "north" ended on [\d-]+\. Renew it with: fed', err)
    code, out, err = typed("doctor", *NORTH, "--server", "localhost:1")
    assert code == 4
    assert out.startswith('FAIL certificate  Certificate of client "north" ended on')
    assert out.count("\n") == 1


@pytest.mark.parametrize("command", ["server", "client", "doctor"])
def test_help(command: str, typed: Typed) -> None:
    code, out, _ = typed(command, "--help")
    assert code == 0
    assert out.startswith("Usage: ")
    assert f" {command} [OPTIONS]" in out
    options = {
        "server": {"--pki", "--listen", "--out", "--resume", "--go-on", "--start", "--vocabulary",
                   "--track", "--metrics", "--insecure", "--json"},
        "client": {"--server", "--identity", "--data", "--text", "--tokens", "--id", "--embedding",
                   "--author", "--embedding-model", "--policy", "--out", "--round", "--follow",
                   "--dry-run", "--start", "--name", "--insecure", "--secret-from-seed", "--time",
                   "--wait", "--metrics", "--json", "--rules"},
        "doctor": {"--server", "--identity", "--data", "--text", "--tokens", "--embedding",
                   "--author", "--time", "--policy", "--json", "--rules"},
    }  # fmt: skip
    assert (
        set(re.findall(r"^  (?:-h, )?(--[\w-]+)", out, re.MULTILINE)) - {"--help"}
        == (options[command])
    )


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


def test_a_policy_forbids(folder: Path, typed: Typed) -> None:
    (folder / "policy.toml").write_text("max_rounds = 5\n")
    with offering(NAMES, proposal=proposal(folder)) as f:
        address = ["--server", f"{HOST}:{f.hub.port}", *INSECURE, "--data", "north.csv"]
        code, out, err = typed("client", *address, "--policy", "policy.toml")
        assert code == 3
        assert err == (
            "fedtopics: The study asks for 6 rounds, the policy of client 'north' allows 5; "
            "nothing has left. Lower the study's max_rounds or raise that of the policy.\n"
        )
        assert "What it asks for" in out, "first it shows the offer"
        code, _, err = typed("client", *address, "--policy", "policy.toml", "--dry-run")
        assert code == 3


def test_a_dry_run(folder: Path, typed: Typed) -> None:
    with offering(NAMES, proposal=proposal(folder)) as f:
        address = ["--server", f"{HOST}:{f.hub.port}", *INSECURE, "--data", "north.csv"]
        code, out, _ = typed("client", *address, "--dry-run")
        assert code == 0
        assert "north: 41 documents, 1 of them empty; they stay." in out
        assert (
            f"The server's study {proposal(folder).fingerprint[:16]}: gfedntm with prodlda" in out
        )
        for function in ("vocabulary", "counted", "forward", "loss", "backward", "shares", "pairs"):
            assert function in out
        assert "twice a round" in out
        assert "the policy allows this; nothing has left" in out
        assert "bytes, of 41 documents whose texts have" in " ".join(out.split())
        assert "Can others learn which words a single document has? Yes, " in out
        code, out, _ = typed("client", *address, "--dry-run", "--json")
        events = [json.loads(line) for line in out.splitlines()]
        assert [event["event"] for event in events] == ["offer", "allowed"]
        assert events[0]["study"] == json.loads(json.dumps(proposal(folder).study))
        assert events[1]["exposure"]["documents"] == 41
        assert not f.node.members["north"].link
        Path("taken").write_text("")
        assert typed("client", *address, "--dry-run", "--out", "taken")[0] == 0
    assert not (folder / "runs").exists()


def test_doctor_looks_for_times(folder: Path, typed: Typed) -> None:
    periods = '[method.over_time]\nperiod = "year"\nbegin = 2020-01-01\nend = 2024-01-01\n'
    (folder / "study.toml").write_text(STUDY + periods)
    text = (folder / "north.csv").read_text().replace("\n", ",2021-02-03\n")
    (folder / "dated.csv").write_text(text.replace("2021-02-03", "on", 1))
    given = of_server(folder / "pki")
    with offering(NAMES, credentials=given, proposal=proposal(folder)) as f:
        to = ["doctor", "--server", f"localhost:{f.hub.port}", *NORTH, "--data", "dated.csv"]
        code, out, _ = typed(*to)
        assert code == 4
        assert "name the column with --time" in " ".join(out.split())
        code, out, _ = typed(*to, "--time", "on")
        assert (code, out.splitlines()[7].split()[:2]) == (0, ["ok", "policy"])


def test_doctor(folder: Path, typed: Typed) -> None:
    given = of_server(folder / "pki")
    with offering(NAMES, credentials=given, proposal=proposal(folder)) as f:
        code, out, err = typed("doctor", "--server", f"localhost:{f.hub.port}", *NORTH)
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert [line[:4] for line in lines[:8]] == ["ok  "] * 7 + ["What"]
        checks = ["certificate", "reachable", "TLS", "versions", "clock", "study", "masks"]
        assert [line.split()[1] for line in lines[:7]] == checks
        assert "Can others learn whether a document was there? Yes, better than by" in out
        code, out, _ = typed("doctor", "--server", f"localhost:{f.hub.port}", *NORTH, "--json")
        assert code == 0
        found = json.loads(out)
        assert [row["check"] for row in found] == checks
        assert all(row["fine"] for row in found)
        assert found[-1]["exposure"]["exchanges"][0]["function"] == "size"
        to = ["doctor", "--server", f"localhost:{f.hub.port}", *NORTH, "--data", "north.csv"]
        code, out, _ = typed(*to)
        assert (code, out.splitlines()[7].split()[:2]) == (0, ["ok", "policy"])
        Path("policy.toml").write_text("min_clients_in_sum = 9\n")
        code, out, _ = typed(*to, "--policy", "policy.toml")
        assert code == 4
        assert "FAIL policy       The policy of client 'north' asks for sums over at least 9" in out
        code, out, err = typed(
            "doctor", "--server", f"{HOST}:{f.hub.port}", "--identity", "pki/server"
        )
        assert code == 4
        assert "FAIL certificate  pki/server holds the identity of a server" in out
        code, out, _ = typed(
            "doctor",
            "--server",
            f"{HOST}:{f.hub.port}",
            "--identity",
            "other/clients/north",
            "--json",
        )
        assert code == 4
        found = json.loads(out)
        assert (found[-1]["check"], found[-1]["fine"]) == ("TLS", False)


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
        assert f"{name}: 41 documents, 1 of them empty; they stay." in heard
        assert f"{name}: joined study {Study.read('study.toml').fingerprint[:16]}" in heard
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


@pytest.mark.parametrize(("loss", "shown"), [({"loss": 7.5}, ", loss 7.50"), ({}, "")])
def test_the_server_shows_rounds_with_and_without_a_loss(
    loss: dict[str, float], shown: str
) -> None:
    with members.console.capture() as captured, members.ServerNews() as news:
        news({"event": "training", "done": 0, "rounds": 1})
        news(
            {
                "event": "round",
                "round": 1,
                "clients": ["a"],
                "missing": {},
                "seconds": 1.0,
                "documents": 3,
            }
            | loss
        )
    assert captured.get() == f"round 1 of 1{shown}\n"
