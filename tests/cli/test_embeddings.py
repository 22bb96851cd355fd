"""Networks that see embeddings, as a user types them: what fits, what is refused in a sentence."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.command_line import Done, Refused, Typed

NAMES = ("north", "south")
STUDY = """
[method]
name = "gfedntm"
network = "zeroshottm"
n_components = 3
hidden = [8, 8]
max_rounds = 4
[method.embedding]
model = "tiny"
dimension = 3
[vocabulary]
min_clients_per_word = 1
[clients.north]
data = "north.parquet"
[clients.south]
data = "south.parquet"
"""


def vectors(seed: int, n: int, dimension: int = 3) -> list[list[float]]:
    numbers: list[list[float]] = np.random.default_rng(seed).normal(size=(n, dimension)).tolist()
    return numbers


def write(path: Path, embedding: list[list[float]] | None, **columns: Any) -> None:
    """Forty documents with tokens and texts, and embeddings of their own where given."""
    rng = np.random.default_rng(0)
    words = np.array([f"{path.stem}{chr(97 + i)}" for i in range(26)])
    tokens = [rng.choice(words, 8).tolist() for _ in range(40)]
    table: dict[str, Any] = {"words": tokens, "text": [" ".join(row) for row in tokens]}
    if embedding is not None:
        table["vector"] = embedding
    pq.write_table(pa.table(table | columns), path)


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for seed, name in enumerate(NAMES):
        write(here / f"{name}.parquet", vectors(seed, 40))
    write(here / "without.parquet", None)
    write(here / "wide.parquet", vectors(0, 40, 4))
    (here / "study.toml").write_text(STUDY.replace('.parquet"', '.parquet"\nembedding = "vector"'))
    monkeypatch.setenv("FEDTOPICS_CACHE", "off")
    return here


def edit(folder: Path, old: str, new: str) -> None:
    content = (folder / "study.toml").read_text()
    assert old in content
    (folder / "study.toml").write_text(content.replace(old, new, 1))


def test_from_study_to_theta(folder: Path, done: Done) -> None:
    out = done("train", "study.toml", "--out", "out")
    assert "80 documents, 0 of them without an agreed word" in out

    unheard = {"words": [["unheard", "of"]] * 40, "text": [""] * 40}
    write(folder / "new.parquet", vectors(0, 40), **unheard)
    out = done(
        "transform",
        "out/model",
        "new.parquet",
        "-o",
        "theta.parquet",
        "--columns",
        "tokens=words",
        "--columns",
        "embedding=vector",
        "--embedding-model",
        "/models/tiny",
    )
    assert out.startswith("40 documents are in theta.parquet. In 0 of them the model knows no")
    table = pq.read_table("theta.parquet").to_pydict()
    assert table["known_words"] == [0] * 40
    assert None not in table["topic"], "it needs no word that it knows"


WRONG = {  # what is wrong with the client's file or options, what is said
    "no such column": ({"embedding": "vectors"}, "There is no column 'vectors' in "),
    "no embeddings, and no model of that name": (
        {"data": "without.parquet", "embedding": None},
        "The model 'tiny' cannot be loaded",
    ),
    "another dimension": (
        {"data": "wide.parquet"},
        "The embeddings of the documents have 4 dimensions, but the study's model 'tiny' has 3; "
        "compute them with that model, or leave them out to compute them here.",
    ),
    "another model": (
        {"embedding_model": "/models/all-mpnet-base-v2"},
        "The study's embeddings come from the model 'tiny', but the client's model is "
        "'/models/all-mpnet-base-v2', and their embeddings are not comparable; give the "
        "study's model, or its folder.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_embeddings_in_a_simulation(
    case: str, folder: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    changes, message = WRONG[case]
    given = {"data": "north.parquet", "embedding": "vector"} | changes
    lines = [f'{key} = "{value}"' for key, value in given.items() if value]
    edit(folder, 'data = "north.parquet"\nembedding = "vector"', "\n".join(lines))
    err = refused("train", "study.toml", "--out", "out")
    assert err.startswith("error: Client 'north': ")
    assert message in err
    if (folder / "out").exists():  # opened before the embeddings are looked at
        assert not (folder / "out/clients/north/ledger.jsonl").read_text()


@pytest.mark.parametrize("case", ["another dimension", "another model"])
def test_wrong_ones_to_transform(case: str, folder: Path, typed: Typed, refused: Refused) -> None:
    assert typed("train", "study.toml", "--out", "out")[0] == 0
    changes, message = WRONG[case]
    given = {"data": "north.parquet", "embedding": "vector", "embedding_model": "tiny"} | changes
    columns = f"embedding={given['embedding']}"
    options = ["--columns", columns, "--embedding-model", given["embedding_model"]]
    assert message in refused("transform", "out/model", given["data"], "-o", "t.parquet", *options)
    assert not (folder / "t.parquet").exists()


def test_without_the_extra(folder: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    said = (
        "error: Embeddings of the model 'tiny' need the package sentence-transformers, which "
        "is not installed; install it with: pip install 'fedtopics[embeddings]'\n"
    )
    assert typed("train", "study.toml", "--out", "out")[0] == 0, "embeddings of one's own do"
    assert typed("transform", "out/model", "without.parquet", "-o", "t.parquet") == (1, "", said)
    edit(folder, 'data = "north.parquet"\nembedding = "vector"', 'data = "without.parquet"')
    assert typed("train", "study.toml", "--out", "other")[::2] == (1, said)
