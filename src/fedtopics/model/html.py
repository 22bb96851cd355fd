"""How a notebook shows a model: its topics as a table."""

from __future__ import annotations

from html import escape

from fedtopics.model.topics import Topics

COLUMNS = ("topic", "label", "share", "words")


def summary(model: Topics) -> str:
    """Return one line: the method, and how many topics, words and clients there are."""
    method = model.info.get("method", "unknown method")
    sizes = {"topics": model.n_topics, "words": len(model.vocabulary)}
    sizes["clients"] = len(model.documents)
    counts = ", ".join(f"{name}: {n:,}" for name, n in sizes.items())
    return f"TopicModel({method}, {counts})"


def table(model: Topics) -> str:
    """Return the topics as an HTML table: share of all documents, label, ten words; all escaped."""
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    rows = [
        (row["topic"], row["label"], f"{row['share']:.1%}", ", ".join(row["words"]))
        for row in model.get_topic_info()
    ]
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    caption = f"<caption>{escape(summary(model))}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
