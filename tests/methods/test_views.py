"""Views of texts: words left out, words replaced by their neighbours, and whose they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.methods.clusters.views import (
    ViewSettings,
    embedded_views,
    nearest_words,
    neighbours,
    shorten,
    text_views,
)
from fedtopics.methods.core.plan import Site
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings

ANGLES = {"oak": 0.0, "elm": 0.1, "ash": 0.25, "ketch": 1.5, "sloop": 1.4, "yawl": 1.2, "junk": 1.0}


class Compass:
    """An encoder of words that are directions in the plane."""

    fingerprint = "compass"

    def __init__(self, folder: Path, kind: str = "WordPiece") -> None:
        pieces = [*ANGLES, "##ing", "at", "2026"]
        vocabulary = (
            dict.fromkeys(pieces) if kind == "WordPiece" else [[piece, 0] for piece in pieces]
        )
        content = {"model": {"type": kind, "vocab": vocabulary}}
        (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")
        self.folder = folder
        self.asked: list[str] = []

    def __call__(self, texts: list[str]) -> Any:
        self.asked += texts
        angles = [np.mean([ANGLES[word] for word in text.split()]) for text in texts]
        return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def use(encoder: Compass, monkeypatch: pytest.MonkeyPatch) -> Compass:
    neighbours.cache_clear()
    monkeypatch.setenv("FEDTOPICS_CACHE", "off")
    for module in ("methods.clusters.views", "text.embeddings"):
        monkeypatch.setattr(f"fedtopics.{module}.sentence_encoder", lambda model: encoder)
    return encoder


def site(texts: list[str]) -> Site:
    return Site("north", Corpus.of(texts), OPEN_POLICY)


PLANE = EmbeddingSettings(model="x", dimension=2)


# Words left out


def test_a_shortened_text_keeps_words_in_their_order() -> None:
    text = " ".join(f"w{i:03d}" for i in range(1000))
    (short,) = shorten([text], 0.2, 0)
    words = short.split()
    assert words == sorted(words)
    assert 760 < len(words) < 840


# Words replaced


def test_the_nearest_words_come_first_and_never_the_word_itself() -> None:
    words = list(ANGLES)
    vectors = np.array([[np.cos(a), np.sin(a)] for a in ANGLES.values()], np.float32)
    near = nearest_words(words, vectors)
    assert near["oak"] == ["elm", "ash", "junk", "yawl", "sloop"]
    assert near["ketch"][:2] == ["sloop", "yawl"]
    assert nearest_words(words[:2], vectors[:2]) == {"oak": ["elm"], "elm": ["oak"]}


def test_words_are_the_tokenizers_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = use(Compass(tmp_path), monkeypatch)
    near = neighbours(PLANE, None)
    assert near.keys() == ANGLES.keys()
    assert near["elm"][:2] == ["oak", "ash"]
    assert encoder.asked == list(ANGLES)


def test_a_tokenizer_without_whole_words_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Compass(tmp_path, "Unigram"), monkeypatch)
    message = r"'north' .* no pieces that are whole words; .* Or set deletion = 0 and synonyms = 0"
    with pytest.raises(StudyError, match=message):
        embedded_views(Corpus.of(["oak"]), ViewSettings(synonyms=0.1), PLANE, site(["oak"]))


# Both


def test_two_views_of_all_texts_and_their_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Compass(tmp_path), monkeypatch)
    texts = ["oak elm", "sloop"]
    settings = ViewSettings(synonyms=1.0, deletion=0.4)
    views = text_views(Corpus.of(texts), settings, PLANE, site(texts))
    assert [len(view) for view in views] == [2, 2]
    for view in views:
        assert not set(view[1].split()) & {"sloop", ""}, "every word is another"
        assert 1 <= len(view[0].split()) <= 2
    embedded = embedded_views(Corpus.of(texts), settings, PLANE, site(texts))
    angles = [[np.mean([ANGLES[word] for word in text.split()]) for text in view] for view in views]
    expected = np.stack([np.cos(angles), np.sin(angles)], 2)
    np.testing.assert_allclose(embedded, expected, atol=1e-6)
