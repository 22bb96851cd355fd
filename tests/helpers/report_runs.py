"""Small runs, each trained once a session, and their reports: what to look at in a page."""

import base64
import csv
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, Study, TopicModel, train
from fedtopics.datasets import synthetic_lda
from fedtopics.report import find_run, summarise, write_report
from fedtopics.report.run import RunFacts
from fedtopics.report.summary import Summary
from tests.helpers.clusters import blobs, planned, spread, texts_of
from tests.helpers.streams import DRIFT, flda, stream

CANARY = "quetzalcoatl"
Corpora = Mapping[str, Corpus]
THEMES = {
    "harbour": "boat crane dock ferry harbour mast pier quay rope sail tide whale",
    "kitchen": "bowl bread butter flour kettle lemon oven pepper plate salt spoon sugar",
    "orchard": "apple bee blossom cherry hedge ladder leaf orchard pear plum root twig",
    "winter": "blizzard coat frost glove ice mitten scarf sledge snow stove thaw wool",
}


def like_the_demo() -> tuple[Study, Corpora]:
    """ProdLDA of texts: what each client writes about, and what it shares with the others."""
    rng = np.random.default_rng(0)
    habits = {"north": ["harbour", "winter"], "east": ["kitchen", "winter"], "south": ["orchard"]}
    corpora = {}
    for name, subjects in habits.items():
        texts = []
        for _ in range(90):
            words = np.array(THEMES[subjects[rng.integers(len(subjects))]].split())
            texts.append(" ".join(rng.choice(words, 9)).capitalize() + ".")
        texts[7] += f" The {CANARY} of {name}."
        texts[11] = ""
        corpora[name] = Corpus.of(texts)
    method = {"n_components": 5, "max_rounds": 40, "batch_size": 90, "learning_rate": 0.02}
    limits = {"min_persons_per_word": 2, "min_clients_per_word": 1}
    return Study.make(name="demo", method={"name": "gfedntm"} | method, vocabulary=limits), corpora


def synthetic() -> tuple[Study, Corpora]:
    drawn = synthetic_lda(
        20,
        n_words=400,
        n_topics=50,
        shared_topics=10,
        eta=0.02,
        n_documents=150,
        n_validation=1,
        lengths=(20, 40),
    )
    method = {"name": "lda", "n_components": 50, "max_rounds": 5, "coherence": "nothing"}
    corpora = {name: documents.corpus() for name, documents in drawn.training.items()}
    return Study.make(name="synthetic", method=method), {
        name: with_canary(corpus) for name, corpus in corpora.items()
    }


def drifting() -> tuple[Study, Corpora]:
    return flda(coherence="documents"), {
        name: with_canary(corpus) for name, corpus in stream(DRIFT).items()
    }


def clustered() -> tuple[Study, Corpora]:
    return planned("fstc", coherence="documents"), {
        name: with_canary(corpus) for name, corpus in spread(blobs(300), 3).items()
    }


def with_canary(corpus: Corpus) -> Corpus:
    texts = texts_of(corpus)
    texts[7] = [*texts[7], CANARY]
    return replace(corpus, documents=Corpus.of(texts).documents)


RUNS: dict[str, Callable[[], tuple[Study, Corpora]]] = {
    "demo": like_the_demo,
    "synthetic": synthetic,
    "flda": drifting,
    "fstc": clustered,
}


@dataclass(frozen=True)
class Reported:
    model: TopicModel
    summary: Summary
    page: Path
    facts: RunFacts = field(default_factory=lambda: RunFacts(name=""))
    corpora: Corpora = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.page.parent

    @cached_property
    def html(self) -> str:
        return self.page.read_text(encoding="utf-8")

    @cached_property
    def markdown(self) -> str:
        return self.page.with_suffix(".md").read_text(encoding="utf-8")

    @property
    def csv(self) -> list[dict[str, str]]:
        return list(csv.DictReader(StringIO(csv_of(self.html))))

    @property
    def tables(self) -> dict[str, list[list[str]]]:
        return tables_of(self.html)


_known: dict[str, Reported] = {}


def reported(name: str, places: pytest.TempPathFactory) -> Reported:
    """A run of `RUNS` and its report, made when they are first asked for."""
    if name not in _known:
        if name == "flda":
            pytest.importorskip("tomotopy")
        plan, corpora = RUNS[name]()
        folder = places.mktemp(name)
        train(plan, corpora, out=folder)
        _known[name] = report_of(folder, corpora)
    return _known[name]


def report_of(run: Path, corpora: Corpora | None = None, **how: Any) -> Reported:
    folder, facts = find_run(run)
    model = TopicModel.from_pretrained(folder)
    summary = summarise(model, facts, **how)
    page = write_report(summary, run / "report.html")
    return Reported(model, summary, page, facts=facts, corpora=corpora or {})


def reported_model(model: TopicModel, folder: Path, **how: Any) -> Reported:
    summary = summarise(model, **how)
    return Reported(model, summary, write_report(summary, folder / "report.html"))


def embedded(html: str) -> dict[str, Any]:
    """What the page's script has: by topic, its words and their orders."""
    (words,) = re.findall(
        r'<script type="application/json" id="words">(.*?)</script>', html, re.DOTALL
    )
    return dict(json.loads(words))


def csv_of(html: str) -> str:
    match = re.search(r'href="data:text/csv;base64,([^"]*)"', html)
    assert match is not None
    return base64.b64decode(match[1]).decode()


def tables_of(html: str) -> dict[str, list[list[str]]]:
    reader = _Tables()
    reader.feed(html)
    return {
        name: [[" ".join(cell.split()) for cell in row] for row in rows]
        for name, rows in reader.tables.items()
    }


class _Tables(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("aria-label") and (tag == "table" or given.get("class") == "scroll"):
            self._rows = self.tables.setdefault(given["aria-label"] or "", [])
        elif tag == "table" and self._rows:  # another one, without a name
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self._rows[-1][-1] += data
