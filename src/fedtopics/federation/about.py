"""What a study is for, as people say it: shown to all who are asked to take part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fedtopics.harmless import is_flooded, visible

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
