"""A model's folder: its files, and the labels that people edit in ``topics.json``."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter
from safetensors import SafetensorError
from safetensors.numpy import load, save
from typing_extensions import TypedDict

from fedtopics.errors import ModelError, StudyError
from fedtopics.escaping import as_json, as_sentence, check_client_name, is_flooded, visible
from fedtopics.files import read_bytes, read_text, replacing, write_durably
from fedtopics.inference import Inference, Weights
from fedtopics.inference.merged import has_tensors, make
from fedtopics.model.card import card
from fedtopics.model.effects import Effects, GroupTable, of_plain, plain
from fedtopics.model.labels import checked_names, read_labels, refuse_closed
from fedtopics.model.shown_words import WordRanking
from fedtopics.model.topics import Count, PastRound, Topics, TrainingInfo
from fedtopics.text.encodings import beginning_of
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary
from fedtopics.versions import MODEL, VERSION

UNEDITED = "config.json", "model.safetensors", "vocabulary.json"  # people do not edit these
SIGNS = {  # what our files have; those without a sign are somebody else's without a config.json
    "config.json": b'"fedtopics":',
    "README.md": b"This folder contains words and numbers, but no documents.",
    "estimator.json": b'"estimator":',
    "model.safetensors": b'"words/sums"',
    "vocabulary.json": None,
    "topics.json": None,
}
BEGINNING = 1 << 20  # bytes, with the names of all arrays
CHECKED = "coherence", "info", "groups", "estimates"  # whose texts people see
LONGEST_LINE = 300  # characters of a text in a config, such as when something was sent
Share = Annotated[float, Field(ge=0, le=1.001)]  # with rounding


class _Config(TypedDict):
    """The fields of a ``config.json``: new ones are `NotRequired`, or `MODEL` increases."""

    inference: str
    precision: str
    settings: dict[str, Any]  # checked by its own class, like text
    text: dict[str, Any]
    vocabulary: str
    sha256: str
    reading: dict[str, Any]
    shares: dict[str, list[Share]]
    documents: dict[str, Count]
    client_names: NotRequired[dict[str, str]]
    coherence: dict[str, list[float]]
    info: TrainingInfo
    groups: NotRequired[list[dict[str, Any]]]  # checked by `GroupTable.read`
    estimates: NotRequired[list[dict[str, Any]]]


_CONFIG = TypeAdapter(_Config)
_HISTORY = TypeAdapter(list[PastRound])

# What a folder that `write_model` did not write can raise when read; RuntimeError is torch's.
_DAMAGES = (
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    SafetensorError,
    OSError,
)


def write_model(model: Topics, folder: Path, more: Mapping[str, bytes]) -> None:
    """Write a model's files, and more by name; ModelError if others would be overwritten."""
    is_model = (folder / "config.json").exists()
    for name, sign in SIGNS.items():
        path = folder / name
        # Next to a model's config, its other files are a model's, even if a write of them failed.
        is_part = is_model and name not in ("config.json", "README.md")
        if (
            path.exists()
            and not is_part
            and (sign is None or sign not in beginning_of(path, BEGINNING))
        ):
            raise ModelError(f"The {name} in {folder} is not a model's; choose another folder.")
    tensors = save(
        {name: np.ascontiguousarray(array) for name, array in weight_arrays(model).items()}
    )
    config = {
        "format": MODEL,
        "fedtopics": VERSION,
        "inference": model.inference.name,
        "precision": model.inference.precision,
        "settings": model.inference.settings.model_dump(
            mode="json", include=set(model.inference.settings_type.model_fields)
        ),
        "text": model.text.model_dump(mode="json"),
        "vocabulary": model.vocabulary.fingerprint,
        "sha256": hashlib.sha256(tensors).hexdigest(),
        "reading": asdict(model.word_ranking),
        "shares": {name: share.tolist() for name, share in model.shares.items()},
        "documents": dict(model.documents),
        "client_names": dict(model.client_names),
        "coherence": {name: score.tolist() for name, score in model.coherence.items()},
        "info": dict(model.info),
        "groups": [plain(table) for table in model.groups],
        "estimates": [plain(estimate) for estimate in model.estimates],
    }
    words = model.vocabulary.plain()
    _replace(
        folder,
        {
            "model.safetensors": tensors,
            "config.json": _lines({**config, "digest": content_digest(config, words)}),
            "vocabulary.json": _lines(words),
            **_labels(model),
            **more,
        },
    )


