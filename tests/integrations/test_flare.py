"""Studies through NVIDIA FLARE: its simulator, and a system of processes on this machine.

Skipped without nvflare, unless FEDTOPICS_ENGINE is "flare".
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fedtopics import Policy, Study, TopicModel
from fedtopics.errors import FederationError, FedTopicsError, RunError, StudyError
from fedtopics.federation.participant import SIGNED
from tests.helpers.command_line import one_line
from tests.helpers.federation import assert_same_bits
from tests.helpers.grpc_federation import federated
from tests.integrations.flare_studies import (
    METHODS,
    NETWORK,
    assert_as_here,
    fedtopics,
    make_study,
    write_documents,
    written,
)

try:
    import nvflare  # noqa: F401
except ImportError:
    if os.environ.get("FEDTOPICS_ENGINE") == "flare":
        raise
    pytest.skip("nvflare is missing: make test SUITE=flare", allow_module_level=True)

from fedtopics.integrations.carrier import Calls, Results
from fedtopics.integrations.flare import (
    FAILURE,
    SITE_FILE,
    StudyServer,
    StudySite,
    make_study_job,
    site_settings,
)
from fedtopics.integrations.flare_carrier import FlareCarrier, JobContext
from fedtopics.integrations.flare_jobs import ALLOWED, allow
from fedtopics.protocol.keys import framed
from fedtopics.protocol.messages import decode, encode
from fedtopics.protocol.roster import Key

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/flare.md").read_text(encoding="utf-8")
PORTS = (8002, 8003)  # of FLARE's proof of concept
PATIENCE = 180.0
SITES = "north", "south", "west"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_documents(tmp_path_factory.mktemp("documents"))


@pytest.fixture(autouse=True)
def _keys_of_no_study(documents: dict[str, Path]) -> None:
    """Tests share keys, and each has memories of its own: the keys forget earlier studies too."""
    for signed in documents["north"].parent.rglob(SIGNED):
        signed.unlink()


class Context:
    """What a server's main function knows of its sites."""

    def __init__(self, **sites: Callable[[bytes], bytes | None]) -> None:
        self.clients = [Proxy(name, answer) for name, answer in sites.items()]
        self.aborted = False

    def is_aborted(self) -> bool:
        return self.aborted


class Proxy:
    def __init__(self, name: str, answer: Callable[[bytes], bytes | None]) -> None:
        self.name = name
        self.answer = answer

    def __call__(self, timeout: float) -> Proxy:
        assert timeout == PATIENCE
        return self


def job_context(folder: Path, simulated: bool = False, **settings: Any) -> JobContext:
    (folder / "local").mkdir(parents=True, exist_ok=True)
    return JobContext("north", simulated, folder, folder / "job", folder / "job", settings)


@pytest.mark.quick
def test_a_carrier_brings_answers_as_they_come() -> None:
    def fail(_: bytes) -> bytes:
        raise TimeoutError

    context = Context(east=bytes.upper, north=fail, south=lambda _: None)
    carrier = FlareCarrier(context, PATIENCE)
    assert carrier.addresses() == ["east", "north", "south"]
    assert carrier.receive(0.0) == []
    carrier.send("east", b"abc")
    assert carrier.receive(5.0) == [("east", b"ABC")]
    for address in ("north", "south"):
        carrier.send(address, b"abc")
        with pytest.raises(FederationError, match=f"^{address} failed; see the log and failure"):
            carrier.receive(5.0)
    context.aborted = True
    with pytest.raises(FederationError, match="FLARE has ended the job"):
        carrier.receive(5.0)


@pytest.mark.quick
def test_a_site_settles_what_it_uses_itself(tmp_path: Path) -> None:
    context = job_context(tmp_path, data="/etc/passwd", policy="/open.toml")
    with pytest.raises(StudyError, match=r"'north'.*fedtopics\.toml.*flare-site"):
        site_settings(context)
    (tmp_path / "local" / SITE_FILE).write_text('data = "own.csv"\ntext = "text"\n')
    settings = site_settings(context)
    assert (settings.data, settings.policy) == (tmp_path / "local" / "own.csv", None)
    (tmp_path / "local" / SITE_FILE).write_text('dta = "own.csv"\n')
    with pytest.raises(StudyError, match="no key 'dta'"):
        site_settings(context)
    assert site_settings(
        job_context(tmp_path / "simulator", simulated=True, data="a.csv")
    ).data == Path("a.csv")


