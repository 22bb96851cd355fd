"""Documents that stand for a topic, among one's own: a model has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.model.topics import Finder
from fedtopics.text.corpus import Corpus

BEST = 3  # documents of a topic that stand for it


def representative_documents(
    model: Finder, documents: Any, topic: int | None = None, n_documents: int = BEST
) -> list[dict[str, Any]]:
    """Return the documents that are most of each topic, or of one, by a model of any method.

    A document stands for its largest topic alone, so that one which is the largest of none has no
    row.

    Leaves the client
        Nothing: it is made where the documents are, and stays with who asks for it.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes, or a mapping of client to that
        One's own: those of the training, or others.
    topic : int, optional
        By default all.
    n_documents : int
        The most of a topic.

    Returns
    -------
    list of dict
        ``topic``; ``document``, its row among those given, counted from 0; ``client``, its key in
        the mapping; ``share``, that of the topic in the document; ``text``. Topics by their
        number, in each the largest share first.

    Raises
    ------
    StudyError
        If there is no such topic, or `n_documents` is less than 1.
    """
    if n_documents < 1:
        raise StudyError(f"n_documents={n_documents} cannot be used; ask for one or more.")
    by_client = documents if isinstance(documents, Mapping) else {None: documents}
    corpora = {client: Corpus.of(each) for client, each in by_client.items()}
    found = [model.theta_and_seen(corpus) for corpus in corpora.values()]
    theta, seen = (np.concatenate(parts) for parts in zip(*found, strict=True))
    n_topics = theta.shape[1]
    if topic is not None and not 0 <= topic < n_topics:
        raise StudyError(f"There is no topic {topic!r}; the model has topics 0 to {n_topics - 1}.")
    rows = [(client, row) for client, corpus in corpora.items() for row in range(len(corpus))]
    texts = [text for corpus in corpora.values() for batch in corpus.texts() for text in batch]
    best = representatives(theta, seen, n_documents)
    return [
        {"topic": k, "document": rows[i][1], "client": rows[i][0]}
        | {"share": float(theta[i, k]), "text": texts[i]}
        for k in (range(n_topics) if topic is None else [topic])
        for i in best[k]
    ]


def representatives(
    theta: NDArray[np.floating], seen: NDArray[np.bool_], n_documents: int = BEST
) -> list[list[int]]:
    """Return for each topic the rows with most of it, of those whose largest it is."""
    main = np.where(seen, theta.argmax(1), -1)
    of_topics = (np.flatnonzero(main == topic) for topic in range(theta.shape[1]))
    return [
        rows[np.argsort(-theta[rows, topic], kind="stable")[:n_documents]].tolist()
        for topic, rows in enumerate(of_topics)
    ]
