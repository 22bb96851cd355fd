"""Models in the forms that other libraries and programs take.

Functions that take a model are methods of `TopicModel`. Of the libraries, none is imported here but
pandas, where a DataFrame is asked for.

The papers are Sievert and Shirley 2014 (LDAvis), Terragni and others, EACL 2021 (OCTIS), Řehůřek
and Sojka, LREC 2010 (gensim), and Grootendorst 2022 (BERTopic).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import ModelError, check_number
from fedtopics.extras import require
from fedtopics.harmless import for_csv, for_markdown, for_scripts
from fedtopics.inference.points import TINY
from fedtopics.model.figures import environment
from fedtopics.model.finding import Finder, representatives
from fedtopics.model.labels import shown_label
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.model.topics import Topics
from fedtopics.text.corpus import Corpus

TEXT = {"Name", "CustomName", "Top_n_words"}  # columns of text, missing where there is none


def to_pandas(model: Topics, n_words: int = WORDS_SHOWN, lambda_: float | None = None) -> Any:
    """Return a DataFrame like that of BERTopic's ``get_topic_info``; takes what `topics` takes.

    Returns
    -------
    pandas.DataFrame
        A row a topic, largest first. As in BERTopic: Topic, its number; Count, its share of all
        documents, in documents; Name, the number and four words; CustomName, the label, missing
        where there is none; Representation, a list of words. Besides: Share; for each measure of
        coherence Coherence_MEASURE, if the words are those it is of; for each client Share_CLIENT.
    """
    rows = model.get_topic_info(n_words, lambda_)
    labels = [shown_label(row) or None for row in rows]
    columns: dict[str, Any] = {
        "Topic": [row["topic"] for row in rows],
        "Count": [row["count"] for row in rows],
        "Name": [row["name"] for row in rows],
        "CustomName": labels,
        "Representation": [row["words"] for row in rows],
        "Share": [row["share"] for row in rows],
    }
    for prefix, key in (("Coherence", "coherence"), ("Share", "clients")):
        columns |= {f"{prefix}_{name}": [row[key][name] for row in rows] for name in rows[0][key]}
    return data_frame(columns)


def get_topics(
    model: Topics, n_words: int = WORDS_SHOWN, lambda_: float | None = None
) -> dict[int, list[tuple[str, float]]]:
    """Return the words of each topic with their p(word | topic), by its number, as BERTopic does.

    How topics are read is as in `topics`; with `lambda_` 1, by probability. The p(word | topic) is
    of what they are read from: beta, or the words of documents.
    """
    shares, column = model.word_shares, model.vocabulary.index
    return {
        topic: sorted(((word, float(shares[topic, column[word]])) for word in words), key=_share)
        for topic, words in enumerate(model.topics(n_words, lambda_))
    }


def _share(entry: tuple[str, float]) -> float:
    return -entry[1]


def get_topic(
    model: Topics, topic: int, n_words: int = WORDS_SHOWN, lambda_: float | None = None
) -> list[tuple[str, float]]:
    """Return the words of a topic, as `get_topics` has them; StudyError if there is none such."""
    check_number(topic, "topic", 0, model.n_topics - 1)
    return get_topics(model, n_words, lambda_)[topic]


def document_info(model: Finder, documents: Any, n_words: int = WORDS_SHOWN) -> Any:
    """Return a DataFrame like that of BERTopic's ``get_document_info``: it holds the documents.

    Leaves the client
        Nothing: it is made where the documents are, and stays with who asks for it.

    Returns
    -------
    pandas.DataFrame
        A row a document, in their order, with the index of a Series or DataFrame, as all tables of
        documents have it; of others, their rows counted from 0. As in BERTopic:
        Document; Topic, its largest, -1 where the model sees nothing of it; Name, CustomName,
        Representation and Top_n_words, which say what the topic is; Probability, its share of the
        document; Representative_document, whether it is one of the three with most of the topic.
        What is of a topic is missing where there is none.
    """
    corpus = Corpus.of(documents)
    theta, seen = model.theta_and_seen(corpus)
    main, largest = np.where(seen, theta.argmax(1), -1), np.where(seen, theta.max(1), np.nan)
    info = model.get_topic_info(n_words)
    rows = {row["topic"]: row | {"label": shown_label(row)} for row in info}
    best = np.concatenate(representatives(theta, seen))

    def of_main_topic(key: str, text: Callable[[Any], str | None] = lambda value: value) -> Any:
        by_topic = {topic: text(row[key]) for topic, row in rows.items()}
        return [by_topic.get(int(topic)) for topic in main]

    columns: dict[str, Any] = {
        "Document": [text for batch in corpus.texts() for text in batch],
        "Topic": main,
        "Name": of_main_topic("name"),
        "CustomName": of_main_topic("label", lambda label: label or None),
        "Representation": [rows[topic]["words"] if topic >= 0 else None for topic in main],
        "Top_n_words": of_main_topic("words", " - ".join),
        "Probability": largest,
        "Representative_document": np.isin(np.arange(len(main)), best),
    }
    return data_frame(columns, index_at(documents, np.arange(len(main))))


def index_at(documents: Any, rows: Any) -> Any:
    """Return the index of these rows: that of a Series or DataFrame, of other documents the rows.

    Each DataFrame with a row a document has it.
    """
    return documents.index[rows] if hasattr(documents, "iloc") else rows


def data_frame(content: Any, index: Any = None) -> Any:
    """Return columns by name, or rows, as pandas' DataFrame; text that is not there is missing."""
    require("DataFrames need", "pandas", ("pandas", "pandas"))
    import pandas

    frame = pandas.DataFrame(content, index=index)
    for name in TEXT & {*frame.columns}:
        frame[name] = frame[name].astype("string")
    return frame


