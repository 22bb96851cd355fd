"""A mixture model of embeddings and words, by expectation-maximisation with exact sums.

Titles and questions have too few words for LDA or NMF, and clusters of embeddings ignore words.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtopics.contract.interfaces import Run
from fedtopics.contract.published import EACH_ROUND, Reply, of_method, published, unknown
from fedtopics.contract.replies import LONGEST, Bounds, Template, of_groups, sums
from fedtopics.inference.mixture import Evidence, Mixture, MixtureShape
from fedtopics.inference.vectors import TINY, Numbers, Points
from fedtopics.methods.clusters.client import PointSums
from fedtopics.methods.clusters.program import check_enough, find_origin
from fedtopics.methods.clusters.settings import Clusterings, StartSettings
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import Documents, TopicClient
from fedtopics.methods.core.final_model import assemble_model
from fedtopics.methods.core.groups import (
    SEEN,
    Grouped,
    GroupRequest,
    PersonShares,
    Thetas,
)
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.methods.core.training import Arrays, Program, RoundResult, iterate
from fedtopics.methods.kmeans.lloyd import start_with_kmeans
from fedtopics.methods.registry import Method
from fedtopics.model.topics import Topics
from fedtopics.text.embeddings import EmbeddingSettings
from fedtopics.text.rounding import (
    POINT_STEP,
    UNIT,
    at_most,
    by_lot,
    coins_of,
    rounded_by_word,
    whole,
)


class MixtureSettings(TopicSettings, MixtureShape):
    name: Literal["mixture"] = Field("mixture", description="the method")
    start: StartSettings = Field(
        StartSettings(rounds=20), description="settings of k-means at the start"
    )
    max_rounds: int = Field(50, ge=1, description="maximum number of rounds")
    tolerance: float = Field(
        1e-3,
        ge=0,
        description="stop when the topics' sums change by less than this, relative to their size",
    )

    @property
    def stages(self) -> Sequence[Clusterings]:
        return (Clusterings(self, self.start),)

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        return self.embedding


def topic_bounds(agreement: Agreement, evidence: dict[str, NDArray[Any]]) -> Template:
    return {
        "directions": Bounds(evidence["directions"].shape, per_document=1),  # unit length
        "words": sums(
            *evidence["words"].shape,
            most=agreement.bound_if_counted(at_most(agreement.vocabulary.occurrences)),
        ),
        "weights": sums(len(evidence["bias"]), per_document=1),
        "loss": Bounds(per_document=LONGEST),
    }


class MixtureSums(PointSums):
    """Sums of a client's embeddings and words, by topic; networks may begin with these sums."""

    @cached_property
    def seen(self) -> Documents:
        """Rows of the documents with a word or an embedding."""
        return np.flatnonzero(self.embeddings.any(1) | (np.diff(self.client.bag.indptr) > 0))

    @published(
        "For each topic, the sum of the documents' probabilities; for each topic where that sum is "
        "large enough, the sums, weighted by these probabilities, of embeddings and of occurrences "
        "of words that documents of enough persons contain. The evidence (nats) and the number of "
        "documents. With secure aggregation, probabilities are also summed first.",
        "sums of embeddings and words by topic",
        often=of_method(MixtureSettings, EACH_ROUND),
        reply=topic_bounds,
        counts_first=lambda evidence: of_groups(len(evidence["bias"])),
        largest=lambda s, n_words: {
            "evidence": {
                "directions": unknown(s.n_components, s.embedding.dimension),
                "words": unknown(s.n_components, n_words),
                "bias": unknown(s.n_components),
            }
        },
    )
    def topic_sums(
        self,
        round: int,
        evidence: dict[str, NDArray[Any]],
        groups: GroupRequest = SEEN,
    ) -> Reply:
        """Sum the documents by their probabilities of each topic (the E-step)."""
        return self.client.sums_by_group(
            groups,
            {"sums": "topics", **evidence},
            partial(self._expected, Evidence(**evidence)),
            self.seen,
        )

    def _expected(self, evidence: Evidence) -> Grouped:
        points = self.placed(evidence.origin)
        counts = self.client.bag[self.seen]
        directions = np.zeros(evidence.directions.shape)
        words = np.zeros(evidence.words.shape)
        weights = np.zeros(len(evidence.bias))
        of_persons = PersonShares(self.client.corpus.owners_of(self.seen), len(weights))
        loss = 0.0
        for rows, theta, log_evidence in evidence.memberships(points, counts):
            directions += theta.T @ points[rows].astype(np.float64)
            words += theta.T @ counts[rows]
            weights += theta.sum(0)
            of_persons.add(rows, theta)
            loss -= log_evidence
        return of_persons.powers(), lambda enough: {
            "directions": directions * enough[:, None],
            "words": words * enough[:, None],
            "weights": weights,
            "loss": loss,
        }

    def placed(self, origin: Numbers) -> Points:
        if len(self.located) == len(self.seen):  # if so, the rows are the same
            return self.points(origin)
        points = np.zeros((len(self.seen), len(origin)), np.float32)
        points[np.isin(self.seen, self.located)] = self.points(origin)
        return points


class MixtureClient(TopicClient[MixtureSettings]):
    exchanges = (MixtureSums,)
    continues = True

    def find_usable(self) -> Documents:
        return self.part(MixtureSums).seen

    def n_topics(self, **model: Any) -> int:
        return len(model["evidence"]["bias"])

    def thetas(self, **model: Any) -> Thetas:
        evidence = Evidence(**model["evidence"])
        part = self.part(MixtureSums)
        for rows, theta, _ in evidence.memberships(
            part.placed(evidence.origin), self.bag[part.seen]
        ):
            yield part.seen[rows], theta


