"""Tests of what a reply must look like."""

from typing import Any

import numpy as np
import pytest

from fedtopics.contract.payload import CountsByWord, SparseRows
from fedtopics.contract.replies import (
    AgreeingPairs,
    Announced,
    Bounds,
    UpTo,
    Windows,
    WordCountBounds,
    counts,
    find_fault,
)
from tests.helpers import hostile

COUNT = counts()
TEMPLATE = {
    "n": COUNT,
    "x": (2, "words"),
    "words": ["words"],
    "rows": Bounds(("words", 2), rows=True),
    "map": {"y": ("other",), "z": Bounds()},
}


def rows(index: list[int], values: list[list[float]], n_rows: int) -> SparseRows:
    return SparseRows(np.array(index, np.int64), np.array(values, np.float64), n_rows)


def fitting(**other: Any) -> dict[str, Any]:
    return {
        "n": 3,
        "x": np.zeros((2, 4)),
        "words": ["a", "b", "c", "d"],
        "rows": rows([1], [[1, 2]], n_rows=4),
        "map": {"y": np.zeros(7), "z": 0.5},
    } | other


def test_a_reply_without_fault() -> None:
    assert find_fault(fitting(), TEMPLATE) == ""
    none = {"x": np.zeros((2, 0)), "words": [], "rows": rows([], np.zeros((0, 2)).tolist(), 0)}
    none["rows"] = SparseRows(np.zeros(0, np.int64), np.zeros((0, 2)), 0)
    assert find_fault(fitting(**none), TEMPLATE) == ""
    assert find_fault(fitting(map={"y": np.zeros(0), "z": -1.0}), TEMPLATE) == ""
    assert find_fault({}, {}) == ""


FIELDS = "the reply does not have the fields ['map', 'n', 'rows', 'words', 'x']"
CANNOT = "contains numbers outside the agreed bounds"
NOT_FINITE = "contains NaN or infinite numbers"
NAN = float("nan")


def of_shape(field: str, found: Any, wanted: Any) -> str:
    return f"its field {field!r} has the shape {found} instead of {wanted}"


FAULTS = [
    ([1, 2], FIELDS),
    ({"n": 3}, FIELDS),
    (fitting(extra=1), FIELDS),
    (fitting(map={"y": np.zeros(7)}), "its field 'map' does not have the fields ['y', 'z']"),
    (fitting(n=np.zeros(1)), of_shape("n", (1,), ())),
    (fitting(n="3"), of_shape("n", None, ())),
    (fitting(x=[[0.0]]), of_shape("x", None, (2, "words"))),
    (fitting(x=np.zeros((3, 4))), of_shape("x", (3, 4), (2, "words"))),
    (fitting(words=["a", "b", "c"]), of_shape("words", (3,), ("words",))),  # one length, two values
    (fitting(rows=rows([1], [[1, 2]], n_rows=5)), of_shape("rows", (5, 2), ("words", 2))),
    (fitting(rows=rows([1], [[1]], n_rows=4)), of_shape("rows", (4, 1), ("words", 2))),
    (fitting(words=["a", 2, "c", "d"]), "its field 'words' is not a list of words"),
    (fitting(words="abcd"), "its field 'words' is not a list of words"),
    (fitting(n=3.0), "its field 'n' contains float64 instead of int64"),
    (fitting(n=-1), f"its field 'n' {CANNOT}"),
    (fitting(n=2**63 - 1), f"its field 'n' {CANNOT}"),  # too many to be added up
    (fitting(x=np.zeros((2, 4), np.int64)), "its field 'x' contains int64 instead of float64"),
    (
        fitting(rows=np.zeros((4, 2))),
        "its field 'rows' contains float64 instead of rows of float64",
    ),
    (
        fitting(x=rows([1], [[1, 2, 3, 4]], n_rows=2)),
        "its field 'x' contains rows of float64 instead of float64",
    ),
    (
        fitting(map={"y": np.zeros(7), "z": 1}),
        "its field 'map.z' contains int64 instead of float64",
    ),
    (fitting(x=np.full((2, 4), 1e31)), f"its field 'x' {CANNOT}"),
    (fitting(x=np.full((2, 4), NAN)), f"its field 'x' {NOT_FINITE}"),
    (fitting(rows=rows([1], [[1, NAN]], n_rows=4)), f"its field 'rows' {NOT_FINITE}"),
    (fitting(map={"y": np.zeros(7), "z": -np.inf}), f"its field 'map.z' {NOT_FINITE}"),
]


