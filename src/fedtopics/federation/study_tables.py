"""The tables of a study file, the checks of differential privacy, and how TOML is written.

Look here for the keys of [clients], [server], [federation] and [about], and for the advice about a
wrong key or value.
"""

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

from fedtopics import escaping
from fedtopics.errors import (
    DataError,
    StudyError,
    first_problem,
    nearest_names,
    of_client,
    refuse,
)
from fedtopics.escaping import is_flooded, visible
from fedtopics.files import read_bytes, read_toml
from fedtopics.methods.core.settings import TopicSettings, filled
from fedtopics.methods.registry import DEFAULT_METHOD, METHODS, find_method
from fedtopics.privacy import MOST_CLIENTS
from fedtopics.privacy.recipe import RECIPES, why_not
from fedtopics.protocol.link import split_address
from fedtopics.protocol.outliers import Rule
from fedtopics.protocol.plain_rounds import FederationSettings as FederationSettings
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.tables import Columns

MOST_RECIPIENTS = 20
FEWEST_CLIENTS = 3  # of a secure sum; of two, each could subtract its own update
PEM = "-----BEGIN CERTIFICATE-----"
TABLES = {"dict_type", "model_type", "model_attributes_type"}  # errors where a table is missing


def _one_line(value: str) -> str:
    if visible(value) != value or is_flooded(value):
        raise ValueError("write one line of printable characters")
    return value


Line = Annotated[str, AfterValidator(_one_line)]


class About(BaseModel, extra="forbid", frozen=True):
    """Why a study is done, who is responsible, and who gets the model."""

    purpose: Line = Field("", max_length=500, description="what the model is for")
    operator: Line = Field(
        "", max_length=200, description="who runs the study, and the server if there is one"
    )
    recipients: tuple[Annotated[Line, Field(min_length=1, max_length=200)], ...] = Field(
        (), max_length=MOST_RECIPIENTS, description="who gets the model, besides the members"
    )
    retention: Line = Field(
        "", max_length=500, description="how long the model and the run folders are kept"
    )
    contact: Line = Field("", max_length=200, description="contact for questions")

    def rows(self) -> Iterator[tuple[str, str]]:
        for name in type(self).model_fields:
            if value := getattr(self, name):
                yield name, value if isinstance(value, str) else "; ".join(value)


class ClientData(BaseModel, extra="forbid", frozen=True):
    """A client's documents and their columns, its policy and its certificate."""

    name: Line | None = Field(
        None, max_length=100, description="display name of the client, in tables and reports"
    )
    data: Path | None = Field(
        None,
        description="CSV, TSV, JSON lines, Parquet, or a folder of .txt files; with "
        "fedtopics[files] also .xlsx, .ods, .sav, .dta, or a query in a .sql file",
    )
    encoding: str | None = Field(
        None, description='encoding of the texts, such as "cp1252", if it is not UTF-8'
    )
    sheet: str | None = Field(None, description="sheet of a workbook, if several have rows")
    date_format: str | None = Field(
        None,
        description='how the column of times writes dates, as for strptime, such as "%d/%m/%Y", or '
        '"excel" for numbers of days',
    )
    text: str | None = Field(None, description="column of the text")
    tokens: str | None = Field(None, description="column of lists of words, used unchanged")
    id: str | None = Field(None, description="column of identifiers")
    label: str | None = Field(None, description="column of labels, used only to score the model")
    embedding: str | None = Field(None, description="column of embeddings")
    person: str | None = Field(
        None,
        description="column that says whose document it is; without it, each document is a "
        "person of its own",
    )
    time: str | None = Field(
        None, description="column of each document's date, for shares by period"
    )
    by: dict[str, str] = Field(
        {},
        description="columns of the study's [method.by] that have another name here",
    )
    round: str | None = Field(
        None, description="column of numbers of rounds, or of times, for methods that take new data"
    )
    embedding_model: str | None = Field(
        None, description="the model that made those embeddings, or the folder of the study's model"
    )
    certificate: str | None = Field(
        None, description="the client's certificate between machines, as a PEM file or its content"
    )
    text_rules: Path | None = Field(
        None,
        description="this client's own text rules, if they differ on purpose: a TOML file with "
        "keys of [text]; its documents then count as lists of words",
    )
    policy: Path | None = Field(None, description="the client's policy, a TOML file")

    def read(self, name: str, by: Iterable[str] = ()) -> Corpus:
        """Read the documents, with the columns `by` which the study compares them."""
        if self.data is None:
            raise DataError(
                f'The study names no documents of client {name!r}; add data = "FILE" to its table.'
            )
        names = self.model_dump(include={f.name for f in fields(Columns)} - {"by", "rules"})
        with of_client(name):
            return Corpus.read(
                self.data,
                Columns(
                    **names,
                    rounds=self.round,
                    by={column: self.by.get(column, column) for column in by},
                    rules=None if self.text_rules is None else read_rules(self.text_rules),
                ),
            )


