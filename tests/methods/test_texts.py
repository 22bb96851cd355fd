"""What participants are told of texts before the first round, and what studies make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import DataError
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.sentences import sentence_on_texts
from fedtopics.methods.texts import look_at_texts
from fedtopics.text.corpus import Corpus
from fedtopics.text.languages import stop_words
from fedtopics.text.rules import TextRules
from tests.helpers.texts_of_the_world import ALL, CHINESE, ENGLISH, GERMAN

WORDS = (
    "fund plant walk paint repair report train farm sail boat garden harvest market bridge forest "
    "river mountain letter window kitchen school teacher doctor engine wheel street tower castle "
    "island meadow orchard barn hammer basket bottle lantern"
)
STEMS = WORDS.split()
PLAIN = "oak elm fir ash yew bay sea sky"  # differ from no word by an ending


def trained(clients: dict[str, Any], **text: Any) -> tuple[Any, list[dict[str, Any]]]:
    study = Study.make(
        method={"name": "lda", "n_components": 2, "max_rounds": 2, "batch_size": 100},
        text=text,
        vocabulary={"min_document_frequency": 2, "max_document_share": 1.0},
    )
    events: list[dict[str, Any]] = []
    corpora = {name: Corpus.of(documents) for name, documents in clients.items()}
    model = train(study, corpora, policies={}, on_event=events.append)
    return model, events


def test_a_model_of_five_languages_has_words_alone() -> None:
    clients = {name: texts * 8 for name, texts in ALL.items()}
    clients["german"] = [*clients["german"], "", "<p></p>"]
    model, events = trained(clients, languages="detect", lemmas=True)
    words = set(model.vocabulary.words)
    assert {"baum", "árbol", "tree", "公园", "樱花", "zug", "tren", "train", "電車"} <= words
    every = frozenset().union(*map(stop_words, ALL))
    assert words & every <= {"war"}
    assert not words & {"script", "html", "div", "nbsp", "example", "www", "https", "var", "info"}
    told = {e["client"]: e["languages"] for e in events if e["event"] == "languages"}
    assert told == {name: {name: 1.0} for name in ALL}
    assert not any(e["advice"] for e in events if e["event"] == "languages")
    texts = [*GERMAN, "", "<br>", *CHINESE]
    theta = model.transform(texts)
    assert theta.shape == (10, 2)
    np.testing.assert_allclose(theta[[4, 5]], 0.5)
    np.testing.assert_array_equal(theta[:4], model.transform(GERMAN))


def test_a_model_on_disk_reads_texts_as_in_training(tmp_path: Path) -> None:
    model, _ = trained({"german": GERMAN * 8}, languages="detect", lemmas=True)
    again = type(model).from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert again.text == model.text
    np.testing.assert_array_equal(again.transform(GERMAN), model.transform(GERMAN))


def test_languages_that_the_study_does_not_have_are_told_to_their_client() -> None:
    _, events = trained({"north": GERMAN * 6, "south": ENGLISH * 6})
    told = {e["client"]: sentence_on_texts(e) for e in events if e["event"] == "languages"}
    assert told["south"] == "documents of south are in English (100%)"
    assert told["north"] == (
        "documents of north are in German (100%); stop words of English are left out and those of "
        'German are not; set languages in the study\'s [text], as in "detect", which needs '
        "'fedtopics[languages]'"
    )


def test_lists_of_words_and_no_stop_words_get_no_advice() -> None:
    for corpus, rules in [
        (Corpus.of([text.split() for text in GERMAN] * 5), TextRules()),
        (Corpus.of(GERMAN * 5), TextRules(stop_words="none")),
        (Corpus.of(GERMAN * 5), TextRules(stop_words="de")),
        (Corpus.of(GERMAN * 5), TextRules(languages=["en", "de"])),
    ]:
        event = look_at_texts("north", corpus, rules)
        assert event is not None
        assert (event.languages, event.advice) == ({"german": 1.0}, "")


def test_a_script_without_spaces_ends_before_anything_leaves() -> None:
    with pytest.raises(DataError, match=r"^Client 'east': 100% of the documents are in scripts"):
        trained({"east": CHINESE * 5})


def documents(forms: list[str], n: int = 60) -> list[str]:
    rng = np.random.default_rng(len(forms))
    drawn = (rng.choice(STEMS, 24) for _ in range(n))
    return [" ".join([PLAIN, *(stem + rng.choice(forms) for stem in each)]) for each in drawn]


def test_before_round_1_people_hear_of_words_that_differ_by_their_endings() -> None:
    clients = {"lemmas": documents([""]), "raw": documents(["", "s", "ing"])}
    _, events = trained(clients)
    kinds = [event["event"] for event in events]
    assert kinds.index("vocabulary") < kinds.index("endings") < kinds.index("round")
    [endings] = [event for event in events if event["event"] == "endings"]
    share = 108 / 116
    assert (endings["words"], endings["share"]) == (116, share)
    assert len(endings["examples"]) == 3
    assert sentence_on_texts(endings).startswith(
        "93% of the 116 agreed words differ from another by their ending alone, such as "
    )
    assert sentence_on_texts(endings).endswith("make the lists of base forms")
    [one] = [event for event in events if event["event"] == "one form"]
    assert (one["client"], one["families"], one["share"]) == ("lemmas", 36, share)
    assert "documents of lemmas have two more seldom" in sentence_on_texts(one)


def test_base_forms_end_what_the_warning_is_about() -> None:
    clients = {"lemmas": documents([""]), "raw": documents(["", "s"])}
    model, events = trained(clients, languages="en", lemmas=True)
    assert set(model.vocabulary.words) == {*STEMS, *PLAIN.split()}
    assert not [e for e in events if e["event"] in ("endings", "one form")]
