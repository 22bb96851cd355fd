"""The way of a document from its file to theta is short enough to be read."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

import fedtopics
from fedtopics import LDA, Corpus
from fedtopics.text.vocabulary import WordCounts
from tests.helpers.command_line import CANARY

PACKAGE = str(Path(fedtopics.__file__).parent)
N_DOCUMENTS = 60
MOST_FUNCTIONS = 34
MOST_FORMS = 8  # forms besides text, and lists of text


def is_document(value: Any, depth: int = 3) -> bool:
    """Whether a value is the document with the canary, in any of its forms."""
    if isinstance(value, (Corpus, WordCounts, sparse.csr_array)):
        return True
    if isinstance(value, np.ndarray):
        return value.ndim == 2 and len(value) == N_DOCUMENTS
    if isinstance(value, (list, tuple, pa.Array, pa.ChunkedArray)):
        return depth > 0 and any(is_document(part, depth - 1) for part in value[:3])
    if hasattr(value, "__dict__") and type(value).__module__.startswith("fedtopics.") and depth:
        return any(is_document(part, depth - 1) for part in vars(value).values())
    return CANARY in str(value) if isinstance(value, (str, pa.Scalar, pa.Table)) else False


def test_a_document_passes_few_functions_and_forms(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [
        " ".join(f"word{letter}" for letter in rng.choice([*"abcdefghijklmnopqrst"], 9))
        for _ in range(N_DOCUMENTS)
    ]
    file = tmp_path / "north.csv"
    file.write_text("\n".join(["text", f"{CANARY} {texts[0]}", *texts[1:]]))
    model = LDA(2, random_state=0).fit(texts).model_
    functions = set()
    forms = set()

    def trace(frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        arguments = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
        documents = [form for form in (arguments, [result])[event == "return"] if is_document(form)]
        if documents and not code.co_name.startswith("<"):
            functions.add((code.co_filename, code.co_qualname))
            forms.update(type(form) for form in documents)

    sys.setprofile(trace)
    try:
        model.transform(file)
    finally:
        sys.setprofile(None)
    assert 20 < len(functions) <= MOST_FUNCTIONS
    assert 5 < len(forms - {str, list, tuple}) <= MOST_FORMS
