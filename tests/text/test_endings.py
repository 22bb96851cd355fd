"""Words that differ by their endings."""

from __future__ import annotations

import numpy as np

from fedtopics.text.endings import families, has_one_form


def test_families() -> None:
    words = ["funds", "oak", "fund", "oaks", "funding", "baum", "baumes", "refund", "fundamental"]
    assert sorted(rows.tolist() for rows in families(words)) == [[0, 2, 4], [5, 6]]
    assert families(["word2", "word22", "tree oak", "tree oaks"]) == []
    assert families([]) == []


def test_one_form_is_told_from_few_words() -> None:
    stems = [f"stem{letter}{other}" for letter in "abcdef" for other in "ghijkl"]
    words = [word for stem in stems for word in (stem, f"{stem}ed")] + [f"w{n}" for n in range(40)]
    groups = families(words)
    assert len(groups) == len(stems)
    lemmas = np.array([not word.endswith("ed") for word in words])
    assert has_one_form(groups, lemmas)
    assert not has_one_form(groups, np.ones(len(words), bool))
    rng = np.random.default_rng(1)
    assert not has_one_form(groups, rng.random(len(words)) < 0.95)
    assert not has_one_form(groups, rng.random(len(words)) < 0.1), "too few words to tell"
