"""What every benchmark takes, and where its results go: those of a quick run are not kept."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
QUICK = HERE.parent / "build" / "quick"


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows --quick."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="see that it runs, in seconds, on made-up data"
    )
    return parser


def results_of(name: str, quick: bool) -> Path:
    """Return the folder of a benchmark's results; of a quick run, a new one below build."""
    if not quick:
        return RESULTS
    folder = QUICK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def made_up_clients(n_clients: int = 5, n_documents: int = 60) -> dict[str, Any]:
    """Draw so many documents for each client, of a topic of its own and two that all have."""
    from fedtopics.datasets import synthetic_lda  # which peers' environments have not

    drawn = synthetic_lda(
        n_clients, n_words=300, n_topics=n_clients + 2, shared_topics=2,
        n_documents=n_documents, n_validation=1, lengths=(20, 40), eta=0.05,
    )  # fmt: skip
    return {name: documents.corpus() for name, documents in drawn.training.items()}
