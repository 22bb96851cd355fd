"""What the README shows runs."""

import re
import runpy
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import fedtopics
from fedtopics import LDA, Policy, Study, train
from fedtopics.datasets import synthetic_lda
from tests.helpers.clients import ALL
from tests.helpers.pages import DOCS, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    first, second = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(first, names)  # noqa: S102
    *topics, topic_of_text = capsys.readouterr().out.splitlines()
    assert topics == [" ".join(words) for words in names["model"].topics_]
    assert len(topics) == 20
    assert topic_of_text.startswith("graph nodes edges")
    assert names["theta"].max() > 0.6

    assert "max_rounds=" in second
    names["clients"] = {name: corpus.take(range(60)) for name, corpus in names["clients"].items()}
    exec(re.sub(r"max_rounds=\d+", "max_rounds=2", second), names)  # noqa: S102
    for scenario in ("alone", "centralised", "federated"):
        assert len(names[scenario].topics_) == 10


def test_public_names() -> None:
    assert sorted(fedtopics.__all__) == [
        "Columns",
        "CombinedTM",
        "Corpus",
        "FLDA",
        "GuidedLDA",
        "LDA",
        "MixtureTM",
        "NMF",
        "NeuralLDA",
        "Policy",
        "ProdLDA",
        "ShortTextClustering",
        "Study",
        "TopicEstimator",
        "TopicModel",
        "ZeroShotTM",
        "disclosure",
        "train",
    ]
    assert all(getattr(fedtopics, name) for name in fedtopics.__all__)


# Of version 0.17.4, all that its class defines without an underscore before the name.
BERTOPIC = [
    "approximate_distribution",
    "delete_topics",
    "find_topics",
    "fit",
    "fit_transform",
    "generate_topic_labels",
    "get_document_info",
    "get_params",
    "get_representative_docs",
    "get_topic",
    "get_topic_freq",
    "get_topic_info",
    "get_topic_tree",
    "get_topics",
    "hierarchical_topics",
    "load",
    "merge_models",
    "merge_topics",
    "partial_fit",
    "push_to_hf_hub",
    "reduce_outliers",
    "reduce_topics",
    "save",
    "set_topic_labels",
    "topic_labels_",
    "topics_over_time",
    "topics_per_class",
    "transform",
    "update_topics",
    "visualize_approximate_distribution",
    "visualize_barchart",
    "visualize_distribution",
    "visualize_document_datamap",
    "visualize_documents",
    "visualize_heatmap",
    "visualize_hierarchical_documents",
    "visualize_hierarchy",
    "visualize_term_rank",
    "visualize_topics",
    "visualize_topics_over_time",
    "visualize_topics_per_class",
]
PAGE = (DOCS / "how-to/python-and-bertopic.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize(
    ("method", "near"),
    [({"name": "lda", "learning": "batch"}, 1e-5), ({"name": "nmf"}, 3e-3)],  # NMF's start: float32
)
def test_sums_of_sums_are_the_sums_of_all(method: dict[str, Any], near: float) -> None:
    example = runpy.run_path(str(ROOT / "examples/three_tiers.py"))
    drawn = synthetic_lda(5, 300, 8, shared_topics=3, n_documents=100, n_validation=1)
    devices = {name: documents.corpus() for name, documents in drawn.training.items()}
    names = sorted(devices)
    method = {"n_components": 8, "max_rounds": 10, **method}
    # Secure, groups would be counted over all devices in one study, and not in the other.
    study = Study.make(method=method, vocabulary={"min_clients_per_word": 1}, aggregation="plain")
    clients = {
        "north": {name: devices[name] for name in names[::3]},
        "south": {name: devices[name] for name in names[1::3] + names[2::3]},
    }
    tiers = example["train_in_tiers"](study, clients)
    flat = train(study, devices, policies=dict.fromkeys(devices, Policy(min_persons=10)))
    pairs = zip(tiers.topics(), flat.topics(), strict=True)
    # Sums that differ in last bits can be rounded to different sides.
    assert min(len({*one} & {*other}) for one, other in pairs) >= 6
    np.testing.assert_allclose(tiers.beta, flat.beta, atol=near)
    assert tiers.documents == {"north": 200, "south": 300}
    np.testing.assert_allclose(tiers.share, flat.share, atol=1e-3)  # each has three digits
