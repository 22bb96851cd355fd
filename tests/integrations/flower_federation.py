"""A Flower federation: a grid in this process, and processes as in docs/how-to/flower.md."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedtopics import Policy, Study, TopicModel, train
from fedtopics.federation.study_tables import ClientData
from fedtopics.protocol.roster import Key
from tests.helpers.grpc_federation import federated
from tests.helpers.services import free_port
from tests.helpers.streams import THEMES

DOCUMENT = (Path(__file__).parents[2] / "docs/how-to/flower.md").read_text(encoding="utf-8")
NAMES = ("north", "south", "west")
DIMENSION = 6
PATIENCE = 600.0  # seconds; a message takes three at least, and twenty on a machine that is busy
POLICY = Policy(min_persons=10)

METHODS = {
    "gfedntm": """
name = "gfedntm"
n_components = 3
norm = "server"
optimizer = "fedadam"
local_steps = 5
max_rounds = 2
hidden = [8, 8]
batch_size = 16""",
    "lda": """
name = "lda"
n_components = 3
max_rounds = 2""",
    "fstc": f"""
name = "fstc"
n_components = 3
max_rounds = 2
network = {{local_steps = 5, batch_size = 20, hidden = 8}}
first_labels = "kmeans"
start = {{tries = 2, rounds = 2}}
transports = 5
coherence = "nothing"
embedding.dimension = {DIMENSION}""",
    "flda": """
name = "flda"
n_components = 3
spare_topics = 0
n_words = 12
iterations = 60
min_new_documents = 20
documents_per_round = 30
max_rounds = 2
coherence = "nothing"
""",
}


def write_documents(folder: Path) -> None:
    """A file for each client: texts of a theme each and of the client's own words; embeddings."""
    rng = np.random.default_rng(0)
    themes = list(THEMES.values())[:3]
    for name in NAMES:
        private_words = [f"{name}{i}" for i in range(5)]
        texts = [
            " ".join([*rng.choice(themes[rng.integers(3)], 10), *rng.choice(private_words, 2)])
            for _ in range(60)
        ]
        vectors = rng.normal(size=(60, DIMENSION)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        pq.write_table(
            pa.table({"text": texts, "embedding": list(vectors)}), folder / f"{name}.parquet"
        )


def study_text(
    method: str, name: str, aggregation: str = "plain", keys: Path = Path(), **federation: Any
) -> str:
    """A study of those documents, by members whose certificates are in a folder."""
    patience = dict.fromkeys(("join_timeout", "quorum_timeout", "round_timeout"), PATIENCE)
    patience |= {"quorum": 3}
    rules = "\n".join(f"{key} = {value}" for key, value in (patience | federation).items())
    rules = f"{rules}\noutliers = 'none'" if aggregation == "plain" else ""
    clients = "".join(f"[clients.{n}]\ncertificate = '{keys / n}.pem'\n" for n in NAMES)
    return (
        f'name = "{name}"\naggregation = "{aggregation}"\n[method]\n{METHODS[method]}\n'
        f"[vocabulary]\nmin_persons_per_word = 5\n[federation]\n{rules}\n{clients}"
    )


def expected(plan: Study, documents: Path, out: Path) -> tuple[TopicModel, Path]:
    """The same study without Flower: its model, and the folder of its clients' folders."""
    if plan.is_secure:
        corpora = {name: ClientData(**columns(documents, name)).read(name) for name in NAMES}
        return federated(
            plan, corpora, out, POLICY, keys={name: Key.load(documents / name) for name in NAMES}
        ).model, out
    whole = Study.make(
        **{**plan.model_dump(), "clients": {name: columns(documents, name) for name in NAMES}}
    )
    return train(whole, out=out, policies=dict.fromkeys(NAMES, POLICY)), out / "clients"


def columns(documents: Path, name: str) -> dict[str, Any]:
    """A client's table in a study."""
    return {"data": documents / f"{name}.parquet", "text": "text", "embedding": "embedding"}


def documented() -> tuple[dict[str, str], list[str]]:
    """The walk-through's files by name, and its commands."""
    walk = DOCUMENT.partition("## From an empty folder")[2].partition("\n## ")[0]
    files = re.findall(r'```(?:toml|ini) title="(.*?)"\n(.*?)```', walk, re.DOTALL)
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", walk, re.DOTALL))
    return dict(files), [line for line in shell.replace("\\\n", " ").splitlines() if line.strip()]


class Machine:
    """A folder with processes of Flower, all of which end with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {port: str(free_port()) for port in ("8000", "9094", "9095", "9096")}
        self.environment = os.environ | {
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def adapted(self, text: str) -> str:
        """A command or a file with ports that are free here, on this machine alone."""
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        return text.replace("0.0.0.0", "127.0.0.1")  # noqa: S104

    def run(self, command: str) -> str:
        """Run a command of a shell; return what it says."""
        done = subprocess.run(
            ["/bin/sh", "-c", self.adapted(command)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            timeout=PATIENCE,
            text=True,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{said}"
        return said

    def start(self, name: str, command: str, awaited: str) -> None:
        """Start a process that stays, and wait until its log says so."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            self._processes[name] = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self.adapted(command)}"],
                cwd=self.folder,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.wait(lambda: awaited in log.read_text(), f"{name} to say {awaited!r}")

    def wait(self, done: Any, what: str) -> None:
        """Wait for something."""
        ends = time.monotonic() + PATIENCE
        while not done():
            logs = {path.name: path.read_text()[-2000:] for path in self.folder.glob("*.log")}
            assert time.monotonic() < ends, f"waited in vain for {what}: {logs}"
            time.sleep(0.5)

    def kill(self, name: str) -> None:
        """End a process at once, with those that it began and our own one beside it."""
        process = self._processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for note in self.folder.rglob("resident_process.json"):
            if f"at-{name}" in str(note):
                with suppress(OSError, ValueError):
                    os.kill(json.loads(note.read_text())["process"], signal.SIGKILL)
                    note.unlink()

    def end(self) -> None:
        """End everything, also what Flower began by itself: it has this machine's environment."""
        for name in reversed(list(self._processes)):
            self.kill(name)
        mine = f"FLWR_HOME={self.environment['FLWR_HOME']}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mine in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)

    def begin(self, name: str, text: str) -> str:
        """Write a study, make its app, begin its run; return the run's id."""
        (self.folder / f"{name}.toml").write_text(text)
        self.run(f"fedtopics init flower app-{name} --study {name}.toml")
        said = self.run(f"flwr run app-{name} ours --format json")
        return str(json.loads(said[said.index("{") : said.rindex("}") + 1])["run-id"])

    def state(self, run: str) -> str:
        """What Flower says of a run."""
        said = self.run(f"flwr list --run-id {run} ours --format json")
        return str(json.loads(said[said.index("{") : said.rindex("}") + 1])["runs"][0]["status"])

    def finish(self, run: str) -> str:
        """Wait until a run is over; return how it ended."""
        states = [""]

        def over() -> bool:
            time.sleep(2)  # each look is a process
            states[0] = self.state(run)
            return states[0].startswith("finished")

        self.wait(over, f"run {run} to end")
        return states[0]

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        """Events of a run's folder."""
        path = self.folder / "runs" / name / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]