@pytest.mark.quick
def test_a_server_that_plays_simulator_does_not_choose_the_documents(tmp_path: Path) -> None:
    spoofed = job_context(tmp_path, simulated=True, data="/etc/passwd")
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup/client.crt").touch()
    with pytest.raises(StudyError, match="settings of site 'north'"):
        site_settings(spoofed)
    (tmp_path / "local").mkdir(exist_ok=True)
    (tmp_path / "local/fedtopics.toml").write_text('data = "own.csv"')
    assert site_settings(spoofed).data == (tmp_path / "local/own.csv").resolve()


@pytest.mark.parametrize("run", ["../startup", "/root", "", "a/b", "x" * 101])
def test_a_run_is_named_as_a_folder(run: str) -> None:
    for part in (StudyServer, StudySite):
        with pytest.raises(StudyError, match="no valid name for a folder"):
            part(run)


@pytest.mark.quick
def test_without_documents_a_site_keeps_why(tmp_path: Path, documents: dict[str, Path]) -> None:
    site = StudySite("run-1")
    context = job_context(tmp_path)
    (tmp_path / "local" / SITE_FILE).write_text('data = "nowhere.csv"\n')
    failure = tmp_path / "fedtopics" / "run-1" / FAILURE
    first = encode(Results(b"session", -1, []))
    with pytest.raises(FedTopicsError, match="has no key"):
        site.handle(first, context)
    assert "has no key" in failure.read_text()
    key = Key.create(tmp_path / "local" / "north", "north")
    plan = Study.make(clients={"north": {}})
    context.config.mkdir()
    (context.config / "study.toml").write_text(plan.to_toml())
    calls = decode(site.handle(first, context), Calls)
    assert (calls.name, calls.calls, calls.state) == ("north", [], "ended")
    content = encode(replace(calls, signature=b""))
    content = framed("fedtopics carried", plan.fingerprint, b"session", content)
    assert key.has_signed(content, calls.signature)
    said = failure.read_text()
    assert "nowhere.csv" in said
    assert len(said.splitlines()) == 1


@pytest.mark.quick
def test_a_defect_at_a_site_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quote(*_: object) -> bytes:
        raise ValueError("the text of a document")

    monkeypatch.setattr("fedtopics.integrations.flare.job_context", lambda _: job_context(tmp_path))
    monkeypatch.setattr(
        "fedtopics.integrations.flare.collab", type("C", (), {"get_app_prop": dict})
    )
    monkeypatch.setattr(StudySite, "handle", quote)
    assert StudySite("run-1").answer(b"message") is None


@pytest.mark.quick
def test_a_job_holds_the_study_and_no_code(tmp_path: Path, documents: dict[str, Path]) -> None:
    study = make_study(METHODS["lda"], documents, text={"token_pattern": r"[a-z]{2,}\d*"})
    make_study_job(study, "run-1", tmp_path).export(str(tmp_path / "jobs"))
    files = {p.relative_to(tmp_path / "jobs"): p for p in (tmp_path / "jobs").rglob("*.*")}
    assert not [file for file in files if "custom" in file.parts or file.suffix == ".py"]
    exported = Study.read(next(path for file, path in files.items() if file.name == "study.toml"))
    assert exported.fingerprint == study.fingerprint
    for path in files.values():
        assert str(documents["north"].parent) not in path.read_text(encoding="utf-8")
    server = json.loads(next(p for f, p in files.items() if "server" in f.name).read_text())
    assert server["components"][0]["args"] == {"run": "run-1"}


def test_a_site_is_made_to_allow_fedtopics(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not the folder of a FLARE"):
        allow(tmp_path)
    (tmp_path / "local").mkdir()
    default = {"format_version": 2, "class_allow_list": ["a.B"], "components": [1]}
    (tmp_path / "local" / "resources.json.default").write_text(json.dumps(default))
    for _ in range(2):
        file = allow(tmp_path)
    assert json.loads(file.read_text()) == default | {"class_allow_list": ["a.B", *ALLOWED]}


def test_a_place_of_documents_is_checked_first(tmp_path: Path, documents: dict[str, Path]) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "resources.json.default").write_text("{}")
    wrong = fedtopics(
        "init", "flare-site", tmp_path, "--data", documents["north"], "--columns", "text=txt"
    )
    assert wrong.returncode == 2
    assert one_line(wrong.stderr).count("\n") == 1
    assert "'txt'" in wrong.stderr
    assert not (tmp_path / "local" / SITE_FILE).exists()
    right = fedtopics(
        "init", "flare-site", tmp_path, "--data", documents["north"], "--columns", "text=text"
    )
    assert right.returncode == 0, right.stderr
    settings = site_settings(job_context(tmp_path))
    assert (settings.data, settings.text) == (documents["north"], "text")


