"""Typing mistakes in texts: how many words have one, and what it is."""

from __future__ import annotations

import pytest

from experiments.fstc.noise import damaged, mistakes

TEXTS = ["oaks and beeches along the river", "a ketch of two masts"] * 500


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 1.0])
def test_a_share_of_the_words_is_damaged(share: float) -> None:
    found = damaged(TEXTS, share, seed=3)
    words, others = (" ".join(texts).split() for texts in (TEXTS, found))
    changed = [(word, other) for word, other in zip(words, others, strict=True) if word != other]
    assert len(changed) / len(words) == pytest.approx(share, abs=0.02)
    assert all(other in mistakes(word) for word, other in changed)
    assert [len(text.split()) for text in found] == [len(text.split()) for text in TEXTS]


def test_the_seed_draws() -> None:
    assert damaged(TEXTS, 0.3, seed=3) == damaged(TEXTS, 0.3, seed=3)
    assert damaged(TEXTS, 0.3, seed=3) != damaged(TEXTS, 0.3, seed=4)


def test_a_mistake_changes_a_word_and_leaves_some_of_it() -> None:
    assert mistakes("two") == ["to", "tow", "ttwo", "tw", "twoo", "twwo", "wo", "wto"]
    assert mistakes("a") == ["aa"]
    assert "oo" not in mistakes("oo")
