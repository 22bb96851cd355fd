"""A run whose topics are paired, and pairs with labels."""

import json
from pathlib import Path
from typing import Any

from fedtopics.methods.flda.labelled_pairs import TopicPair

FIR = {"fir": 1.0}
ROUNDS = [
    {
        "south": [{"oak": 1.0}, {"sloop": 0.8, "ketch": 0.6}],
        "north": [{"oak": 0.8, "elm": 0.6}, {"ketch": 1.0}],
        "west": [],
    },
    {"north": [FIR], "south": [FIR]},
]
# Whoever is mirrored at 0.4 gets the other label.
MIRRORED = [
    TopicPair("oak", "elm", cosine, same)
    for cosine, same in (
        (0.1, False),
        (0.2, False),
        (0.25, False),
        (0.3, False),
        (0.45, False),
        (0.35, True),
        (0.5, True),
        (0.55, True),
        (0.6, True),
        (0.7, True),
    )
]


def write_run(folder: Path, rounds: list[Any] | None = None) -> Path:
    folder.mkdir()
    for number, sent in enumerate(rounds or ROUNDS, 1):
        plain = {
            name: {"topics": topics, "seeds": [], "occurrences": [], "documents": 9}
            for name, topics in sent.items()
        }
        (folder / f"topics-{number:05d}.json").write_text(json.dumps(plain))
    return folder
