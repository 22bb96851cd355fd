"""Training with documents on the workers of a Dask cluster."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from fedtopics import NMF, Corpus, Study, TopicModel, train, waiting
from fedtopics.errors import DataError, FederationError, RunError, StudyError
from fedtopics.federation.policy import Policy
from fedtopics.integrations import dask
from fedtopics.integrations.dask import connected
from tests.helpers.background import until
from tests.helpers.clusters import DIMENSION, blobs
from tests.helpers.command_line import Refused, fedtopics
from tests.helpers.federation import subjects

SIZES = {"east": 400, "north": 150, "west": 90}
CASES: dict[str, dict[str, Any]] = {
    "nmf": {"name": "nmf", "max_rounds": 3},
    "lda": {"name": "lda", "max_rounds": 3},
    "prodlda": {"name": "gfedntm", "network": "prodlda", "max_rounds": 3},
    "discriminative": {
        "name": "discriminative",
        "max_rounds": 3,
        "embedding": {"dimension": DIMENSION},
        "start": {"tries": 2, "rounds": 5},
    },
}
POLICY = Policy(min_persons=10, min_persons_per_word=5)


def study(case: str = "nmf", **more: Any) -> Study:
    return Study.make(method=CASES[case] | {"n_components": 4} | more, seed=1)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "SMALLEST", 50)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with connected(None, 2) as client:
        yield client


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of one client in five files, the third without any word."""
    folder = tmp_path_factory.mktemp("parts")
    rows = [row for corpus in subjects(SIZES).values() for row in corpus.documents.to_pylist()]
    rows = [" ".join(row) if isinstance(row, list) else row for row in rows]
    for number, part in enumerate([rows[:100], rows[100:320], ["", ""], rows[320:500], rows[500:]]):
        pq.write_table(pa.table({"text": part}), folder / f"part-{number}.parquet")
    return folder


def digits(model: TopicModel) -> list[bytes]:
    arrays = [model.beta, model.word_sums, *model.coherence.values(), *model.shares.values()]
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


@pytest.mark.parametrize("case", ["nmf", "lda", "prodlda"])
def test_the_same_bits_as_in_one_process(
    case: str, cluster: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "SMALLEST", 1000)  # so that each client has one part
    here = train(study(case), subjects(SIZES), at_once=False, out=tmp_path / "here")
    on_cluster = train(study(case), subjects(SIZES), engine=cluster, out=tmp_path / "there")
    assert digits(on_cluster) == digits(here)
    ledgers = [
        [line.split('"sha256"')[-1] for line in path.read_text().splitlines() if '"reply"' in line]
        for path in (tmp_path / place / "clients/east/ledger.jsonl" for place in ("here", "there"))
    ]
    assert ledgers[0] == ledgers[1]


@pytest.mark.parametrize(("case", "limit"), [("nmf", 1e-12), ("lda", 1e-12)])
def test_parts_of_a_client_are_one_client(
    case: str, limit: float, cluster: Client, files: Path
) -> None:
    """Also words that are rare in each part, and groups of few documents of a part."""
    batch = {"learning": "batch"} if case == "lda" else {}
    policies = {"a": POLICY}
    given = {"a": Corpus.read(files / "*.parquet")}
    here = train(study(case, **batch), given, policies=policies, at_once=False)
    on_cluster = train(
        study(case, **batch), {"a": files / "*.parquet"}, policies=policies, engine=cluster
    )
    assert on_cluster.vocabulary.words == here.vocabulary.words
    assert on_cluster.documents == here.documents
    np.testing.assert_array_equal(on_cluster.vocabulary.occurrences, here.vocabulary.occurrences)
    np.testing.assert_allclose(on_cluster.beta, here.beta, atol=limit)
    np.testing.assert_allclose(on_cluster.word_sums, here.word_sums, rtol=1e-9, atol=1e-9)


