"""The client's half of federated NMF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from fedtopics.inference.nmf import find_theta
from fedtopics.inference.points import Numbers
from fedtopics.methods.client import Documents
from fedtopics.methods.nmf.settings import NMFSettings
from fedtopics.methods.nmf.sums import CALLS_OF_START, Factoring


class NMFClient(Factoring[NMFSettings]):
    """The client's half: sums of all its documents, each round."""

    @staticmethod
    def rounds(settings: NMFSettings) -> dict[str, str]:
        return CALLS_OF_START | {"factor_sums": "each round"}

    @property
    def term_weight(self) -> Literal["log", "binary"]:
        return self.settings.term_weight

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, Numbers]]:
        weights: Mapping[str, Numbers] = model["weights"]
        for rows, points in self.weighed(weights["rarity"]):
            yield rows, find_theta(points, weights["topics"])