class FakeGrid:
    """A Grid whose SuperNodes answer in this process, each in a thread; some may be deaf."""

    def __init__(self, app: Any, nodes: Mapping[int, Mapping[str, Any]], **config: Any) -> None:
        from flwr.app import Context, RecordDict
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.run_id = 7
        TaskIdentity.node_id = 1
        TaskIdentity.task_id = 1
        self._app = app
        self._contexts = {
            node: Context(7, node, dict(given), RecordDict(), dict(config), 7)
            for node, given in nodes.items()
        }
        self._answers: dict[str, Any] = {}
        self._ids = count(1)
        self.deaf: set[int] = set()
        self._pool = ThreadPoolExecutor(len(nodes))
        self.reasons: list[str] = []

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=n, last_activated_at="at first") for n in self._contexts]

    def push_messages(self, messages: Any) -> list[str | None]:
        ids: list[str | None] = []
        for message in messages:
            node = message.metadata.dst_node_id
            if node in self.deaf:
                ids.append(None)
                continue
            number = str(next(self._ids))
            message.metadata.__dict__["_message_id"] = number
            self._pool.submit(self._ask, number, message, node)
            ids.append(number)
        return ids

    def _ask(self, number: str, message: Any, node: int) -> None:
        self._answers[number] = self._app(message, self._contexts[node])

    def pull_messages(self, message_ids: Any) -> list[Any]:
        answers = [self._answers.pop(number) for number in message_ids if number in self._answers]
        self.reasons += [message.error.reason for message in answers if message.has_error()]
        return answers