@pytest.mark.parametrize(("reply", "sentence"), FAULTS)
def test_faults(reply: Any, sentence: str) -> None:
    assert find_fault(reply, TEMPLATE) == sentence


def test_numbers_beyond_their_bounds_are_a_fault() -> None:
    most = np.array([[9.0], [0.0], [2.0]])
    dense, sparse = ({"x": Bounds((3, 2), most, 0, rows=rows)} for rows in (False, True))
    allowed = rows([0, 2], [[9.0, 0.0], [2.0, 1.0]], 3)
    assert not find_fault({"x": allowed}, sparse)
    assert not find_fault({"x": allowed.dense()}, dense)
    assert CANNOT in find_fault({"x": rows([0, 2], [[9.1, 0.0], [2.0, 1.0]], 3)}, sparse)
    assert CANNOT in find_fault({"x": rows([1, 2], [[9.0, 0.0], [2.0, 1.0]], 3)}, sparse)
    assert CANNOT in find_fault({"x": -allowed.dense()}, dense)
    assert "NaN" in find_fault({"x": allowed.dense() * np.nan}, dense)


def test_a_document_adds_so_much_and_no_more() -> None:
    template = {"x": Bounds((2,), per_document=0.5), "documents": COUNT}
    cannot = f"its field 'x' {CANNOT}"
    assert find_fault({"x": np.array([-2.0, 2.0]), "documents": 4}, template) == ""
    assert find_fault({"x": np.array([-2.1, 2.0]), "documents": 4}, template) == cannot
    assert find_fault({"x": np.array([0.1, 0.0]), "documents": 0}, template) == cannot
    whole = {"x": counts(2, per_document=1), "documents": COUNT}
    assert find_fault({"x": np.array([4, 0]), "documents": 4}, whole) == ""
    assert find_fault({"x": np.array([5, 0]), "documents": 4}, whole) == cannot


def test_shares_add_up_to_the_documents() -> None:
    template = {"theta": Bounds((2,), least=0, adds_up=True), "documents": COUNT}
    assert find_fault({"theta": np.array([1.5, 2.5]), "documents": 4}, template) == ""
    assert (
        find_fault({"theta": np.array([1.5, 2.4]), "documents": 4}, template)
        == "its field 'theta' does not add up to the number of documents"
    )
    assert (
        find_fault({"theta": np.array([-1000.0, 1004.0]), "documents": 4}, template)
        == f"its field 'theta' {CANNOT}"
    )


def test_nobody_has_more_documents_than_it_said() -> None:
    template = {"documents": Announced({"a": 5, "b": 7})}
    cannot = f"its field 'documents' {CANNOT}"
    for of, most in ((["a"], 5), (["b"], 7), (["a", "b"], 12)):
        assert find_fault({"documents": most}, template, of) == ""
        assert find_fault({"documents": most + 1}, template, of) == cannot


def named(**by_word: list[int]) -> CountsByWord:
    return CountsByWord(
        sorted(by_word), np.array([by_word[word] for word in sorted(by_word)], np.int64)
    )


