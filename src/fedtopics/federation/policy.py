"""What a client lets out; nobody else can change it."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtopics.errors import PolicyError, StudyError
from fedtopics.federation.study_file import explain
from fedtopics.text.vocabulary import TextRules
from fedtopics.text.words import PATTERNS


class Policy(BaseModel):
    """What a client lets out, whatever the others of a study want."""

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
    min_clients: int = Field(
        2,
        ge=1,
        description="a reply is given only where at least this many clients are added up; with "
        "two, each can subtract its own and read the other's, three are recommended",
    )
    secure: Literal["required"] | None = Field(
        None, description='"required": replies leave in masked sums alone, which nobody sees into'
    )
    token_patterns: tuple[str, ...] = Field(
        (), description="patterns of words that texts may be split by, besides those with a name"
    )

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

    def check_members(self, client: str, members: Collection[str]) -> None:
        """Refuse a sum over too few clients; where all are in one process, nobody asks."""
        if len(members) < self.min_clients:
            raise PolicyError(
                f"The policy of client {client!r} asks for sums over at least {self.min_clients} "
                f"clients, this one is over {len(members)}; wait for more of them, or lower "
                "min_clients in its policy."
            )

    def check_masks(self, client: str, secure: bool, signed: bool) -> None:
        """Refuse a study without masks, or whose participants do not sign, where they are required.

        Without signatures who adds could be all the others, and know their masks.
        """
        if self.secure is None or (secure and signed):
            return
        lack, remedy = (
            ("its participants do not sign", "give each of them an identity")
            if secure
            else ("the study does not have them", "set secure = true in the study")
        )
        raise PolicyError(
            f"The policy of client {client!r} requires masked sums, and {lack}; {remedy}, or leave "
            'secure = "required" out of the policy. Nothing has left.'
        )

    def check_text(self, client: str, text: TextRules) -> None:
        """Refuse a pattern of words that neither has a name nor is allowed."""
        if text.token_pattern not in (*PATTERNS, *self.token_patterns):
            raise PolicyError(
                f"The study splits texts by the pattern {text.token_pattern!r}, which the policy "
                f"of client {client!r} does not name; use one of {', '.join(PATTERNS)}, or add it "
                "to the policy's token_patterns."
            )

    def check_study(
        self, client: str, method: str, rounds: int, documents: int, text: TextRules | None = None
    ) -> None:
        """Refuse a study that is not allowed, before anything leaves the client.

        The rounds are the most of the study's training, without those of a model that it continues;
        the documents those that the client has, or will have. In simulations, which are one's own,
        no rules of texts are given: any pattern does.
        """
        self.check_method(client, method)
        if text is not None:
            self.check_text(client, text)
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


OPEN_POLICY = Policy(min_documents=1, min_document_frequency=1, min_clients=1)
"""For documents that stay in one's own hands: one corpus, trained where it is."""
