"""Topics by period of a federation: sums that are those of pooled documents, or are left out."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedtopics import Columns, Corpus, Policy, Study, TopicModel, train
from fedtopics.errors import DataError, StudyError
from fedtopics.federation import finished_model
from fedtopics.federation.data_sent import TOTAL
from fedtopics.methods.core.groups import as_many, with_company
from fedtopics.model.effects import GroupTable, plain
from fedtopics.text.grouping import GroupColumn
from tests.helpers.clients import BOATS, TREES
from tests.helpers.clusters import overheard
from tests.helpers.federation import ANY_WORDS
from tests.helpers.grpc_federation import federated
from tests.helpers.models import edit_config, made, refused

YEAR = {"period": "month", "begin": "2025-01-15", "end": "2025-03-02"}
PLACES = {"2025-01-01": 0, "2025-02-01": 1, "2025-03-01": 2, "other": 3, "unknown": 4}
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
    settings: dict[str, Any] = {"name": "lda", "n_components": 2, "max_rounds": 8} | method
    if settings["name"] == "lda":
        settings["learning"] = "batch"
    over_time = YEAR | settings.pop("over_time", {})
    return Study.make(
        method=settings | {"over_time": over_time},
        vocabulary={**ANY_WORDS, "max_document_share": 1.0},
    )


def model_of(plan: Study, corpora: dict[str, Corpus], policy: Policy = POLICY) -> TopicModel:
    return train(plan, corpora, policies=dict.fromkeys(corpora, policy), at_once=False)


def summed(model: TopicModel, corpus: Corpus, month: int) -> Any:
    """Theta of a corpus' documents of a month, summed by hand."""
    in_month = [(time or "") == MONTHS[month] for time in corpus.times.to_pylist()]  # type: ignore[union-attr]
    return model.transform(corpus)[in_month].sum(0)


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([30, 40, 0, 0], [True, True, False, False]),
        ([30, 4, 20, 0], [True, False, False, False]),  # 4 would be left, so 20 are left as well
        ([30, 4, 20, 6], [True, False, False, False]),  # perhaps of the same persons
        ([30, 40, 20, 50], [True] * 4),
        ([30, 4, 20, 50], [True, False, False, True]),
        ([4, 3, 2, 0], [False] * 4),
        ([10, 10, 10, 1], [False, True, True, False]),
    ],
)
def test_periods_that_are_told(counts: list[int], told: list[bool]) -> None:
    sizes = np.array(counts, np.float64)
    enough = with_company(as_many(sizes, 10), sizes)
    assert enough.tolist() == told


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers in models are not rounded."""
    monkeypatch.setattr(finished_model, "without_exact_counts", lambda model: model)


def assert_are_sums(model: TopicModel, months: dict[str, list[str]]) -> None:
    """Compare shares with those of the documents of each month, of some clients."""
    (periods,) = model.groups
    assert list(periods.groups) == [*months]
    for place, (group, names) in enumerate(months.items()):
        month = PLACES[group]
        total = np.sum([summed(model, CORPORA[name], month) for name in names], axis=0)
        assert periods.documents[place] == round(total.sum())
        np.testing.assert_allclose(periods.shares[place], total / total.sum(), atol=1e-5)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", ["lda", "nmf", "kmeans", "mixture"])
def test_a_client_leaves_out_its_own_small_periods(name: str) -> None:
    more: dict[str, Any] = {"representation": "bow"} if name == "kmeans" else {}
    plan = study(name=name, **more).model_copy(update={"aggregation": "plain"})
    model = model_of(plan, CORPORA)
    # And the smallest other one, if these are of fewer than ten: 10 of boats, 12 of trees, 11.
    assert_are_sums(
        model,
        {"2025-01-01": ["boats", "trees"], "2025-03-01": ["boats", "trees"], "other": ["both"]},
    )
    rows = model.topics_over_time()
    by_period = [(row["period"], row["documents"], row["clients"]) for row in rows[::2]]
    assert by_period == [(date(2025, 1, 1), 35, None), (date(2025, 3, 1), 42, None)]


@pytest.mark.usefixtures("exact")
def test_two_studies_of_the_same_documents_tell_of_fewer() -> None:
    """A limit of simulations: between machines, the second study is refused; see test_memory."""
    few = {"few": corpus(TREES, [20, 15, 12, 3, 0], 4)}
    one, other = (
        model_of(study(over_time={"end": end, "begin": begin}), few)
        for begin, end in (("2025-01-01", "2025-03-31"), ("2025-03-01", "2025-03-31"))
    )
    assert np.array_equal(one.beta, other.beta), "the model is the same: batches, and one seed"
    (months,) = one.groups
    (march,) = other.groups
    assert months.documents.tolist() == [20, 15]
    assert march.documents.tolist() == [12, 38]
    difference = march.shares[1] * 38 - months.documents @ months.shares
    np.testing.assert_allclose(difference, summed(one, few["few"], 3), rtol=1e-3)


@pytest.mark.usefixtures("exact")
def test_with_masks_all_documents_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over gRPC, and as a simulation foretells it; nobody sees the sums of a client."""
    plan = study()
    messages = overheard(monkeypatch)
    model = federated(plan, CORPORA, tmp_path, policy=POLICY).model
    assert model.info["masked"]
    sent = {row["function"]: row["seen"] for row in model.info["data_sent"]}
    assert {sent[f"group_{name}"] for name in ("counts", "sums", "squares")} == {TOTAL}
    assert_are_sums(model, {group: [*CORPORA] for group in PLACES})
    counts = messages.of("group_counts", "boats")[0]["persons"]
    assert counts.tolist() == [20, 4, 12, 10, 5]
    (periods,) = model.groups
    for other in (
        model_of(plan.model_copy(update={"aggregation": "secure"}), CORPORA),
        TopicModel.from_pretrained(tmp_path / "boats" / "model"),
    ):
        (again,) = other.groups
        np.testing.assert_allclose(again.shares, periods.shares, rtol=1e-6)
        np.testing.assert_allclose(again.errors, periods.errors, rtol=1e-6)


