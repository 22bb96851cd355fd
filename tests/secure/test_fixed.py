"""Tests of replies as whole numbers modulo a prime."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import FederationError, StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.core.aggregation import Rows
from fedtopics.methods.core.replies import (
    COUNT,
    MOST_COUNT,
    MOST_DOCUMENTS,
    Announced,
    Field,
    Template,
    WordCounts,
    counts,
    sums,
)
from fedtopics.methods.registry import METHODS
from fedtopics.secure.field import PRIME
from fedtopics.secure.fixed import Layout
from tests.helpers.clustered import CLUSTERED
from tests.helpers.clusters import blobs, spread
from tests.helpers.clusters import planned as clustered
from tests.helpers.federation import embedded, study, subjects
from tests.helpers.fixed_point import FINEST, EncodedSums, add_encoded, assert_close
from tests.helpers.ordinary import difference
from tests.helpers.streams import DRIFT, flda, stream
from tests.helpers.sums import add_up

SAID = Announced({"a": 10, "b": 20})
SIZES = {"east": 60, "north": 40, "south": 25}


def members(n: int) -> list[str]:
    return [f"c{number:03}" for number in range(n)]


def test_residues_by_hand() -> None:
    template: Template = {
        "signed": Field((3,), 2, -5, dtype="int64"),
        "documents": SAID,
        "map": {"b": Field((3,)), "a": counts(3, each=1)},
    }
    layout = Layout.of(template, ["a", "b"])
    residues, factor = layout.encode(
        {
            "documents": 7,
            "map": {"a": np.array([1, 2, 3]), "b": np.array([0.5, -0.5, 2.0**-33])},
            "signed": np.array([-5, 2, 0]),
        }
    )
    # Two times at most 20, or 7 from -5 on, need 6 and 4 bits; halves and zeros go to the even one.
    packed = 1 + (2 << 6) + (3 << 12)
    assert residues.tolist() == [7, packed, 1 << 31, PRIME - (1 << 31), 0, 0 + (7 << 4) + (5 << 8)]
    assert (layout.size, factor) == (6, 1.0)
    found = layout.decode((residues * np.uint64(2)) % np.uint64(PRIME), 2)
    assert list(found) == ["signed", "documents", "map"]
    assert found["documents"] == 14
    assert found["map"]["a"].tolist() == [2, 4, 6]
    assert found["map"]["b"].tolist() == [1.0, -1.0, 0.0]
    assert found["signed"].tolist() == [-10, 4, 0]


def drawn(rng: np.random.Generator) -> tuple[Template, Callable[[], dict[str, Any]]]:
    """A template of fields of all kinds, and what draws replies that fit it."""
    n_rows, n_columns, limit = rng.integers(1, 9), rng.integers(1, 5), 10 ** rng.uniform(-3, 6)
    most = int(10 ** rng.uniform(0, 9))
    shape = int(n_rows), int(n_columns)
    template: Template = {
        "documents": Announced({}),
        "count": counts(each=int(rng.integers(1, 1000))),
        "counts": counts(*shape, each=2),
        "between": Field(shape, most, -most // 3, dtype="int64"),
        "maps": {
            "loss": Field(), "none": {}, "shape": shape, "single": Field(shape, dtype="float32"),
        },
        "bounded": Field(shape, limit, -limit),
        "by row": Field(shape, np.linspace(0, limit, shape[0])[:, None], 0, rows=True),
        "rows": Field(shape, dtype="float32", rows=True),
    }  # fmt: skip

    def rows(dtype: str, low: float, high: float) -> Rows:
        index = np.flatnonzero(rng.random(shape[0]) < 0.4)
        values = rng.uniform(low, high, (len(index), shape[1])).astype(dtype)
        return Rows(index, values * (index[:, None] / shape[0]).astype(dtype), shape[0])

    def reply() -> dict[str, Any]:
        return {
            "documents": int(rng.integers(MOST_DOCUMENTS)),
            "count": int(rng.integers(MOST_DOCUMENTS)),
            "counts": rng.integers(0, 2 * MOST_DOCUMENTS, shape),
            "between": rng.integers(-most // 3, most + 1, shape),
            "maps": {
                "loss": float(rng.normal(scale=1e5)),
                "none": {},
                "shape": rng.standard_cauchy(shape),
                "single": rng.normal(scale=10 ** rng.uniform(-12, 5), size=shape).astype("float32"),
            },
            "bounded": rng.uniform(-limit, limit, shape),
            "by row": rows("float64", 0, limit),
            "rows": rows("float32", -1e3, 1e3),
        }

    return template, reply


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100])
def test_sums_are_those_of_the_replies(n: int) -> None:
    for seed in range(20):
        template, reply = drawn(np.random.default_rng([n, seed]))
        replies = {name: reply() for name in members(n)}
        found, factor = add_encoded(template, replies)
        assert factor == 1
        assert_close(found, add_up(replies), n)
        turned, _ = add_encoded(template, dict(reversed(replies.items())))
        assert_close(turned, found, 0)
        np.testing.assert_array_equal(turned["bounded"], found["bounded"])


@pytest.mark.parametrize("n", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    "field",
    [
        counts(),
        counts(each=1),
        Field((), 1000, -5, dtype="int64"),
        Field((), 7, -(2**53), dtype="int64"),
        Field((), 0, 0, dtype="int64"),
        *(
            Field((), 2.0**bits + more, -(2.0**bits))
            for bits in (-9, 20, 27, 28)
            for more in (0, 1)
        ),
        Field((), 1e-300, -1e-300),
        Field((), np.array([[1.0, 4e7], [5.0, 6.0]]), np.array([-8e7, 0.0])),
    ],
)
def test_all_at_their_bounds(field: Field, n: int) -> None:
    least = max(float(np.min(field.least)), -field.each)
    most = min(float(np.max(field.most)), field.each)
    template: Template = {"x": field, "documents": Announced(dict.fromkeys(members(n), 1))}
    for bound in (least, most):
        x = int(bound) if field.dtype == "int64" else bound
        replies: dict[str, Any] = {name: {"x": x, "documents": 1} for name in members(n)}
        found, factor = add_encoded(template, replies)
        assert (factor, type(found["x"])) == (1, type(x))
        assert abs(found["x"] - n * x) <= (0 if field.dtype == "int64" else n * FINEST)


def test_larger_sums_have_fewer_bits_of_fraction() -> None:
    rng = np.random.default_rng(0)
    for power in range(20, 99):
        bound = 1.7 * 2.0**power
        template: Template = {"x": Field((50,), bound, -bound)}
        replies = {name: {"x": rng.uniform(-bound, bound, 50)} for name in members(5)}
        found, factor = add_encoded(template, replies)
        expected = np.array([math.fsum(x) for x in np.stack([r["x"] for r in replies.values()]).T])
        finest = max(FINEST, 2.0 ** (power + 1 + 3 - 60))
        assert factor == 1
        np.testing.assert_allclose(found["x"], expected, rtol=2.0**-52, atol=5 * finest)


@pytest.mark.parametrize(
    ("field", "n", "each"),
    [
        (counts(100, each=1), 1, 7),  # at most 10: 4 bits
        (counts(100, each=1), 5, 10),  # at most 50: 6 bits
        (counts(100, each=10**8), 1, 50),  # at most 10**9: 30 bits
        (counts(100, each=10**8), 2, 100),
        (counts(100), 1, 100),
        (Field((100,), 5, -10, dtype="int64"), 1, 7),  # 15 above the least
        (Field((100,), 0, 0, dtype="int64"), 9, 2),
        (Field((100,), 2.0**-18, -(2.0**-18)), 5, 50),
        (Field((100,), 1, -1), 5, 100),
        (sums(100), 5, 100),
        (Field((0, 7)), 5, 0),
        (counts(0, 7, each=1), 5, 0),
    ],
)
def test_small_numbers_share_residues(field: Field, n: int, each: int) -> None:
    template: Template = {"x": field, "documents": Announced(dict.fromkeys(members(n), 10))}
    assert Layout.of(template, members(n)).size == each + 1


def test_who_has_announced_nothing_has_at_most_as_many_as_the_largest() -> None:
    template: Template = {"x": counts(each=1), "documents": Announced({"a": 5, "away": 9})}
    layout = Layout.of(template, ["a"])
    layout.encode({"x": 5, "documents": 5})
    with pytest.raises(FederationError, match="'x'"):
        layout.encode({"x": 6, "documents": 5})
    Layout.of(template, ["a", "new"]).encode({"x": 9, "documents": 9})
    Layout.of({"x": counts(each=1)}, ["a"]).encode({"x": MOST_DOCUMENTS})


def test_what_has_no_bound_is_scaled_to_fit() -> None:
    template: Template = {"x": Field((3,), dtype="float32"), "y": Field(), "n": COUNT}
    reach, names = 2**28 / 7, members(7)
    x = np.array([1e30, -5e29, 1e20], np.float32)
    replies: dict[str, Any] = {name: {"x": x, "y": -2 * reach, "n": 3} for name in names}
    found, smallest = add_encoded(template, replies)
    assert smallest == pytest.approx(reach / 1e30)
    assert found["x"] == pytest.approx([7 * reach, -3.5 * reach, 7 * reach * 1e-10], rel=1e-6)
    assert found["y"] == pytest.approx(-7 * reach)
    assert found["n"] == 21
    small = {"x": x * np.float32(1e-24), "y": 0.999 * reach, "n": 3}
    assert add_encoded(template, dict.fromkeys(names, small))[1] == 1


FIELDS: dict[str, tuple[Field, Any]] = {
    "an integer": (counts(3, each=1), np.array([0, 31, 0])),
    "below zero": (counts(3), np.array([0, -1, 0])),
    "a count": (COUNT, MOST_COUNT + 1),
    "a number": (sums(each=1), 30.001),
    "a negative number": (sums(), -0.001),
    "with a bound for each": (Field((2,), np.array([1.0, 2.0]), 0), np.array([0.0, 2.1])),
    "a row": (Field((5, 1), 1, 0, rows=True), Rows(np.array([3]), np.array([[1.1]]), 5)),
    "NaN": (Field((2,)), np.array([0.0, np.nan])),
    "infinite": (Field((2,)), np.array([0.0, np.inf])),
    "infinite below": (Field(dtype="float32"), np.array(-np.inf, np.float32)),
    "too long": (Field((2,)), np.zeros(3)),
    "one for all": (Field((2,)), np.zeros(1)),
    "turned": (Field((2, 3)), np.zeros((3, 2))),
}


@pytest.mark.parametrize("what", FIELDS)
def test_beyond_its_bound_nothing_is_encoded(what: str) -> None:
    field, value = FIELDS[what]
    layout = Layout.of({"map": {"x": field}, "documents": Announced({"a": 30})}, members(3))
    with pytest.raises(FederationError, match=r"The field 'map\.x' of a reply was not masked"):
        layout.encode({"map": {"x": value}, "documents": 30})


def test_counts_of_more_clients_than_their_sum_can_hold() -> None:
    layout = Layout.of({"n": COUNT}, members(1000))
    assert layout.encode({"n": 2**50})[0].tolist() == [2**50]
    with pytest.raises(FederationError, match="'n'"):
        layout.encode({"n": 2**51})


@pytest.mark.parametrize(
    "template",
    [
        None,
        {"x": None},
        {"x": {"y": ["words"]}},
        {"x": WordCounts(3)},
        {"x": ("words", 3)},
        {"x": Field(("words",))},
    ],
)
def test_what_is_no_number_cannot_be_masked(template: Template | None) -> None:
    with pytest.raises(StudyError, match=r"cannot be masked.*secure = false"):
        Layout.of(template, members(3))


def of_words(name: str, **method: Any) -> Study:
    settings = {"name": name, "n_components": 4, **method}
    return Study.make(method=settings, vocabulary={"min_document_frequency": 1})


def of_embeddings(case: str) -> Study:
    name, method = CLUSTERED[case]
    method = {"n_components": 3, "coherence": "documents"} | method
    if name == "fsccl":
        method |= {"embedding": {"model": "x", "dimension": 16}}
    return clustered(name, **method)


NETWORKS: dict[str, dict[str, Any]] = {
    "sync": {},
    "server": {"norm": "server", "validation_share": 0.25, "validate_every": 2},
    "zeroshottm": {"network": "zeroshottm", "precision": "float64"},
    "anchors": {"network": "neurallda", "initialisation": "anchors"},
}
STUDIES: dict[str, Callable[[], Study]] = {
    **{f"gfedntm, {name}": lambda m=m: study(max_rounds=5, **m) for name, m in NETWORKS.items()},
    "lda": lambda: of_words("lda", max_rounds=4, batch_size=20),
    "lda, batch": lambda: of_words("lda", max_rounds=4, learning="batch", initialisation="nmf"),
    "nmf": lambda: of_words("nmf", max_rounds=4),
    "auto": lambda: of_words("auto"),
    "flda": flda,
    **{case: lambda case=case: of_embeddings(case) for case in CLUSTERED if "," not in case},
}


def corpora_of(case: str) -> Mapping[str, Any]:
    if case == "flda":
        return dict(zip(SIZES, stream(DRIFT).values(), strict=True))
    if case in CLUSTERED:
        return spread(blobs(120, n_clusters=3, spread=0.3), 3, alpha=5.0)
    texts = subjects(SIZES)
    return embedded(texts) if case.startswith("gfedntm") else texts


def test_every_method_is_here() -> None:
    assert {case.partition(",")[0] for case in STUDIES} == set(METHODS.names)


@pytest.mark.parametrize("case", STUDIES)
def test_a_method_comes_to_the_same_topics(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if case == "flda":
        pytest.importorskip("tomotopy")
    corpora, plan = corpora_of(case), STUDIES[case]()
    policies = dict.fromkeys(corpora, OPEN_POLICY)
    plain = train(plan, corpora, policies=policies, at_once=False)
    seen = EncodedSums(monkeypatch)
    model = train(plan, corpora, policies=policies, at_once=False)
    assert seen.plain <= {"vocabulary"}
    assert {"word_sums", "topic_words"} & seen.encoded
    assert model.topics() == plain.topics()
    assert difference(model.weights, plain.weights) < 2e-6
