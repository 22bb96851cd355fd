"""Texts with typing mistakes, which stand for the noise of real texts."""

from __future__ import annotations

import numpy as np


def damaged(texts: list[str], share: float, seed: int) -> list[str]:
    """Return texts of which each word has a typing mistake with the probability `share`.

    Examples
    --------
    >>> damaged(["two oaks", "a ketch and a sloop"], 0.5, seed=1)
    ['two ooaks', 'aa ketch and a solop']
    """
    rng = np.random.default_rng(seed)
    return [" ".join(_typed(word, share, rng) for word in text.split()) for text in texts]


def _typed(word: str, share: float, rng: np.random.Generator) -> str:
    drawn, which = rng.random(2)
    known = mistakes(word) if drawn < share else [word]
    return known[int(which * len(known))]


def mistakes(word: str) -> list[str]:
    """Return what becomes of a word with two letters swapped, one dropped or one doubled.

    Examples
    --------
    >>> mistakes("oak")
    ['ak', 'aok', 'oa', 'oaak', 'oakk', 'ok', 'oka', 'ooak']
    """
    places = range(len(word))
    swapped = {word[:i] + word[i : i + 2][::-1] + word[i + 2 :] for i in places}
    dropped = {word[:i] + word[i + 1 :] for i in places if len(word) > 1}
    doubled = {word[: i + 1] + word[i:] for i in places}
    return sorted((swapped | dropped | doubled) - {word})
