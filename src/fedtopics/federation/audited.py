"""What an audit found, as `fedtopics audit -o` wrote it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from fedtopics.errors import RunError
from fedtopics.files import read_bytes
from fedtopics.harmless import visible

AUDIT = "audit.json"  # in a run's folder, or beside a study's file


class Attacked(BaseModel):
    """How well an attack says which documents were there, see `audit.Guess`."""

    model_config = ConfigDict(frozen=True)

    auc: FiniteFloat = Field(ge=0, le=1)
    found: FiniteFloat = Field(ge=0, le=1)
    documents: int = Field(ge=0)


class Reading(BaseModel):
    """What is read of documents by who knows all others, see `transcript_attacks.Read`."""

    model_config = ConfigDict(frozen=True)

    recall: FiniteFloat = Field(ge=0, le=1)
    guessing: FiniteFloat = Field(ge=0, le=1)
    wholly: int = Field(ge=0)
    documents: int = Field(ge=0)


class _Written(BaseModel):
    study: str
    shadows: int
    false: FiniteFloat
    attacks: dict[str, Attacked] = Field(min_length=1)
    reading: Reading = Field(alias="read")


@dataclass(frozen=True)
class Audit:
    """An audit of a study: how many models were trained for it, what each attack found."""

    path: Path
    sha256: str
    study: str  # fingerprint
    shadows: int
    false: float
    attacks: Mapping[str, Attacked]
    reading: Reading

    @classmethod
    def read(cls, path: Path, study: str) -> Audit:
        """Read the audit of a study with this fingerprint.

        Raises
        ------
        RunError
            If it is none, or of another study.
        """
        try:
            content = read_bytes(path)
            found = _Written.model_validate_json(content)
        except (OSError, ValidationError):
            raise RunError(
                f"{path} is no audit; write one with: fedtopics audit STUDY --data FILE -o {path}"
            ) from None
        if found.study != study:
            raise RunError(
                f"{path} is an audit of the study {visible(found.study)}, not of {study}; audit "
                "this one, or take the file away."
            )
        return cls(path, hashlib.sha256(content).hexdigest(), **dict(found))
