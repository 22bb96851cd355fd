"""Documents that stand for topics: those with most of what is their largest one."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics import LDA
from fedtopics.model.finding import representatives
from tests.helpers.clients import ALL, TEXTS


@pytest.fixture(scope="module")
def model() -> LDA:
    return LDA(2, max_rounds=20).fit(ALL)


def test_rows_with_most_of_their_largest_topic() -> None:
    theta = np.array([[0.9, 0.1], [0.5, 0.5], [0.95, 0.05], [0.9, 0.1], [0.99, 0.01]])
    seen = np.array([True, True, True, True, False])
    assert representatives(theta, seen) == [[2, 0, 3], []]
    assert representatives(theta, seen, 9) == [[2, 0, 3, 1], []]


def test_documents_of_several_clients(model: LDA) -> None:
    rows = model.model_.representative_documents(TEXTS, n_documents=2)
    theta = model.transform(ALL)
    assert [row["topic"] for row in rows] == [0, 0, 1, 1]
    for topic in (0, 1):
        of_topic = [row for row in rows if row["topic"] == topic]
        [client] = {row["client"] for row in of_topic}
        assert [row["text"] for row in of_topic] == [TEXTS[client][r["document"]] for r in of_topic]
        shares = sorted(theta[:, topic].tolist())[-2:][::-1]
        assert [row["share"] for row in of_topic] == pytest.approx(shares, rel=1e-5)