def kill(cluster: Client) -> None:
    os.kill(min(cluster.run(os.getpid).values()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("case", "at"),
    [("lda", "vocabulary"), ("lda", "round"), ("prodlda", "round"), ("discriminative", "round")],
)
def test_a_lost_worker_changes_no_bit(case: str, at: str, cluster: Client, files: Path) -> None:
    given: dict[str, Any] = {"a": files / "*.parquet", "b": subjects({"south": 60})["south"]}
    if case == "discriminative":
        given = {name: blobs(60, seed=seed) for seed, name in enumerate("ab")}
    wanted = study(case)
    expected = train(wanted, given, engine=cluster)
    killed = []

    def on_event(event: dict[str, Any]) -> None:
        if not killed and (event["event"] == at or event.get("round") == 2):
            killed.append(event)
            kill(cluster)

    interrupted = train(wanted, given, engine=cluster, on_event=on_event)
    assert killed
    assert digits(interrupted) == digits(expected)


def test_a_lost_scheduler_ends_a_run_that_is_resumed(
    cluster: Client, files: Path, tmp_path: Path
) -> None:
    """On a cluster that was started by hand."""
    given = {"a": files / "*.parquet"}
    out = tmp_path / "run"
    frequent = study().model_copy(update={"checkpoint_every": 1})
    file = tmp_path / "scheduler.json"
    log = (tmp_path / "log").open("wb")
    begun = [
        subprocess.Popen([sys.executable, "-m", "dask", *words], stdout=log, stderr=log)
        for words in (
            ["scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)],
            ["worker", "--no-nanny", "--scheduler-file", str(file), "--death-timeout", "60"],
        )
    ]

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 2:
            begun[0].kill()

    try:
        until(file.exists)
        with (
            connected(json.loads(file.read_text("utf-8"))["address"], None) as other,
            pytest.raises(FederationError, match="start the cluster again, then the same command"),
        ):
            train(frequent, given, engine=other, out=out, on_event=on_event)
    finally:
        for process in begun:
            process.kill()
            process.wait()
        log.close()
    resumed = train(frequent, given, engine=cluster, out=out, resume=True)
    assert digits(resumed) == digits(train(frequent, given, engine=cluster))


def test_groups_of_a_client_that_counts_alone(cluster: Client, files: Path) -> None:
    """With counts_of_all = false, a client's parts share no group with other clients."""
    given = dict.fromkeys("abc", files / "*.parquet")
    policies = {"a": Policy(min_persons=60, counts_of_all=False), "b": Policy(), "c": Policy()}
    models = [
        train(study("nmf"), clients, policies=policies, engine=of, at_once=False)
        for clients, of in (
            (given, cluster),
            ({name: Corpus.read(files / "*.parquet") for name in given}, None),
        )
    ]
    np.testing.assert_allclose(models[0].word_sums, models[1].word_sums, rtol=1e-9, atol=1e-9)


def test_estimators_and_wrong_input(cluster: Client, files: Path, tmp_path: Path) -> None:
    texts = [text for batch in Corpus.read(files / "*.parquet").texts() for text in batch]
    on_cluster, here = (NMF(4, max_rounds=2).fit(texts, engine=of) for of in (cluster, None))
    np.testing.assert_allclose(on_cluster.model_.beta, here.model_.beta, atol=1e-12)
    with pytest.raises(DataError, match=r"Client 'a': There is no file or folder .*\*\.csv"):
        train(study(), {"a": files / "*.csv"}, engine=cluster)
    (files / "bad.csv").write_text("text\n1;2\n", "utf-8")
    with pytest.raises(DataError, match=r"Client 'a': There is no file or folder"):
        train(study(), {"a": files / "none.csv"}, engine=cluster)
    with pytest.raises(DataError, match="Client 'a'"):
        train(study(), {"a": [""] * 20}, engine=cluster)
    (tmp_path / "run").mkdir()
    with pytest.raises(RunError, match="keep states that Dask's workers do not store"):
        flda = study().model_copy(update={"method": Study.make(method={"name": "flda"}).method})
        train(flda, {"a": texts}, engine=cluster, out=tmp_path / "run", resume=True)
    with pytest.raises(StudyError, match="must be the Client of a Dask cluster"):
        train(study(), {"a": texts}, engine="dask")
    with (
        pytest.raises(FederationError, match="No Dask scheduler answers at tls:"),
        connected("tls://127.0.0.1:1", None),
    ):
        pass
    with pytest.raises(StudyError, match="needs the local engine"):
        private = Study.make(method={"name": "nmf"}, differential_privacy={"epsilon": 1.0})
        train(private, {"a": texts}, engine=cluster)


def test_the_command(
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refused: Refused,
) -> None:
    monkeypatch.chdir(tmp_path)
    method = 'name = "big"\n[method]\nname = "nmf"\nn_components = 4\nmax_rounds = 2\n'
    Path("study.toml").write_text(f'{method}[clients.a]\ndata = "{files}/part-*.parquet"\n')
    on_dask = "train", "study.toml", "--engine", "dask"
    assert fedtopics(monkeypatch, *on_dask, "--workers", 1) == 0
    shown = "".join(capsys.readouterr())
    assert "Dask's dashboard: http" in shown
    assert "column 'text' of" in shown and "and 4 more parts" in shown
    assert TopicModel.from_pretrained("runs/big/model").n_topics == 4
    assert "its own workers" in refused(*on_dask, "--workers", 2, "--scheduler", "tcp://a:1")
    assert "need --engine dask" in refused("train", "study.toml", "--workers", 2)
    monkeypatch.setattr(waiting, "DASK_SCHEDULER", 1.0)
    assert fedtopics(monkeypatch, *on_dask, "--scheduler", "tcp://127.0.0.1:1") == 4
    assert "No Dask scheduler answers at tcp://127.0.0.1:1" in capsys.readouterr().err
