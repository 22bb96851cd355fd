"""What a client lets out, whatever a server asks for; no server can change it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtopics.errors import PolicyError, StudyError
from fedtopics.federation.study_file import explain


class Policy(BaseModel):
    """What a client lets out, whatever a server asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    methods: tuple[str, ...] | None = Field(
        None, description="methods that may run; by default all that are installed"
    )
    min_documents: int = Field(
        10, ge=1, description="a reply must sum over at least this many documents"
    )
    min_document_frequency: int = Field(
        5, ge=1, description="a word may leave only if this many documents have it"
    )
    max_rounds: int = Field(100_000, ge=1, description="most training rounds of a study")

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file.

        Raises
        ------
        StudyError
            If the file is missing, is not TOML, or has an unknown key.
        """
        try:
            return cls(**tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
            raise StudyError(f"The policy {path} cannot be used: {explain(error)}") from None

    def check_method(self, client: str, method: str) -> None:
        """Refuse a method that is not allowed, before anything is computed."""
        if self.methods is not None and method not in self.methods:
            raise PolicyError(
                f"The policy of client {client!r} does not allow the method {method!r}; "
                "add it to the policy's methods."
            )

    def check_study(self, client: str, method: str, rounds: int, documents: int) -> None:
        """Refuse a study that is not allowed, before anything leaves the client.

        The rounds are the most of the study's training, without those of a model that it continues;
        the documents those that the client has, or will have.
        """
        self.check_method(client, method)
        if rounds > self.max_rounds:
            raise PolicyError(
                f"The study asks for {rounds:,} rounds, the policy of client {client!r} allows "
                f"{self.max_rounds:,}; nothing has left. Lower the study's max_rounds or raise "
                "that of the policy."
            )
        if documents < self.min_documents:
            raise PolicyError(
                f"The policy of client {client!r} asks for sums over at least "
                f"{self.min_documents:,} documents, and it has {documents:,}; nothing has left. "
                "Give it more documents, or lower min_documents in its policy."
            )


OPEN_POLICY = Policy(min_documents=1, min_document_frequency=1)
"""For documents that stay in one's own hands: one corpus, trained where it is."""
