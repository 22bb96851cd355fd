"""The notebook of five skewed clients: each cell runs, and says what its text promises."""

from typing import Any

import pytest

from tests.helpers.notebooks import EXAMPLES, outputs, run_notebook

NOTEBOOK = EXAMPLES / "skewed_clients.ipynb"
DOES = (
    "get_topic_info",
    "get_document_info",
    "get_topic",
    "find_topics",
    "save",
    "load",
    "components_",
    "score",
    "GridSearchCV",
    "callback",
    "stop_words",
    "ngrams",
    "merge_topics",
    "reduce_topics",
    "hierarchical_topics",
    "topics_over_time",
    "representative_documents",
    "document_map",
    "topics_per_class",
    "suggest_labels",
    "set_topic_labels",
)
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
    "suggested": sorted(model.model_.unconfirmed),
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
def printed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_notebook(NOTEBOOK, CHECKED, tmp_path_factory.mktemp("notebook"))


def test_the_notebook_does_what_analysts_do(printed: Any) -> None:
    assert printed["topics"] == 6
    subject_of = {
        "port": "harbour",
        "woods": "forest",
        "school board": "school",
        "health centre": "health",
    }
    assert {office: printed["offices"][office] for office in subject_of} == {
        office: printed["subject"][subject] for office, subject in subject_of.items()
    }
    assert printed["roads"][1] > 1.3 * printed["roads"][0], (
        "they grow, and the offices' sums say so"
    )
    assert abs(printed["documents"] - 960) <= 40, "each period is rounded"
    assert printed["labels"][str(printed["boats"])] == "Harbour"
    assert sorted([*printed["suggested"], printed["boats"]]) == [*range(6)]
    assert printed["attrs"] == {"without": 96, "few": 0, "unknown": 0}
    assert sum(printed["departments"].values()) == 960 - 96
    assert printed["best"] == 6
    assert (printed["merged"], printed["again"], printed["shown"]) == (4, True, 960)
    assert {"port authority", "oak trees", "head teacher"} <= {*printed["pairs"]}


def test_it_is_kept_without_outputs_and_names_all_that_it_shows() -> None:
    assert outputs(NOTEBOOK) == []
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert [name for name in DOES if name not in text] == []
