"""All that computes no network works where torch is not installed, and the rest says what to do.

Everything here runs in processes of its own, in which torch cannot be imported.
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.cli import app
from fedtopics.methods.registry import METHODS
from tests.helpers.models import with_network
from tests.helpers.services import free_port

BLOCKED = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        missing = name.partition(".")[0] in ("torch", "networkx", "sympy")  # two come with torch
        return None if missing else super().find_spec(name, path, target)

sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""
TYPE_IN = """
import json
from fedtopics.cli import main

codes = []
for arguments in json.loads(sys.stdin.read()):
    sys.argv = ["fedtopics", *arguments]
    try:
        main()
    except SystemExit as ended:
        codes.append(ended.code)
print(json.dumps(codes))
"""
TRAIN = """
import json
import numpy as np
from fedtopics import Columns, Corpus, Study, TopicModel, train

columns = Columns(embedding="embedding")
corpora = {name: Corpus.read(f"{name}.jsonl", columns) for name in ("north", "south")}
for name, settings in json.loads(sys.stdin.read()).items():
    study = Study.make(method={"name": name, **settings}, clients=dict.fromkeys(corpora, {}))
    model = train(study, corpora)
    theta = model.transform(corpora["north"])
    back = TopicModel.from_pretrained(model.save_pretrained(f"models/{name}"))
    np.testing.assert_array_equal(back.transform(corpora["north"]), theta)
    np.testing.assert_allclose(theta.sum(1), 1, rtol=1e-5)
    print(name, *theta.shape)
"""
SMALL: dict[str, Any] = {"n_components": 3, "max_rounds": 3, "coherence": "nothing"}
EMBEDDED = {**SMALL, "embedding": {"dimension": 4}}
WITHOUT: dict[str, dict[str, Any]] = {
    "lda": SMALL,
    "nmf": SMALL,
    "flda": {**SMALL, "min_new_documents": 5},
    "mixture": EMBEDDED,
    "kmeans": EMBEDDED,
    "discriminative": EMBEDDED,
}
NETWORKS = {"gfedntm", "fstc", "fsccl"}
STUDY = """
name = "s"
[method]
name = "nmf"
n_components = 3
max_rounds = 3
[vocabulary]
min_persons_per_word = 2
[clients.north]
data = "north.jsonl"
[clients.south]
data = "south.jsonl"
"""


def python(folder: Path, code: str, given: str = "", *arguments: str) -> str:
    """What a program prints; it has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + code, *arguments],
        cwd=folder,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("without")
    rng = np.random.default_rng(0)
    words = np.array(["oak", "elm", "fir", "ash", "ketch", "sloop", "yawl", "brig"]).reshape(2, 4)
    for name in ("north", "south"):
        lines = []
        for number in range(300):  # as whoever adds sees replies of two clients
            kind = number % 2
            vector = np.eye(4)[kind] + rng.normal(0, 0.1, 4)
            row = {"text": " ".join(rng.choice(words[kind], 9)), "embedding": vector.tolist()}
            lines.append(json.dumps(row) + "\n")
        (path / f"{name}.jsonl").write_text("".join(lines))
    (path / "study.toml").write_text(STUDY)
    (path / "terms.toml").write_text('A = ["word"]')
    (path / "policy.toml").write_text("max_epsilon = 8\nmemory = 'memory'\n")
    (path / "single.toml").write_text(STUDY.partition("[clients.south]")[0])
    (path / "network.toml").write_text(STUDY.replace('"nmf"', '"gfedntm"'))
    return path


def test_every_method_but_those_with_networks_trains_and_is_read(folder: Path) -> None:
    assert set(METHODS.names) - NETWORKS == set(WITHOUT)
    assert python(folder, TRAIN, json.dumps(WITHOUT)).splitlines() == [
        f"{name} 300 3" for name in WITHOUT
    ]