def read_rules(path: Path) -> TextRules:
    with explained(f"The rules {path}", TextRules):
        return TextRules(**read_toml(path))


def member_tables(study: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tables of members and of the server; ValueError for another value."""
    for key in ("clients", "observers"):
        members = study.get(key, {})
        for member in members.values() if isinstance(members, dict) else ():
            if not isinstance(member, dict):
                raise ValueError(
                    f"each of the {key} is a table, such as [{key}.north] and its lines below it"
                )
            yield member
    if isinstance(server := study.get("server"), dict):
        yield server


def resolve_paths(table: dict[str, Any], folder: Path) -> None:
    paths = {key: str(table[key]) for key in {"data", "policy", "text_rules"} & table.keys()}
    table |= {key: folder / path for key, path in paths.items()}
    if any("\t" in path or "\n" in path for path in paths.values()):  # of C:\texts\new
        raise ValueError(f"a path has a tab or a line end; {BACKSLASH}")
    model = folder / str(table.get("embedding_model", ""))
    if "embedding_model" in table and model.is_dir():  # otherwise it is a name
        table["embedding_model"] = str(model)
    certificate = table.get("certificate", PEM)
    if isinstance(certificate, str) and not certificate.startswith(PEM):
        try:
            # Members agree on the content, not on the path.
            table["certificate"] = read_bytes(folder / certificate).decode("ascii", "replace")
        except OSError as error:
            raise ValueError(f"{certificate} cannot be read: {error.strerror}") from None


class ServerData(BaseModel, extra="forbid", frozen=True):
    address: (
        Annotated[str, AfterValidator(lambda address: split_address(address) and address)] | None
    ) = Field(None, description="HOST:PORT that all members can reach")
    certificate: str | None = Field(
        None, description="the server's certificate, as a PEM file or its content"
    )
    host: str | None = Field(
        None, description="the member in whose process the server runs, if it has none of its own"
    )


class ObserverData(BaseModel, extra="forbid", frozen=True):
    """A member without documents, which gets the model; the run waits for it too."""

    certificate: str = Field(description="the observer's certificate, as a PEM file or its content")


def check_privacy(method: TopicSettings, clients: int, secure: bool, outliers: Rule | None) -> None:
    why = why_not(method)
    others = ", ".join(other for other in RECIPES.names if other != method.method_name)
    refuse(
        {
            f"{method.method_name} does not support differential privacy: {why}; choose a method "
            f"that does ({others}), or leave out differential_privacy": bool(why),
            "with differential privacy each update has only a part of the noise, but a rule for "
            "outliers needs single updates; leave out federation.outliers": (
                outliers not in (None, "none")
            ),
            "with differential privacy each client adds a part of the noise, which protects only "
            'totals; set aggregation = "secure", which needs three clients': (
                clients > 1 and not secure
            ),
            f"with differential privacy a study has at most {MOST_CLIENTS:,} clients; with more, "
            "each client's part of the noise is too small for the whole numbers of secure sums": (
                clients > MOST_CLIENTS
            ),
            "all clients of a private study take part; leave out clients_per_round": (
                method.clients_per_round is not None
            ),
        }
    )


def fill_in_defaults_of_method(study: Any) -> Any:
    method = study.get("method") if isinstance(study, Mapping) else None
    if not isinstance(method, Mapping):
        return study
    name = method.get("name")
    preset = str(method.get("preset", ""))
    if study.get("differential_privacy") and name in RECIPES.names:
        study = {**study, "method": filled(method, RECIPES.find(name).defaults)}
    tables = find_method(name).settings.TABLES if preset and name in METHODS.names else {}
    return filled(study, tables.get(preset, {}))


# What scikit-learn, gensim, BERTopic or older studies and policies call a setting, and its key.
USUAL_NAMES = {
    "account": "memory",
    "author": "person",
    "language": "text.languages",
    "max_df": "vocabulary.max_document_share",
    "max_features": "vocabulary.max_words",
    "max_iter": "method.max_rounds",
    "min_df": "vocabulary.min_persons_per_word",
    "min_document_frequency": "min_persons_per_word",
    "min_documents": "min_persons",
    "min_documents_in_sum": "min_persons_in_sum",
    "n_clusters": "method.n_components",
    "n_gram_range": "text.ngrams",
    "n_topics": "method.n_components",
    "ngram_range": "text.ngrams",
    "nr_topics": "method.n_components",
    "num_topics": "method.n_components",
    "passes": "method.max_rounds",
}


LINES = (
    'a line has the form KEY = VALUE, and texts need quotes, as in data = "a.csv"; so do names '
    'with other letters than a to z, as in [clients."Köln"]'
)
BACKSLASH = "write a path with / or in single quotes, as in data = 'C:\\texts\\a.csv'"
ESCAPED = re.compile(r"hex value|\\")  # what tomllib says of a backslash in double quotes


def explain(error: Exception, model: Any = None, content: Any = None) -> str:
    """Return one line about an error of pydantic, tomllib or the file system."""
    problem = (
        "there is no such file"
        if isinstance(error, FileNotFoundError)
        else str(error.strerror if isinstance(error, OSError) else error)
    )
    if isinstance(error, tomllib.TOMLDecodeError):
        problem += f"; {BACKSLASH if ESCAPED.search(problem) else LINES}"
    if isinstance(error, ValidationError):
        first = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in first["loc"])
        value = first["input"]
        is_plain = isinstance(value, str) and (
            re.fullmatch(r"-?[\d.]+|true|false", value) is not None
        )
        reason = first_problem(
            {
                f"write a table, [{where}]": first["type"] in TABLES,
                "write the value without quotes": (
                    is_plain and first["type"] in ("int_type", "float_type", "bool_type")
                ),
                first["msg"].removeprefix("Value error, "): True,
            }
        )
        shown = str(value) if isinstance(value, Path) else repr(value)
        is_ = "" if isinstance(value, (dict, list)) else f" is {shown:.80}"
        problem = f"{where!r:.80}{is_}: {reason}" if where else reason
        if first["type"] == "extra_forbidden":
            keys = [] if model is None else _keys(model, content, first["loc"][:-1])
            key = first["loc"][-1]
            nearest = nearest_names(key, keys) if keys else "correct its name"
            advice = f"use {USUAL_NAMES[key]}" if key in USUAL_NAMES else nearest
            problem = f"there is no key {where!r:.80}; {advice}"
    problem = re.sub(r"(\S{200})\S+", r"\1...", problem)  # a value of megabytes
    return problem if problem.endswith("?") else problem.removesuffix(".") + "."


def _keys(model: Any, content: Any, path: Sequence[Any]) -> Collection[str]:
    for part in path:
        if part in model.model_fields:  # otherwise it names a client
            kind = model.model_fields[part].annotation
            model = next(
                option
                # such as a table, dict[str, table] or table | None
                for option in (kind, *get_args(kind))
                if hasattr(option, "model_fields")
            )
        if model is TopicSettings:
            model = find_method(content[part].get("name", DEFAULT_METHOD)).settings
    return [*model.model_fields]


def dotted(plain: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings that are one value, or a few numbers, by dotted keys."""
    for key, value in plain.items():
        match value:
            case Mapping():
                yield from dotted(value, f"{prefix}{key}.")
            case int() | float() | str():
                yield prefix + key, value
            case list() if value and all(isinstance(x, (int, float)) for x in value):
                yield prefix + key, value


@contextmanager
def explained(what: str, model: Any = None) -> Iterator[dict[str, Any]]:
    """Turn errors in a user's file into a StudyError; the yielded dict takes its content."""
    content: dict[str, Any] = {}
    try:
        yield content
    except (OSError, ValueError) as error:
        raise StudyError(f"{what} cannot be used: {explain(error, model, content)}") from None


def fields_of(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    return sorted(
        model.model_fields.items(),
        key=lambda field: field[0] not in ("name", "network", "preset"),
    )


def value_as_toml(
    model: BaseModel, table: str = "", *, example: bool = False, own: Any = None
) -> str:
    """Return a model as TOML; in an example, defaults are commented out (`own`: of a group)."""
    lines = []
    tables = []
    for key, info in fields_of(type(model)):
        value = getattr(model, key)
        if isinstance(value, BaseModel):
            inner = f"{table}{key}"
            body = value_as_toml(value, f"{inner}.", example=example, own=info.default)
            tables.append(f"\n# {info.description}\n[{inner}]\n{body}")
        elif key in ("clients", "observers") or (key == "by" and table and value):
            for name, entry in value.items():
                body = value_as_toml(entry, "", example=example)
                tables.append(f"\n[{table}{key}.{json.dumps(name)}]\n{body}")
        else:
            is_default = example and value == getattr(own, key, info.default) and key != "name"
            hidden = "# " if value is None or is_default else ""
            shown = "" if value is None else f" {_plain(value, example)}"
            lines.append(f"{hidden}{key} ={shown}  # {info.description}")
    return "\n".join(lines) + "\n" + "".join(tables)


def _plain(value: Any, example: bool) -> str:
    match value:
        case date():
            return value.isoformat()
        case dict():
            pairs = (f"{json.dumps(key)} = {_plain(part, example)}" for key, part in value.items())
            return f"{{{', '.join(pairs)}}}"
        case Path():
            return escaping.as_toml(str(value if example else value.absolute()))
    return escaping.as_toml(value)
