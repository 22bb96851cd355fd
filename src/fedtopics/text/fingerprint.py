"""Whether documents are the same as before, without keeping them."""

from __future__ import annotations

import hashlib
import json

from fedtopics.text.corpus import Corpus


def fingerprint(corpus: Corpus) -> str:
    """Return a digest of all that a training sees of a corpus.

    Documents, raw texts, rounds and embeddings count, in their order; identifiers and labels do
    not.

    Leaves the client
        Nothing. A digest of few documents can be guessed, so it must not leave either.

    Examples
    --------
    >>> tea, milk = Corpus.of([["tea"], ["milk"]]), Corpus.of([["milk"], ["tea"]])
    >>> fingerprint(tea) == fingerprint(tea), fingerprint(tea) == fingerprint(milk)
    (True, False)
    """
    content = hashlib.sha256()
    for column in (corpus.documents, corpus.raw, corpus.rounds):
        for row in () if column is None else column:
            content.update(json.dumps(row.as_py(), default=str).encode() + b"\n")
        content.update(b"\0")
    if corpus.embeddings is not None:
        content.update(f"{corpus.embeddings.dtype} {corpus.embeddings.shape}".encode())
        content.update(corpus.embeddings.tobytes())
    return content.hexdigest()
