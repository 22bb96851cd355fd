"""A mixture model of embeddings and words, by expectation-maximisation with exact sums.

Titles and questions have too few words for LDA or NMF, and clusters of embeddings ignore words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.interfaces import Run
from fedtopics.contract.replies import LONGEST, Bounds, Template, sums
from fedtopics.inference.mixture import Evidence, Mixture, MixtureShape
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.clusters.program import check_enough, find_moments, find_origin
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final_model import assemble_model
from fedtopics.methods.core.training import Arrays, Program, RoundResult, iterate
from fedtopics.methods.kmeans.lloyd import start_with_kmeans
from fedtopics.methods.mixture.client import MixtureClient, MixtureSettings
from fedtopics.methods.registry import Method
from fedtopics.model.topics import Topics

Sums = Mapping[str, Numbers]
"""The weights of `Mixture`: an origin, and sums over documents by topic."""
SUMMED = ("directions", "words", "weights")


@dataclass(frozen=True)
class EMRounds:
    """Rounds: clients sum their documents by topic (E-step), and topics follow (M-step)."""

    settings: MixtureSettings
    known_words: bool = True  # the vocabulary was counted in these documents
    adds: bool = False  # documents are new, and are added to the earlier ones

    def exchange(self, agreement: Agreement, state: Sums, round_: int) -> dict[str, Any]:
        occurring = agreement.vocabulary.occurrences
        most = agreement.bound_if_announced(occurring) if self.known_words else np.inf
        template: Template = {
            "directions": Bounds(
                state["directions"].shape, per_document=1
            ),  # points have unit length
            "words": sums(*state["words"].shape, most=most),
            "weights": sums(*state["weights"].shape, per_document=1),
            "loss": Bounds(per_document=LONGEST),
        }
        evidence = vars(Evidence.of(state, self.settings))
        counted: Template = {"counts": template["weights"]}
        return agreement.sum_groups(
            "topic_sums", template, counted, round=round_, evidence=evidence
        )

    def step(
        self, agreement: Agreement, state: Sums, reply: dict[str, Any], round_: int
    ) -> RoundResult[Sums]:
        """Replace the sums (M-step); a topic with too few documents keeps its previous sums."""
        sent = reply["directions"].any(1) | reply["words"].any(1)
        check_enough(sent)
        earlier_weight = 1.0 if self.adds else agreement.weight_of_earlier_sums(round_)
        after = {name: reply[name] + earlier_weight * state[name] for name in SUMMED}
        for name in ("directions", "words"):
            after[name] = np.where(sent[:, None], after[name], state[name])
        change = max(
            float(np.linalg.norm(after[name] - state[name]) / (np.linalg.norm(state[name]) + TINY))
            for name in ("directions", "words")
        )
        n = reply["documents"]
        facts = {"loss": reply["loss"] / max(n, 1), "documents": n}
        return RoundResult({"origin": state["origin"], **after}, facts, change)  # type: ignore[arg-type]


def first_sums(agreement: Agreement, settings: MixtureSettings, seed: int) -> Sums:
    """Return the sums of k-means' clusters of embeddings; the first round adds sums of words."""
    k = settings.n_components
    origin, moments = find_moments(agreement, settings.embedding.dimension)
    clusters = start_with_kmeans(
        agreement, settings.start, k, origin=origin, moments=moments, seed=seed, finalists=1
    )
    words = np.zeros((k, len(agreement.vocabulary)))
    weights = np.maximum(clusters.counts[0], 1)
    directions = clusters.centres[0] * weights[:, None]
    return {"origin": origin, "directions": directions, "words": words, "weights": weights}


def find_mixture(agreement: Agreement, settings: MixtureSettings, seed: int) -> Sums:
    """Find a mixture before the first round of another method; return its sums."""
    first = first_sums(agreement, settings, seed)
    numbers = repeat(0, settings.max_rounds)
    return iterate(agreement, EMRounds(settings), first, numbers, settings.stops)


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
            "origin": find_origin(agreement, dimension),
            "directions": np.zeros((len(topics), dimension)),
            "words": topics * agreement.documents * agreement.length,
            "weights": topics.sum(1) * agreement.documents,
        }

    def rounds(self, agreement: Agreement) -> EMRounds:
        return EMRounds(self.settings, self.continued is None, self.added is not None)

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return Mixture(n_words, settings.shape(MixtureShape)).beta(dict(arrays), {})

    def model(self, agreement: Agreement, state: Sums, rounds: int, run: Run) -> Topics:
        shape = self.settings.shape(MixtureShape)
        make = self.made(Mixture(len(agreement.vocabulary), shape), dict(state), rounds)
        trained = {"evidence": vars(Evidence.of(state, shape))}
        return assemble_model(agreement, self.settings, trained, make, self.plan.start)


METHOD = Method(
    name="mixture",
    title="mixture of embeddings and words",
    settings=MixtureSettings,
    program=MixtureProgram,
    client=MixtureClient,
    starts_from_models=True,
)