CASES = [(case, "plain") for case in METHODS]
CASES += [("lda", "secure"), ("gfedntm, several exchanges a round", "secure")]


@pytest.mark.parametrize(
    ("case", "aggregation"),
    [pytest.param(*c, marks=pytest.mark.quick if c[0] == "lda" else ()) for c in CASES],
)
def test_the_result_is_that_of_this_process(
    case: str, aggregation: str, documents: dict[str, Path], tmp_path: Path
) -> None:
    if METHODS[case]["name"] == "flda":
        pytest.importorskip("tomotopy")
    study = make_study(METHODS[case], documents, aggregation=aggregation)
    keys = documents["north"].parent
    file = written(study, tmp_path / "study.toml")
    run = fedtopics("train", "--engine", "flare", file, "--out", tmp_path / "there", "--keys", keys)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    folders = {name: tmp_path / "there/clients" / name for name in documents}
    model = assert_as_here(study, folders, tmp_path / "here", keys)
    if aggregation == "plain":
        assert_same_bits(TopicModel.from_pretrained(tmp_path / "there" / "model"), model)
        assert (tmp_path / "there" / "report.html").exists()
    else:
        assert not (tmp_path / "there" / "model").exists()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("forbids", "aggregation", "said"),
    [
        ('methods = ["flda"]', "secure", "does not allow the method 'lda'"),
        ('aggregation = "secure"', "plain", "requires secure aggregation"),
        (None, "secure", "has no key"),
    ],
)
def test_what_a_site_refuses_ends_the_job_with_a_sentence(
    forbids: str | None, aggregation: str, said: str, documents: dict[str, Path], tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f"min_persons = 10\n{forbids or ''}\n")
    Policy.read(policy)
    network = {"quorum": 3, "join_timeout": 20, "quorum_timeout": 20, "outliers": "none"}
    more: dict[str, Any] = {"federation": network} if aggregation == "plain" else {}
    study = make_study(METHODS["lda"], documents, aggregation=aggregation, **more)
    client = study.clients["north"].model_copy(update={"policy": policy})
    study = study.model_copy(update={"clients": {**study.clients, "north": client}})
    file = written(study, tmp_path / "study.toml")
    keys = tmp_path if forbids is None else documents["north"].parent
    run = fedtopics("train", "--engine", "flare", file, "--out", tmp_path / "run", "--keys", keys)
    assert run.returncode == 4
    assert one_line(run.stderr).count("\n") == 1
    assert said in one_line(run.stderr)
    assert not list(tmp_path.rglob("model"))


