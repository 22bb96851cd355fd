"""What some of a client's documents tell of all: their languages, and scripts without spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from fedtopics.errors import DataError
from fedtopics.text.corpus import Corpus
from fedtopics.text.languages import BEGINNING, INSTALL, find_likely, is_unspaced, unspaced_runs

SAMPLE = 300  # documents that tell a client's languages
CLEAR = 10  # documents, each clearly of one language
MANY = 0.05  # share of documents
HAS = 0.5  # of a text's letters, in a script without spaces


def _sample(corpus: Corpus, clean: Callable[[str], str]) -> list[str]:
    """Return some hundred texts from the beginning to the end of a corpus, without empty ones."""
    rows = np.unique(np.linspace(0, len(corpus) - 1, min(SAMPLE, len(corpus))).astype(np.int64))
    texts = (clean(text)[:BEGINNING] for batch in corpus.take(rows).texts() for text in batch)
    return [text for text in texts if any(map(str.isalpha, text))]


def language_shares(corpus: Corpus, clean: Callable[[str], str]) -> dict[str, float]:
    """Return the share of documents in each language, by a sample; largest first, at least 5 %.

    Documents that may well be of several languages do not count, and too few tell nothing.

    Leaves the client
        Nothing.
    """
    likely = [find_likely(text) for text in _sample(corpus, clean)]
    found = Counter(first for first, *others in likely if not others)
    if found.total() < CLEAR:
        return {}
    return {name: n / found.total() for name, n in found.most_common() if n >= MANY * found.total()}


def check_spaces(corpus: Corpus, languages: Sequence[str], clean: Callable[[str], str]) -> None:
    """Raise DataError where texts without spaces between words would become a word a clause.

    Documents that are lists of words, and fewer than 5 % of them, are taken as they are.
    """
    if corpus.is_tokenised or is_unspaced(languages):
        return
    texts, runs = _sample(corpus, clean), unspaced_runs()
    unspaced = sum(
        sum(map(len, runs.findall(text))) > HAS * sum(map(str.isalpha, text)) for text in texts
    )
    if unspaced >= max(MANY * len(texts), 1):
        raise DataError(
            f"{unspaced / len(texts):.0%} of the documents are in scripts without spaces between "
            'words, such as Chinese or Thai: set languages in the study\'s [text], as in "zh" or '
            f'"detect", and install {INSTALL} at each client; or give lists of words.'
        )
