"""The papers' experiments, as ``python -m experiments NAME``."""

import os

# Before numpy and torch are loaded: rows state costs with one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from experiments.commands import group
from fedtopics.cli import main

if __name__ == "__main__":
    main(group)
