"""What participants are told of texts before the first round, and what studies make of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, Study
from fedtopics.errors import DataError
from fedtopics.text.checks import READ, check_spaces, check_texts, language_shares
from fedtopics.text.languages import language_sentence, stop_words
from fedtopics.text.rules import TextRules
from tests.helpers.background import Notes
from tests.helpers.federation import train_and_note
from tests.helpers.texts_of_the_world import ALL, CHINESE, ENGLISH, GERMAN


def trained(clients: dict[str, Any], **text: Any) -> tuple[Any, Notes]:
    method = {"name": "lda", "n_components": 2, "max_rounds": 2, "batch_size": 100}
    limits = {"min_persons_per_word": 2, "min_clients_per_word": 1, "max_document_share": 1.0}
    study = Study.make(method=method, text=text, vocabulary=limits)
    return train_and_note(
        study, {name: Corpus.of(documents) for name, documents in clients.items()}, policies={}
    )


def test_a_model_of_five_languages_has_words_alone(tmp_path: Path) -> None:
    clients = {name: texts * 8 for name, texts in ALL.items()}
    clients["german"] = [*clients["german"], "", "<p></p>"]
    model, events = trained(clients, languages="detect", lemmas=True)
    words = set(model.vocabulary.words)
    assert {"baum", "árbol", "tree", "公园", "樱花", "zug", "tren", "train", "電車"} <= words
    assert words & frozenset().union(*map(stop_words, ALL)) <= {"war"}
    assert not words & {"script", "html", "div", "nbsp", "example", "www", "https", "var", "info"}
    assert {
        event["client"]: (event["languages"], event["advice"]) for event in events.of("languages")
    } == {name: ({name: 1.0}, "") for name in ALL}
    texts = [*GERMAN, "", "<br>", *CHINESE]
    theta = model.transform(texts)
    assert theta.shape == (10, 2)
    np.testing.assert_allclose(theta[[4, 5]], 0.5)
    np.testing.assert_array_equal(theta[:4], model.transform(GERMAN))
    again = type(model).from_pretrained(model.save_pretrained(tmp_path))
    assert again.text == model.text
    np.testing.assert_array_equal(again.transform(texts), theta)


def test_languages_that_the_study_does_not_have_are_told_to_their_client() -> None:
    _, events = trained({"north": GERMAN * 6, "south": ENGLISH * 6})
    told = {event["client"]: language_sentence(event) for event in events.of("languages")}
    assert told["south"] == "documents of south are in English (100%)"
    assert told["north"] == (
        "documents of north are in German (100%); stop words of English are removed but not those "
        'of German; set languages = "de", or if others have another language, "detect" with '
        "'fedtopics[languages]'"
    )


def test_lists_of_words_and_no_stop_words_get_no_advice() -> None:
    for corpus, rules in [
        (Corpus.of([text.split() for text in GERMAN] * 5), TextRules()),
        (Corpus.of(GERMAN * 5), TextRules(stop_words="none")),
        (Corpus.of(GERMAN * 5), TextRules(stop_words="de")),
        (Corpus.of(GERMAN * 5), TextRules(languages=["en", "de"])),
    ]:
        assert check_texts(corpus, rules) == ({"german": 1.0}, "")


def test_a_script_without_spaces_ends_before_anything_leaves() -> None:
    with pytest.raises(DataError, match=r"^Client 'east': 100% of the documents are in scripts"):
        trained({"east": CHINESE * 5})


def test_shares_are_of_clear_texts() -> None:
    texts = [*GERMAN * 6, *ENGLISH * 2, "", "42", "boiler"]
    assert language_shares(Corpus.of(texts), str) == {"german": 0.75, "english": 0.25}
    assert language_shares(Corpus.of(["", "42"]), str) == {}


def test_of_a_book_the_beginning_is_read() -> None:
    read: list[int] = []
    texts = [10 * READ * "Wald "] * 3 + ["<p>" + READ * "x"]
    language_shares(Corpus.of(texts), lambda text: str(read.append(len(text))))
    assert read == [READ] * 4


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
