"""What a command costs before it does anything: processor seconds of its help, and of torch.

Each command is typed with --help several times, of which the median counts, beside `import torch`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

from benchmarks.common import arguments, table
from fedtopics.cli import COMMANDS


def seconds(*words: str) -> float:
    """Return the processor seconds of a Python process, its own and the system's."""
    before = os.times()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    user, system = after.children_user, after.children_system
    return user - before.children_user + system - before.children_system


def main() -> None:
    given = arguments(__doc__)
    times, commands = (1, ["topics"]) if given.quick else (5, list(COMMANDS))
    rows = {"python alone": ["-c", ""], "import torch": ["-c", "import torch"]}
    rows |= {f"fedtopics {name}": ["-m", "fedtopics", name, "--help"] for name in commands}
    found = {name: median(seconds(*words) for _ in range(times)) for name, words in rows.items()}
    lines = [(f"`{name}`", f"{value:.2f}") for name, value in found.items()]
    print("\n".join(table(" | processor seconds", lines)))
