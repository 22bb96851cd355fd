"""What a study's file consists of: its tables, the checks of [privacy], and how TOML is written."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from fedtopics import harmless
from fedtopics.errors import DataError, FedTopicsError, StudyError, nearest
from fedtopics.files import read_bytes, read_toml
from fedtopics.harmless import is_flooded, visible
from fedtopics.methods.core.outliers import Rule
from fedtopics.methods.core.settings import TopicSettings, filled
from fedtopics.methods.registry import DEFAULT_METHOD, find_method
from fedtopics.privacy import MOST_CLIENTS
from fedtopics.privacy.recipe import RECIPES, why_not
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.tables import Columns

MOST_RECIPIENTS = 20
FEWEST_CLIENTS = 3  # clients of a secure sum: of two, each could subtract its own update
PEM = "-----BEGIN CERTIFICATE-----"
TABLES = {"dict_type", "model_type", "model_attributes_type"}  # errors of what is no table


def _one_line(value: str) -> str:
    if visible(value) != value or is_flooded(value):
        raise ValueError("this has to be one line of characters that print")
    return value


Line = Annotated[str, AfterValidator(_one_line)]
Recipient = Annotated[Line, Field(min_length=1, max_length=200)]


class About(BaseModel):
    """Why a study is done, who answers for it and who gets the model: another is another study."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    purpose: Line = Field("", max_length=500, description="what the model is for")
    operator: Line = Field(
        "", max_length=200, description="who runs the study, and the server if there is one"
    )
    recipients: tuple[Recipient, ...] = Field(
        (), max_length=MOST_RECIPIENTS, description="who gets the model, besides the participants"
    )
    retention: Line = Field(
        "", max_length=500, description="how long the model and the runs' folders are kept"
    )
    contact: Line = Field("", max_length=200, description="whom people ask about it")

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield what is said, each with its name."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value:
                yield name, value if isinstance(value, str) else "; ".join(value)


class ClientData(BaseModel):
    """Where a client's documents are, for a simulation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Line | None = Field(
        None, max_length=100, description="what people call the client, in tables and reports"
    )
    data: Path | None = Field(
        None, description="CSV, TSV, JSON lines, Parquet, or a folder of .txt files"
    )
    text: str | None = Field(None, description="column of the text")
    tokens: str | None = Field(None, description="column of lists of words, taken as they are")
    id: str | None = Field(None, description="column of identifiers")
    label: str | None = Field(None, description="column of labels, for measuring only")
    embedding: str | None = Field(None, description="column of embeddings")
    author: str | None = Field(
        None, description='column of whose each document is, for privacy.unit = "author"'
    )
    time: str | None = Field(
        None, description="column of when each document was written, for shares by period"
    )
    round: str | None = Field(
        None, description="column of numbers of rounds, or of times, for methods that take new data"
    )
    embedding_model: str | None = Field(
        None, description="the model of those embeddings, or where the study's model is"
    )
    certificate: str | None = Field(
        None, description="the client's certificate between machines, a PEM file or its content"
    )
    rules: Path | None = Field(
        None,
        description="this client's own rules for texts, where they differ on purpose: a TOML file "
        "with keys of [text]; its documents are lists of words then",
    )
    policy: Path | None = Field(None, description="the client's policy, a TOML file")

    def read(self, name: str) -> Corpus:
        """Read the documents of the client of this name; DataError if it cannot be done."""
        if self.data is None:
            raise DataError(
                f'The study names no documents of client {name!r}; add data = "FILE" to it.'
            )
        columns = {"text", "tokens", "id", "label", "embedding", "author", "time"}
        names = self.model_dump(include=columns)
        try:
            rules = None if self.rules is None else read_rules(self.rules)
            return Corpus.read(self.data, Columns(**names, rounds=self.round, rules=rules))
        except DataError as error:
            raise DataError(f"Client {name!r}: {error}") from None


def read_rules(path: Path) -> TextRules:
    """Read a client's own rules for texts; StudyError if the file cannot be used."""
    with explained(f"The rules {path}", TextRules):
        return TextRules(**read_toml(path))


def client_names(clients: Mapping[str, ClientData], present: Iterable[str]) -> dict[str, str]:
    """Return what people call those of a study's clients that are present; it may be nothing."""
    named = {client: clients[client].name for client in present if client in clients}
    return {client: name for client, name in named.items() if name}


