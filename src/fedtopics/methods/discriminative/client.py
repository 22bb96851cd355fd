"""The client side of discriminative clustering."""

from __future__ import annotations

from collections.abc import Mapping

from fedtopics.inference.clusters import Discriminants
from fedtopics.methods.clusters.client import ClusterClient
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.discriminative.separation import MOST_ROUNDS
from fedtopics.methods.kmeans.lloyd import calls_of_start


class DiscriminativeClient(ClusterClient[DiscriminativeSettings]):
    inference = Discriminants

    @staticmethod
    def rounds(settings: DiscriminativeSettings) -> dict[str, str]:
        return with_call(calls_before_separation(settings), "class_sums", "each round")


def calls_before_separation(settings: DiscriminativeSettings) -> dict[str, str]:
    calls, n = calls_of_start(settings.start), len(settings.separation.candidates)
    if not n:
        return calls
    return {
        "means": calls["means"],
        "moments": "three times, before the first round",
        "cluster_sums": f"{calls['cluster_sums']}, and {2 * n} times as often to choose the "
        "number of clusters",
        "class_sums": f"at most {2 * n * MOST_ROUNDS} times, before the first round",
        "agreeing_pairs": f"{n} times, before the first round",
    }


def with_call(calls: Mapping[str, str], function: str, often: str) -> dict[str, str]:
    before = calls.get(function)
    return {**calls, function: f"{before}, and {often}" if before else often}
