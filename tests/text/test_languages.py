"""Languages of texts, what is missing for them, and scripts without spaces."""

from __future__ import annotations

import importlib.util

import pytest

from fedtopics.errors import DataError, FedTopicsError
from fedtopics.text.cleaning import cleaner
from fedtopics.text.corpus import Corpus
from fedtopics.text.languages import check_installed, find_likely, stop_words
from fedtopics.text.samples import check_spaces, language_shares
from tests.helpers.texts_of_the_world import ALL, CHINESE, ENGLISH, GERMAN


@pytest.mark.parametrize("language", ALL)
def test_texts_are_of_their_language(language: str) -> None:
    assert language_shares(Corpus.of(ALL[language] * 5), cleaner("auto", "drop")) == {language: 1}


def test_shares_are_of_clear_texts() -> None:
    texts = [*GERMAN * 6, *ENGLISH * 2, "", "42", "boiler"]
    assert language_shares(Corpus.of(texts), str) == {"german": 0.75, "english": 0.25}
    assert language_shares(Corpus.of(["", "42"]), str) == {}


def test_a_short_text_may_be_of_several_languages() -> None:
    assert find_likely("The boiler is broken", ["dutch", "english"]) == ["english", "dutch"]
    assert find_likely("The forester planted a tree", ["dutch", "english"]) == ["english"]
    assert find_likely("", ["dutch"]) == ["dutch"]


def test_stop_words_of_scripts_without_spaces_are_words() -> None:
    assert {"我们", "的"} <= stop_words("chinese")
    assert "และ" in stop_words("thai")
    assert not stop_words("khmer")


def test_scripts_without_spaces_are_refused_in_a_sentence() -> None:
    corpus = Corpus.of([*CHINESE * 3, *ENGLISH * 6])
    says = r"^\d+% of the documents are in scripts without spaces .* 'fedtopics\[languages\]'"
    with pytest.raises(DataError, match=says) as error:
        check_spaces(corpus, ("english",), str)
    assert "公园" not in str(error.value)
    check_spaces(corpus, ("detect",), str)
    check_spaces(corpus, ("chinese",), str)
    check_spaces(Corpus.of([["公园", "樱花"]]), (), str)
    check_spaces(Corpus.of([*ENGLISH * 10, CHINESE[0]]), (), str)  # fewer than 5 %
    check_spaces(Corpus.of([""]), (), str)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtopics.extras.find_spec", lambda name: None)
    check_installed((), False)
    check_installed(("german",), False)
    for languages, lemmas, package in [
        (("german",), True, "simplemma"),
        (("german", "english"), False, "py3langid"),
        (("detect",), False, "py3langid"),
        (("thai",), False, "icu4py"),
    ]:
        with pytest.raises(FedTopicsError, match=rf"{package}, .*'fedtopics\[languages\]'"):
            check_installed(languages, lemmas)
    assert importlib.util.find_spec("simplemma")