def member_tables(study: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tables of members and of the server; ValueError if a member has none."""
    for key in ("clients", "observers"):
        members = study.get(key, {})
        for member in members.values() if isinstance(members, dict) else ():
            if not isinstance(member, dict):
                raise ValueError(f"each of the {key} is a table [{key}.NAME]")
            yield member
    if isinstance(server := study.get("server"), dict):
        yield server


def resolve_paths(table: dict[str, Any], folder: Path) -> None:
    """Make the paths in a table absolute, and read its certificate."""
    for key in {"data", "policy", "rules"} & table.keys():
        table[key] = folder / str(table[key])
    model = folder / str(table.get("embedding_model", ""))
    if "embedding_model" in table and model.is_dir():  # else it is a name
        table["embedding_model"] = str(model)
    certificate = table.get("certificate", PEM)
    if isinstance(certificate, str) and not certificate.startswith(PEM):
        try:
            # The content is what the members agree on, wherever each has the file.
            table["certificate"] = read_bytes(folder / certificate).decode("ascii", "replace")
        except OSError as error:
            raise ValueError(f"{certificate} cannot be read: {error.strerror}") from None


class ServerData(BaseModel):
    """Where the server of a study between machines is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = Field(None, description="HOST:PORT that all members can reach")
    certificate: str | None = Field(
        None, description="the server's certificate, a PEM file or its content"
    )
    host: str | None = Field(
        None, description="the member in whose process the server runs, if it has none of its own"
    )


class ObserverData(BaseModel):
    """A member without documents: it ends with the model, and the run waits for it as well."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: str = Field(description="the observer's certificate, a PEM file or its content")


class FederationSettings(BaseModel):
    """How the server of plain aggregation treats clients that are away, late or wrong.

    None of it is part of the study's fingerprint: it may be changed before a run is resumed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    quorum: int | None = Field(
        None, ge=1, description="fewest clients of a round; by default more than half"
    )
    round_timeout: float = Field(
        600.0, gt=0, description="seconds for a round; a client that is later is left out of it"
    )
    join_timeout: float = Field(
        86_400.0, ge=0, description="seconds that the server waits for all clients, if plain"
    )
    quorum_timeout: float = Field(
        3600.0, ge=0, description="seconds that a round waits for the quorum before the run ends"
    )
    outliers: Rule | None = Field(
        None,
        description='how plain aggregation treats updates that are far from the others: "none" '
        'changes nothing, "clip" bounds them, "median" takes the median over clients; by default '
        '"clip"',
    )
    round_interval: float = Field(
        0.0, ge=0, description="seconds between two rounds, for documents to come"
    )
    largest_message: int = Field(1024, ge=1, description="most megabytes of a message")


def check_privacy(method: TopicSettings, clients: int, secure: bool, outliers: Rule | None) -> None:
    """Raise ValueError for a bound that the method, or whoever adds, could not keep."""
    if why := why_not(method):
        name = method.method_name
        others = ", ".join(other for other in _able() if other != name)
        raise ValueError(
            f"{name} cannot keep a bound for each document: {why}. Others that can: {others}; or "
            "leave out privacy"
        )
    if outliers not in (None, "none"):
        raise ValueError(
            "with privacy each update holds a part of the noise, and a rule for outliers looks at "
            "updates one by one: leave out federation.outliers"
        )
    if clients > 1 and not secure:
        raise ValueError(
            "with privacy each client adds a part of the noise, which protects only totals: set "
            'aggregation = "secure", which three clients can'
        )
    if clients > MOST_CLIENTS:
        raise ValueError(
            f"with privacy a study has at most {MOST_CLIENTS:,} clients: of more, each one's part "
            "of the noise is too small for the whole numbers of secure sums"
        )
    if method.clients_per_round is not None:
        raise ValueError("with privacy all clients take part: leave out clients_per_round")


def _able() -> Iterator[str]:
    """Yield the names of the methods that can keep a bound."""
    for name in RECIPES.names:
        with suppress(FedTopicsError):  # one whose packages are not installed here
            RECIPES.find(name)
            yield name


