"""Notebooks of examples/, run cell by cell."""

import json
import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

import fedtopics

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_notebook(notebook: Path, last: str, folder: Path) -> Any:
    """Run a notebook in a folder, and a cell after it; return the JSON that this one prints."""
    book = nbformat.read(notebook, as_version=4)
    book.cells.append(nbformat.v4.new_code_cell(last))
    here = str(Path(fedtopics.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": here, "OMP_NUM_THREADS": "1"}
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(book, timeout=120, kernel_name="python3", resources=where)
    client.execute(env=environment)
    return json.loads(book.cells[-1].outputs[-1]["text"])


def outputs(notebook: Path) -> list[Any]:
    book = json.loads(notebook.read_text(encoding="utf-8"))
    cells = (cell for cell in book["cells"] if cell["cell_type"] == "code")
    return [
        output for cell in cells for output in (*cell["outputs"], cell["execution_count"]) if output
    ]
