"""Examples of a client's own documents, for its own eyes."""

from __future__ import annotations

from typing import Any

from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus

EXAMPLES = 3  # of a topic
LONGEST = 400  # characters that are shown of a document


def examples(model: TopicModel, documents: Any) -> dict[int, list[dict[str, Any]]]:
    """Return beginnings of the documents that are most of each topic, with their shares of it.

    A topic that is the largest of no document has none.
    """
    corpus = model.embedded(Corpus.of(documents))
    main, theta = model.main_topics(corpus), model.transform(corpus)
    texts = [text for batch in corpus.texts() for text in batch]
    examples_by_topic = {}
    for topic in range(model.n_topics):
        rows = [int(row) for row in (-theta[:, topic]).argsort(kind="stable") if main[row] == topic]
        examples_by_topic[topic] = [
            {"share": float(theta[row, topic]), "text": _beginning(texts[row])}
            for row in rows[:EXAMPLES]
        ]
    return examples_by_topic


def _beginning(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST else plain[:LONGEST].rsplit(" ", 1)[0] + " …"
