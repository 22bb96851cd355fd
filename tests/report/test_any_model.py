"""A model's folder whose JSON says anything: it can be read, shown and given on, or is refused."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtopics.errors import FedTopicsError
from fedtopics.inference.clusters import Centres, ClusterShape
from fedtopics.model.card import card, table
from fedtopics.model.exports import as_csv, as_markdown
from fedtopics.model.topic_model import TopicModel
from fedtopics.report import render, summarise
from tests.helpers.models import BETA, edit_config, made

WRONG: list[Any] = [
    None, True, -1, 0.5, 7, 2**63, 10**400, math.nan, -math.inf, "", "1", "x\x1b", "y" * 500,
    [], [[]], [None], ["1"], {}, {"a": {"b": [1]}},
]  # fmt: skip
TRIED = 120  # replacements of each model
TOPIC = {"id": 4, "words": ["oak"], "occurrences": 3.5, "clients": ["north"]}
INFO = {
    "method": "flda", "rounds": 3, "seed": 1, "length": 7.5, "seen": 40, "ids": [4, 1, 2],
    "history": [
        {"round": 1, "documents": 40, "arrived": {"north": 30}, "threshold": 0.5,
         "topics": [TOPIC], "new": [4], "vanished": [TOPIC]},
    ],
    "continued": {"model": "beef", "method": "lda", "rounds": 2, "vocabulary": "keep"},
}  # fmt: skip


def clusters() -> TopicModel:
    shape = ClusterShape(n_components=3, representation="bow")
    beta = torch.from_numpy(BETA)
    weights = {"origin": torch.zeros(5).double(), "centres": beta * 2, "beta": beta}
    sizes = {"north": [10, 10, 10], "south": [0, 10, 0]}
    return made(
        inference=Centres(5, shape),
        weights=weights,
        info={"method": "kmeans", "rounds": 3, "seed": 1, "sizes": sizes, "same": 1,
              "unclear": {"north": 2, "south": 0}},
    )  # fmt: skip


MODELS = {"topics": lambda: made(info=INFO), "clusters": clusters}


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the maps and lists of JSON, each with the keys of what is in it."""
    for key in list(content) if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], (dict, list)):
            yield from places(content[key])


def shown(folder: Path) -> None:
    """Do with a model what people do."""
    model = TopicModel.from_pretrained(folder)
    rows = model.get_topic_info()
    summary = summarise(model)
    render.html(summary), render.markdown(summary), card(model), repr(model), table(model)
    as_csv(rows), as_markdown(rows), model.to_pandas()
    model.to_pyldavis(), model.to_gensim(), model.to_octis()
    model.transform([["oak", "tea"]])
    model.save_pretrained(folder / "again")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", MODELS)
def test_anything_in_place_of_anything(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "environment", cache(render.environment))  # for templates
    MODELS[kind]().save_pretrained(tmp_path)
    edit_config(tmp_path)
    files = {name: (tmp_path / name).read_text() for name in ("config.json", "vocabulary.json",
             "topics.json")}  # fmt: skip
    shown(tmp_path)
    tries = [
        (name, number, wrong)
        for name, text in files.items()
        for number in range(sum(1 for _ in places(json.loads(text))))
        for wrong in WRONG
    ]
    refused = 0
    for name, number, wrong in random.Random(0).sample(tries, TRIED):  # noqa: S311
        content = json.loads(files[name])
        around, key = list(places(content))[number]
        around[key] = wrong
        (tmp_path / name).write_text(json.dumps(content))
        try:
            shown(tmp_path)
        except FedTopicsError as error:
            refused += 1
            assert "\n" not in str(error)
            assert len(str(error)) < 1000
        except Exception as error:
            raise AssertionError(f"{name}: {wrong!r:.20} for {around!r:.200}[{key!r}]") from error
        (tmp_path / name).write_text(files[name])
    assert TRIED / 4 < refused < TRIED
