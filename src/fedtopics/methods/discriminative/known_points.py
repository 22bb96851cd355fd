"""Clusterings of points that all participants know, which each of them computes alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fedtopics.contract.events import RoundReport
from fedtopics.contract.interfaces import EVERYONE, Clients, Draw, T
from fedtopics.contract.published import Reply
from fedtopics.contract.replies import Template
from fedtopics.inference.vectors import Numbers, nearest_centres
from fedtopics.methods.clusters.settings import DiscriminativeSettings, Part
from fedtopics.methods.clusters.sums import agreeing_pairs, sums_by_class, sums_by_label
from fedtopics.methods.core.agreement import Agreement


@dataclass(frozen=True, eq=False)
class KnownPoints:
    """Points that all participants know, as the documents of a client that answers everywhere.

    It has the part of `Clients` that clusterings use: no function's replies are seen one by one.
    """

    points: Numbers
    temperature: float
    names = ("known",)
    apart = False
    hidden = False

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        return work(), {}

    def sum(self, function: str, template: Template, **request: Any) -> Reply:
        del request["vocabulary"]
        return cast("Reply", getattr(self, f"_{function}")(**request))

    def _part(self, part: Part) -> Numbers:
        return self.points[part[0] :: part[1]]

    def _embedding_moments(self, part: Part, origin: Numbers) -> Reply:
        points = self._part(part)
        return {
            "points": points.sum(0),
            "products": points.T @ points,
            "documents": len(points),
        }

    def _cluster_sums(self, part: Part, centres: Numbers, **others: Any) -> Reply:
        points = self._part(part)
        labels, distances = zip(*(nearest_centres(points, start) for start in centres), strict=True)
        by_start = [sums_by_label(points, of_start, centres.shape[1]) for of_start in labels]
        sums, counts = map(np.stack, zip(*by_start, strict=True))
        return {
            "sums": sums,
            "counts": counts,
            "distances": np.stack(distances).sum(1),
            "documents": len(points),
        }

    def _class_sums(
        self, part: Part, round: int, origin: Numbers, **discriminants: Numbers
    ) -> Reply:
        points = self._part(part)
        sums, weights, _ = sums_by_class(points, self.temperature, None, **discriminants)
        return {"sums": sums, "weights": weights, "sent": weights, "documents": len(points)}

    def _agreeing_pairs(self, origin: Numbers, **clusterings: Any) -> Reply:
        return {"pairs": agreeing_pairs(self.points, self.temperature, **clusterings)}


def agree_with_oneself(points: Numbers, settings: DiscriminativeSettings) -> Agreement:
    """Return an agreement by which each participant asks for sums of known points."""
    return Agreement(
        cast("Clients", KnownPoints(points, settings.temperature)), settings, documents=len(points)
    )