def test_counts_and_shares_in_a_model_are_rounded() -> None:
    (periods,) = model_of(study(), CORPORA).groups
    assert (periods.documents % 10 == 0).all() and (periods.persons % 10 == 0).all()
    np.testing.assert_allclose(periods.shares, periods.shares.round(3), atol=0)


@pytest.mark.parametrize(
    "damage",
    [
        {"shares": [[1.0, 2.0]]},
        {"shares": [[-1.0, 2.0, 3.0]]},
        {"errors": [[0.1, 0.1, float("nan")]]},
        {"groups": []},
        {"groups": [3]},
        {"documents": "many"},
        {"persons": [[1], [2]]},
        {"columns": 3},
    ],
)
def test_damaged_periods_are_refused(damage: dict[str, Any], tmp_path: Path) -> None:
    made().save_pretrained(tmp_path)
    shares = np.full((1, 3), 1 / 3)
    n = np.array([20])
    whole = plain(GroupTable(("time",), ("2024-01-01",), shares, shares / 10, n, n))
    edit_config(tmp_path, groups=[whole])
    (table,) = TopicModel.from_pretrained(tmp_path).groups
    assert [row["high"] for row in table.rows()] == pytest.approx(
        [1 / 3 + 2.147 / 30] * 3, rel=1e-3
    )
    edit_config(tmp_path, groups=[whole | damage])
    why = refused(tmp_path)
    assert "train it again, or install" in why or "do not fit the model" in why


def test_periods_of_a_study() -> None:
    for period, begin, end, begins in (
        ("month", "2025-01-15", "2025-03-02", ["2025-01-01", "2025-02-01", "2025-03-01"]),
        ("week", "2025-01-01", "2025-01-06", ["2024-12-30", "2025-01-06"]),
        ("day", "2024-12-31", "2025-01-01", ["2024-12-31", "2025-01-01"]),
        ("quarter", "2024-12-31", "2025-01-01", ["2024-10-01", "2025-01-01"]),
        ("year", "2024-12-31", "2025-01-01", ["2024-01-01", "2025-01-01"]),
    ):
        column = GroupColumn.model_validate({"period": period, "begin": begin, "end": end})
        assert [str(day) for day in column.begins] == begins
        assert column.names == (*begins, "other", "unknown")
    with pytest.raises(StudyError, match="the end is before the begin"):
        study(over_time={"end": "2024-12-31"})
    with pytest.raises(StudyError, match="1,463 levels or periods, more than 240"):
        study(over_time={"period": "day", "begin": "2024-01-01", "end": "2027-12-31"})


def test_documents_without_times_are_refused_before_the_first_round() -> None:
    boats = CORPORA["boats"]
    for time, kind, says in (
        (None, None, "The study compares documents by time, but they have no such column"),
        ("soon", pa.string(), "The timestamp of document 1 cannot be read"),
        (20250, pa.int64(), "times are numbers"),
        (1 << 52, pa.timestamp("ms"), "times after the year 9999"),
    ):
        times = kind and pa.chunked_array([pa.array([time] * len(boats), kind)])
        with pytest.raises(DataError, match=f"Client 'boats': .*{says}") as error:
            model_of(study(), CORPORA | {"boats": replace(boats, times=times)})
        assert "soon" not in str(error.value)