TYPED = [
    ["demo", "--clients", "2", "--topics", "3", "--rounds", "1"],
    ["train", "study.toml", "--out", "run"],
    ["report", "run"],
    ["topics", "run/model"],
    ["transform", "run/model", "north.jsonl", "-o", "theta.parquet"],
    ["evaluate", "run/model", "--data", "north.jsonl"],
    ["audit", "log", "run"],
    ["check", "study.toml"],
    ["audit", "attack", "study.toml", "--data", "north.jsonl", "--shadow-models", "4"],
    ["audit", "budget", "policy.toml"],
    ["audit", "verify", "run"],
    ["audit", "dpia", "run", "-o", "dpia.html"],
    ["audit", "dossier", "run", "--data", "north.jsonl", "-o", "dossier.html"],
    ["train", "study.toml", "--from", "run/model", "--rounds", "1"],
    ["models", "compare", "run/model", "run/model"],
    ["status", "run"],
    ["train", "single.toml", "--out", "single"],
    ["models", "merge", "run", "east=single", "-o", "merged"],
    ["topics", "run/model", "--match", "terms.toml"],
    ["sweep", "study.toml", "--topics", "2,3", "--seeds", "1"],
    ["key", "create", "server", "north", "south", "--out", "keys"],
    ["init", "study", "new.toml"],
]
ELSEWHERE = {"serve", "join", "step", "approve", "flda"}  # with other machines, or of an extra


def test_every_command_of_one_machine_works(folder: Path) -> None:
    assert {command for command, *_ in TYPED} == {*app.list_commands(None)} - ELSEWHERE
    codes = json.loads(python(folder, TYPE_IN, json.dumps(TYPED)).splitlines()[-1])
    assert dict(zip(map(" ".join, TYPED), codes, strict=True)) == {
        " ".join(arguments): 0 for arguments in TYPED
    }
    assert (folder / "run/report.html").is_file()


@pytest.mark.parametrize("kind", ["plain", "secure"])
def test_server_and_members_train_without_it(kind: str, folder: Path) -> None:
    """A member runs the server; of a secure study it is a relay."""
    keys = [["key", "create", "server", "north", "south", "--out", kind]]
    assert json.loads(python(folder, TYPE_IN, json.dumps(keys)).splitlines()[-1]) == [0]
    study = STUDY.partition("[clients")[0] + f'\n[server]\naddress = "localhost:{free_port()}"\n'
    study += f'certificate = "{kind}/server.pem"\n'
    for name in ("north", "south"):
        study += f'[clients.{name}]\ncertificate = "{kind}/{name}.pem"\n'
    (folder / f"{kind}.toml").write_text(f'aggregation = "{kind}"\n{study}')
    (folder / "two.toml").write_text("min_clients_in_sum = 2\nmin_persons = 10\n")
    command = [sys.executable, "-c", BLOCKED + "from fedtopics.cli import main\nmain()"]
    with ExitStack() as stack:

        def begin(*arguments: str) -> subprocess.Popen[str]:
            """Begin a command, which is killed at the end if it is still there."""
            output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            process = subprocess.Popen([*command, *arguments], cwd=folder, text=True, **output)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        server = begin("serve", f"{kind}.toml", "--key", f"{kind}/server", "--out", f"{kind}-run")
        members = [
            begin(
                "join",
                f"{kind}.toml",
                "--key",
                f"{kind}/{name}",
                "--data",
                f"{name}.jsonl",
                "--policy",
                "two.toml",
                "--out",
                f"{kind}-{name}",
            )
            for name in ("north", "south")
        ]
        said = [process.communicate(timeout=120)[0][-500:] for process in (*members, server)]
        assert [process.returncode for process in (*members, server)] == [0, 0, 0], said


def test_what_needs_it_says_what_to_install(folder: Path) -> None:
    typed = [
        (["train", "network.toml"], "The method 'gfedntm'"),
        (["demo", "--method", "prodlda"], "The method 'gfedntm'"),
        (["topics", "network"], "The network 'prodlda'"),
    ]
    with_network().save_pretrained(folder / "network")
    for arguments, what in typed:
        done = subprocess.run(
            [sys.executable, "-c", BLOCKED + "from fedtopics.cli import main\nmain()", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 1
        assert done.stderr == (
            f"error: {what} needs the package torch, which is not installed.\n"
            "hint: install it with: pip install 'fedtopics[neural]'\n"
        )
