"""Small studies as files, for FLARE's processes to read, and what comes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics import Policy, Study, TopicModel, train
from fedtopics.protocol.roster import Key
from fedtopics.text.embeddings import PACKAGED
from tests.helpers.federation import DIMENSION, assert_same_bits, subjects, tokens_of
from tests.helpers.grpc_federation import federated
from tests.helpers.ledgers import left

SIZES = {"north": 60, "south": 40, "west": 30}
SMALL = {"n_components": 3, "max_rounds": 4}
NETWORK = {**SMALL, "name": "gfedntm", "hidden": [16, 12], "batch_size": 32}
METHODS: dict[str, dict[str, Any]] = {
    "gfedntm, local steps": {**NETWORK, "norm": "server", "optimizer": "fedadam", "local_steps": 5},
    "gfedntm, several exchanges a round": {**NETWORK, "norm": "sync"},
    "lda": {**SMALL, "name": "lda"},
    "flda": {
        "name": "flda",
        "n_components": 3,
        "max_rounds": 2,
        "threshold": 0.01,
        "min_new_documents": 1,
        "keep_unmatched": True,
    },
    "fstc": {
        "name": "fstc",
        "n_components": 3,
        "max_rounds": 2,
        "network": {"local_steps": 5, "batch_size": 20, "hidden": 8},
        "transports": 5,
        "start": {"tries": 2},
        "coherence": "nothing",
        "embedding": {"dimension": DIMENSION},
    },
}


def write_documents(folder: Path) -> dict[str, Path]:
    """Write each client's documents, with embeddings, and its key."""
    rng = np.random.default_rng(0)
    files = {}
    for name, corpus in subjects(SIZES).items():
        vectors = rng.normal(size=(len(corpus), DIMENSION))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = [
            {"text": " ".join(words), "vector": vector.tolist()}
            for words, vector in zip(tokens_of(corpus), vectors, strict=True)
        ]
        Key.create(folder / name, name)
        files[name] = folder / f"{name}.jsonl"
        files[name].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return files


def make_study(
    method: dict[str, Any], files: dict[str, Path], keys: Path | None = None, **more: Any
) -> Study:
    """The study of a method on those documents, with a policy for so few."""
    clients = {}
    for name, file in files.items():
        policy = file.with_name("policy.toml")
        policy.write_text("min_persons = 10\n", encoding="utf-8")
        clients[name] = {
            "data": str(file),
            "text": "text",
            "policy": str(policy),
            "certificate": ((keys or file.parent) / f"{name}.pem").read_text(),
        }
    if "embedding" in method:
        clients = {
            n: c | {"embedding": "vector", "embedding_model": PACKAGED} for n, c in clients.items()
        }
    given = {
        "name": "tried",
        "checkpoint_every": 2,
        "vocabulary": {"min_persons_per_word": 1},
        "aggregation": "plain",
        "federation": {"outliers": "none"} if more.get("aggregation") != "secure" else {},
    }
    return Study.make(method=method, clients=clients, **{**given, **more})


def written(study: Study, file: Path) -> Path:
    file.write_text(study.to_toml(), encoding="utf-8")
    return file


def fedtopics(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "fedtopics", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def assert_as_here(study: Study, folders: dict[str, Path], out: Path, keys: Path) -> TopicModel:
    """Compare what sites have, and what they sent, with the study in this process."""
    if study.is_secure:
        held = {name: Key.load(keys / name) for name in study.clients}
        model = federated(study, study.corpora(), out, Policy(min_persons=10), keys=held).model
        here = out
    else:
        model = train(study, out=out)
        here = out / "clients"
    for name, folder in folders.items():
        assert left(folder / "ledger.jsonl") == left(here / name / "ledger.jsonl")
        assert_same_bits(TopicModel.from_pretrained(folder / "model"), model)
    return model
