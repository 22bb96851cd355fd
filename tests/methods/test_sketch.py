"""First topics from a sketch of words' products: the same on each processor, and few steps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtopics import Policy, Study, train
from fedtopics.federation.exposure import expose
from fedtopics.methods.nmf.sketch import factorise, sketch_of
from tests.helpers.federation import ANY_WORDS, subjects
from tests.helpers.ledgers import lines_that_left


def asked(points: NDArray[Any], moved: float = 0.0) -> Any:
    """All clients, whose total is moved by so much, relative to each number."""
    draws = np.random.default_rng(1)

    def ask_once(_: Any, rarity: Any, directions: NDArray[Any]) -> dict[str, Any]:
        products = points.T @ (points @ directions)
        return {"products": products * (1 + moved * draws.standard_normal(products.shape))}

    return SimpleNamespace(ask_once=ask_once, length=30.0)


def themes(n_words: int) -> NDArray[Any]:
    """Documents of four themes, each with words of its own; none is as frequent as another."""
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(4), np.ones(n_words // 4)) + 0.02
    points = rng.poisson(rng.dirichlet(np.full(4, 0.1), 600) @ topics * rng.random(n_words) * 4)
    return np.asarray(points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1))


@pytest.mark.parametrize("n_words", [40, 200])
def test_last_bits_of_totals_do_not_choose_another_start(n_words: int) -> None:
    points = themes(n_words)
    first, other = (
        factorise(sketch_of(asked(points, moved), np.ones(n_words), 4, seed=0), 4, seed=0)
        for moved in (0.0, 1e-12)
    )
    np.testing.assert_allclose(other, first, atol=1e-9)
    assert {int(topic.argmax() * 4 // n_words) for topic in first.T} == {0, 1, 2, 3}
    np.testing.assert_allclose(np.linalg.norm(first, axis=0), 1)


def test_with_few_words_a_sketch_is_exact() -> None:
    """So these sums tell the sums of all pairs of words; docs/concepts/threat-model.md says so."""
    points = themes(40)
    sketch = sketch_of(asked(points), np.ones(40), 4, seed=0)
    np.testing.assert_allclose(sketch.times(np.eye(40)), points.T @ points, atol=1e-9)
    assert sketch_of(asked(themes(200)), np.ones(200), 4, seed=0).basis.shape == (200, 60)


@pytest.mark.parametrize(("method", "steps"), [("nmf", 10), ("lda", 11)])
def test_a_study_takes_a_dozen_steps_and_says_so_before(
    method: str, steps: int, tmp_path: Path
) -> None:
    corpora = subjects({"east": 80, "west": 60})
    plan = Study.make(
        method={"name": method, "n_components": 4}, vocabulary=ANY_WORDS
    ).with_clients(corpora)
    train(plan, corpora, policies=dict.fromkeys(corpora, Policy(min_persons=2)), out=tmp_path)
    assert len(lines_that_left(tmp_path / "clients/east/ledger.jsonl")) == steps
    assert expose(plan).steps == steps
    secure = Study.make(method={"name": method}).with_clients("abc")
    assert expose(secure).steps >= steps + 5, "one more for each count of groups, and the members'"
