"""Tell one client something else than the others: whether anybody notices.

An honest study, but that one client gets, in each round, topics that are not those of the others.
As `lying`, this runs against the version before participants ran the program themselves.

    python benchmarks/attacks/unequal.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from solving import report
from tapped import asks, documents_of, federate, options

from fedtopics.engines.local import LocalClients
from fedtopics.federation.study import Study

ROUNDS = 20


class Deceived:
    """A door that is told other topics than the server has."""

    def __init__(self, door: Any) -> None:
        self._door = door
        self.deceived = 0

    def call(self, function: str, payload: Mapping[str, Any]) -> Any:
        if "topics" in payload and function == "expected_counts":
            self.deceived += 1
            other = np.roll(payload["topics"], 1, axis=0)  # each word with another one's weights
            payload = {**payload, "topics": other}
        return self._door.call(function, payload)


def attack() -> str:
    """Train with one client deceived; say how far it went."""
    corpora = documents_of(None, 3, 200)
    method = {"name": "lda", "n_components": 8, "max_rounds": ROUNDS, "coherence": "nothing"}
    deceived: list[Deceived] = []

    def engine(taps: Mapping[str, Any]) -> LocalClients:
        last = max(taps)
        deceived.append(Deceived(taps[last]))
        doors: dict[str, Any] = {**taps, last: deceived[0]}
        return LocalClients(doors)

    model, _ = federate(Study.make(method=method), corpora, engine=engine)
    return (
        f"{deceived[0].deceived} of {ROUNDS} rounds with other topics for one of three clients; "
        f"the model of {model.info['rounds']} rounds is there, and nobody said a word"
    )


def main() -> None:
    options(__doc__)
    if asks():
        report([attack()])


if __name__ == "__main__":
    main()
