"""FSCCL: contrastive learning of short texts with cluster centres, averaged over clients.

In each round, a client minimises eta * NT-Xent + KL(p || q) on its own documents.

References
----------
Zhang et al., Supporting Clustering with Contrastive Learning (SCCL), NAACL 2021. McMahan et al.,
Communication-Efficient Learning of Deep Networks from Decentralized Data (FedAvg), AISTATS 2017.
Here the encoder is frozen and followed by an adapter. Views are texts without some words (`views`),
and embeddings without some numbers; in SCCL, a language model replaces words. Eta is the weight of
the contrastive loss, as in the authors' code.
"""

from typing import Any

import torch

from fedtopics.contract.events import RoundFacts
from fedtopics.contract.interfaces import Run
from fedtopics.contract.replies import LONGEST, Bounds
from fedtopics.inference.trained_clusters import Contrastive
from fedtopics.methods.clusters.program import ClusterProgram, find_moments
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays, RoundResult
from fedtopics.methods.fsccl.client import FEATURES, FSCCLClient, FSCCLSettings
from fedtopics.methods.kmeans.lloyd import start_with_kmeans
from fedtopics.methods.registry import Method
from fedtopics.networks.trained_encoder import Adapter


class FSCCL(ClusterProgram[FSCCLSettings, Arrays]):
    """The method's program; its state is the network's weights, centres and the mean embedding."""

    inference = Contrastive

    def first_state(self, agreement: Agreement, run: Run) -> Arrays:
        settings = self.settings
        seed = self.plan.seed
        dimension = settings.embedding.dimension
        origin, moments = find_moments(agreement, dimension)
        clusters = start_with_kmeans(
            agreement,
            settings.start,
            settings.n_components,
            origin=origin,
            moments=moments,
            seed=seed,
            finalists=1,
        )
        # The weights of the adapter's head are both layers of the contrastive head.
        adapter = Adapter(dimension, settings.network.hidden, dimension + FEATURES)
        first = {n: w.numpy() for n, w in adapter.initial_weights(seed, torch.float64).items()}
        return {"origin": origin, "centres": clusters.centres[0], **first}

    def exchange(self, agreement: Agreement, state: Arrays, round_: int) -> dict[str, Any]:
        changes = {name: weight.shape for name, weight in state.items() if name != "origin"}
        template = {"changes": changes, "loss": Bounds(per_document=LONGEST)}
        return agreement.sum("train_locally", template, round=round_, weights=dict(state))

    def step(
        self, agreement: Agreement, state: Arrays, reply: dict[str, Any], round_: int
    ) -> RoundResult[Arrays]:
        documents = reply["documents"]
        mean = {name: state[name] + total / documents for name, total in reply["changes"].items()}
        facts: RoundFacts = {"loss": reply["loss"] / documents, "documents": documents}
        return RoundResult({"origin": state["origin"], **mean}, facts)

    def weights(self, agreement: Agreement, state: Arrays, rounds: int) -> Arrays:
        """Return the weights for inference: all except the contrastive head's."""
        return {name: state[name] for name in Contrastive(0, self.shape(self.settings)).shapes()}


METHOD = Method("fsccl", "FSCCL", FSCCLSettings, FSCCL, FSCCLClient, version=3, shows="clusters")
