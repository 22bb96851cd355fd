"""Which of a client's documents count where there is a bound, and how much each does.

The bound is for a document, or for all that a client has of an author. Each of these adds 1 at most
to a sum, and what it adds depends on nothing of the others: a document that is there several times
counts once, and the documents of an author share the author's 1.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError
from fedtopics.inference.points import Numbers
from fedtopics.privacy import Privacy
from fedtopics.text.corpus import Corpus


def counted_once(corpus: Corpus, privacy: Privacy | None) -> tuple[NDArray[np.int64], Numbers]:
    """Return the rows of the documents that count, and the weight of each.

    Of an author they are the first ones in the corpus that differ, as many as the study says, which
    weigh 1 together. A document of nobody known counts by itself.

    Raises
    ------
    DataError
        If the bound is for authors, and the documents have no column of them.
    """
    most = None if privacy is None else privacy.most_documents
    whose = authors(corpus, privacy)
    rows: list[int] = []
    names: list[str] = []
    seen: set[tuple[str, bytes]] = set()
    number: Counter[str] = Counter()
    for row, document in enumerate(zip(whose, _digests(corpus), strict=True)):
        name = document[0]
        if document in seen or (name and number[name] == most):
            continue
        seen.add(document)
        number[name] += 1
        rows.append(row)
        names.append(name)
    weights = [1 / number[name] if name else 1.0 for name in names]
    return np.array(rows, np.int64), np.array(weights)


def authors(corpus: Corpus, privacy: Privacy | None) -> list[str]:
    """Return whose each document is, as far as the bound asks; raise as `counted_once`."""
    if privacy is None or privacy.unit == "document":
        return [""] * len(corpus)
    if corpus.authors is None:
        raise DataError(
            "The study has a bound for authors, and nothing says whose each document is; name the "
            "column with --author, or as author in the client's table."
        )
    names: list[str] = corpus.authors.to_pylist()
    return names


def _digests(corpus: Corpus) -> Iterator[bytes]:
    """Yield a digest of all that each document can add to a sum."""
    row = 0
    for batch in corpus.batches():
        for document in batch:
            content = hashlib.sha256(json.dumps(document).encode())
            if corpus.embeddings is not None:
                content.update(corpus.embeddings[row].tobytes())
            row += 1
            yield content.digest()
