"""Topics by period of a federation: sums that are those of pooled documents, or are left out."""

from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedtopics import Columns, Corpus, Policy, Study, TopicModel, train
from fedtopics.errors import DataError, StudyError
from fedtopics.federation.data_sent import TOTAL
from fedtopics.methods.core.groups import (
    GroupThreshold,
    OverTime,
    as_many,
    sizes_of,
    sums_by_period,
    with_company,
)
from fedtopics.model.topics import TOGETHER
from tests.helpers.clients import BOATS, TREES
from tests.helpers.clusters import overheard
from tests.helpers.federation import ANY_WORDS
from tests.helpers.grpc_federation import federated
from tests.helpers.models import edit_config, made, refused

YEAR = {"period": "month", "begin": "2025-01-15", "end": "2025-03-02"}
POLICY = Policy(min_persons=10, min_persons_per_word=1, min_clients_in_sum=1)
MONTHS = ["2025-01-03", "2025-02-28", "2025-03-01", "2024-12-31", ""]


def corpus(words: list[str], months: list[int], seed: int) -> Corpus:
    """So many documents of each of `MONTHS`, mixed."""
    rng = np.random.default_rng(seed)
    times = rng.permutation(np.repeat(MONTHS, months)).tolist()
    texts = [" ".join(rng.choice(words, 12)) for _ in times]
    return Corpus.of(pa.table({"text": texts, "written": times}), Columns(time="written"))


CORPORA = {
    "boats": corpus(BOATS, [20, 4, 12, 10, 5], 1),
    "trees": corpus(TREES, [15, 9, 30, 0, 12], 2),
    "both": corpus(TREES + BOATS, [0, 11, 3, 20, 1], 3),
}


def study(**method: Any) -> Study:
    settings = {"name": "lda", "n_components": 2, "max_rounds": 8, "learning": "batch"} | method
    over_time = YEAR | settings.pop("over_time", {})
    return Study.make(
        method=settings | {"over_time": over_time},
        vocabulary={**ANY_WORDS, "max_document_share": 1.0},
    )


def model_of(plan: Study, corpora: dict[str, Corpus], policy: Policy = POLICY) -> TopicModel:
    return train(plan, corpora, policies=dict.fromkeys(corpora, policy), at_once=False)


def summed(model: TopicModel, corpus: Corpus, month: int) -> Any:
    """Theta of a corpus' documents of a month, summed by hand."""
    in_month = [time == MONTHS[month] for time in corpus.times.to_pylist()]  # type: ignore[union-attr]
    return model.transform(corpus)[in_month].sum(0)


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([30, 40, 0, 0], [True, True, False, False]),
        ([30, 4, 20, 0], [True, False, False, False]),  # 4 would be left, so 20 are left as well
        ([30, 4, 20, 6], [True, False, False, False]),  # perhaps of the same persons
        ([30, 40, 20, 50], [True, True, True, False]),
        ([30, 4, 20, 50], [True, False, True, False]),  # hidden among 50 that are in no period
        ([4, 3, 2, 0], [False] * 4),
        ([10, 10, 10, 1], [False, True, True, False]),
    ],
)
def test_periods_that_are_told(counts: list[int], told: list[bool]) -> None:
    sizes = np.array(counts, np.float64)
    enough = with_company(as_many(sizes, 10), sizes_of(as_many, {"counts": sizes}))
    assert enough[:-1].tolist() == told[:-1]


def test_sums_are_those_of_the_documents_of_a_period() -> None:
    guard = GroupThreshold(2, of_all=False)
    theta = np.array([[1, 0], [0.5, 0.5], [0, 1], [0.25, 0.75]])
    thetas = lambda: iter([(np.arange(2), theta[:2]), (np.array([3, 4]), theta[2:])])  # noqa: E731
    places = np.array([0, 0, 2, 1, 1])  # the third is not seen
    compute = partial(sums_by_period, places, thetas, (2, 2), Corpus.of(["a"] * 5))
    assert guard.sums({}, {}, as_many, compute)["sums"].tolist() == [[1.5, 0.5], [0.25, 1.75]]


def test_a_client_leaves_out_its_own_small_periods() -> None:
    model: Any = model_of(study(over_time={"by_client": True}), CORPORA)
    assert model.periods.begins == ("2025-01-01", "2025-02-01", "2025-03-01")
    told = {name: sums.sum(1).round(6).tolist() for name, sums in model.periods.sums.items()}
    # By lot instead of 20, 12; 15, 30; and 11.
    assert told == {"boats": [20, 0, 10], "trees": [10, 0, 30], "both": [0, 10, 0]}
    for name, month in (("boats", 0), ("trees", 2), ("both", 1)):
        expected = summed(model, CORPORA[name], month)
        np.testing.assert_allclose(
            model.periods.shares[name][month], expected / expected.sum(), atol=6e-4
        )
    assert np.isnan(model.periods.shares["boats"][1]).all()
    rows = model.topics_over_time()
    by_period = [(row["period"].month, row["documents"], row["clients"]) for row in rows[::2]]
    assert by_period == [(1, 30, 2), (2, 10, 1), (3, 40, 2)]
    assert rows[0]["period"] == date(2025, 1, 1)


