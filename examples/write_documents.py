"""Write the demo's documents, a folder an organisation: write_documents.py FOLDER [NUMBER]."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fedtopics.datasets import package_documentation

number = int(sys.argv[2]) if len(sys.argv) > 2 else 3
for name, corpus in package_documentation(number).items():
    folder = Path(sys.argv[1], name)
    folder.mkdir(parents=True, exist_ok=True)
    texts = (text for batch in corpus.batches() for text in batch)
    with (folder / "documents.jsonl").open("w", encoding="utf-8") as file:
        for identifier, text in zip(corpus.ids.to_pylist(), texts, strict=True):
            file.write(json.dumps({"id": identifier, "text": text}) + "\n")
    print(f"{len(corpus):,} documents of {name} in {folder}/documents.jsonl")
