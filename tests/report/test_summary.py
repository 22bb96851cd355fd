"""What a summary has of labels that nobody confirmed, and of periods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedtopics.model.topics import TOGETHER, Periods
from fedtopics.report import summarise
from fedtopics.report.render import html, markdown
from tests.helpers.models import made


def test_suggested_labels_are_marked() -> None:
    summary = summarise(made().with_suggested_labels())
    told = {topic["topic"]: (topic["label"], topic["suggested"]) for topic in summary["topics"]}
    assert told == {
        0: ("Trees | shrubs", False),
        1: ("__init__, flu, tea", True),
        2: ("Oak, elm, flu", True),
    }
    assert "Oak, elm, flu (suggested)" in markdown(summary)
    assert html(summary).count('<span class="badge">suggested</span>') == 2


def test_periods_are_rows() -> None:
    sums = {TOGETHER: np.array([[20.0, 10, 10], [0, 0, 0]])}
    model = replace(made(), periods=Periods("year", ("2024-01-01", "2025-01-01"), sums))
    assert [row["share"] for row in summarise(model)["over_time"]] == [0.5, 0.25, 0.25]
    assert summarise(made())["over_time"] is None


def test_the_map_is_of_ones_own_documents_alone() -> None:
    assert summarise(made())["document_map"] is None
    summary = summarise(made(), documents=["oak elm", "flu", "<b>tea"])
    page = html(summary)
    assert page.partition('<section id="own">')[2].count("<circle") == 3
    assert "<b>" not in page
    assert "tea</title>" not in page
    asked = html(summarise(made(), documents=["oak elm", "flu", "<b>tea"], with_text=True))
    assert "&lt;b&gt;tea</title>" in asked
