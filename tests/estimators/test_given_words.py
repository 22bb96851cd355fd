"""Words that people give: they mean what texts say, however they are written."""

# ruff: noqa: RUF001 - texts as people write them
from typing import Any

import pytest

from fedtopics import NMF, GuidedLDA
from fedtopics.errors import StudyError

TREES = ["Oak and beech and fir grow here", "Fir, beech and l’Arbre"] * 30
BOATS = ["Ketch and sloop o’clock sail", "A yawl and a sloop and a ketch"] * 30


@pytest.mark.parametrize("estimator", [NMF, GuidedLDA])
def test_seeds_are_read_as_texts_are(estimator: Any) -> None:
    def topics(*seeds: list[str]) -> list[list[str]]:
        fitted = estimator(n_components=2, seed_topics=[*seeds]).fit(TREES + BOATS)
        return [sorted(words) for words in fitted.topics_]

    assert topics(["OAK", "Beech"]) == topics(["oak", "be\u00adech"])
    assert topics(["O’CLOCK"], ["L'ARBRE"]) == topics(["o'clock"], ["l’arbre"])
    assert topics(["the", "Oak"]) == topics(["oak"]), "a stop word beside others"


@pytest.mark.parametrize("estimator", [NMF, GuidedLDA])
@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        (
            [["oak"], ["Scloop", "x"]],
            "No word of topic 1 of .* vocabulary: scloop, x. Give words "
            "that documents have, such as sloop.",
        ),
        ([["oak"], ["1234"]], "No word of topic 1 .* 1234. Give words that documents have."),
        ([["The", "AND"]], "All words of topic 0 of seed_topics are stop words, .*: the, and."),
        ([["oak"], ["Oak"]], "like documents, topic 1 of seed_topics repeats another"),
    ],
)
def test_seeds_that_no_document_has_are_refused(estimator: Any, seeds: Any, says: str) -> None:
    with pytest.raises(StudyError, match=says):
        estimator(n_components=3, seed_topics=seeds).fit(TREES + BOATS)


def test_topics_are_found_by_words_however_they_are_written() -> None:
    model = NMF(2).fit(TREES + BOATS).model_
    for query in ("O’clock", ["O'CLOCK"], ["o’clock"], "o'c\u200block"):
        assert model.find_topics(query) == model.find_topics("o'clock")
    assert model.match_terms({"x": ["O’CLOCK"]}) == model.match_terms({"x": ["o'clock"]})
