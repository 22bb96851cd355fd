"""Expectation-maximisation of a mixture of topics, from sums over all clients' documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from fedtopics.inference.mixture import Evidence
from fedtopics.inference.points import TINY, Numbers
from fedtopics.methods.clusters.program import check_enough, find_moments
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.replies import LONGEST, Field, Template, sums
from fedtopics.methods.core.training import RoundResult, iterate
from fedtopics.methods.kmeans.lloyd import start_with_kmeans
from fedtopics.methods.mixture.client import MixtureSettings

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
        most = agreement.upper_bound(occurring) if self.known_words else np.inf
        template: Template = {
            "directions": Field(state["directions"].shape, each=1),  # points have unit length
            "words": sums(*state["words"].shape, most=most),
            "weights": sums(*state["weights"].shape, each=1),
            "loss": Field(each=LONGEST),
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
        kept = 1.0 if self.adds else agreement.share_kept(round_)
        after = {name: reply[name] + kept * state[name] for name in SUMMED}
        for name in ("directions", "words"):
            after[name] = np.where(sent[:, None], after[name], state[name])
        change = max(_relative_change(after[name], state[name]) for name in ("directions", "words"))
        n = reply["documents"]
        facts = {"loss": reply["loss"] / max(n, 1), "documents": n}
        return RoundResult({"origin": state["origin"], **after}, facts, change)  # type: ignore[arg-type]


def _relative_change(after: Numbers, before: Numbers) -> float:
    return float(np.linalg.norm(after - before) / (np.linalg.norm(before) + TINY))


def first_sums(agreement: Agreement, settings: MixtureSettings, seed: int) -> Sums:
    """Return the sums of k-means' clusters of embeddings; the first round adds sums of words."""
    k, dimension = settings.n_components, settings.embedding.dimension
    origin, moments = find_moments(agreement, dimension)
    found = start_with_kmeans(agreement, settings.start, k, origin, moments, seed, 1)
    words = np.zeros((k, len(agreement.vocabulary)))
    shares = np.maximum(found.counts[0], 1)
    directions = found.centres[0] * shares[:, None]
    return {"origin": origin, "directions": directions, "words": words, "weights": shares}


def find_mixture(agreement: Agreement, settings: MixtureSettings, seed: int) -> Sums:
    """Find a mixture before the first round of another method; return its sums."""
    first = first_sums(agreement, settings, seed)
    numbers = repeat(0, settings.max_rounds)
    return iterate(agreement, EMRounds(settings), first, numbers, settings.stops)