class System:
    """The documentation's FLARE system, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kits = folder / "poc" / "example_project" / "prod_00"
        self.environment = {
            **os.environ,
            "HOME": str(folder),  # FLARE notes there where its last system is
            "NVFLARE_POC_WORKSPACE": str(folder / "poc"),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def shell(self, commands: str, timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S602
            commands,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def submit(self, study: Path, out: str, *more: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "fedtopics",
            "train",
            "--engine",
            "flare",
            str(study),
            "--out",
            out,
            "--startup-kit",
            str(self.kits / "admin@nvidia.com"),
            *more,
        ]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def folder_at(self, site: str, out: str) -> Path:
        run = json.loads((self.folder / out / "flare.json").read_text())["run"]
        return self.kits / site / "fedtopics" / str(run)

    def wait_for_round(self, out: str, number: int) -> None:
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            if (self.folder / out / "flare.json").exists():
                events = self.folder_at("north", out) / "state" / "events.jsonl"
                if events.exists() and f'"round": {number},' in events.read_text():
                    return
            time.sleep(0.05)
        raise TimeoutError(f"round {number}")

    def processes(self, module: str, party: str) -> list[int]:
        """Processes of a party of this system, by the module that they run."""
        process_ids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (entry / "cmdline").exists():
                line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                ours = any(part.startswith(str(self.kits / party)) for part in line)
                if ours and any(part.endswith(module) for part in line):
                    process_ids.append(int(entry.name))
        return process_ids

    def kill(self, *running: tuple[str, str]) -> None:
        for module, party in running:
            process_ids = self.processes(module, party)
            assert process_ids, module
            for process in process_ids:
                os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        """As startup/stop_fl.sh: `nvflare poc stop` refuses after the death of a server."""
        parties = [kit for kit in self.kits.glob("*") if "@" not in kit.name]
        for kit in parties:
            (kit / "shutdown.fl").touch()
        ends = time.monotonic() + 60
        while time.monotonic() < ends and any(self.processes("", kit.name) for kit in parties):
            time.sleep(0.5)
        for process in {p for kit in parties for p in self.processes("", kit.name)}:
            os.kill(process, signal.SIGKILL)

    def sentence(self, job: subprocess.Popen[str]) -> str:
        """What a job that failed says."""
        _, said = job.communicate(timeout=PATIENCE)
        assert job.returncode == 4
        assert len(said.splitlines()) == 1
        assert "--resume" in said
        return said


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("looks for processes in /proc")
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"port {port} of FLARE's proof of concept is taken")
    system = System(tmp_path_factory.mktemp("system"))
    try:
        yield system
    finally:
        system.stop()


@pytest.fixture(scope="module")
def walked(system: System) -> System:
    walk = PAGE.partition("## From an empty folder")[2]
    for block in re.findall(r"```sh\n(.*?)```", walk, re.DOTALL):
        # Each block is a shell of its own here; what one says counts in the next.
        block = block.replace("--text text", "--text text --insecure-seed")
        run = system.shell(f"set -e\nsystem=poc/example_project/prod_00\n{block}")
        assert run.returncode == 0, run.stdout + run.stderr
    return system


def long_study(system: System, name: str) -> tuple[Path, Study]:
    """A study of many rounds on the system's documents, with time to die in."""
    files = {site: system.folder / "data" / f"{site}.jsonl" for site in SITES}
    method = {**NETWORK, "max_rounds": 150, "norm": "server"}
    study = make_study(method, files, system.folder, aggregation="secure", checkpoint_every=5)
    return written(study, system.folder / f"{name}.toml"), study


def test_from_an_empty_folder_to_topics(walked: System) -> None:
    study = Study.read(walked.folder / "study.toml")
    clients = study.model_dump(mode="json")["clients"]
    for name, table in clients.items():
        table |= {"data": f"{walked.folder}/data/{name}.jsonl", "text": "text"}
    here = Study.make(**{**study.model_dump(mode="json"), "clients": clients})
    folders = {name: walked.folder_at(name, "runs/first") for name in SITES}
    assert_as_here(here, folders, walked.folder / "here", walked.folder)
    assert not (walked.folder / "runs/first/model").exists()
    assert all((folder / "theta.parquet").exists() for folder in folders.values())


def test_documents_are_nowhere_but_where_they_were(walked: System) -> None:
    """Nor is a word of few documents; each number at the end of one is in two."""
    for path in walked.folder.rglob("*"):
        holds_documents = path.parts[len(walked.folder.parts)] in ("data", "here")
        if path.is_file() and not holds_documents and path.suffix not in (".lock", ".fl"):
            content = path.read_bytes()
            assert b"council budget vote" not in content, path
            assert b"wheat rain north" not in content, path


def test_a_dead_worker_ends_the_job_and_the_run_goes_on(walked: System) -> None:
    file, study = long_study(walked, "worker")
    job = walked.submit(file, "runs/worker")
    walked.wait_for_round("runs/worker", 12)
    walked.kill(("client.worker_process", "north"))
    assert "FLARE has ended the job" in walked.sentence(job)
    again = walked.submit(file, "runs/worker", "--resume")
    _, said = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, said
    folders = {name: walked.folder_at(name, "runs/worker") for name in SITES}
    held = {name: Key.load(walked.folder / name) for name in SITES}
    model = federated(
        study, study.corpora(), walked.folder / "p", Policy(min_persons=10), keys=held
    ).model
    for folder in folders.values():
        assert_same_bits(TopicModel.from_pretrained(folder / "model"), model)
        events = (folder / "state" / "events.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["event"] for line in events].count("resumed") == 1
