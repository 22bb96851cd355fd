"""Warnings about a client's texts before training: their languages, and scripts without spaces."""

from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np

from fedtopics.errors import DataError
from fedtopics.text.corpus import Corpus
from fedtopics.text.languages import (
    BEGINNING,
    DETECT,
    INSTALL,
    NAMES,
    check_installed,
    find_likely,
    is_unspaced,
    unspaced_runs,
)
from fedtopics.text.rules import TextRules, cleaner

SAMPLED = 300  # documents checked
READ = 1 << 17  # characters read of each, including mark-up: a document can be a book
CLEAR_DOCUMENTS = 10  # least number of documents clearly in one language
NAMED_SHARE = 0.05  # least share of documents for a reported language or an unspaced script
MANY = 0.1  # least share of documents in a language that the rules lack
HAS = 0.5  # least share of a text's letters in a script without spaces


def check_texts(corpus: Corpus, rules: TextRules) -> tuple[dict[str, float], str]:
    """Return the share of documents per language, and advice if the rules do not fit."""
    check_installed(rules.languages, rules.lemmas)
    clean = cleaner(rules.html, rules.addresses)
    check_spaces(corpus, rules.languages, clean)
    shares = language_shares(corpus, clean) if find_spec("py3langid") else {}
    taken = rules.languages or (rules.stop_words,)
    other = [name for name, share in shares.items() if name not in taken and share >= MANY]
    if not other or corpus.is_tokenised or taken[0] in (DETECT, "none"):
        return shares, ""
    codes = [NAMES[name] for name in shares if shares[name] >= MANY]
    one = f'"{codes[0]}", or if others have another language, ' if len(codes) == 1 else ""
    return shares, (
        f"stop words of {_listed(taken)} are removed but not those of {_listed(other)}; set "
        f'languages = {one}"detect" with {INSTALL}'
    )


def language_shares(corpus: Corpus, clean: Callable[[str], str]) -> dict[str, float]:
    """Return each language's share, if at least 5 %, of the documents clearly in one language."""
    likely = [find_likely(text) for text in _sample(corpus, clean)]
    counts = Counter(first for first, *others in likely if not others)
    n = counts.total()
    least = NAMED_SHARE * n if n >= CLEAR_DOCUMENTS else np.inf
    return {name: count / n for name, count in counts.most_common() if count >= least}


def check_spaces(corpus: Corpus, languages: Sequence[str], clean: Callable[[str], str]) -> None:
    """Raise DataError if texts without spaces would be split into clauses instead of words."""
    if corpus.is_tokenised or is_unspaced(languages):
        return
    texts = _sample(corpus, clean)
    runs = unspaced_runs()
    unspaced = sum(
        sum(map(len, runs.findall(text))) > HAS * sum(map(str.isalpha, text)) for text in texts
    )
    if unspaced >= max(NAMED_SHARE * len(texts), 1):
        raise DataError(
            f"{unspaced / len(texts):.0%} of the documents are in scripts without spaces between "
            'words, such as Chinese or Thai; set languages in the study\'s [text], such as "zh" or '
            f'"detect", and install {INSTALL} at each client, or give lists of words.'
        )


def _sample(corpus: Corpus, clean: Callable[[str], str]) -> list[str]:
    """Return a few hundred texts spread over a corpus, without empty ones."""
    rows = np.unique(np.linspace(0, len(corpus) - 1, min(SAMPLED, len(corpus))).astype(np.int64))
    texts = (
        clean(text[:READ])[:BEGINNING] for batch in corpus.take(rows).texts() for text in batch
    )
    return [text for text in texts if any(map(str.isalpha, text))]


def _listed(names: Sequence[str]) -> str:
    return " and ".join(map(str.title, names))
