"""scikit-learn's own checks, as far as they can be asked of estimators of texts."""

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.utils.estimator_checks import check_estimator

import fedtopics
from fedtopics import LDA, NMF, Corpus, GuidedLDA, ProdLDA, TopicEstimator
from fedtopics.estimators.inputs import Inputs


class OnNumbers(TopicEstimator):
    """An estimator as scikit-learn's checks can feed it: each row of numbers becomes a document."""

    def _read_single(self, documents: Any, words: Any, text: str | None = None) -> Inputs:
        return super()._read_single(_as_documents(documents), words, text)

    def _corpus(self, documents: Any, words: Any = None, text: str | None = None) -> Corpus:
        return super()._corpus(_as_documents(documents), words, text)

    def transform(self, documents: Any, **how: Any) -> NDArray[np.float32]:
        return super().transform(documents, **how).round(5)

    def _named_settings(self) -> dict[str, Any]:
        return super()._named_settings() | {"n_components": max(2, self.n_components or 2)}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


class LDAOnNumbers(OnNumbers, LDA): ...


class NMFOnNumbers(OnNumbers, NMF): ...


class ProdLDAOnNumbers(OnNumbers, ProdLDA): ...


def _as_documents(table: Any) -> Any:
    """Name word j of a row about as often as its column j is large."""
    table = np.asarray(table)
    if table.ndim != 2:
        return table
    return [
        [f"w{j}" for j, x in enumerate(row) for _ in range(1 + int(abs(x)) % 4)] for row in table
    ]


NOT_FOR_TEXT = {
    "check_n_features_in": "texts have no columns to count",
    "check_n_features_in_after_fitting": "texts have no columns to count",
    "check_transformer_general": "asks that a table with another number of columns be refused",
    "check_estimators_empty_data_messages": "asks for a message about 0 columns",
    "check_fit2d_1feature": "asks for a message about 1 column",
    "check_fit2d_predict1d": "asks for a message with the words 'Reshape your data'",
    "check_complex_data": "feeds complex numbers",
    "check_estimators_nan_inf": "feeds numbers that are none; a missing text is an empty document",
    "check_estimator_sparse_tag": "feeds a sparse table of numbers",
    "check_estimator_sparse_array": "feeds a sparse table of numbers",
    "check_estimator_sparse_matrix": "feeds a sparse table of numbers",
}


@pytest.mark.parametrize("kind", [LDAOnNumbers, NMFOnNumbers, ProdLDAOnNumbers])
def test_scikit_learns_checks(kind: type[OnNumbers]) -> None:
    more = {"rarity": 0.0} if kind is NMFOnNumbers else {}  # each word is in every document
    small = kind(2, max_rounds=3, **{"min_persons_per_word": 1, "max_document_share": 1.0}, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(small, on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert {name: error for name, error in failed.items() if name not in NOT_FOR_TEXT} == {}
    passed = {r["check_name"] for r in results if r["status"] == "passed"}
    assert not passed & NOT_FOR_TEXT.keys()
    assert len(passed) > 30


PUBLIC = [getattr(fedtopics, name) for name in fedtopics.__all__]
KINDS = [kind for kind in PUBLIC if isinstance(kind, type) and issubclass(kind, TopicEstimator)]


@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learns_checks_of_an_estimator_of_texts(kind: type[TopicEstimator]) -> None:
    estimator = GuidedLDA([["oak"]]) if kind is GuidedLDA else kind()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # most checks do not know texts
        assert {r["status"] for r in check_estimator(estimator)} == {"passed"}
