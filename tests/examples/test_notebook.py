"""The notebook of five skewed clients: each cell runs, and says what its text promises."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import fedtopics

NOTEBOOK = Path(__file__).parents[2] / "examples" / "skewed_clients.ipynb"
DOES = (
    "get_topic_info", "get_document_info", "get_topic", "find_topics", "save", "load",
    "components_", "score", "GridSearchCV", "callback", "stop_words", "ngrams", "merge_topics",
    "reduce_topics",
    "hierarchical_topics", "topics_over_time", "representative_documents", "document_map",
    "topics_per_class", "suggest_labels", "set_topic_labels",
)  # fmt: skip
CHECKED = """
import json

subject = {
    name: model.find_topics(name_, top_n=1)[0][0]
    for name, name_ in {n: s.split(", ")[3] for n, s in SUBJECTS.items()}.items()
}
main = model.get_document_info(letters["text"])["Topic"]
share = told[told["Topic"] == roads]["Share"]
departments = by_department.groupby("Class")["Documents"].first()
print(json.dumps({
    "topics": len(set(subject.values())),
    "offices": {office: int(main[letters["office"] == office].mode()[0]) for office in MIXES},
    "subject": subject,
    "roads": [float(share.iloc[0]), float(share.iloc[-1])],
    "documents": int(told[told["Topic"] == roads]["Documents"].sum()),
    "labels": model.model_.labels,
    "suggested": sorted(model.model_.suggested),
    "boats": int(boats),
    "attrs": by_department.attrs,
    "departments": departments.to_dict(),
    "best": search.best_params_["n_components"],
    "merged": fewer.model_.n_topics,
    "again": again.topics_ == model.topics_,
    "shown": len(shown.documents),
    "pairs": sorted(word for topic in pairs.topics(10) for word in topic if " " in word),
}))
"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    book = nbformat.read(NOTEBOOK, as_version=4)
    book.cells.append(nbformat.v4.new_code_cell(CHECKED))
    here = str(Path(fedtopics.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": here, "OMP_NUM_THREADS": "1"}
    where = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    client = NotebookClient(book, timeout=120, kernel_name="python3", resources=where)
    client.execute(env=environment)
    return book


def test_the_notebook_does_what_analysts_do(executed: Any) -> None:
    found = json.loads(executed.cells[-1].outputs[-1]["text"])
    assert found["topics"] == 6
    own = {
        "port": "harbour",
        "woods": "forest",
        "school board": "school",
        "health centre": "health",
    }
    assert {office: found["offices"][office] for office in own} == {
        office: found["subject"][subject] for office, subject in own.items()
    }
    assert found["roads"][1] > 1.3 * found["roads"][0], "they grow, and the offices' sums say so"
    assert found["documents"] == 960
    assert found["labels"][str(found["boats"])] == "Harbour"
    assert sorted([*found["suggested"], found["boats"]]) == [*range(6)]
    assert found["attrs"] == {"without": 96, "few": 0, "unknown": 0}
    assert sum(found["departments"].values()) == 960 - 96
    assert found["best"] == 6
    assert (found["merged"], found["again"], found["shown"]) == (4, True, 960)
    assert {"port authority", "oak trees", "head teacher"} <= {*found["pairs"]}


def test_it_is_kept_without_outputs_and_names_all_that_it_shows() -> None:
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    text = "".join("".join(cell["source"]) for cell in code)
    assert [name for name in DOES if name not in text] == []
