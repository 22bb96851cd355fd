"""What a study promises for each document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Privacy(BaseModel):
    """A bound for what all that a study releases says of one document, or of one author.

    Examples
    --------
    >>> Privacy(epsilon=3).delta
    1e-06
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    epsilon: float = Field(
        ge=0.01,
        le=100,
        description="with or without a document, anything becomes known at most e^epsilon times as "
        "likely: 1 is strong, 3 usual, from 8 on it says little",
    )
    delta: float = Field(
        1e-6,
        ge=1e-12,
        le=1e-3,
        description="but for cases of this probability; far below 1 / (number of documents)",
    )
    unit: Literal["document", "author"] = Field(
        "document",
        description="what the bound is for: each document by itself, or all that a client has of "
        "an author, as a column of its documents says",
    )
    most_documents: int | None = Field(
        None,
        ge=1,
        description="documents of an author that count, at most; together they count as one",
    )

    @property
    def told(self) -> dict[str, Any]:
        """What participants agree on, as plain data."""
        return self.model_dump(exclude_none=True)

    @model_validator(mode="after")
    def _of_authors_so_many(self) -> Privacy:
        if (self.unit == "author") != (self.most_documents is not None):
            raise ValueError(
                'unit = "author" needs most_documents, how many of an author count at most; '
                "no other unit has it"
            )
        return self
