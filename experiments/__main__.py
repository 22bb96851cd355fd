"""The papers' experiments, as ``python -m experiments NAME``."""

from experiments.commands import group
from fedtopics.cli import main

if __name__ == "__main__":
    main(group)
