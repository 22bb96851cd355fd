"""Commands for data stewards: what would leave, what attacks find, what was spent."""

import json
from pathlib import Path

import pytest

from fedtopics import Corpus, Study, train
from fedtopics.federation.memory import changed_memory
from fedtopics.privacy import Privacy
from fedtopics.privacy.accounting import Account
from fedtopics.protocol.roster import Key
from tests.helpers.command_line import Done, Refused, Typed

STUDY = """
aggregation = "plain"
[method]
name = "lda"
n_components = 3
max_rounds = 4
coherence = "nothing"
[vocabulary]
min_persons_per_word = 1
[clients.north]
[clients.south]
[clients.west]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "documents").mkdir()
    for number in range(140):
        words = ("river lake water" if number % 2 else "bread oven flour").split()
        text = " ".join(words[(number + i) % 3] for i in range(number % 5 + 2))
        (tmp_path / "documents" / f"{number:03}.txt").write_text(text)
    return tmp_path / "study.toml"


def test_what_would_leave(typed: Typed, refused: Refused, done: Done, study: Path) -> None:
    code, out, _ = typed("check", study, "--data", study.parent / "documents")
    assert code == 3, "plain aggregation is for more documents, by default"
    assert "words with their counts the server 1" in " ".join(out.split())
    for path in sorted((study.parent / "documents").iterdir())[:10]:
        path.write_text(f"{path.read_text()} seldom")
    policy = study.parent / "own.toml"
    policy.write_text("min_persons = 100\nmin_persons_per_word = 30\n")
    checks = "check", study, "--data", study.parent / "documents", "--policy", policy
    said = " ".join(done(*checks).split())
    assert "Words: 6 occur in enough" in said
    assert "A sum over all documents is of 140 documents of this client. From one member" in said
    policy.write_text("min_persons = 100\nmin_persons_per_word = 5\n")
    assert "Words: 7 occur in enough" in done(*checks)
    policy.write_text("min_persons = 100\nmin_persons_per_word = 141\n")
    assert "No word is in the documents of 141" in refused(*checks)
    checked = json.loads(typed("check", study, "--json")[1])
    assert checked["exposure"]["documents"] is None
    assert checked["aggregation"] == "plain"
    assert checked["exposure"]["adversaries"]["The server"].startswith("every update of every")


def test_attacks_on_ones_own_documents(done: Done, study: Path) -> None:
    written = study.parent / "audit.json"
    data = study.parent / "documents"
    names = ("north", "south", "west")
    for name in names:
        Key.create(study.parent / name, name)
    certified = "".join(f'[clients.{name}]\ncertificate = "{name}.pem"\n' for name in names)
    study.write_text(STUDY.partition("[clients")[0] + certified)
    attack = ("audit", "attack", study, "--data", data, "--shadow-models", 4)
    out = done(*attack, "-o", written)
    attack_result = json.loads(written.read_text())
    assert (attack_result["shadows"], attack_result["documents"]) == (4, 4 * 140)
    assert f"AUC of {attack_result['auc']:.3f} (.500 by chance)" in " ".join(out.split())


def test_attacks_on_the_study_of_a_run(done: Done, study: Path) -> None:
    plan = Study.read(study)
    corpus = Corpus.read(study.parent / "documents")
    train(plan, dict.fromkeys(plan.clients, corpus), out=study.parent / "run")
    out = done(
        "audit",
        "attack",
        study.parent / "run",
        "--data",
        study.parent / "documents",
        "--shadow-models",
        4,
        "--json",
    )
    assert json.loads(out)["study"] == plan.fingerprint


def test_what_was_spent(refused: Refused, done: Done, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('max_epsilon = 4\nmemory = "memory"\n')
    account = Account().charged("north", "abc", "run", Privacy(epsilon=3), 4)
    with changed_memory(tmp_path / "memory") as memory:
        memory.header.account = [*account.entries]
    assert "epsilon 3 at delta 1e-06; the policy allows 4" in " ".join(
        done("audit", "budget", policy).split()
    )
    assert json.loads(done("audit", "budget", policy, "--json"))["delta"] == 1e-6
    policy.write_text("max_epsilon = 4\n")
    assert "add --key" in refused("audit", "budget", policy)
    policy.write_text("")
    assert "has no max_epsilon" in refused("audit", "budget", policy)