ODD = "its field 'words' contains impossible counts of words"
NO_WORDS = "its field 'words' contains invalid words, or they are not sorted"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (named(elm=[1, 2, 1, 1], oak=[9, 9, 1, 1]), ""),
        (CountsByWord.columns(4), ""),
        (named(oak=[1, 1]), "its field 'words' does not contain counts by word"),
        (["oak"], "its field 'words' does not contain counts by word"),
        (named(oak=[0, 1, 1, 0]), ODD),  # in no document
        (named(oak=[10, 10, 1, 0]), ODD),  # in more documents than there are
        (named(oak=[3, 2, 1, 0]), ODD),  # in more documents than it occurs
        (named(oak=[1, 2**60, 1, 0]), ODD),
        (named(oak=[1, 10**7, 1, 0]), ODD),  # a million words a document, and more
        (named(oak=[1, 1, 2, 0]), ODD),  # by two clients
        (named(oak=[1, 1, 1, -1]), ODD),
        (named(oak=[1, 1, 1, 2]), ODD),
        (named(ash=[1, 1, 1, 1], elm=[1, 1, 1, 1], oak=[1, 1, 1, 1]), ODD),  # for two places
        (CountsByWord(["oak", "elm"], np.ones((2, 4), np.int64)), NO_WORDS),
        (CountsByWord(["oak", "oak"], np.ones((2, 4), np.int64)), NO_WORDS),
        (CountsByWord(["oak\n"], np.ones((1, 4), np.int64)), NO_WORDS),
        (CountsByWord(["x" * 101], np.ones((1, 4), np.int64)), NO_WORDS),
    ],
)
def test_faults_of_counts_by_word(value: Any, fault: str) -> None:
    template = {"words": WordCountBounds(places=2), "documents": COUNT}
    assert find_fault({"words": value, "documents": 9}, template) == fault
    if isinstance(value, CountsByWord):
        for other in (Bounds(), (2,), ["words"], {"oak": COUNT}):
            assert find_fault({"words": value}, {"words": other})


def test_squares_and_products_go_with_what_they_are_of() -> None:
    """Else a variance would be negative: every number behind it would be huge."""
    template = {"x": Bounds((4,), squares=True), "documents": COUNT}
    fault = "its field 'x' contains impossible squares or products"
    assert find_fault({"x": np.array([2.0, -4.0, 2.0, 8.0]), "documents": 2}, template) == ""
    assert find_fault({"x": np.array([2.0, -4.0, 2.0, 7.9]), "documents": 2}, template) == fault
    assert find_fault({"x": np.array([0.0, 0.0, -0.1, 0.0]), "documents": 2}, template) == fault
    template = {"x": Bounds((2, 2), products=True), "documents": COUNT}
    vanished = [[23.0, 1.02e-5], [1.02e-5, 0.0]]  # the second square, 5e-12, in fixed point
    for products in ([[4.0, -2.0], [-2.0, 1.0]], [[0.0, 0.0], [0.0, 3.0]], vanished):
        assert find_fault({"x": np.array(products), "documents": 2}, template) == ""
    for products in ([[-4.0, 0.0], [0.0, 1.0]], [[4.0, 2.1], [2.1, 1.0]]):
        assert find_fault({"x": np.array(products), "documents": 2}, template) == fault


def windows(n: int, of: int | None = None) -> dict[str, Any]:
    """Counts of the words ash, elm and oak, and of the pairs of the first two and the last two."""
    return {"windows": n, "pairs": np.array([4, 6, 5, 3, of or 2])}


BOTH = np.array([[0, 0], [1, 1], [2, 2], [0, 1], [1, 2]])


