"""What events on texts tell people, on a terminal and in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SENTENCES = {
    "languages": "documents of {client} are in {shares}",
    "endings": "{share:.0%} of the {words:,} agreed words differ from another by their ending "
    "alone, such as {examples}",
    "one form": "{share:.0%} of the agreed words differ from another by their ending alone, and of "
    "{families} groups of such words documents of {client} have two more seldom than by chance: "
    "they seem to hold base forms, and others' do not",
}


def sentence_on_texts(event: Mapping[str, Any]) -> str:
    """Say what an event here tells, with what to do; "" of others."""
    of_languages = event.get("languages", {})
    parts = {
        "shares": ", ".join(
            f"{name.title()} ({share:.0%})" for name, share in of_languages.items()
        ),
        "examples": ", ".join(event.get("examples", ())),
    }
    said = SENTENCES.get(event["event"], "").format_map({**event, **parts})
    return f"{said}; {event['advice']}" if said and event["advice"] else said
