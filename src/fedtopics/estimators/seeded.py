"""Estimators whose topics can begin with words that are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedtopics.errors import StudyError
from fedtopics.estimators.base import TopicEstimator
from fedtopics.federation.study_file import explain
from fedtopics.files import read_toml


class SeededEstimator(TopicEstimator):
    """An estimator that takes ``seed_topics``, lists of words or the path of a TOML file."""

    def _named_settings(self) -> dict[str, Any]:
        named = super()._named_settings()
        if isinstance(named.get("seed_topics"), (str, Path)):
            named["seed_topics"] = _read_seed_topics(Path(named["seed_topics"]))
        return named


def _read_seed_topics(path: Path) -> Any:
    try:
        return read_toml(path)["seed_topics"]
    except (OSError, ValueError) as error:
        raise StudyError(f"The words in {path} cannot be used: {explain(error)}") from None
    except KeyError:
        raise StudyError(
            f'{path} has no words; write: seed_topics = [["fever", "cough"], ["sleep"]].'
        ) from None
