"""What participants are told of texts before round 1: languages, and words in several forms."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedtopics.methods.events import Endings, Languages, OneForm
from fedtopics.text.cleaning import cleaner
from fedtopics.text.corpus import Corpus
from fedtopics.text.endings import families, has_one_form
from fedtopics.text.languages import DETECT, INSTALL, check_installed
from fedtopics.text.rules import TextRules
from fedtopics.text.samples import check_spaces, language_shares

MANY = 0.1  # of documents, or of words


def look_at_texts(client: str, corpus: Corpus, rules: TextRules) -> Languages | None:
    """Return which languages a client's documents are in, for itself; None where nobody can tell.

    Raises
    ------
    DataError
        If texts have no spaces between words, and the study names no language of such.
    FedTopicsError
        If a package is missing that the study's languages need.

    Leaves the client
        Nothing.
    """
    check_installed(rules.languages, rules.lemmas)
    clean = cleaner(rules.html, rules.addresses)
    check_spaces(corpus, rules.languages, clean)
    shares = language_shares(corpus, clean) if find_spec("py3langid") else {}
    if not shares:
        return None
    taken = rules.languages or (rules.stop_words,)
    other = [name for name, share in shares.items() if name not in taken and share >= MANY]
    fits = not other or corpus.is_tokenised or taken[0] in (DETECT, "none")
    return Languages(client, shares, "" if fits else _advice(other, rules, taken))


def _advice(other: Sequence[str], rules: TextRules, taken: Sequence[str]) -> str:
    return (
        f"stop words of {_listed(taken)} are left out and those of {_listed(other)} are not;"
        f' set languages in the study\'s [text], as in "detect", which needs {INSTALL}'
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(map(str.title, names))


def find_endings(words: Sequence[str], rules: TextRules) -> Endings | None:
    """Return how many of the agreed words differ from another by their ending, if they are many.

    Where texts become base forms, what is left is mostly words that are different ones.
    """
    if rules.lemmas:
        return None
    groups = families(words)
    share = sum(map(len, groups)) / len(words)
    if share < MANY:
        return None
    examples = [words[row] for row in min(groups, key=lambda rows: rows.min())]
    return Endings(len(words), share, examples, _one_form(rules))


def find_one_form(client: str, words: Sequence[str], bag: Any, rules: TextRules) -> OneForm | None:
    """Return that a client's documents seem to hold base forms, where others' do not."""
    groups = families(words)
    there = np.bincount(bag.indices, minlength=len(words)) > 0
    if not groups or not has_one_form(groups, there):
        return None
    share = sum(map(len, groups)) / len(words)
    return OneForm(client, len(groups), share, _one_form(rules))


def _one_form(rules: TextRules) -> str:
    if rules.lemmas:
        return "texts become base forms here: give each client's documents as texts, not as lists"
    return (
        "to count them as one, set lemmas = true and languages in the study's [text], and where "
        "documents are lists of words, make the lists of base forms"
    )
