"""Nearness of documents to topics at the end of a training: three sums, of which a score stays.

See `fedtopics.model.nearness`. The mean of all documents and the topics' centres are totals that
members open; the model contains neither. A fifth of each client's persons is held out of both.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.published import LAST, NEVER, Over, Reply, of_method, published
from fedtopics.contract.replies import Bounds, of_groups, sums
from fedtopics.inference.clusters import centred
from fedtopics.inference.vectors import Numbers, unit_rows
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.groups import (
    SEEN,
    Enough,
    Grouped,
    GroupRequest,
    PersonShares,
    enough_have,
)
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.model.nearness import (
    HELD_OUT,
    LEAST_SHARES,
    LEVEL_SUMS,
    LEVELS,
    Nearness,
    in_centres,
    joined_levels,
    level_sums,
    levels_of,
    nearness_scores,
    summarised,
)
from fedtopics.text.rounding import rounded

Rows = NDArray[np.int64]
MEASURED = of_method(
    TopicSettings,
    lambda s: NEVER if s.needed_embedding is None or s.coherence == "nothing" else LAST,
)
FOR_CENTRES = Over(
    "all documents with an embedding, except those held out",
    lambda agreement, _: agreement.n_persons(2),  # at least: four of five
)


def enough_in_both(squares: Numbers, fourths: Numbers, least: int) -> Enough:
    """Return which sums are of enough persons, and which of the documents that each leaves out.

    The second half of the groups is what the first half leaves out, which may be nothing.
    """
    is_summed = np.arange(len(squares)) < len(squares) / 2
    enough = enough_have(squares=squares, fourths=fourths, least=least)
    return np.asarray(enough & (~is_summed | (squares > 0)))


def enough_in_level(squares: Numbers, fourths: Numbers, least: int) -> Enough:
    """Return which levels are of enough persons; an empty one is not, as others would join it."""
    return np.asarray(enough_have(squares=squares, fourths=fourths, least=least) & (squares > 0))


class NearnessSums(SharedFunctions):
    """What clients send to score topics by embeddings."""

    @cached_property
    def parts(self) -> tuple[Rows, Rows]:
        """Rows of documents for the centres, and of those held out; none if these are too few."""
        client = self.client
        rows = client.usable[client.corpus.embeddings[client.usable].any(1)]
        owners = client.corpus.person_numbers[rows]
        persons = np.unique(owners)
        drawn = client.secret.rng("nearness").permutation(persons)[: len(persons) // HELD_OUT]
        held_out = np.isin(owners, drawn) & (len(drawn) >= client.min_persons)
        return rows[~held_out], rows[held_out]

    @published(
        "The sum of the embeddings, scaled to length 1, of documents that are not held out; their "
        "number.",
        "sum of embeddings",
        often=MEASURED,
        reply=lambda settings: {
            "sum": Bounds((settings.needed_embedding.dimension,), per_document=1)
        },
        over=FOR_CENTRES,
    )
    def embedding_sum(self) -> Reply:
        """Sum the embeddings, so that their mean can be subtracted."""
        rows = self.parts[0]
        embeddings = self.client.corpus.embeddings[rows]
        total = centred(embeddings, np.zeros(embeddings.shape[1])).sum(0, dtype=np.float64)
        return {"sum": total, "documents": self.client.over(rows)}

    @published(
        "For each topic, the sum of the embeddings, less the mean of all, of documents that are "
        "not held out and have at least half of the topic, weighted by their shares of it; if "
        "these are of too few persons, at least a seventh. There is no sum if all others with a "
        "share of the topic are of too few persons: the difference of two sums would be theirs. "
        "The number of documents. With secure aggregation, first: for each of these groups the "
        "sums of squares and of fourth powers of persons' largest shares.",
        "sums of embeddings by topic",
        often=MEASURED,
        reply=lambda settings: {
            "sums": Bounds(
                (settings.n_components, settings.needed_embedding.dimension), per_document=1
            )
        },
        counts_first=lambda settings: of_groups(2 * len(LEAST_SHARES) * settings.n_components),
        over=FOR_CENTRES,
    )
    def centre_sums(
        self, /, origin: Numbers, groups: GroupRequest = SEEN, **model: object
    ) -> Reply:
        """Sum the embeddings of each topic, of documents that have much of it."""
        client = self.client
        for_centres, held_out = self.parts

        def compute() -> Grouped:
            n_topics = client.n_topics(**model)
            totals = np.zeros((len(LEAST_SHARES) * n_topics, len(origin)))
            of_persons = PersonShares(client.corpus.owners, 2 * len(totals))
            for rows, theta, points in self._batches([*for_centres, *held_out], origin, model):
                weights = in_centres(theta) * np.isin(rows, for_centres)[:, None]
                totals += weights.T @ points
                rest = np.hstack([theta] * len(LEAST_SHARES)) - weights
                of_persons.add(rows, np.hstack([weights, rest]))

            def summed(enough: Enough) -> Reply:
                is_summed, hides_rest = np.split(enough, 2)
                allowed, allowed_second = np.split(is_summed & hides_rest, 2)
                first, second = np.split(totals, 2)
                return {"sums": np.where(allowed[:, None], first, second * allowed_second[:, None])}

            return of_persons.powers(), summed

        request = {"sums": "near topics", "origin": origin, **model}
        reply = client.sums_by_group(
            groups, request, compute, for_centres, rule=enough_in_both, guards_rest=True
        )
        return cast("Reply", reply)

    @published(
        "For each topic and each of seven levels of a document's share of it, over documents that "
        "are held out: their number, the sum of their shares, and the sum of their cosines with "
        "the topic's centre. Levels of too few persons are added to the next level, and a topic "
        "without two levels is left out, as is the second of two topics, whose levels mirror those "
        "of the first. The number of documents. With secure aggregation, first: the number of "
        "persons of each level, twice.",
        "nearness to topics by level",
        often=MEASURED,
        reply=lambda settings: {
            "documents_in": sums(LEVELS * settings.n_components, per_document=1),
            "shares": sums(LEVELS * settings.n_components, per_document=1),
            "nearness": Bounds((LEVELS * settings.n_components,), per_document=1),
        },
        counts_first=lambda settings: of_groups(LEVELS * settings.n_components),
        over=Over(
            "one fifth of the documents with an embedding",
            lambda agreement, _: agreement.n_persons(HELD_OUT),
        ),
    )
    def nearness_sums(
        self, /, origin: Numbers, centres: Numbers, groups: GroupRequest = SEEN, **model: object
    ) -> Reply:
        """Sum the nearness of held-out documents to each topic's centre."""
        client = self.client
        rows = self.parts[1]

        def compute() -> Grouped:
            n_topics = client.n_topics(**model)
            not_mirrored = np.arange(n_topics) != (1 if n_topics == 2 else n_topics)
            total = np.zeros((len(LEVEL_SUMS), LEVELS, n_topics))
            of_persons = PersonShares(client.corpus.owners, LEVELS * n_topics)
            for batch, theta, points in self._batches(rows, origin, model):
                levels = levels_of(theta)
                total += level_sums(levels, theta, points @ centres.T)
                of_persons.add(
                    batch, levels.reshape(len(batch), LEVELS * n_topics).astype(np.float64)
                )
            return of_persons.powers(), lambda enough: dict(
                zip(
                    LEVEL_SUMS,
                    joined_levels(total, enough.reshape(LEVELS, n_topics) & not_mirrored).reshape(
                        len(LEVEL_SUMS), -1
                    ),
                    strict=True,
                )
            )

        request = {"sums": "nearness", "origin": origin, "centres": centres, **model}
        reply = client.sums_by_group(
            groups, request, compute, rows, rule=enough_in_level, guards_rest=True
        )
        return cast("Reply", reply)

    def _batches(
        self, part: Sequence[int] | Rows, origin: Numbers, model: Reply
    ) -> Iterator[tuple[Rows, Numbers, Numbers]]:
        """Yield rows of a part, their shares of topics, and their points."""
        for rows, theta in self.client.thetas(**model):
            inside = np.isin(rows, part)
            points = centred(self.client.corpus.embeddings[rows[inside]], origin)
            yield rows[inside], theta[inside].astype(np.float64), points.astype(np.float64)


def measure_nearness(
    agreement: Agreement, settings: TopicSettings, model: Mapping[str, Any]
) -> Nearness | None:
    """Score the topics by held-out documents of all clients; None if that is impossible."""
    embedding = settings.needed_embedding
    if embedding is None or settings.coherence == "nothing":
        return None
    total = agreement.ask_once(NearnessSums.embedding_sum)
    origin = total["sum"] / max(total["documents"], 1)
    by_topic = agreement.ask_once(NearnessSums.centre_sums, origin=origin, **model)
    centres = unit_rows(by_topic["sums"])
    levels = agreement.ask_once(NearnessSums.nearness_sums, origin=origin, centres=centres, **model)
    sums = np.stack([levels[name] for name in LEVEL_SUMS])
    documents = np.array([levels["documents"]])
    return summarised(
        nearness_scores(sums.reshape(len(LEVEL_SUMS), LEVELS, -1), centres),
        encoder=embedding.model,
        documents=int((documents if agreement.is_example else rounded(documents))[0]),
    )
