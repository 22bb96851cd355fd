"""How a server treats clients; a study's [federation]."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from fedtopics.methods.robust import Rule


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
