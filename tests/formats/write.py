"""Write a small file of each format, and the list of saved fields.

python -m tests.formats.write
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedtopics import Study, TopicModel, train
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.inference import INFERENCES
from fedtopics.protocol import messages, plain
from fedtopics.protocol.record import Folder, OpenedStep, Record
from fedtopics.versions import LEDGER, MODEL, RECORD, WIRE
from tests.helpers.federation import ANY_WORDS, subjects

HERE = Path(__file__).parent
RUN = HERE / "run"
MESSAGES: list[Any] = [
    messages.Part(b"run", 1, b"transcript", "word_sums", "sum", b"layout", "north", b"key", b"s"),
    messages.Body(b"list", "north", b"content"),
    messages.Ask(b"process", 1, "body", b"list", "reason"),
    messages.Answer(messages.List([b"part"]), {"north": "body"}),
    messages.Answer(messages.Total(b"list")),
    messages.Answer(messages.Want("part")),
    messages.Answer(messages.Stop("north", b"process", b"run", 1, "reason", b"signature")),
    plain.PlainAsk("software", b"run", 1, "begin", 1, "reason"),
]
RECORDED = Record(b"run", 3, b"transcript", b"group", b"private", b"content", b"part", [b"part"])
OPENED = OpenedStep(2, "word_sums", [b"total"])


def fields() -> dict[str, dict[str, Any]]:
    """Return the number and the saved fields of each format, as this version writes them."""
    config = json.loads((RUN / "model/config.json").read_text())
    lines = [json.loads(line) for line in ledger().read_text().splitlines()]
    settings = (
        f"settings of {name}: {field}"
        for name in INFERENCES.names
        for field in INFERENCES.find(name).settings_type.model_fields
    )
    kinds = [type(message) for message in MESSAGES]
    kinds += [messages.List, messages.Total, messages.Want, messages.Stop]
    return {
        "model": {"number": MODEL, "fields": sorted({*keys(config), *settings})},
        "ledger": {
            "number": LEDGER,
            "fields": sorted({f"{line['what']}: {key}" for line in lines for key in line}),
        },
        "record": {"number": RECORD, "fields": in_order([Record, OpenedStep])},
        "wire": {"number": WIRE, "fields": in_order(kinds)},
    }


def ledger() -> Path:
    return RUN / "clients/north/ledger.jsonl"


def in_order(kinds: list[Any]) -> list[str]:
    """Name the fields of messages with their places, as they are sent in this order."""
    named = {
        f"{kind.__name__} {place}: {name}"
        for kind in kinds
        for place, name in enumerate(kind.__struct_fields__)
    }
    return sorted(named)


def keys(content: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys of tables in tables, except those inside lists."""
    for key, value in content.items() if isinstance(content, dict) else ():
        yield prefix + key
        yield from keys(value, f"{prefix}{key}.")


def train_again(folder: Path) -> TopicModel:
    """Train the model of the files; a model of this version has the same topics."""
    corpora = subjects({"north": 20, "south": 20})
    method = {"name": "nmf", "n_components": 2, "max_rounds": 2}
    return train(
        Study.make(name="formats", method=method, vocabulary=ANY_WORDS),
        corpora,
        out=folder,
        policies=dict.fromkeys(corpora, OPEN_POLICY),
    )


if __name__ == "__main__":
    shutil.rmtree(RUN, ignore_errors=True)
    train_again(RUN)
    shutil.rmtree(HERE / "record", ignore_errors=True)
    record = Folder(HERE / "record")
    record.append(OPENED)
    record.save(RECORDED, b"content")
    record.close()
    wire = [[type(message).__name__, messages.encode(message).hex()] for message in MESSAGES]
    (HERE / "wire.json").write_text(json.dumps(wire, indent=1) + "\n")
    (HERE / "fields.json").write_text(json.dumps(fields(), indent=1) + "\n")