def test_windows_hold_pairs_no_more_often_than_words() -> None:
    most = np.array([4, 9, 5])
    template = {"10": Windows(BOTH, most, documents=False), "documents": COUNT}
    assert find_fault({"10": windows(7), "documents": 7}, template) == ""
    assert find_fault({"10": windows(10**6), "documents": 7}, template) == ""
    cannot = "its field '10' contains impossible numbers of windows"
    for pairs in (
        [4, 6, 5, 5, 2],  # both are in more windows than the first word
        [4, 6, 5, 3, 6],
        [5, 6, 5, 3, 2],  # a word is in more windows than all said that they have it
        [4, 8, 5, 3, 2],  # than there are windows
    ):
        odd = {"windows": 7, "pairs": np.array(pairs)}
        assert find_fault({"10": odd, "documents": 7}, template) == cannot
    number = "its field '10.windows' contains numbers outside the agreed bounds"
    assert find_fault({"10": windows(6), "documents": 7}, template) == number
    assert find_fault({"10": windows(8 * 10**6), "documents": 7}, template) == number
    whole = {"10": Windows(BOTH, most, documents=True), "documents": COUNT}
    assert find_fault({"10": windows(7), "documents": 7}, whole) == ""
    assert find_fault({"10": windows(8), "documents": 7}, whole) == number
    for odd in (None, 7, {}, {"windows": 7, "pairs": np.zeros(4, np.int64)}, windows(7) | {"x": 1}):
        assert find_fault({"10": odd, "documents": 7}, template)


def agreeing(**other: float) -> dict[str, Any]:
    pairs = {"together": 2.0, "first": 7.0, "second": 6.0, "chance": 42 / 15}
    return {"pairs": pairs | other, "documents": 6}


def test_two_clusterings_agree_as_often_as_can_be() -> None:
    template = {"pairs": AgreeingPairs(), "documents": COUNT}
    assert find_fault(agreeing(), template) == ""
    assert find_fault(agreeing() | {"documents": 5}, template)  # by chance, of others
    cannot = "its field 'pairs' contains impossible numbers of pairs"
    for odd in ({"together": 6.5}, {"chance": 0.0}, {"chance": 6.5}, {"second": 1.0}):
        assert find_fault(agreeing(**odd), template) == cannot
    assert (
        find_fault(agreeing(first=16.0), template)
        == "its field 'pairs.first' contains numbers outside the agreed bounds"
    )
    twice = {key: 2 * value for key, value in agreeing()["pairs"].items()}
    assert find_fault({"pairs": twice, "documents": 12}, template, ["a", "b"]) == ""
    nothing = {"pairs": dict.fromkeys(agreeing()["pairs"], 0.0), "documents": 0}
    assert find_fault(nothing, template) == ""


@pytest.mark.parametrize("word", hostile.NO_WORDS)
def test_no_list_has_what_is_no_word(word: str) -> None:
    assert find_fault({"words": ["oak", word]}, {"words": ["words"]}) == (
        "its field 'words' is not a list of words"
    )


def test_a_fault_is_short_and_quotes_nothing_of_who_sent_it() -> None:
    names = ["\x1b[2J" * 50, "\u202e", "x" * 10_000, *map(str, range(10_000))]
    reply = dict.fromkeys(names, np.array([np.nan]))
    faults = [find_fault(reply, TEMPLATE), find_fault(fitting(map=reply), TEMPLATE)]
    faults.append(find_fault({"a" * 10_000: "x"}, {"a" * 10_000: ()}))
    quoting = fitting(words=["quetzal", 1]), fitting(n="quetzal"), "quetzal"
    faults += [find_fault(odd, TEMPLATE) for odd in quoting]
    assert all(0 < len(fault) < 300 and fault.isprintable() for fault in faults)
    assert "quetzal" not in str(faults)


def test_a_length_has_a_bound() -> None:
    rows_of = UpTo("rows", 3)
    template = {"x": Bounds((rows_of, 2)), "n": counts(rows_of), "words": [rows_of]}
    three = {"x": np.zeros((3, 2)), "n": np.zeros(3, np.int64), "words": ["a", "b", "c"]}
    assert find_fault(three, template) == ""
    four = {"x": np.zeros((4, 2)), "n": np.zeros(4, np.int64), "words": [*"abcd"]}
    fault = "its field 'x' has the shape (4, 2) instead of ('up to 3 rows', 2)"
    assert find_fault(four, template) == fault
    assert "instead of ('up to 3 rows',)" in find_fault(three | {"words": ["a"]}, template)
