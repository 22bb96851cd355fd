"""Languages of texts, what is missing for them, and scripts without spaces."""

from __future__ import annotations

import importlib.util

import pytest

from fedtopics.errors import FedTopicsError
from fedtopics.text.languages import _lemma, check_installed, find_likely, stop_words
from fedtopics.text.rules import TextRules


def test_a_short_text_may_be_of_several_languages() -> None:
    assert find_likely("The boiler is broken", ["dutch", "english"]) == ["english", "dutch"]
    assert find_likely("The forester planted a tree", ["dutch", "english"]) == ["english"]
    assert find_likely("", ["dutch"]) == ["dutch"]


def test_stop_words_of_scripts_without_spaces_are_words() -> None:
    assert {"我们", "的"} <= stop_words("chinese")
    assert "และ" in stop_words("thai")
    assert not stop_words("khmer")


def test_words_that_are_too_long_are_not_kept_in_memory() -> None:
    analyse = TextRules(languages="de", lemmas=True).analyser()
    assert analyse("Wälder " + 101 * "a") == ["wald"]
    before = _lemma.cache_info().currsize
    analyse(" ".join(n * "a" for n in range(101, 120)))
    assert _lemma.cache_info().currsize == before


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
