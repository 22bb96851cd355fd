"""What a client's own report has of its documents: examples, and a map.

Such a report is not to be shared, and is written where the documents are alone.
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus

EXAMPLES = 3  # of a topic
LONGEST = 400  # characters that are shown of a document


def of_documents(model: TopicModel, documents: Any, with_text: bool) -> dict[str, Any]:
    """Return the parts of a summary that are of single documents; None in each without any."""
    if documents is None:
        return dict.fromkeys(("examples", "document_map"))
    corpus = Corpus.of(documents)
    return {
        "examples": _examples(model, corpus),
        "document_map": _map(model, corpus, with_text),
    }


def _examples(model: TopicModel, documents: Corpus) -> dict[int, list[dict[str, Any]]]:
    """Return beginnings of the documents that are most of each topic, with their shares of it.

    A topic that is the largest of no document has none.
    """
    examples: dict[int, list[dict[str, Any]]] = {topic: [] for topic in range(model.n_topics)}
    for row in model.representative_documents(documents, n_documents=EXAMPLES):
        examples[row["topic"]].append({"share": row["share"], "text": _beginning(row["text"])})
    return examples


def _map(model: TopicModel, documents: Corpus, with_text: bool) -> dict[str, Any]:
    """Return the map of documents as SVG, and a sentence on what it shows."""
    found = model.document_map(documents, with_text=with_text)
    # All text in it is escaped where it is made.
    return {"sentence": found.sentence, "svg": Markup(found.svg(in_report=True))}  # noqa: S704


def _beginning(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST else plain[:LONGEST].rsplit(" ", 1)[0] + " …"
