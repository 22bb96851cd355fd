"""What a run leaves on disk is for its owner alone, on every engine, whatever the umask."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.federation.sweep import sweep
from fedtopics.pki import create, issue
from fedtopics.report import find_run, summarise, write_report
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings
from tests.helpers.encoders import Digits
from tests.helpers.federation import embedded, study, subjects
from tests.helpers.grpc_federation import federated
from tests.helpers.peers import Peer, quickly, with_addresses
from tests.helpers.private import open_to_others, open_umask

__all__ = ["open_umask", "quickly"]
pytestmark = pytest.mark.usefixtures("open_umask")
CORPORA = subjects({"east": 40, "north": 30})
OPEN = dict.fromkeys(CORPORA, OPEN_POLICY)
FSTC = {
    "name": "fstc", "n_components": 3, "max_rounds": 2, "local_steps": 2, "batch_size": 20,
    "hidden": 8, "transports": 2, "starts": 2, "coherence": "nothing",
    "embedding": {"dimension": 7},
}  # fmt: skip
FLDA = {"name": "flda", "n_components": 3, "min_new_documents": 1, "max_rounds": 1}


def planned(**method: object) -> Study:
    plan = study(max_rounds=2) if not method else Study.make(method=method)
    patient = FederationSettings(min_clients=1, gather=60, wait=60, deadline=60)
    return plan.model_copy(update={"checkpoint_every": 1, "federation": patient})


@pytest.mark.parametrize("method", [{}, FSTC, FLDA], ids=["gfedntm", "fstc", "flda"])
def test_a_simulation_and_its_report(method: dict[str, object], tmp_path: Path) -> None:
    folder = tmp_path / "of mine" / "run"
    model = train(planned(**method), embedded(CORPORA), out=folder, policies=OPEN)
    model.write_theta(
        CORPORA["east"] if not method else embedded(CORPORA)["east"], folder / "t.parquet"
    )
    write_report(summarise(model, find_run(folder)[1]), folder / "report.html")
    assert open_to_others(folder.parent) == []
    assert {"events.jsonl", "model", "clients"} <= {path.name for path in folder.iterdir()}


def test_a_server_and_its_clients(tmp_path: Path) -> None:
    federated(planned(), CORPORA, tmp_path / "runs")
    assert open_to_others(tmp_path / "runs") == []
    east = tmp_path / "runs" / "east"
    assert (east / "theta.parquet").exists() and (east / "ledger.jsonl").exists()
    assert list((tmp_path / "runs/server/log").iterdir())


@pytest.mark.usefixtures("quickly")
def test_peers(tmp_path: Path) -> None:
    plan = with_addresses(planned(), list(CORPORA))
    peers = [Peer(plan, name, corpus, tmp_path / "p") for name, corpus in CORPORA.items()]
    for each in peers:
        each.model()
    assert open_to_others(tmp_path / "p") == []
    assert list((tmp_path / "p/east/state/log").iterdir())


def test_a_sweep(tmp_path: Path) -> None:
    plan = planned(name="lda", max_rounds=2, coherence="documents")
    sweep(plan, [2], 1, tmp_path / "swept", corpora=CORPORA, policies=OPEN)
    assert open_to_others(tmp_path / "swept") == []


def test_keys(tmp_path: Path) -> None:
    """Certificates are public, in folders that are not."""
    create(tmp_path / "pki", ("localhost",))
    issue(tmp_path / "pki", "north")
    found = open_to_others(tmp_path / "pki")
    assert all(name.endswith(".crt") for name in found)


def test_the_cache_of_embeddings(tmp_path: Path) -> None:
    settings = EmbeddingSettings(dimension=3, model="small")
    document_embeddings(Corpus.of(["1 2"]), settings, cache=tmp_path / "a/b", encoder=Digits())
    assert open_to_others(tmp_path / "a") == []
