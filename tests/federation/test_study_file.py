"""Studies as TOML, written and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtopics.federation.study import Study, example_study
from fedtopics.harmless import for_terminal
from tests.helpers.studies import read


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": 'Ärzte "und" \\ Anwälte \U0001f333', "seed": 3},
        {"text": {"own_stop_words": ["".join(map(chr, range(1, 160)))]}, "seed": 2**63 - 1},
        {"text": {"own_stop_words": ["\u202e\u2028\U000e0041\uffff"]}},
        {"method": {"n_components": 7, "hidden": [5, 6], "max_rounds": 9, "preset": "paper"}},
        {
            "method": {
                "preset": "paper",
                "relevance": 0.25,
                "learning_rate": 1e-5,
                "tolerance": 1e-9,
            }
        },
        {"method": {"optimizer": "fedadam", "local_steps": 3, "norm": "server"}},
        {"method": {"preset": "paper", "relevance": None}},
        {"method": {"network": "combinedtm", "embedding": {"model": "a/b", "dimension": 5}}},
        {"method": {"network": "neurallda", "coherence": "documents", "relevance": 0.0}},
        {
            "text": {"stop_words": "none", "own_stop_words": ["é", 'q"'], "ngrams": [1, 2]},
            "method": {"coherence": "documents"},
        },
        {"text": {"token_pattern": r"(?u)\b\w+'\"\b"}},
        {"vocabulary": {"min_clients": 2, "max_document_share": 0.125}},
        {
            "clients": {
                "north.1": {"data": "/data/a b.csv", "text": "Body", "policy": "/p.toml"},
                "2-South_": {"data": "/data", "tokens": "t", "id": "i", "label": "l"},
                "west": {"data": "/data", "embedding": "e", "embedding_model": "/models/b"},
            }
        },
    ],
)
def test_what_is_written_is_read_again(tmp_path: Path, given: dict[str, Any]) -> None:
    study = Study.make(**given)
    again = read(tmp_path, study.to_toml())
    assert for_terminal(study.to_toml()) == study.to_toml()
    assert again == study
    assert again.fingerprint == study.fingerprint
    assert again.to_toml() == study.to_toml()


def test_the_example_is_the_default(tmp_path: Path) -> None:
    example = read(tmp_path, example_study())
    clients = {
        name: {"data": tmp_path / f"{name}.csv", "text": "text"} for name in ("north", "south")
    }
    assert example == Study.make(name="example", clients=clients)
    assert example.method == Study().method


def test_the_example_names_every_key(tmp_path: Path) -> None:
    uncommented = "\n".join(line.removeprefix("# ") for line in example_study().splitlines())
    method = Study().method
    for table in (method, method.embedding, Study().text, Study().vocabulary):
        for key in type(table).model_fields:
            assert f"\n{key} = " in uncommented
