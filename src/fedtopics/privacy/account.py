"""What a client has let out of the same documents, over all studies: its own account."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from scipy.optimize import brentq

from fedtopics.errors import PolicyError, RunError
from fedtopics.files import in_turn, read_text, write_durably
from fedtopics.privacy.accounting import ROUNDING, Privacy, delta_of, mu_of

FAR = 10.0  # standard deviations: any delta is larger than what is beyond


class Entry(BaseModel):
    """A run that took part of what may be said of a document."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    date: str
    study: str
    run: str
    privacy: Privacy
    noise: str = ""  # tells it from that of another secret, with which a run is a new one

    @property
    def identity(self) -> tuple[str, str, Privacy, str]:
        """What is released once, however often a run goes on."""
        return self.study, self.run, self.privacy, self.noise


class Account:
    """The runs that documents took part in, in a file of JSON lines, which need not exist yet.

    RunError if the file holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = self._read()

    @property
    def epsilon(self) -> float:
        """The epsilon of all runs together, at `delta`."""
        return together([entry.privacy for entry in self.entries])

    @property
    def delta(self) -> float | None:
        """The smallest delta of all runs; None if there are none."""
        return min((entry.privacy.delta for entry in self.entries), default=None)

    def charge(
        self, client: str, study: str, run: str, privacy: Privacy, most: float, noise: str = ""
    ) -> None:
        """Write a run down before anything leaves; what it does again costs nothing.

        It does so with the same parameters of privacy and the same `noise`, else it is a new one.
        PolicyError if all runs together may say more than `most`.
        """
        today = datetime.now(UTC).date().isoformat()
        entry = Entry(date=today, study=study, run=run, privacy=privacy, noise=noise)
        with in_turn(self.path):
            self.entries = self._read()  # another study may have begun meanwhile
            if any(each.identity == entry.identity for each in self.entries):
                return
            self._check(client, privacy, most)
            self.entries.append(entry)
            lines = (json.dumps(entry.model_dump()) for entry in self.entries)
            write_durably(self.path, "".join(f"{line}\n" for line in lines).encode())

    def check(self, client: str, study: str, privacy: Privacy, most: float) -> None:
        """Raise PolicyError if a study more may say too much; one that goes on says nothing new."""
        if all((entry.study, entry.privacy) != (study, privacy) for entry in self.entries):
            self._check(client, privacy, most)

    def _read(self) -> list[Entry]:
        try:
            lines = read_text(self.path).splitlines() if self.path.exists() else []
            return [Entry.model_validate_json(line) for line in lines]
        except (OSError, UnicodeDecodeError, ValidationError):
            raise RunError(
                f"{self.path} is no account of what studies may know; restore it. Without it "
                "nobody knows what was said of the documents already."
            ) from None

    def _check(self, client: str, privacy: Privacy, most: float) -> None:
        after = together([*(entry.privacy for entry in self.entries), privacy])
        if after > most:
            raise PolicyError(
                f"The policy of client {client!r} allows epsilon {most:g} over all studies; "
                f"{len(self.entries)} before had {self.epsilon:.3g}, and with this one it would be "
                f"{after:.3g}. Nothing has left; agree on a smaller epsilon, or raise max_epsilon."
            )


def together(promises: Sequence[Privacy]) -> float:
    """Return the epsilon of several studies on the same documents, at the smallest of their deltas.

    So it never falls when a study is added, whatever that study's delta is.
    """
    if not promises:
        return 0.0
    if len(promises) == 1 and promises[0].sensitivity == 1:
        return promises[0].epsilon
    mu = math.sqrt(sum((each.sensitivity * mu_of(each)) ** 2 for each in promises))
    delta = min(each.delta for each in promises) * (1 - ROUNDING) ** len(promises)
    exact = brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0, mu * (mu / 2 + FAR))
    return float(exact) + ROUNDING * len(promises)
