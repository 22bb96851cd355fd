"""Clusters that are set apart, from sums with noise: the stages of discriminative clustering.

Documents are members of all clusters, by shares that add up to 1: what one adds to the clusters'
sums, and to their sizes, has a length of 1 at most. Clusters are set apart in the few directions in
which embeddings spread by more than noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedtopics.inference.points import Moments, Numbers
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.discriminative.separation import Split, direct
from fedtopics.methods.private.stages import ClusterWords, Stage
from fedtopics.methods.training import Arrays

SMALLEST = 0.1  # of an even size, that a cluster is taken to have at least


class ClassSums(Stage):
    """What is in each cluster, by shares: a round of discriminative clustering."""

    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        template = {"classes": (self.n_topics, self.dimension), "sizes": (self.n_topics,)}
        asked = {"number": self.number, **apart(state)}
        return self.ask(agreement, "class_sums", template, **asked)

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        directions, k = state["directions"], self.n_topics
        sizes = np.maximum(reply["sizes"], SMALLEST * agreement.documents / k)
        there, nothing = reply["classes"] @ directions, np.zeros(directions.shape[1])
        moments = Moments(agreement.documents, nothing, state["scatter"])
        bias = state.get("bias", np.zeros(k))
        split = Split(there[None], sizes[None], bias[None], np.zeros(1))
        found = direct(split, moments, self.recipe.own).weights()
        narrow = min(k - 1, self.dimension) - found["projection"].shape[1]
        wider = [(0, 0), (0, narrow)]  # as a model has it, with directions in which nothing is
        return {
            "projection": np.pad(directions @ found["projection"], wider),
            "axes": np.pad(found["directions"], wider),
            "bias": found["bias"],
            "sums": reply["classes"],
        }


class ClassWords(ClusterWords):
    """Which words clusters have, by shares."""

    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        template = {"counts": (len(state["kept"]), self.n_topics)}
        asked = {"columns": state["kept"], **apart(state)}
        return self.ask(agreement, "class_words", template, **asked)


def apart(state: Arrays) -> dict[str, Numbers]:
    """Return what tells the clusters of an embedding; at first, how near centres are."""
    if "projection" not in state:
        first = {"projection": state["directions"], "directions": state["centres"]}
        return {"origin": state["origin"], **first, "bias": np.zeros(len(state["centres"]))}
    found = {"projection": state["projection"], "directions": state["axes"]}
    return {"origin": state["origin"], **found, "bias": state["bias"]}
