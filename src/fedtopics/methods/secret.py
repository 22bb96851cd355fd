"""A client's secret: whatever its half draws, it draws from this, and nobody else can.

Minibatches that others knew would let them solve the sums of many rounds for the documents.

References
----------
Krawczyk and Eronen, HMAC-based Extract-and-Expand Key Derivation Function (HKDF), RFC 5869.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedtopics.errors import RunError
from fedtopics.files import make_folder, read_bytes, write_durably

LENGTH = 32  # bytes


@dataclass(frozen=True)
class Secret:
    """What all random numbers of one client's half in one study follow from.

    The same purpose and numbers give the same draws, at any time and in any order.
    """

    key: bytes = field(repr=False)
    seeded: bool = False  # by a study: who knows its seed knows all draws

    @classmethod
    def from_seed(cls, seed: int, client: str) -> Secret:
        """Derive a client's secret from a study's seed: in simulations, which anyone may repeat."""
        return cls(hashlib.sha256(json.dumps([seed, client]).encode()).digest(), True)

    @classmethod
    def keep(cls, path: Path) -> Secret:
        """Read the secret that a file has, or draw one and write it there, for its owner alone.

        Raise RunError if the file holds something else.
        """
        if not path.exists():
            make_folder(path.parent)
            write_durably(path, os.urandom(LENGTH))
        key = read_bytes(path)
        if len(key) != LENGTH:
            raise RunError(
                f"{path} is no secret of {LENGTH} bytes; restore it, or delete it if this client "
                "takes part in no study any more."
            )
        return cls(key)

    def of_run(self, study: str, run: bytes) -> Secret:
        """Return the secret of one run of the study with this fingerprint.

        One from a seed is the same in all runs: they end with the bits of a simulation.
        """
        return self if self.seeded else Secret(self.derive("run", study, run.hex()))

    def rng(self, purpose: str, *numbers: int) -> np.random.Generator:
        """Return a generator for a purpose, such as the minibatch of a round and attempt."""
        return np.random.default_rng(int.from_bytes(self.derive(purpose, *numbers)))

    def seed(self, purpose: str, *numbers: int) -> int:
        """Return a number from 0 to 2**63 - 1, for what takes no generator."""
        return int.from_bytes(self.derive(purpose, *numbers)[:8]) >> 1

    def derive(self, purpose: str, *context: int | str) -> bytes:
        """Return 32 bytes that follow from the secret, for a purpose."""
        info = json.dumps([purpose, *context]).encode()
        return HKDF(SHA256(), LENGTH, salt=None, info=info).derive(self.key)
