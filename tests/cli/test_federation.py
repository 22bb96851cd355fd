"""What a user types to federate, right and wrong: one sentence and the documented exit code."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedtopics import Study, cli
from fedtopics.files import hold
from fedtopics.protocol.roster import Key
from tests.helpers.background import Background, until
from tests.helpers.command_line import Done, Refused, Typed
from tests.helpers.services import free_port

NAMES = ("east", "north", "south")
READ = (
    "41 documents (each a person of its own; 1 of them empty) from column 'text' of north.csv, "
    'separated by ","; they stay here. The first ones have 8, 8, 8 words'
)


def study_text(port: int, kind: str = "secure") -> str:
    text = f'''
aggregation = "{kind}"
[method]
name = "gfedntm"
n_components = 3
max_rounds = 6
[vocabulary]
min_clients_per_word = 1
[federation]
join_timeout = 20
[server]
address = "localhost:{port}"
certificate = "server.pem"
'''
    return text + "".join(f'[clients.{n}]\ncertificate = "{n}.pem"\n' for n in NAMES)


@pytest.fixture
def folder(here: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in NAMES:
        words = np.array([f"{name}{chr(97 + i)}" for i in range(26)])
        rows = [f"{i},{' '.join(rng.choice(words, 8))}\n" for i in range(40)]
        (here / f"{name}.csv").write_text("id,text\n" + "".join(rows) + "40,\n")
    for name in (*NAMES, "server", "stranger"):
        Key.create(here / name, name)
    (here / "study.toml").write_text(study_text(free_port()))
    return here


SERVE = ["serve", "study.toml"]
JOIN = ["join", "study.toml", "--key", "north", "--data", "north.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve"], "Missing argument 'STUDY'."),
        (SERVE, "Missing option '--key'."),
        (["serve", "nowhere.toml", "--key", "server"], "cannot be used: there is no such file"),
        ([*SERVE, "--key", "nowhere"], "nowhere has no key, or a damaged one; make one with"),
        ([*SERVE, "--key", "north"], "The certificate of 'north' is not the one that the study"),
        ([*SERVE, "--key", "server", "--listen", "here"], "'here' is not an address; write HOST:"),
        (
            ["serve", "empty.toml", "--key", "server"],
            "The study has no certificates, so it cannot be",
        ),
        (["join", "study.toml"], "Missing option '--key'."),
        (JOIN[:4], "Only an observer can join without documents"),
        (
            [*JOIN, "--key", "stranger"],
            "does not contain the certificate of this key (stranger), but",
        ),
        ([*JOIN, "--data", "nowhere.csv"], "There is no file or folder nowhere.csv"),
        ([*JOIN, "--policy", "policy.toml"], "there is no key 'min_document'"),
        ([*JOIN, "--out", "north.csv"], "north.csv is a file; name a folder with --out."),
        (["check", "study.toml", "--policy", "p.toml"], "need --data"),
        (["check", "study.toml", "--key", "nowhere"], "nowhere has no key, or a damaged one"),
    ],
)
def test_wrong_input(arguments: list[str], message: str, folder: Path, refused: Refused) -> None:
    (folder / "empty.toml").write_text("[method]\nn_components = 3\n[clients.a]\n[clients.b]\n")
    (folder / "policy.toml").write_text("min_document = 3\n")
    assert message in " ".join(refused(*arguments).split())


def test_a_member_without_a_server_says_so_and_ends(
    folder: Path, typed: Typed, refused: Refused
) -> None:
    code, out, err = typed(*JOIN, "--timeout", 1, "--out", "run")
    assert code == 4
    assert ": Connection refused; trying again in" in out
    assert "The server did not answer for 1 seconds: cannot reach" in err
    ledger = folder / "run/ledger.jsonl"
    (lock,) = folder.glob("run/**/lock")
    before = ledger.read_bytes()
    with hold(lock.parent):
        assert "Another process uses" in refused(*JOIN, "--timeout", 1, "--out", "run")
    assert ledger.read_bytes() == before
    code, _, err = typed("check", "study.toml", "--key", "north")
    assert code == 4
    assert "cannot reach" in err


def test_a_dry_run_and_a_check(folder: Path, done: Done, refused: Refused) -> None:
    said = " ".join(done(*JOIN, "--dry-run").split())
    for sentence in (
        f"north: {READ}",
        "gfedntm with prodlda, 3 topics",
        "The relay: the members' names, which functions run, sizes, times, restarts",
        "the policy allows this study; nothing was sent",
        "In all at most ",
        "A sum over a minibatch is of 4",
    ):
        assert sentence in said
    assert not (folder / "runs").exists()
    events = [json.loads(line) for line in done(*JOIN, "--dry-run", "--json").splitlines()]
    assert [event["event"] for event in events] == ["documents", "offer", "memory", "allowed"]
    assert events[3]["exposure"]["documents"] == 41
    (folder / "rare.toml").write_text("min_persons_per_word = 30\n")
    assert "No word is in the documents of 30" in refused(
        *JOIN, "--dry-run", "--policy", "rare.toml"
    )
    out = done("check", "study.toml", "--data", "north.csv", "--words", "words.csv")
    words = [line.split(",") for line in (folder / "words.csv").read_text().splitlines()[1:]]
    numbers = [int(documents) for _, documents, _ in words]
    assert numbers == [int(persons) for *_, persons in words]
    assert {word.strip('"') for word, *_ in words} == {f"north{chr(97 + i)}" for i in range(26)}
    assert numbers == sorted(numbers)
    assert 5 <= numbers[0] < numbers[-1] < 41
    said = " ".join(out.split())
    assert Study.read("study.toml").fingerprint in said
    for words in (
        "The relay: the members'",
        "All 2 other members together",
        "What others could learn",
    ):
        assert words in said


def typed_beside(arguments: list[object]) -> Background:
    return Background(
        lambda: cli.app([str(argument) for argument in arguments], standalone_mode=False)
    )


@pytest.mark.parametrize("kind", ["secure", "plain", "hosted"])
def test_a_federation(
    kind: str, folder: Path, typed: Typed, done: Done, capsys: pytest.CaptureFixture[str]
) -> None:
    text = study_text(free_port(), "plain" if kind == "plain" else "secure")
    if kind == "hosted":
        text = text.replace('certificate = "server.pem"', 'host = "south"')
    (folder / "study.toml").write_text(text)
    (folder / "open.toml").write_text("min_persons = 10\n")
    server = []
    if kind != "hosted":
        server = [typed_beside([*SERVE, "--key", "server"])]
    members = [
        typed_beside(
            ["join", "study.toml", "--key", name, "--data", f"{name}.csv", "--out", f"at-{name}"]
            + (["--policy", "open.toml"] if kind == "plain" else [])
            + (["--host"] if (kind, name) == ("hosted", "south") else [])
        )
        for name in NAMES
    ]
    for process in (*members, *server):
        until(lambda process=process: not process.running, 90.0)  # whole processes' work, in one
        process.result()
    heard = " ".join(capsys.readouterr().out.split())
    assert re.search(r"listen(ing|s) on 0\.0\.0\.0:\d+", heard)
    fingerprint = Study.read("study.toml").fingerprint
    for name in NAMES:
        assert f"{name}: {READ.replace('north', name)}" in heard
        assert f"{name}: joined study {fingerprint:.16}" in heard
        assert pq.read_table(f"at-{name}/theta.parquet").num_rows == 41
        assert (folder / f"at-{name}/report.html").exists()
    status = json.loads(typed("status", "at-north", "--json")[1])
    assert (status["state"], status["running"], status["round"]) == ("finished", False, 6)
    assert len(status["topics"]) == 3
    assert (folder / "runs/study/model").exists() == (kind == "plain")
    rows = json.loads(done("topics", "at-north/model", "--json", "--words", 3))
    assert {name for row in rows for name in row["clients"]} == set(NAMES)
    assert ("*: with secure aggregation" in done("audit", "log", "at-north")) == (kind != "plain")
    assert typed("audit", "verify", "at-north", "--certificate", "north.pem")[0] == 0
