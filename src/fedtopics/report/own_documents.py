"""What a client's own report has of its documents: examples, a map, passages that many have.

Such a report is not to be shared, and is written where the documents are alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from fedtopics.federation.policy import Policy
from fedtopics.model.topic_model import TopicModel
from fedtopics.report.run import RunFacts
from fedtopics.text.corpus import Corpus
from fedtopics.text.repeats import LENGTH, MOST, find_repeats

EXAMPLES = 3  # of a topic
PASSAGES = 20  # in the list of repeated ones
LONGEST = 400  # characters that are shown of a document


def of_documents(
    model: TopicModel, run: RunFacts, documents: Any, with_text: bool
) -> dict[str, Any]:
    """Return the parts of a summary that are of single documents; None in each without any."""
    if documents is None:
        return dict.fromkeys(("examples", "document_map", "repeats"))
    corpus = Corpus.of(documents)
    return {
        "examples": _examples(model, corpus),
        "document_map": _map(model, corpus, with_text),
        "repeats": _repeats(model, run, corpus),
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


def _repeats(model: TopicModel, run: RunFacts, documents: Corpus) -> dict[str, Any]:
    """Return the passages that most of the documents have, and how many words are copies of them.

    Words that a client has too rarely are none, by the study and the usual policy.
    """
    least = run.study.get("vocabulary", {}).get("min_document_frequency", 1)
    least, words = max(least, Policy().min_document_frequency), model.vocabulary
    rng = np.random.default_rng()
    repeats = find_repeats(documents, model.text, words.index, least, rng)
    does = "leaves out of training" if model.text.repeats == "cap" else "counts like all others"
    sentence = (
        f"Passages of {LENGTH} agreed words or more that more than {MOST} of these documents have. "
        f"{repeats.copied.sum():,} of {len(repeats.words):,} words are in their copies beyond the "
        f'first {MOST} documents, which the study {does} (repeats = "{model.text.repeats}").'
    )
    return {"sentence": sentence, "passages": repeats.passages(words.words)[:PASSAGES]}


def _beginning(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST else plain[:LONGEST].rsplit(" ", 1)[0] + " …"