Sums = Mapping[str, Numbers]
"""The weights of `Mixture`: an origin, and sums over documents by topic."""


@dataclass(frozen=True)
class EMRounds:
    """Rounds: clients sum their documents by topic (E-step), and topics follow (M-step)."""

    settings: MixtureSettings
    adds: bool = False  # documents are new, and are added to the earlier ones

    def exchange(self, agreement: Agreement, state: Sums, round_: int) -> Reply:
        return agreement.ask(
            MixtureSums.topic_sums, round=round_, evidence=vars(Evidence.of(state, self.settings))
        )

    def step(
        self, agreement: Agreement, state: Sums, reply: dict[str, Any], round_: int
    ) -> RoundResult[Sums]:
        """Replace the sums (M-step); a topic with too few documents keeps its previous sums."""
        sent = reply["directions"].any(1) | reply["words"].any(1)
        check_enough(sent)
        earlier_weight = 1.0 if self.adds else agreement.weight_of_earlier_sums(round_)
        after = {
            name: reply[name] + earlier_weight * state[name]
            for name in ("directions", "words", "weights")
        }
        after |= {n: np.where(sent[:, None], after[n], state[n]) for n in ("directions", "words")}
        change = max(
            float(np.linalg.norm(after[name] - state[name]) / (np.linalg.norm(state[name]) + TINY))
            for name in ("directions", "words")
        )
        n = reply["documents"]
        facts = {"loss": reply["loss"] / max(n, 1), "documents": n}
        return RoundResult({"origin": state["origin"], **after}, facts, change)  # type: ignore[arg-type]


def first_sums(agreement: Agreement, settings: MixtureSettings, seed: int) -> Sums:
    """Return the sums of k-means' clusters of embeddings; the first round adds sums of words."""
    origin = find_origin(agreement, settings.embedding.dimension)
    clusters = start_with_kmeans(
        agreement, settings.start, settings.n_components, origin=origin, seed=seed
    )
    weights = np.maximum(clusters.counts[0], 1)
    return {
        "origin": origin,
        "directions": clusters.centres[0] * weights[:, None],
        "words": np.zeros((settings.n_components, len(agreement.vocabulary))),
        "weights": weights,
    }


def find_mixture(agreement: Agreement, settings: MixtureSettings, seed: int) -> Sums:
    """Find a mixture before the first round of another method; return its sums."""
    return iterate(
        agreement,
        EMRounds(settings),
        first_sums(agreement, settings, seed),
        repeat(0, settings.max_rounds),
        settings.stops,
    )


class MixtureProgram(Program[MixtureSettings, Sums]):
    def first_state(self, agreement: Agreement, run: Run) -> Sums:
        """Begin with k-means of embeddings, or with a model or topics."""
        start = self.plan.start
        if start is None:
            return first_sums(agreement, self.settings, self.plan.seed)
        if start.continued is not None:
            return dict(start.continued.weights)
        topics = start.on(agreement.vocabulary.words)  # round 1 adds the sums of embeddings
        dimension = self.settings.embedding.dimension
        return {
            "origin": np.zeros(dimension),
            "directions": np.zeros((len(topics), dimension)),
            "words": topics * agreement.documents * agreement.length,
            "weights": topics.sum(1) * agreement.documents,
        }

    def rounds(self, agreement: Agreement) -> EMRounds:
        return EMRounds(self.settings, self.added is not None)

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return Mixture(n_words, settings.shape(MixtureShape)).beta(dict(arrays), {})

    def model(self, agreement: Agreement, state: Sums, rounds: int, run: Run) -> Topics:
        settings = self.settings
        sums = dict(state)
        if not agreement.is_example:
            sums = without_exact_sums(sums, agreement.vocabulary.occurrences)
            if self.plan.start is None:
                sums = without_empty_topics(sums)
                settings = settings.model_copy(update={"n_components": len(sums["weights"])})
        shape = settings.shape(MixtureShape)
        return assemble_model(
            agreement,
            settings,
            {"evidence": vars(Evidence.of(sums, shape))},
            self.made(Mixture(len(agreement.vocabulary), shape), sums, rounds),
            self.plan.start,
        )


def without_empty_topics(sums: Sums) -> dict[str, Numbers]:
    """Return rounded sums without topics of (nearly) no documents, which repeat others' words."""
    full = sums["weights"] > 0
    if full.all() or full.sum() < 2:
        return dict(sums)
    warnings.warn(
        f"{int((~full).sum())} of {len(full)} topics have too few documents, and are left out.",
        stacklevel=2,
    )
    return {name: array if name == "origin" else array[full] for name, array in sums.items()}


def without_exact_sums(sums: Sums, occurrences: NDArray[np.int64]) -> dict[str, Numbers]:
    """Return a model's sums rounded by lot; see `text.rounding`."""
    coins = coins_of(np.rint(sums["words"].sum(0)))
    sizes = whole(sums["weights"])
    return {
        **sums,
        "directions": by_lot(sums["directions"] / POINT_STEP, coins, sizes) * POINT_STEP,
        "words": rounded_by_word(sums["words"], occurrences),
        "weights": by_lot(sums["weights"] / UNIT, coins, sizes) * UNIT,
    }


METHOD = Method(
    name="mixture",
    title="mixture of embeddings and words",
    settings=MixtureSettings,
    program=MixtureProgram,
    client=MixtureClient,
    starts_from_models=True,
)
