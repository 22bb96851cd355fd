"""Topics that people work with: put together, looked at by time and by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from fedtopics.estimators.fitted import FittedTopics
from fedtopics.model.document_map import DocumentMap
from fedtopics.model.exports import data_frame
from fedtopics.model.over_time import (
    Grouped,
    grouped_by_class,
    grouped_by_time,
    rows_of_study,
    values_of,
)
from fedtopics.model.representative import BEST


class ChangedTopics(FittedTopics):
    """The topics of an estimator, which can be put together and split by documents' groups."""

    def merge_topics(self, topics_to_merge: Sequence[int] | Sequence[Sequence[int]]) -> Self:
        """Put topics together: `TopicModel.merge_topics`, in place."""
        self.model_ = self._fitted().merge_topics(topics_to_merge)
        return self

    def reduce_topics(self, n_topics: int) -> Self:
        """Put the nearest topics together until so many are left, in place."""
        self.model_ = self._fitted().reduce_topics(n_topics)
        return self

    def hierarchical_topics(self) -> Any:
        """Return a DataFrame of how topics become fewer, with BERTopic's columns.

        Distance is the mutual information that is lost: see `TopicModel.hierarchy`.
        """
        rows, names = self._fitted().hierarchy(), self._names()
        names |= {row["parent"]: row["name"] for row in rows}
        return data_frame(
            {
                "Parent_ID": row["parent"],
                "Parent_Name": row["name"],
                "Topics": row["topics"],
                "Child_Left_ID": row["left"],
                "Child_Left_Name": names[row["left"]],
                "Child_Right_ID": row["right"],
                "Child_Right_Name": names[row["right"]],
                "Distance": row["distance"],
            }
            for row in rows
        )

    def topics_over_time(self, documents: Any = None, timestamps: Any = None, **how: Any) -> Any:
        """Return a DataFrame of topics by period, with BERTopic's columns and some more.

        What it takes is as of `TopicModel.topics_over_time`; without documents it is what the study
        has summed.

        Returns
        -------
        pandas.DataFrame
            Topic; Words, five of them; Frequency, the topic's share of the period's documents, in
            documents; Timestamp, when the period begins; Name; Share; Documents, Clients: how many
            the period has. Its ``attrs`` say how many documents are in no row: those "without" a
            value, those of groups with too "few", those of which the model sees nothing
            ("unknown").
        """
        if documents is None:
            rows = rows_of_study(self._fitted())
            return self._told("Timestamp", "period", Grouped(rows, 0, 0, 0))
        times = values_of(documents, timestamps)
        found = grouped_by_time(self._fitted(), self._corpora(documents), times, **how)
        return self._told("Timestamp", "period", found)

    def topics_per_class(self, documents: Any, classes: Any, **how: Any) -> Any:
        """Return a DataFrame as of `topics_over_time`, with the Class of documents."""
        classes = values_of(documents, classes)
        found = grouped_by_class(self._fitted(), self._corpora(documents), classes, **how)
        return self._told("Class", "class", found)

    def representative_documents(
        self, documents: Any, topic: int | None = None, n_documents: int = BEST
    ) -> Any:
        """Return a DataFrame of one's own documents that are most of each topic, or of one.

        They are given again: neither model nor estimator keeps documents, and nothing leaves. See
        `TopicModel.representative_documents`.

        Returns
        -------
        pandas.DataFrame
            Topic; Name; Document, its row; Client, where there are several; Share; Text.
        """
        model = self._fitted()
        rows = model.representative_documents(self._corpora(documents), topic, n_documents)
        names = self._names()
        clients = [row["client"] for row in rows]
        columns = {
            "Topic": [row["topic"] for row in rows],
            "Name": [names[row["topic"]] for row in rows],
            "Document": [row["document"] for row in rows],
            **({"Client": clients} if isinstance(documents, Mapping) else {}),
            "Share": [row["share"] for row in rows],
            "Text": [row["text"] for row in rows],
        }
        return data_frame(columns)

    def document_map(self, documents: Any, **how: Any) -> DocumentMap:
        """Return a map of one's own documents, which a notebook shows.

        ``to_pandas()`` has it as a DataFrame, ``save("map.html")`` writes it as a page. What it
        takes is as of `TopicModel.document_map`.
        """
        return self._fitted().document_map(self._corpus(documents), **how)

    def _corpora(self, documents: Any) -> Any:
        if isinstance(documents, Mapping):
            return {key: self._corpus(each) for key, each in documents.items()}
        return self._corpus(documents)

    def _names(self) -> dict[int, str]:
        return {row["topic"]: row["name"] for row in self._fitted().get_topic_info()}

    def _told(self, title: str, group: str, found: Grouped) -> Any:
        """Return a DataFrame of what is said of topics in groups of documents."""
        names = self._names()
        words = [", ".join(topic) for topic in self._fitted().topics(5)]
        frame = data_frame(
            {
                "Topic": row["topic"],
                "Words": words[row["topic"]],
                "Frequency": row["count"],
                title: row[group],
                "Name": names[row["topic"]],
                "Share": row["share"],
                "Documents": row["documents"],
                "Clients": row["clients"],
            }
            for row in found.rows
        )
        frame.attrs |= {"without": found.without, "few": found.few, "unknown": found.unknown}
        return frame