def weight_arrays(model: Topics) -> Weights:
    """Return the arrays in a model's file of weights, by name."""
    return {
        **{f"weights/{name}": array for name, array in model.weights.items()},
        **{
            f"shared/{stage}/{name}": array
            for stage, values in model.shared.items()
            for name, array in values.items()
        },
        "words/sums": model.word_sums,
    }


def write_labels(model: Topics, folder: Path) -> None:
    """Write the files of a model that people read and edit."""
    _replace(folder, _labels(model))


def _labels(model: Topics) -> dict[str, bytes]:
    return {"topics.json": _lines(model.get_topic_info()), "README.md": card(model).encode()}


def _replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files of a model that fit each other, while no other process does."""
    with replacing(folder):
        for name, content in files.items():
            write_durably(folder / name, content)


def model_folder(place: str | Path) -> Path:
    """Return the model folder of a model or run; ModelError if there is none."""
    home = Path(place).expanduser()
    for folder in (home, home / "model"):
        if (folder / "config.json").is_file():
            return folder
    raise ModelError(
        f"There is no model in {place}; name the folder of a model, or of a run that is finished."
    )


def read_model(folder: Path) -> dict[str, Any]:
    """Return the fields of the `TopicModel` in a folder; see `TopicModel.from_pretrained`."""
    folder = model_folder(folder)
    config = _read(folder / "config.json")
    if config.get("format") != MODEL:
        raise _of_other_version(config, folder)
    words = _read(folder / "vocabulary.json")
    fits = config.pop("digest", "") == content_digest(config, words)
    try:
        fields = _fields(config, words, folder, fits)
    except ModelError:
        raise
    except StudyError as error:
        raise ModelError(f"The model in {folder} cannot be used: {error}") from None
    except _DAMAGES as error:
        refuse_closed(error, folder)
        if fits and _has_weights(folder, config):  # nothing was lost: these are other fields
            raise _of_other_version(config, folder) from None
        raise ModelError(
            f"The model in {folder} is damaged or incomplete; copy it again."
        ) from None
    labels, suggested = read_labels(
        folder / "topics.json", fields["inference"].settings.n_components
    )
    return fields | {"labels": labels, "unconfirmed": suggested}


def _has_weights(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether the file of weights is the one that the config names."""
    path = folder / "model.safetensors"
    return path.exists() and hashlib.sha256(read_bytes(path)).hexdigest() == config.get("sha256")


def _of_other_version(config: Mapping[str, Any], folder: Path) -> ModelError:
    """Return the error for a model whose fields this version does not read."""
    written_format, written_by = (
        as_sentence(str(config.get(key, "unknown"))) for key in ("format", "fedtopics")
    )
    return ModelError(
        f"The model in {folder} has format {written_format} (written by fedtopics {written_by}), "
        f"and not the fields of format {MODEL}, which fedtopics {VERSION} reads; train it again, "
        "or install the version that wrote it."
    )


def _fields(config: Any, words: Any, folder: Path, fits: bool) -> dict[str, Any]:
    _CONFIG.validate_python(config, strict=True)
    _HISTORY.validate_python(config["info"].get("history", []), strict=True)
    _check_texts(config)
    names = checked_names(config.get("client_names", {}), config["documents"])
    vocabulary = Vocabulary.of(words)
    if vocabulary.fingerprint != config["vocabulary"] and not fits:
        raise ModelError(
            f"The model in {folder} needs the vocabulary {config['vocabulary']}, but its "
            f"vocabulary.json is {vocabulary.fingerprint}; copy the whole folder again."
        )
    if not fits or vocabulary.fingerprint != config["vocabulary"]:
        raise ValueError
    arrays = _read_arrays(folder / "model.safetensors", config["sha256"])
    word_sums = arrays["words"]["sums"]
    unfit = ModelError(
        f"The numbers in {folder} do not fit the model that its config.json describes; copy the "
        "whole folder again."
    )
    if word_sums.shape != (config["settings"]["n_components"], len(vocabulary)):
        raise unfit
    inference = make(config["inference"], len(vocabulary), config["settings"], config["precision"])
    converted = _tensors if has_tensors(inference) else dict
    fields: dict[str, Any] = {
        "inference": inference,
        "weights": converted(arrays["weights"]),
        "shared": {
            owner.removeprefix("shared/"): converted(values)
            for owner, values in arrays.items()
            if owner.startswith("shared/")
        },
        "vocabulary": vocabulary,
        "text": TextRules(**{"version": 1} | config["text"]),  # the first format had no number
        "shares": {name: np.array(share) for name, share in config["shares"].items()},
        "documents": config["documents"],
        "client_names": names,
        "word_sums": word_sums,
        "word_ranking": WordRanking(**config["reading"]),
        "coherence": {name: np.array(score) for name, score in config["coherence"].items()},
        "info": config["info"],
        "groups": tuple(of_plain(GroupTable, table) for table in config.get("groups", ())),
        "estimates": tuple(of_plain(Effects, of) for of in config.get("estimates", ())),
    }
    if not _fit(**fields):
        raise unfit
    return fields