def with_privacy(study: Any) -> Any:
    """Fill in what a method's settings are in a study with privacy, where it does not name them."""
    method = study.get("method") if isinstance(study, Mapping) else None
    if not isinstance(method, Mapping) or not study.get("privacy"):
        return study
    name = method.get("name")
    usual = RECIPES.find(name).usual if name in RECIPES.names else {}
    return {**study, "method": filled(method, usual)}


def explain(error: Exception, model: Any = None, content: Any = None) -> str:
    """Say in one line what pydantic, tomllib or the file system found.

    `model` is what was made of `content`; for a key that it lacks, the nearest one is named.
    """
    problem = str(error.strerror if isinstance(error, OSError) else error)
    problem = "there is no such file" if isinstance(error, FileNotFoundError) else problem
    if isinstance(error, ValidationError):
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        reason = f"write a table, [{where}]" if first["type"] in TABLES else reason
        value = first["input"]
        is_ = (
            ""
            if isinstance(value, (dict, list))
            else f" is {value if isinstance(value, Path) else repr(value):.80}"
        )
        problem = f"{where!r:.80}{is_}: {reason}" if where else reason
        if first["type"] == "extra_forbidden":
            problem = f"there is no key {where!r:.80}; "
            keys = [] if model is None else _keys(model, content, first["loc"][:-1])
            problem += nearest(first["loc"][-1], keys) if keys else "correct its name"
    return problem if problem.endswith("?") else problem.removesuffix(".") + "."


def _keys(model: Any, content: Any, path: Sequence[Any]) -> Collection[str]:
    """Return the keys that a table can have, by its place in a file and the model of that."""
    for part in path:
        if part in model.model_fields:  # else it names a client
            kind = model.model_fields[part].annotation
            kinds = [each for each in (kind, *get_args(kind)) if hasattr(each, "model_fields")]
            model = kinds[0]
        if model is TopicSettings:
            model = find_method(content[part].get("name", DEFAULT_METHOD)).settings
    return [*model.model_fields]


def dotted(plain: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield plain settings that are one value, or a few numbers, by dotted keys."""
    for key, value in plain.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
            continue
        entries = value if isinstance(value, list) else []
        few_numbers = entries and all(isinstance(entry, (int, float)) for entry in entries)
        if isinstance(value, (bool, int, float, str)) or few_numbers:
            yield prefix + key, value


@contextmanager
def explained(what: str, model: Any = None) -> Iterator[dict[str, Any]]:
    """Raise a StudyError of one line where a file, or values, that people wrote are wrong.

    What is yielded takes what the model is made of.
    """
    content: dict[str, Any] = {}
    try:
        yield content
    except (OSError, ValueError) as error:
        reason = explain(error, model, content)
        raise StudyError(f"{what} cannot be used: {reason}") from None


def fields_of(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """Return the fields of a table by name: first what the others depend on."""
    first = ("name", "network", "preset")
    return sorted(model.model_fields.items(), key=lambda field: field[0] not in first)


def as_toml(model: BaseModel, table: str = "", *, example: bool = False, own: Any = None) -> str:
    """Write a model as TOML: plain values first, then its tables.

    In an example, defaults are commented out, of a group its `own`, and paths are as given.
    """
    lines, tables = [], []
    for key, info in fields_of(type(model)):
        value = getattr(model, key)
        if isinstance(value, BaseModel):
            inner = f"{table}{key}"
            body = as_toml(value, f"{inner}.", example=example, own=info.default)
            tables.append(f"\n# {info.description}\n[{inner}]\n{body}")
        elif key in ("clients", "observers"):
            for name, entry in value.items():
                body = as_toml(entry, "", example=example)
                tables.append(f"\n[{table}{key}.{json.dumps(name)}]\n{body}")
        else:
            usual = example and value == getattr(own, key, info.default) and key != "name"
            hidden = "# " if value is None or usual else ""
            shown = "" if value is None else f" {_plain(value, example)}"
            lines.append(f"{hidden}{key} ={shown}  # {info.description}")
    return "\n".join(lines) + "\n" + "".join(tables)


def _plain(value: Any, example: bool) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_plain(entry, example)}" for key, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Path):
        value = str(value if example else value.absolute())
    return harmless.as_toml(value)
