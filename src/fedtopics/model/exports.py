"""Models in the formats of other libraries and programs; only pandas is ever imported."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import ModelError, check_number
from fedtopics.escaping import csv_table, for_markdown, for_scripts
from fedtopics.extras import require
from fedtopics.inference.vectors import TINY
from fedtopics.model.figures import figure_templates
from fedtopics.model.finding import TopicFinder, representatives
from fedtopics.model.labels import shown_label
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.model.topics import Topics
from fedtopics.text.corpus import Corpus

TEXT = {"Name", "CustomName", "Top_n_words"}  # columns of text


def to_pandas(model: Topics, n_words: int = WORDS_SHOWN, relevance: float | None = None) -> Any:
    """Return a DataFrame like that of BERTopic's ``get_topic_info``; arguments as in `topics`.

    Returns
    -------
    pandas.DataFrame
        One row per topic, largest first. As in BERTopic: Topic, its number; Count, its share of all
        documents, in documents; Name, the number and four words; CustomName, the label or missing;
        Representation, a list of words. In addition: Share; Share_CLIENT for each client;
        Coherence_MEASURE for each measure, if it was computed for these words.
    """
    rows = model.get_topic_info(n_words, relevance)
    columns: dict[str, Any] = {
        "Topic": [row["topic"] for row in rows],
        "Count": [row["count"] for row in rows],
        "Name": [row["name"] for row in rows],
        "CustomName": [shown_label(row) or None for row in rows],
        "Representation": [row["words"] for row in rows],
        "Share": [row["share"] for row in rows],
    }
    more = {
        f"{prefix}_{name}": [row[key][name] for row in rows]
        for prefix, key in (("Coherence", "coherence"), ("Share", "clients"))
        for name in rows[0][key]
    }
    return data_frame(columns | more)


def get_topics(
    model: Topics, n_words: int = WORDS_SHOWN, relevance: float | None = None
) -> dict[int, list[tuple[str, float]]]:
    """Return, by topic number, the words of each topic with p(word | topic), as BERTopic does.

    Words are chosen as in `topics`. Their probabilities come from beta, or from the documents'
    words if these rank the topic's words.
    """
    shares = model.word_shares
    column = model.vocabulary.index
    return {
        topic: sorted(
            ((w, float(shares[topic, column[w]])) for w in words), key=lambda pair: -pair[1]
        )
        for topic, words in enumerate(model.topics(n_words, relevance))
    }


def get_topic(
    model: Topics, topic: int, n_words: int = WORDS_SHOWN, relevance: float | None = None
) -> list[tuple[str, float]]:
    """Return the words of one topic as in `get_topics`; StudyError if there is no such topic."""
    check_number(topic, "topic", 0, model.n_topics - 1)
    return get_topics(model, n_words, relevance)[topic]


def document_info(model: TopicFinder, documents: Any, n_words: int = WORDS_SHOWN) -> Any:
    """Return a DataFrame like that of BERTopic's ``get_document_info``; it contains the documents.

    Leaves the client
        Nothing: the table is made where the documents are, and stays there.

    Returns
    -------
    pandas.DataFrame
        One row per document, in order, with the index of a Series or DataFrame if documents are
        one, else row numbers from 0. As in BERTopic: Document; Topic, the largest, or -1 if the
        document contains nothing that the model knows; Name, CustomName, Representation and
        Top_n_words of that topic; Probability, its share of the document; Representative_document,
        whether the document is one of the topic's three best. Missing where there is no topic.
    """
    corpus = Corpus.of(documents)
    theta, seen, order = model.ranked([corpus])
    main = np.where(seen, theta.argmax(1), -1)
    rows = {
        row["topic"]: (row["name"], shown_label(row) or None, row["words"])
        for row in model.get_topic_info(n_words)
    }
    names, labels, words = zip(
        *[rows.get(topic, (None, None, None)) for topic in main.tolist()], strict=True
    )
    rows_shown = np.arange(len(main))
    return data_frame(
        {
            "Document": [text for batch in corpus.texts() for text in batch],
            "Topic": main,
            "Name": names,
            "CustomName": labels,
            "Representation": words,
            "Top_n_words": [topic_words and " - ".join(topic_words) for topic_words in words],
            "Probability": np.where(seen, theta.max(1), np.nan),
            "Representative_document": np.isin(
                rows_shown, np.concatenate(representatives(theta, seen, order))
            ),
        },
        index_at(documents, rows_shown),
    )


def index_at(documents: Any, rows: Any) -> Any:
    """Return the index of these rows: that of a Series or DataFrame, else the rows themselves."""
    return documents.index[rows] if hasattr(documents, "iloc") else rows


def data_frame(content: Any, index: Any = None) -> Any:
    """Return columns by name, or rows, as a DataFrame."""
    require("DataFrames need", "pandas", ("pandas", "pandas"))
    import pandas

    frame = pandas.DataFrame(content, index=index)
    return frame.astype(dict.fromkeys(TEXT & {*frame.columns}, "string"))


def to_pyldavis(model: Topics) -> dict[str, Any]:
    """Return the arguments of ``pyLDAvis.prepare`` (Sievert and Shirley 2014), without documents.

    Clients take the place of documents, because pyLDAvis only sums over documents. A client's
    length is in words, in proportion to its documents, so a topic's size is its share of all
    documents. Zeros become tiny values and "<" a similar character, because pyLDAvis divides by
    zero and does not escape words. It cannot draw a single topic, and numbers topics by size from 1
    unless called with ``sort_topics=False, start_index=0``.

    Returns
    -------
    dict
        topic_term_dists, (n_topics, n_words): beta; for clusters, the words of their documents.
        doc_topic_dists, (n_clients, n_topics). doc_lengths, (n_clients,): they sum to the number
        of occurrences of vocabulary words. vocab, list of str. term_frequency, (n_words,).

    Raises
    ------
    ModelError
        If no client has a document.

    Examples
    --------
    >>> from fedtopics import LDA
    >>> texts = [["oak", "elm", "fir"], ["ketch", "yawl", "brig"]] * 20
    >>> model = LDA(n_components=2, max_rounds=5).fit_clients({"a": texts, "b": texts * 2}).model_
    >>> arguments = model.to_pyldavis()
    >>> arguments["doc_topic_dists"].shape, arguments["doc_lengths"].tolist()
    ((2, 2), [120.0, 240.0])
    """
    clients = [name for name, n in model.documents.items() if n > 0]
    if not clients:
        raise ModelError("No client of the model has a document, so topics have no sizes.")
    documents = np.array([model.documents[name] for name in clients], np.float64)
    occurrences = np.maximum(model.vocabulary.occurrences.astype(np.float64), 1)
    return {
        "topic_term_dists": distributions(model.beta),
        "doc_topic_dists": distributions(np.array([model.shares[name] for name in clients])),
        "doc_lengths": documents / documents.sum() * occurrences.sum(),
        "vocab": list(map(for_scripts, model.vocabulary.words)),
        "term_frequency": occurrences,
    }


def distributions(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return rows that contain no zeros and sum to 1."""
    positive = np.maximum(np.asarray(rows, np.float64), TINY)
    return np.asarray(positive / positive.sum(1, keepdims=True))