def _fit(
    inference: Inference,
    weights: Weights,
    shared: Any,
    shares: Any,
    documents: Any,
    word_sums: Any,
    coherence: Any,
    word_ranking: WordRanking,
    info: TrainingInfo,
    groups: Sequence[GroupTable],
    estimates: Sequence[Effects],
    **_: Any,
) -> bool:
    """Whether the numbers of a model have the types and sizes that its settings require."""
    layout = {n: (tuple(w.shape), str(w.dtype).removeprefix("torch.")) for n, w in weights.items()}
    by_topic = [*shares.values(), *coherence.values()]
    lists: list[Sequence[object]] = [
        *info.get("sizes", {}).values(),
        info.get("ids", range(len(word_sums))),
    ]
    lists += [info["nearness"]["scores"]] if "nearness" in info else []
    if (
        layout != inference.layout()
        or word_sums.dtype != np.float64
        or not np.isfinite(word_sums).all()
        or shares.keys() != documents.keys()
        or any(len(entries) != len(word_sums) for entries in lists)
        or any((array.shape, array.dtype.kind) != (word_sums.shape[:1], "f") for array in by_topic)
        or not all(table.fits(len(word_sums)) for table in groups)
        or not all(estimate.fits(len(word_sums)) for estimate in estimates)
        or not word_ranking.fits(n_topics=word_sums.shape[0], n_words=word_sums.shape[1])
    ):
        return False
    beta = np.asarray(inference.beta(weights, shared))
    return beta.shape == word_sums.shape and bool(np.isfinite(beta).all())


def _check_texts(config: Mapping[str, Any]) -> None:
    """Refuse invalid client names, and texts that are not short printable lines."""
    for client in config["shares"].keys() | config["documents"].keys():
        check_client_name(client)
    for text in _texts([config[name] for name in CHECKED if name in config]):
        if len(text) > LONGEST_LINE or visible(text) != text or is_flooded(text):
            raise StudyError(
                f'its config.json contains "{as_sentence(text)}", which is not printable or has '
                f"more than {LONGEST_LINE} characters."
            )


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, (Mapping, list)):
        for part in (*content, *(content.values() if isinstance(content, Mapping) else ())):
            yield from _texts(part)


def _tensors(arrays: Weights) -> Weights:
    import torch

    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _read_arrays(path: Path, digest: str) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the arrays by owner, and below that by name."""
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelError(f"{path} is damaged or incomplete; copy it again.")
    arrays: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in load(content).items():
        owner, _, last = name.rpartition("/")
        arrays.setdefault(owner, {})[last] = array
    return arrays


def content_digest(config: Any, words: Any) -> str:
    """Return the digest of a config (without its own digest) and of the words."""
    return hashlib.sha256(json.dumps([config, words], sort_keys=True).encode()).hexdigest()


def _lines(content: Any) -> bytes:
    return (as_json(content, indent=1) + "\n").encode()


def _read(path: Path) -> Any:
    try:
        content = json.loads(read_text(path))
        if not isinstance(content, dict):
            raise ValueError
        return content
    except (OSError, ValueError, RecursionError) as error:
        refuse_closed(error, path)
        raise ModelError(f"{path} is missing or damaged; copy the model's folder again.") from None
