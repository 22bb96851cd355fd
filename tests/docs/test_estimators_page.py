"""docs/estimators.md names all of BERTopic's public methods, and what there is here of each."""

from __future__ import annotations

import re
from operator import attrgetter

from fedtopics import LDA
from tests.helpers.clients import ALL
from tests.helpers.pages import DOCS

# Of version 0.17.4, all that its class defines without an underscore before the name.
BERTOPIC = [
    "approximate_distribution", "delete_topics", "find_topics", "fit", "fit_transform",
    "generate_topic_labels", "get_document_info", "get_params", "get_representative_docs",
    "get_topic", "get_topic_freq", "get_topic_info", "get_topic_tree", "get_topics",
    "hierarchical_topics", "load", "merge_models", "merge_topics", "partial_fit",
    "push_to_hf_hub", "reduce_outliers", "reduce_topics", "save", "set_topic_labels",
    "topic_labels_", "topics_over_time", "topics_per_class", "transform", "update_topics",
    "visualize_approximate_distribution", "visualize_barchart", "visualize_distribution",
    "visualize_document_datamap", "visualize_documents", "visualize_heatmap",
    "visualize_hierarchical_documents", "visualize_hierarchy", "visualize_term_rank",
    "visualize_topics", "visualize_topics_over_time", "visualize_topics_per_class",
]  # fmt: skip
PAGE = (DOCS / "estimators.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| (.+?) \| (.*?) ?\|$", PAGE.partition("## Beside")[2], re.M)


def test_every_method_of_bertopic_is_there_once() -> None:
    assert sorted(name for name, _, _ in ROWS) == sorted(BERTOPIC)


def test_what_is_named_is_there() -> None:
    fitted = LDA(2, max_rounds=1).fit(ALL)
    for theirs, ours, why in ROWS:
        names = re.findall(r"`([\w.]+)`", ours)
        assert names or (ours == "none" and why), theirs
        for name in names:
            assert callable(attrgetter(name)(fitted)), name
