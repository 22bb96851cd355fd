"""Tables of a study's file: [about], [clients.NAME] and [federation]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fedtopics.errors import DataError, StudyError
from fedtopics.federation.study_file import explain
from fedtopics.files import read_toml
from fedtopics.harmless import is_flooded, visible
from fedtopics.methods.core.outliers import Rule
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.tables import Columns

MOST_RECIPIENTS = 20


def _one_line(value: str) -> str:
    if visible(value) != value or is_flooded(value):
        raise ValueError("this has to be one line of characters that print")
    return value


Line = Annotated[str, AfterValidator(_one_line)]
Recipient = Annotated[Line, Field(min_length=1, max_length=200)]


class About(BaseModel):
    """Why a study is done, who answers for it, who gets what comes of it, and for how long.

    Part of what participants agree on: another purpose is another study. Nothing here is computed
    with.
    """

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
    address: str | None = Field(
        None, description="HOST:PORT where others reach it, in a study without a server"
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
    try:
        return TextRules(**read_toml(path))
    except (OSError, ValueError) as error:
        raise StudyError(f"The rules {path} cannot be used: {explain(error)}") from None


def check_different(clients: Mapping[str, ClientData]) -> None:
    """Raise ValueError where people could not tell two clients apart."""
    called = [client.name or name for name, client in clients.items()]
    if len(set(called)) < len(called):
        raise ValueError("two clients have the same name: give each one of its own")


def client_names(clients: Mapping[str, ClientData], present: Iterable[str]) -> dict[str, str]:
    """Return what people call those of a study's clients that are present; it may be nothing."""
    named = {client: clients[client].name for client in present if client in clients}
    return {client: name for client, name in named.items() if name}


def resolve_paths(table: dict[str, Any], folder: Path) -> None:
    """Make the paths in a client's table absolute; in a study they are relative to its file."""
    for key in {"data", "policy", "rules"} & table.keys():
        table[key] = folder / str(table[key])
    model = folder / str(table.get("embedding_model", ""))
    if "embedding_model" in table and model.is_dir():  # else it is a name
        table["embedding_model"] = str(model)


class FederationSettings(BaseModel):
    """How a server on a network treats clients that are away, late or wrong.

    None of it is part of the study's fingerprint: it may be changed before a run is resumed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    min_clients: int | None = Field(
        None, ge=1, description="fewest clients of a round; by default more than half"
    )
    deadline: float = Field(
        600.0, gt=0, description="seconds for a round; who is later is left out of it"
    )
    gather: float = Field(
        86_400.0, ge=0, description="seconds that the server waits at its start for all clients"
    )
    wait: float = Field(
        3600.0, ge=0, description="seconds that a round waits for min_clients before the run ends"
    )
    robust: Rule | None = Field(
        None,
        description='how replies that are not masked are added up: as they are ("none"), with '
        'outliers bounded ("clip"), or by the median over clients ("median"); by default "clip", '
        'with masks "none"',
    )
    pause: float = Field(0.0, ge=0, description="seconds between two rounds, for documents to come")
    largest_message: int = Field(1024, ge=1, description="most megabytes of a message")
