"""All clients in this process: for simulations, and for one's own documents.

Data go by reference; every reply still leaves through the client's door.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtopics.aggregation import add_up
from fedtopics.privacy import Door


class LocalClients:
    """The clients' doors, called one after the other.

    Parameters
    ----------
    doors : mapping of client name to Door
    """

    def __init__(self, doors: Mapping[str, Door]) -> None:
        self._doors = dict(sorted(doors.items()))

    @property
    def names(self) -> list[str]:
        """Names of the clients, sorted."""
        return list(self._doors)

    def call(self, function: str, **payload: Any) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name."""
        return {name: door.call(function, payload) for name, door in self._doors.items()}

    def sum(self, function: str, **payload: Any) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, field by field."""
        return add_up(self.call(function, **payload))
