"""Languages of texts, what is missing for them, and scripts without spaces."""

# ruff: noqa: RUF001 - texts as people write them
import importlib.util
import warnings

import pytest
from stop_words import AVAILABLE_LANGUAGES

from fedtopics.errors import FedTopicsError
from fedtopics.text.languages import check_installed, find_likely, lemma_of, stop_words
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
    before = lemma_of.cache_info().currsize
    analyse(" ".join(n * "a" for n in range(101, 120)))
    assert lemma_of.cache_info().currsize == before


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("fr", "L’arbre, l'Arbre et d’arbres", ["arbre", "arbre", "arbres"]),
        ("fr", "qu’il jusqu'au l'a l'1er", []),
        ("fr", "aujourd’hui quelqu'un O’Brien", ["aujourd'hui", "quelqu'un", "o'brien"]),
        ("it", "L’albero dell'amico, quest’anno un'amica", ["albero", "amico", "anno", "amica"]),
        ("ca", "l’arbre d'aigua i l’home", ["arbre", "aigua", "home"]),
        ("en", "l’arbre l'arbre", ["l'arbre", "l'arbre"]),
    ],
)
def test_what_is_elided_is_no_part_of_a_noun(language: str, text: str, words: list[str]) -> None:
    assert [w for w in TextRules(languages=language).analyser()(text) if w != "un"] == words
    assert [w for w in TextRules(stop_words=language).analyser()(text) if w != "un"] == words


def test_elision_and_case_are_of_the_language_of_each_document() -> None:
    analyse = TextRules(languages=["fr", "tr"], stop_words="none").analyser()
    assert analyse("L’arbre est dans la forêt de la ville")[0] == "arbre"
    assert analyse("IŞIK İstanbul'da ve Ankara'da çok güzel bir şehir")[0] == "ışık"
    assert TextRules(languages="fr").analyser(str.split)("l’arbre") == ["l'arbre"], "one's own"


@pytest.mark.parametrize("language", sorted(AVAILABLE_LANGUAGES))
def test_every_stop_word_is_left_out_as_texts_have_it(language: str) -> None:
    """With warnings as errors, as scikit-learn's would be of twelve of these languages."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rules in (TextRules(stop_words=language), TextRules(languages=language)):
            analyse = rules.analyser()
            single = [w for w in stop_words(language) if len(analyse_all(rules, w)) <= 1]
            assert len(single) > 20
            assert analyse(" , ".join(single)) == []


def analyse_all(rules: TextRules, text: str) -> list[str]:
    return rules.model_copy(update={"stop_words": "none", "own_stop_words": ()}).analyser()(text)


def test_own_stop_words_are_read_as_texts_are() -> None:
    rules = TextRules(own_stop_words=("OAK", "Don’t", "New York", "cafe\u0301"))
    assert rules.analyser()("Oak don't café in York and New Haven; elm") == ["haven", "elm"]
    pairs = TextRules(own_stop_words=("New York",), ngrams=(1, 2), stop_words="none").analyser()
    assert pairs("new york elm") == ["new", "york", "elm", "york elm"]
    assert TextRules(own_stop_words=("OAK",), lowercase=False).analyser()("OAK oak") == ["oak"]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtopics.extras.find_spec", lambda name: None)
    check_installed((), False)
    check_installed(("german",), False)
    for languages, lemmas, package in (
        (("german",), True, "simplemma"),
        (("german", "english"), False, "py3langid"),
        (("detect",), False, "py3langid"),
        (("thai",), False, "icu4py"),
    ):
        with pytest.raises(FedTopicsError, match=rf"{package}, .*'fedtopics\[languages\]'"):
            check_installed(languages, lemmas)
    assert importlib.util.find_spec("simplemma")
