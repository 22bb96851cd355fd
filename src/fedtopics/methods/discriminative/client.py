"""The client's half of discriminative clustering: sums by membership."""

from __future__ import annotations

from collections.abc import Mapping

from fedtopics.inference.clusters import Discriminants
from fedtopics.methods.clusters.client import ClusterClient
from fedtopics.methods.discriminative.separation import MOST_ROUNDS
from fedtopics.methods.discriminative.settings import DiscriminativeSettings, SeparationSettings
from fedtopics.methods.kmeans.lloyd import calls_of_start


class DiscriminativeClient(ClusterClient[DiscriminativeSettings]):
    """The client's half."""

    inference = Discriminants

    @staticmethod
    def rounds(settings: DiscriminativeSettings) -> dict[str, str]:
        return with_call(calls_before_separation(settings), "class_sums", "each round")


def calls_before_separation(settings: SeparationSettings) -> dict[str, str]:
    """Return how often which functions are called before clusters are moved apart."""
    calls = calls_of_start(settings)
    if not settings.candidates:
        return calls
    candidates, halves = len(settings.candidates), 2 * len(settings.candidates)
    return {
        "means": calls["means"],
        "moments": "three times, before the first round",
        "cluster_sums": f"{calls['cluster_sums']}, and {halves} times as often to choose the "
        "number of clusters",
        "class_sums": f"at most {halves * MOST_ROUNDS} times, before the first round",
        "agreeing_pairs": f"{candidates} times, before the first round",
    }


def with_call(calls: Mapping[str, str], function: str, often: str) -> dict[str, str]:
    """Return how often functions are called, with more calls of one."""
    before = calls.get(function)
    return {**calls, function: f"{before}, and {often}" if before else often}
