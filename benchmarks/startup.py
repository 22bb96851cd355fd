"""What a command costs before it does anything: processor seconds of its help, and of torch.

Each command is typed with --help several times, of which the median counts; `import torch` stands
beside them. Prints a table.

    python benchmarks/startup.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

from fedtopics.cli import COMMANDS
from quick import parser_of

TIMES = 5


def seconds(*arguments: str) -> float:
    """Return the processor seconds of a Python process, its own and the system's."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (
        after.children_user - before.children_user + after.children_system - before.children_system
    )


def main() -> None:
    """Print the table."""
    given = parser_of(__doc__).parse_args()
    times = 1 if given.quick else TIMES
    commands = ["topics", "status"] if given.quick else [*COMMANDS]
    rows: dict[str, tuple[str, ...]] = {
        "python alone": ("-c", ""),
        "import torch": ("-c", "import torch"),
    }
    rows |= {name: ("-m", "fedtopics", name, "--help") for name in commands}
    print("| | processor seconds |\n| --- | ---: |")
    for name, arguments in rows.items():
        found = median(seconds(*arguments) for _ in range(times))
        print(f"| `{name}` | {found:.2f} |", flush=True)


if __name__ == "__main__":
    main()
