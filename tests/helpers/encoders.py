"""Encoders of texts that need no model."""

import hashlib

import numpy as np

from fedtopics.text.embeddings import Vectors


def unit(rows: object) -> Vectors:
    array = np.array(rows, np.float32)
    return np.asarray(array / np.linalg.norm(array, axis=1, keepdims=True), np.float32)


class Digits:
    """An encoder of three numbers a text, which remembers what it was asked."""

    def __init__(self, fingerprint: str = "digits", fails_after: int | None = None) -> None:
        self.fingerprint = fingerprint
        self.asked: list[list[str]] = []
        self.fails_after = fails_after

    def __call__(self, texts: list[str]) -> Vectors:
        if len(self.asked) == self.fails_after:
            raise KeyboardInterrupt
        self.asked.append(texts)
        digests = [hashlib.sha256(text.encode()).digest()[:3] for text in texts]
        return unit(np.array([list(digest) for digest in digests], np.float32))
