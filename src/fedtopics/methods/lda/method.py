"""Federated latent Dirichlet allocation by variational Bayes, whose statistics are sums.

References
----------
Hoffman, Blei and Bach, Online Learning for Latent Dirichlet Allocation, NIPS 2010: algorithm 1
(``learning="batch"``) and algorithm 2 (``"stochastic"``).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.events import RoundFacts
from fedtopics.contract.interfaces import Run
from fedtopics.contract.replies import Bounds, Template
from fedtopics.inference.lda import LDAPrior, VariationalLDA, topic_weights
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final_model import assemble_model
from fedtopics.methods.core.training import Arrays, Program, RoundResult
from fedtopics.methods.lda.client import LDAClient, LDASettings
from fedtopics.methods.lda.first_topics import find_first_topics
from fedtopics.methods.registry import Method
from fedtopics.model.topics import Topics


class LDA(Program[LDASettings, Arrays]):
    """The method's program; a model that is trained further continues its numbers of rounds.

    The state is `pseudo_counts` of shape (n_words, n_topics): lambda in the references.
    """

    def first_state(self, agreement: Agreement, run: Run) -> Arrays:
        """Draw the first topics, or take them from a model, given topics or anchors."""
        settings = self.settings
        start = self.plan.start
        if self.continued is not None:
            return {"pseudo_counts": np.asarray(self.continued.weights["pseudo_counts"])}
        if start is not None:
            topics = start.on(agreement.vocabulary.words)
        elif settings.initialisation == "random":
            shape = len(agreement.vocabulary), settings.n_components
            return {"pseudo_counts": np.random.default_rng(self.plan.seed).gamma(100, 0.01, shape)}
        else:
            topics = find_first_topics(agreement, settings, self.plan.seed) / settings.n_components
        n_words = agreement.documents * agreement.length
        return {"pseudo_counts": np.ascontiguousarray(settings.topic_prior + topics.T * n_words)}

    def exchange(self, agreement: Agreement, state: Arrays, round_: int) -> dict[str, Any]:
        # Replies are checked: expected counts of a word cannot exceed its occurrences.
        counted = agreement.vocabulary.occurrences[:, None]
        most = np.inf if self.continued else agreement.bound_if_announced(counted)
        counts = Bounds(state["pseudo_counts"].shape, most, 0, rows=True)
        template: Template = {"counts": counts, "bound": agreement.loss()}
        all_documents = self.settings.learning == "batch" or self.added is not None
        function = "all_expected_counts" if all_documents else "expected_counts"
        return agreement.sum(function, template, round=round_, **state)

    def step(
        self, agreement: Agreement, state: Arrays, reply: dict[str, Any], round_: int
    ) -> RoundResult[Arrays]:
        """Do the M-step: lambda = (1 - rho) lambda + rho (eta + D / S * counts), algorithm 2."""
        settings = self.settings
        n = reply["documents"]
        before = state["pseudo_counts"]
        after: NDArray[np.float64] = reply["counts"].dense()
        if self.added is not None:  # counts of new documents are added to the model's lambda
            after += before
        else:
            after *= agreement.training / n
            after += settings.topic_prior
            rho = 1 - agreement.weight_of_earlier_sums(round_)
            if settings.learning == "stochastic":
                rho = (settings.learning_offset + round_) ** -settings.learning_decay
            after *= rho
            after += (1 - rho) * before
        change = np.inf
        if settings.tolerance > 0:
            change = float(np.linalg.norm(after - before) / np.linalg.norm(before))
        facts: RoundFacts = {"loss": -reply["bound"] / n, "documents": n}
        return RoundResult({"pseudo_counts": after}, facts, change)

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return arrays["pseudo_counts"].T

    def model(self, agreement: Agreement, state: Arrays, rounds: int, run: Run) -> Topics:
        prior = self.settings.shape(LDAPrior)
        seen = agreement.training
        if self.added is not None:
            seen += self.added.info.get("seen", 0)
        inference = VariationalLDA(len(agreement.vocabulary), prior)
        make = self.made(inference, dict(state), rounds, seen=seen)
        trained = {"topics": topic_weights(state["pseudo_counts"])}
        return assemble_model(agreement, self.settings, trained, make, self.plan.start)


METHOD = Method("lda", "federated LDA", LDASettings, LDA, LDAClient, starts_from_models=True)