def test_two_studies_of_the_same_documents_tell_of_fewer() -> None:
    """A limit in docs/concepts/threat-model.md: each leaves out another period for the same few."""
    few = {"few": corpus(TREES, [20, 15, 12, 3, 0], 4)}
    one, other = (
        model_of(study(over_time={"end": end, "begin": begin}), few)
        for begin, end in (("2025-01-01", "2025-03-31"), ("2025-03-01", "2025-03-31"))
    )
    assert one.periods is not None and other.periods is not None
    assert np.array_equal(one.beta, other.beta), "the model is the same: batches, and one seed"
    told = one.periods.total.sum(0) + other.periods.total.sum(0)
    assert one.periods.total.sum(1).round(6).tolist() == [20, 15, 0]
    np.testing.assert_allclose(
        one.shares["few"] * one.documents["few"] - told, summed(one, few["few"], 3), rtol=1e-3
    )


def test_with_masks_all_documents_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over gRPC, and as a simulation foretells it; nobody sees the sums of a client."""
    plan = study()
    messages = overheard(monkeypatch)
    outcome = federated(plan, CORPORA, tmp_path, policy=POLICY)
    assert outcome.model.info["masked"]
    assert ("period_sums", TOTAL) in [
        (row["function"], row["seen"]) for row in outcome.model.info["data_sent"]
    ]
    periods: Any = outcome.model.periods
    assert [*periods.sums] == [TOGETHER]
    whole = [sum(summed(outcome.model, c, month) for c in CORPORA.values()) for month in range(3)]
    assert np.sum(whole, axis=1).round(3).tolist() == [35, 24, 45]
    assert periods.total.sum(1).round(6).tolist() == [40, 30, 50], "rounded by lot"
    np.testing.assert_allclose(
        periods.shares[TOGETHER], whole / np.sum(whole, axis=1, keepdims=True), atol=6e-4
    )
    here: Any = model_of(plan.model_copy(update={"aggregation": "secure"}), CORPORA).periods
    np.testing.assert_allclose(periods.total, here.total, rtol=1e-6)
    assert messages.of("period_sums", "boats")[0]["counts"].tolist() == [20, 4, 12, 15]
    boats_periods: Any = TopicModel.from_pretrained(tmp_path / "boats" / "model").periods
    assert boats_periods.sums[TOGETHER].tolist() == periods.sums[TOGETHER].tolist()
    assert outcome.model.topics_over_time()[0]["clients"] is None


@pytest.mark.parametrize("name", ["nmf", "kmeans", "mixture"])
def test_other_methods(name: str) -> None:
    more = {"representation": "bow"} if name == "kmeans" else {}
    method = {"name": name, "n_components": 2, "max_rounds": 5, "over_time": YEAR, **more}
    model: Any = model_of(
        Study.make(method=method, vocabulary={**ANY_WORDS, "max_document_share": 1.0}), CORPORA
    )
    expected = sum(summed(model, CORPORA[name], 0) for name in ("boats", "trees"))
    np.testing.assert_allclose(
        model.periods.shares[TOGETHER][0], expected / expected.sum(), atol=1e-3
    )


SUMS = [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    "damage",
    [
        {"sums": {"north": [[1.0, 2.0]]}},
        {"sums": {"north": [[-1.0, 2.0, 3.0]]}},
        {"begins": ["today"]},
        {"unit": "hour"},
        {"sums": {}},
        {"sums": {"north": [[1e300, 2.0, 3.0]]}},
        {"sums": {"": SUMS, "north": SUMS}},  # added up twice
    ],
)
def test_damaged_periods_are_refused(damage: dict[str, Any], tmp_path: Path) -> None:
    made().save_pretrained(tmp_path)
    whole = {"unit": "year", "begins": ["2024-01-01"], "sums": {"north": SUMS}}
    edit_config(tmp_path, periods=whole)
    TopicModel.from_pretrained(tmp_path)
    edit_config(tmp_path, periods=whole | damage)
    assert "train it again, or install the version" in refused(tmp_path)


def test_periods_of_a_study() -> None:
    for period, begin, end, begins in (
        ("month", "2025-01-15", "2025-03-02", ["2025-01-01", "2025-02-01", "2025-03-01"]),
        ("week", "2025-01-01", "2025-01-06", ["2024-12-30", "2025-01-06"]),
        ("day", "2024-12-31", "2025-01-01", ["2024-12-31", "2025-01-01"]),
        ("quarter", "2024-12-31", "2025-01-01", ["2024-10-01", "2025-01-01"]),
        ("year", "2024-12-31", "2025-01-01", ["2024-01-01", "2025-01-01"]),
    ):
        given: dict[str, Any] = {"period": period, "begin": begin, "end": end}
        assert [str(day) for day in OverTime(**given).begins] == begins
    with pytest.raises(StudyError, match="over_time ends before it begins"):
        study(over_time={"end": "2024-12-31"})
    with pytest.raises(StudyError, match="over_time has 1,461 periods, more than 1,000"):
        study(over_time={"period": "day", "begin": "2024-01-01", "end": "2027-12-31"})


def test_documents_without_times_are_refused_before_the_first_round() -> None:
    boats = CORPORA["boats"]
    for time, kind, says in (
        (None, None, "the documents have no times"),
        ("soon", pa.string(), "The timestamp of document 1 cannot be read"),
        (2025, pa.int64(), "times are numbers"),
        (1 << 52, pa.timestamp("ms"), "times after the year 9999"),
    ):
        times = kind and pa.chunked_array([pa.array([time] * len(boats), kind)])
        with pytest.raises(DataError, match=f"Client 'boats': .*{says}") as error:
            model_of(study(), CORPORA | {"boats": replace(boats, times=times)})
        assert "soon" not in str(error.value)
