"""Keys of members, each made once."""

import tempfile
from functools import cache
from pathlib import Path

from fedtopics.protocol.roster import Key


@cache
def key_of(name: str) -> Key:
    with tempfile.TemporaryDirectory() as folder:
        return Key.create(Path(folder) / name, name)
