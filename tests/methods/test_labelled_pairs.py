"""Pairs of topics: which are drawn, how they are kept, and the threshold that labels give."""

import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from fedtopics.errors import DataError, InputError, RunError
from fedtopics.methods.flda.labelled_pairs import (
    Curve,
    TopicPair,
    check_free,
    decided_alike,
    draw_curve,
    fit_curve,
    read_pairs,
    read_topics,
    sample_evenly,
    sample_pairs,
    write_pairs,
)
from tests.helpers.labelled_pairs import MIRRORED, ROUNDS, write_run

SVG = "{http://www.w3.org/2000/svg}"
ALL = {
    ("oak elm", "oak", 0.8),
    ("oak elm", "sloop ketch", 0.0),
    ("ketch", "oak", 0.0),
    ("ketch", "sloop ketch", 0.6),
    ("fir", "fir", 1.0),
}


def told(cosine: float, same: int, different: int) -> list[TopicPair]:
    """So many pairs of the same cosine that a person found the same, and found different."""
    alike, apart = (TopicPair("oak", "elm", cosine, verdict) for verdict in (True, False))
    return [alike] * same + [apart] * different


def test_topics_of_a_run(tmp_path: Path) -> None:
    assert read_topics(write_run(tmp_path / "run")) == ROUNDS


@pytest.mark.parametrize("content", ["{", "[]", '{"north": {}}', '{"north": {"topics": [3]}}'])
def test_a_damaged_round(content: str, tmp_path: Path) -> None:
    (tmp_path / "topics-00001.json").write_text(content)
    with pytest.raises(RunError, match=r"topics-00001.json is damaged; copy the folder"):
        read_topics(tmp_path)


def test_pairs_are_of_different_clients_and_of_one_round() -> None:
    pairs = sample_pairs(ROUNDS)
    assert len(pairs) == 5
    assert {(pair.first, pair.second, pair.cosine) for pair in pairs} == ALL
    assert all(pair.same is None for pair in pairs)
    # The cosine is of all words, and the first are shown.
    pairs = sample_pairs(ROUNDS, n_words=1)
    assert ("oak", "oak", 0.8) in {(pair.first, pair.second, pair.cosine) for pair in pairs}


# 1000 values in the first tenth of their range, 3 in the sixth, 50 in the last
SKEWED = np.concatenate([np.linspace(0, 0.09, 1000), [0.51, 0.53, 0.55], np.linspace(0.95, 1, 50)])


@pytest.mark.parametrize(
    ("n", "low", "middle", "high"),
    [(1, 0, 0, 1), (3, 1, 1, 1), (9, 3, 3, 3), (30, 13, 3, 14), (200, 147, 3, 50)],
)
def test_equally_many_of_each_degree_if_there_are(n: int, low: int, middle: int, high: int) -> None:
    for seed in range(5):
        drawn = sample_evenly(SKEWED, n, seed)
        assert len(set(drawn.tolist())) == n
        assert np.histogram(SKEWED[drawn], [0, 0.4, 0.7, 1])[0].tolist() == [low, middle, high]


def test_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    pairs = [
        TopicPair("oak elm", "oak", 0.8),
        TopicPair('a,"b', "é", 0.123456, True),
        TopicPair("x", "y", 0, False),
    ]
    write_pairs(path, pairs)
    rows = ["oak elm,oak,0.800000,", '"a,""b",é,0.123456,1', "x,y,0.000000,0"]
    assert path.read_text("utf-8-sig") == "\n".join(["first,second,cosine,same", *rows, ""])
    assert read_pairs(path) == pairs
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.csv"]


def test_pairs_that_excel_has_saved_in_europe(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("\ufefffirst;second;cosine;same\r\na b;c d;0,5;1\r\n", "utf-8")
    assert read_pairs(path) == [TopicPair("a b", "c d", 0.5, True)]


HEADER = "first,second,cosine,same\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not a table of pairs, CSV in UTF-8 with the columns first, second, cosine, same"),
        (HEADER, "is not a table of pairs"),
        ("first,second,cosine,same,comment\na,b,.5,,\n", "is not a table of pairs"),
        (HEADER + "a,b,.5,\na,b,.5\n", r"pairs\.csv cannot be read: row 2 has 3 fields"),
        (HEADER + "a,b,high,\n", "^Row 1 of .* is not a pair with a cosine from 0 to 1"),
        (HEADER + "a,b,nan,\n", "^Row 1 of .* is not a pair with a cosine"),
        (HEADER + "a,b,1.5,\n", "^Row 1 of .* is not a pair with a cosine"),
        (HEADER + "a,b,.5,maybe\n", "^Row 1 of .* has an unknown label; write 1 for the same"),
    ],
)
def test_what_is_not_a_file_of_pairs(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        read_pairs(tmp_path / "pairs.csv")


def test_labels_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    check_free(path)
    write_pairs(path, [TopicPair("oak", "elm", 0.5)])
    check_free(path)
    write_pairs(path, [TopicPair("oak", "elm", 0.5), *MIRRORED])
    with pytest.raises(DataError, match=r"already contains 10 labels, which would be lost"):
        check_free(path)
    path.write_text("something of mine")
    with pytest.raises(InputError, match="fedtopics did not write it"):
        check_free(path)
    with pytest.raises(InputError, match="has to end in"):
        check_free(tmp_path)


def test_the_threshold_of_labels_that_are_symmetric_or_that_a_cosine_parts() -> None:
    curve = fit_curve(MIRRORED)
    assert curve.threshold == pytest.approx(0.4, abs=1e-3)
    assert curve.slope > 0
    assert curve.probability(np.array([0.4])) == pytest.approx(0.5, abs=1e-3)
    pairs = [TopicPair(p.first, p.second, p.cosine, p.cosine > 0.4) for p in MIRRORED]
    assert fit_curve(pairs).threshold == pytest.approx(0.4, abs=1e-3)


def test_the_curve_goes_through_the_shares_of_two_cosines() -> None:
    curve = fit_curve(told(0.2, same=2, different=8) + told(0.6, same=1, different=1))
    assert curve.threshold == pytest.approx(0.6, abs=1e-3)
    assert curve.slope == pytest.approx(math.log(4) / 0.4, rel=1e-2)
    np.testing.assert_allclose(curve.probability(np.array([0.2, 0.6])), [0.2, 0.5], atol=1e-3)


@pytest.mark.parametrize(("threshold", "alike"), [(0.0, 5), (0.4, 8), (0.5, 9), (0.65, 6), (1, 5)])
def test_how_many_pairs_a_threshold_decides_as_the_person(threshold: float, alike: int) -> None:
    assert decided_alike(MIRRORED, threshold) == alike


def test_the_picture() -> None:
    picture = ElementTree.fromstring(draw_curve(MIRRORED, Curve(-8.0, 20.0)))  # noqa: S314 - ours
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert "probability of the same topic" in texts
    assert "from a cosine of 0.400" in texts
    dots = [*picture.iter(f"{SVG}circle")]
    assert len(dots) == len(MIRRORED)
    assert len({dot.get("cy") for dot in dots}) == 2, "the same, and not"
