"""Models whose files were cut off, changed, or ask for more than they have: one clear sentence."""

import hashlib
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from fedtopics.errors import ModelError
from fedtopics.model.topic_model import TopicModel
from tests.helpers.damage import damages
from tests.helpers.models import edit_config, made, refused, with_network

HUGE = 10**9


MODELS = {"lda": made, "prodlda": with_network}


@pytest.mark.parametrize("name", ["config.json", "vocabulary.json", "model.safetensors"])
@pytest.mark.parametrize("kind", MODELS)
def test_any_flipped_bit_or_cut_is_one_sentence(kind: str, name: str, tmp_path: Path) -> None:
    """Unless the file says the same as before, as another blank does."""
    model = MODELS[kind]()
    file = model.save_pretrained(tmp_path) / name
    whole = file.read_bytes()
    same = 0
    for damaged in damages(whole, 120):
        file.write_bytes(damaged)
        try:
            back = TopicModel.from_pretrained(tmp_path)
        except ModelError as error:
            assert str(tmp_path) in str(error)
            assert "\n" not in str(error)
        else:
            same += 1
            assert (back.documents, dict(back.info)) == (model.documents, dict(model.info))
            assert all(np.array_equal(w, model.weights[n]) for n, w in back.weights.items())
            assert back.shares["north"].tolist() == model.shares["north"].tolist()
            assert back.vocabulary.plain() == model.vocabulary.plain()
    assert same < 20


def test_labels_of_any_damaged_file_are_refused_or_read(tmp_path: Path) -> None:
    file = made().save_pretrained(tmp_path) / "topics.json"
    for damaged in damages(file.read_bytes(), 60):
        file.write_bytes(damaged)
        try:
            TopicModel.from_pretrained(tmp_path)
        except ModelError as error:
            assert str(file) in str(error)


@pytest.mark.parametrize(
    "change",
    [
        {"n_components": HUGE},
        {"n_components": 10**30},
        {"hidden": [HUGE, HUGE]},
        {"hidden": [10**30, 1]},
        {"hidden": [4, HUGE]},
        {"embedding": {"dimension": 10**12}},
    ],
)
def test_sizes_are_checked_before_memory_is_taken(change: dict[str, Any], tmp_path: Path) -> None:
    with_network().save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())["settings"]
    TopicModel.from_pretrained(tmp_path)  # imports torch, whose memory is not meant here
    edit_config(tmp_path, settings=settings | change)
    tracemalloc.start()
    try:
        if change.keys() == {"embedding"}:  # which this network does not see
            assert TopicModel.from_pretrained(tmp_path).n_topics == 3
        else:
            assert re.search("copy|train it again", refused(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "shared",
    [
        {},
        {"topics": torch.zeros(3, 5)},
        {"topics": torch.zeros(4, 5), "theta_mean": torch.zeros(4)},
        {"topics": torch.full((3, 5), torch.nan), "theta_mean": torch.zeros(3)},
    ],
)
def test_what_is_shared_has_to_make_topics(shared: dict[str, torch.Tensor], tmp_path: Path) -> None:
    with_network().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {n: t for n, t in load(file.read_bytes()).items() if not n.startswith("shared/")}
    rewrite(tmp_path, save(tensors | {f"shared/decoder/{n}": t for n, t in shared.items()}))
    assert re.search("copy|train it again", refused(tmp_path))


def rewrite(folder: Path, data: bytes) -> None:
    """Write weights with a digest that fits: the folder is as its author wanted it."""
    (folder / "model.safetensors").write_bytes(data)
    edit_config(folder, sha256=hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("length", [2**40, 2**63, -1])
def test_a_header_that_claims_more_than_the_file_has(length: int, tmp_path: Path) -> None:
    made().save_pretrained(tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["words/sums"]["shape"] = [3, length]
    head = json.dumps(header).encode()
    rewrite(tmp_path, len(head).to_bytes(8, "little") + head + data[8 + size :])
    assert "train it again" in refused(tmp_path)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.complex64])
def test_sums_of_another_kind_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    made().save_pretrained(tmp_path)
    tensors = load((tmp_path / "model.safetensors").read_bytes())
    rewrite(tmp_path, save(tensors | {"words/sums": torch.ones(3, 5, dtype=dtype)}))
    assert "copy the whole folder again" in refused(tmp_path)
