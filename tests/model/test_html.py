"""How a notebook shows a model."""

from __future__ import annotations

from fedtopics import Study, TopicModel, train

WICKED = "<img src=x onerror=alert(1)>"


def wicked() -> TopicModel:
    """Two topics, whose words and labels are HTML."""
    corpora = {"a": [[WICKED, "oak", "elm"]] * 20, "b": [["brig", "&amp;", "dory"]] * 20}
    limits = {"min_document_frequency": 1, "max_document_share": 1.0}
    method = {"name": "lda", "n_components": 2, "max_rounds": 2}
    return train(Study.make(method=method, vocabulary=limits), corpora)


def test_a_table_of_topics_is_escaped() -> None:
    model = wicked().with_labels({1: "<b>ships</b>"})
    html = model._repr_html_()
    assert html.count("<tr>") == 1 + 2
    assert WICKED not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "&amp;amp;" in html, "a word that is an entity is shown as it is"
    assert ">&lt;b&gt;ships&lt;/b&gt;</td>" in html
    assert f"<td>{model.share[0]:.1%}</td>" in html
    assert ">TopicModel(lda, topics: 2, words: 6, clients: 2)</caption>" in html
