"""Estimators in a folder: a model's, with the parameters beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from fedtopics.errors import ModelError
from fedtopics.estimators.fitted import FittedTopics
from fedtopics.files import read_text, write_durably
from fedtopics.harmless import as_json
from fedtopics.model.folder import model_folder
from fedtopics.model.topic_model import TopicModel

FILE = "estimator.json"
HERE = "fedtopics.estimators"  # whose estimators are found by their names
NOT_SAVED = ("start", "tokenizer", "analyzer", "callback")  # what is no plain value


class SavedEstimator(FittedTopics):
    """An estimator that is saved and loaded, without pickle."""

    _fixed: ClassVar[Mapping[str, Any]]
    _get_param_names: Any
    get_params: Any

    def save(self, path: str | Path) -> Path:
        """Write the fitted model to a folder, as `TopicModel.save_pretrained`, and its parameters.

        No document is in it, and no function: give `load` the tokenizer or analyzer again.
        """
        folder = self._fitted().save_pretrained(path)
        plain = {k: v for k, v in self.get_params(deep=False).items() if _is_plain(v)}
        plain = {key: value for key, value in plain.items() if key not in NOT_SAVED}
        content = {"estimator": type(self).__name__, "parameters": plain}
        text = as_json(content, indent=1, default=_plain) + "\n"
        write_durably(folder / FILE, text.encode())
        return folder

    @classmethod
    def load(cls, path: str | Path, **parameters: Any) -> Self:
        """Read a fitted estimator from the folder of a model, of a run, or of `save`.

        `TopicEstimator.load` takes a model of any kind, and is of the kind that was saved.

        Parameters
        ----------
        path : path
        **parameters
            Parameters to set, such as an analyzer.

        Raises
        ------
        ModelError
            If there is no model, it is damaged, or of another kind of estimator.
        """
        folder = model_folder(path)
        model = TopicModel.from_pretrained(folder)
        saved = _read(folder / FILE)
        kind = _kind(cls, saved.get("estimator"))
        made = {"method": model.info.get("method"), "network": model.inference.name}
        usual = made | {"n_components": model.n_topics, "n_clusters": model.n_topics}
        known = set(kind._get_param_names()) - {*NOT_SAVED, *kind._fixed}
        given = saved.get("parameters", usual)
        given = {key: given[key] for key in known & given.keys()} | parameters
        fits = all(made.get(key, value) == value for key, value in kind._fixed.items())
        if not issubclass(kind, cls) or not fits or _needed(kind) - given.keys():
            raise ModelError(
                f"The model in {folder} is none of {cls.__name__}, but one of {made['method']}; "
                "load it by TopicEstimator.load."
            )
        estimator: Self = kind(**given)
        estimator.model_ = model
        return estimator


def _kind(asked: type[SavedEstimator], name: Any) -> Any:
    """Return the class of a name among ours, or the one that is asked for."""
    ours = import_module(HERE)
    return getattr(ours, name) if name in ours.__all__ and name != asked.__name__ else asked


def _needed(kind: type[SavedEstimator]) -> set[str]:
    parameters = signature(kind).parameters.values()
    return {
        each.name
        for each in parameters
        if each.default is Parameter.empty and each.kind is not Parameter.VAR_KEYWORD
    }


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, default=_plain)
    except (TypeError, ValueError):
        return False
    return True


def _plain(value: Any) -> Any:
    """Return numpy's numbers and arrays, and paths, as JSON has them; TypeError for others."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else os.fspath(value)


def _read(path: Path) -> dict[str, Any]:
    """Return what is saved beside a model, nothing where the model alone is; refuse what is not."""
    try:
        content = json.loads(read_text(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and isinstance(content.get("parameters"), dict):
        return content
    raise ModelError(f"{path} is damaged; copy it again, or delete it, which loses parameters.")
