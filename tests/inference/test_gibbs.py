"""One client's LDA: where guidance leads, what is counted, and that a seed decides all."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fedtopics.errors import FedTopicsError
from fedtopics.inference.gibbs import GibbsSettings, Sampled, sample_topics

pytest.importorskip("tomotopy")

WORDS = [f"{theme}{i}" for theme in ("apple", "bread") for i in range(12)]
APPLES = {f"apple{i}": 1 / 3 for i in range(3)}
BREADS = {f"bread{i}": 1 / 3 for i in range(3)}


def planted(size: int = 150) -> sparse.csr_array:
    """Documents of two themes, each of ten words of one theme and two of both."""
    rng = np.random.default_rng(0)
    counts = np.zeros((size, 24), np.int32)
    for row, theme in zip(counts, rng.integers(2, size=size), strict=True):
        np.add.at(row, 12 * theme + rng.integers(12, size=10), 1)
        np.add.at(row, rng.integers(24, size=2), 1)
    return sparse.csr_array(counts)


def sampled(
    seeds: Sequence[Mapping[str, float]] = (), n_topics: int = 2, seed: int = 0, **given: Any
) -> Sampled:
    return sample_topics(
        planted(),
        WORDS,
        n_topics=n_topics,
        settings=GibbsSettings(iterations=60, **given),
        seeds=seeds,
        seed=seed,
    )


def themes(drawn: Sampled) -> list[set[str]]:
    """What the six first words of each topic are about."""
    return [
        {word[:5] for word in topic}
        for topic in (drawn.topic(number, 6) for number in range(len(drawn.beta)))
    ]


def same(one: Sampled, other: Sampled) -> bool:
    return one.words == other.words and all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("beta", "main", "occurrences")
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_guided_topic_is_that_of_its_words(seed: int) -> None:
    for guides in ([APPLES], [APPLES, BREADS]):
        assert themes(sampled(guides, seed=seed)) == [{"apple"}, {"bread"}]
    for guides in ([BREADS], [BREADS, APPLES]):
        assert themes(sampled(guides, seed=seed)) == [{"bread"}, {"apple"}]


def test_the_same_seed_has_the_same_bits() -> None:
    assert same(sampled(seed=5), sampled(seed=5))
    assert same(sampled([BREADS], seed=5), sampled([BREADS], seed=5))
    assert not same(sampled(seed=5), sampled(seed=6))


def test_every_word_of_the_documents_is_counted() -> None:
    drawn = sampled([APPLES], n_topics=3)
    assert drawn.occurrences.sum() == pytest.approx(150 * 12)
    assert len(drawn.main) == 150
    assert sorted(drawn.words) == sorted(WORDS)
    assert drawn.beta.shape == (3, 24)
    np.testing.assert_allclose(drawn.beta.sum(1), 1, rtol=1e-6)
    assert (drawn.beta > 0).all()


def test_without_tomotopy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomotopy", None)
    says = r"^F-LDA and guided LDA need the package tomotopy, which is not installed; install it "
    with pytest.raises(FedTopicsError, match=says + r"with: pip install 'fedtopics\[flda\]'$"):
        sampled()
