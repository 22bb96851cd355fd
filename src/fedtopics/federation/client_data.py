"""Where a client's documents are: the tables [clients.NAME] of a study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fedtopics.errors import DataError, StudyError
from fedtopics.federation.about import Line
from fedtopics.federation.study_file import explain
from fedtopics.files import read_toml
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.tables import Columns


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
