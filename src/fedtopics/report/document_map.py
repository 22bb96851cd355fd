"""The map of a client's own documents, in its own report alone."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from fedtopics.model.topic_model import TopicModel

TOPIC = "#topic-"  # where a topic is in the page


def block(model: TopicModel, documents: Any, with_text: bool) -> dict[str, Any]:
    """Return what the template shows: the map as SVG, and a sentence on what it is."""
    found = model.document_map(documents, with_text=with_text)
    # All text in it is escaped where it is made.
    return {"sentence": found.sentence, "svg": Markup(found.svg(TOPIC))}  # noqa: S704