def to_pyldavis(model: Topics) -> dict[str, Any]:
    """Return the arguments of ``pyLDAvis.prepare``, without a look at any document.

    The clients stand for documents, since pyLDAvis sums over documents whatever it takes of them:
    a client's mean theta, and its part of all words, by its number of documents. So a topic's size
    is its share of all documents. Lengths are words, since pyLDAvis makes counts of words of them,
    and leaves out those below a half. A client without documents is left out; what is zero is a
    little more, since pyLDAvis divides by it.

    pyLDAvis numbers topics from 1, by their size; with ``sort_topics=False, start_index=0`` they
    have the numbers that they have here. It cannot draw a single topic. It writes words into its
    page as they are, so a "<" of theirs is another character that looks so.

    Returns
    -------
    dict
        topic_term_dists, (n_topics, n_words): beta; of clusters, the words of their documents.
        doc_topic_dists, (n_clients, n_topics). doc_lengths, (n_clients,): they sum to the number
        of the vocabulary's words in all documents. vocab, list of str. term_frequency, (n_words,).

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
        raise ModelError("No client of the model has a document, so topics have no sizes to show.")
    documents = np.array([model.documents[name] for name in clients], np.float64)
    occurrences = np.maximum(model.vocabulary.occurrences.astype(np.float64), 1)
    return {
        "topic_term_dists": _distributions(model.beta),
        "doc_topic_dists": _distributions(np.array([model.shares[name] for name in clients])),
        "doc_lengths": documents / documents.sum() * occurrences.sum(),
        "vocab": list(map(for_scripts, model.vocabulary.words)),
        "term_frequency": occurrences,
    }


def _distributions(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return rows without zeros that sum to 1."""
    positive = np.maximum(np.asarray(rows, np.float64), TINY)
    return np.asarray(positive / positive.sum(1, keepdims=True))


def to_gensim(
    model: Topics, num_words: int = 10, lambda_: float | None = None
) -> list[tuple[int, list[tuple[str, float]]]]:
    """Return topics as gensim's ``show_topics(num_topics=-1, formatted=False)`` does.

    How topics are read is as in `get_topics`; with `lambda_` 1, by probability as gensim does.
    """
    return [*get_topics(model, num_words, lambda_).items()]


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as of `get_topic_info` as CSV; a score or share that is not there is empty.

    Text is written so that a spreadsheet computes nothing of it, see `for_csv`.
    """
    measures = list(dict.fromkeys(name for row in rows for name in row["coherence"]))
    clients = list(rows[0]["clients"])
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        ["topic", "label", "share", "count", "words"]
        + [for_csv(f"coherence_{name}") for name in measures]
        + [for_csv(f"share_{name}") for name in clients]
    )
    for row in rows:
        scores = [row["coherence"].get(name, math.nan) for name in measures]
        writer.writerow(
            [row["topic"], for_csv(shown_label(row)), row["share"], row["count"]]
            + [for_csv(" ".join(row["words"]))]
            + ["" if math.isnan(score) else score for score in scores]
            + [row["clients"][name] for name in clients]  # None is written as nothing
        )
    return file.getvalue()


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of `get_topic_info` as a table for people, in Markdown."""
    made = environment(for_markdown, escaped=False)
    made.filters["isnan"] = math.isnan
    shown = [{**row, "shown": shown_label(row)} for row in rows]
    names = {"measures": [*rows[0]["coherence"]], "clients": [*rows[0]["clients"]]}
    return made.get_template("topics.md.j2").render(rows=shown, **names)