def to_gensim(
    model: Topics, num_words: int = WORDS_SHOWN, relevance: float | None = None
) -> list[tuple[int, list[tuple[str, float]]]]:
    """Return topics as gensim's ``show_topics(num_topics=-1, formatted=False)`` does."""
    return [*get_topics(model, num_words, relevance).items()]


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of `get_topic_info` as CSV; missing scores and shares are empty."""
    measures = list(dict.fromkeys(name for row in rows for name in row["coherence"]))
    clients = list(rows[0]["clients"])
    header = [
        *("topic", "label", "share", "count", "words"),
        *(f"coherence_{name}" for name in measures),
        *(f"share_{name}" for name in clients),
    ]
    cells = (
        [row["topic"], shown_label(row), row["share"], row["count"], " ".join(row["words"])]
        + [
            None if math.isnan(score) else score
            for score in (row["coherence"].get(name, math.nan) for name in measures)
        ]
        + [row["clients"][name] for name in clients]
        for row in rows
    )
    return csv_table([header, *cells])  # None is written as nothing


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of `get_topic_info` as a Markdown table."""
    return (
        figure_templates(for_markdown)
        .get_template("topics.md.j2")
        .render(
            rows=rows,
            measures=[*rows[0]["coherence"]],
            clients=[*rows[0]["clients"]],
        )
    )
