"""The command line, as ``python -m fedtopics``."""

from fedtopics.cli import main

if __name__ == "__main__":
    main()
