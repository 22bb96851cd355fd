"""Topics that people work with: put together, looked at by time and by class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from fedtopics.estimators.fitted import FittedTopics
from fedtopics.model.exports import data_frame


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
        model = self._fitted()
        rows = model.hierarchy()
        names = {row["topic"]: row["name"] for row in model.get_topic_info()}
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

    def topics_over_time(self, documents: Any, timestamps: Any, **how: Any) -> Any:
        """Return a DataFrame of topics by period, with BERTopic's columns and some more.

        What it takes is as of `TopicModel.topics_over_time`.

        Returns
        -------
        pandas.DataFrame
            Topic; Words, five of them; Frequency, the topic's share of the period's documents, in
            documents; Timestamp, when the period begins; Name; Share; Documents, Clients: how many
            the period has.
        """
        rows = self._fitted().topics_over_time(self._corpora(documents), timestamps, **how)
        return self._told("Timestamp", "period", rows)

    def topics_per_class(self, documents: Any, classes: Any, **how: Any) -> Any:
        """Return a DataFrame as of `topics_over_time`, with the Class of documents."""
        rows = self._fitted().topics_per_class(self._corpora(documents), classes, **how)
        return self._told("Class", "class", rows)

    def _corpora(self, documents: Any) -> Any:
        if isinstance(documents, Mapping):
            return {key: self._corpus(each) for key, each in documents.items()}
        return self._corpus(documents)

    def _told(self, title: str, group: str, rows: Iterable[Mapping[str, Any]]) -> Any:
        """Return a DataFrame of what is said of topics in groups of documents."""
        model = self._fitted()
        names = {row["topic"]: row["name"] for row in model.get_topic_info()}
        words = [", ".join(topic) for topic in model.topics(5)]
        return data_frame(
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
            for row in rows
        )
