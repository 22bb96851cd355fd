"""Federated latent Dirichlet allocation by variational Bayes, whose statistics are sums.

References
----------
Hoffman, Blei and Bach, Online Learning for Latent Dirichlet Allocation, NIPS 2010: algorithm 1
(``learning="batch"``) and algorithm 2 (``"stochastic"``).
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from fedtopics.contract.interfaces import Run
from fedtopics.contract.payload import SparseRows
from fedtopics.contract.published import (
    EACH_ROUND,
    NEVER,
    Often,
    Reply,
    of_method,
    published,
    unknown,
)
from fedtopics.contract.replies import Bounds, Template, of_groups
from fedtopics.inference.lda import LDAPrior, VariationalLDA, topic_weights
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import Documents, TopicClient, batches
from fedtopics.methods.core.final_model import assemble_model
from fedtopics.methods.core.groups import (
    SEEN,
    Grouped,
    GroupRequest,
    PersonShares,
    Thetas,
)
from fedtopics.methods.core.minibatches import MINIBATCH, Minibatches
from fedtopics.methods.core.settings import (
    FIRST_TOPICS,
    Beginning,
    MinibatchSettings,
)
from fedtopics.methods.core.training import Arrays, Program, RoundResult
from fedtopics.methods.lda.first_topics import Projections, find_first_topics
from fedtopics.methods.nmf.client import FactorSums
from fedtopics.methods.nmf.sketch import first_word_sums
from fedtopics.methods.registry import Method
from fedtopics.model.topics import Topics
from fedtopics.text.rounding import at_most, rounded_by_word


class LDASettings(MinibatchSettings, LDAPrior):
    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = {
        "stochastic": {"max_rounds": 200, "initialisation": "anchors"}
    }
    decisive: ClassVar[str] = "learning"

    name: Literal["lda"] = Field("lda", description="the method")
    learning: Literal["stochastic", "batch"] = Field(
        "batch",
        description='"batch": each round uses all documents; "stochastic": each uses a minibatch',
    )
    learning_offset: float = Field(
        10.0, ge=0, description="tau_0 in a round's weight, (tau_0 + round)^-kappa; slows the start"
    )
    learning_decay: float = Field(
        0.6,
        gt=0.5,
        le=1,
        description="kappa in the weight of a stochastic round, (tau_0 + round)^-kappa",
    )
    batch_size: int = Field(1024, ge=1, description="number of documents in a stochastic round")
    initialisation: Beginning = Field("nmf", description=FIRST_TOPICS)
    max_rounds: int = Field(
        3,
        ge=1,
        description="maximum number of rounds; by default 200 if they are stochastic",
    )

    @property
    def draws(self) -> bool:
        return self.learning == "stochastic"


LENGTH_CAP = 50  # longest documents, in mean lengths; longer ones count as if shortened to it


ON_NEW_DOCUMENTS = Often(
    times=1,
    instead="instead of expected_counts, if a model is trained further on new documents",
)


def count_bounds(agreement: Agreement, pseudo_counts: NDArray[np.float64]) -> Template:
    # Expected counts of a word cannot exceed its occurrences.
    most = agreement.bound_if_counted(at_most(agreement.vocabulary.occurrences[:, None]))
    return {"counts": Bounds(pseudo_counts.shape, most, 0, rows=True), "bound": agreement.loss()}


class LDAClient(TopicClient[LDASettings]):
    exchanges = (FactorSums, Projections)
    continues = True

    def split(self, documents: int, total: int) -> int:
        self.minibatches = Minibatches.of(self, documents / total)
        return len(self.minibatches.training)

    def adopt(
        self, words: list[str], total: int, length: float, few_have: Sequence[bool] = ()
    ) -> None:
        super().adopt(words, total, length, few_have)
        lengths = self.bag.sum(1)
        median = float(np.median(lengths[lengths > 0]))
        # Others announce the mean; it cannot lower the cap below 50 times this client's median.
        self._bounded = shortened_documents(self.bag, LENGTH_CAP * max(length, median))

    @published(
        "For each word of the minibatch that enough of the client's documents contain, the "
        "expected number of its occurrences from each topic, which add up to its occurrences in "
        "the minibatch; the evidence bound (nats) and the number of documents.",
        "expected words by topic",
        often=of_method(LDASettings, lambda s: EACH_ROUND if s.learning == "stochastic" else NEVER),
        reply=count_bounds,
        largest=lambda s, n_words: {"pseudo_counts": unknown(n_words, s.n_components)},
        over=MINIBATCH,
        noise=False,
    )
    def expected_counts(self, round: int, pseudo_counts: NDArray[np.float64]) -> Reply:
        """Estimate the occurrences of words in each topic, in a minibatch (the E-step)."""
        rows = self.minibatches.draw(round, self.attempt)
        words, totals, bound = self._counted(rows, pseudo_counts)
        return {
            "counts": SparseRows(words, totals, len(pseudo_counts)),
            "bound": bound,
            "documents": self.over(rows),
        }

    @published(
        "For each topic that documents of enough persons have and each word that enough of them "
        "contain, the expected number of its occurrences from the topic; the evidence bound (nats) "
        "and the number of documents. With secure aggregation, first: for each topic, the sums of "
        "squares and of fourth powers of persons' largest shares.",
        "expected words by topic",
        often=of_method(
            LDASettings, lambda s: EACH_ROUND if s.learning == "batch" else ON_NEW_DOCUMENTS
        ),
        reply=count_bounds,
        counts_first=lambda pseudo_counts: of_groups(pseudo_counts.shape[1]),
        largest=lambda s, n_words: {"pseudo_counts": unknown(n_words, s.n_components)},
    )
    def all_expected_counts(
        self, round: int, pseudo_counts: NDArray[np.float64], groups: GroupRequest = SEEN
    ) -> Reply:
        """Estimate the occurrences of words in each topic, in all documents."""
        rows = self.minibatches.training

        def compute() -> Grouped:
            of_persons = PersonShares(self.corpus.owners, pseudo_counts.shape[1])
            words, totals, bound = self._counted(rows, pseudo_counts, of_persons)
            return of_persons.powers(), lambda enough: {
                "counts": SparseRows(words, totals * enough, len(pseudo_counts)),
                "bound": bound,
            }

        return self.sums_by_group(
            groups, {"sums": "expected", "pseudo_counts": pseudo_counts}, compute, rows
        )

    def _counted(
        self,
        rows: Documents,
        pseudo_counts: NDArray[np.float64],
        of_persons: PersonShares | None = None,
    ) -> tuple[Documents, NDArray[np.float64], float]:
        """Return the words of documents, their expected counts (n, n_topics), and the bound."""
        from fedtopics.inference.variational import infer, occurring  # a server need not compile it

        topics = np.empty(pseudo_counts.shape)
        total = np.zeros(pseudo_counts.shape)
        present = np.zeros(len(topics), bool)
        bound = 0.0
        for batch in batches(np.sort(rows)):
            counts = self._bounded[batch]
            words, _ = occurring(counts)
            new = words[~present[words]]
            topics[new] = topic_weights(pseudo_counts, new)
            present[new] = True
            posterior = infer(counts, topics, self.settings.theta_prior, self.settings.inner_steps)
            total[words] += posterior.word_counts(topics)
            bound += posterior.bound(counts, self.settings.theta_prior)
            if of_persons is not None:
                of_persons.add(batch, posterior.read("mean"))
        words = np.flatnonzero(present)
        return words, total[words], bound

    def thetas(self, **model: Any) -> Thetas:
        return posterior_means(self.bag, self.usable, model["topics"], self.settings)


def posterior_means(
    bag: sparse.csr_array, rows: Documents, topics: NDArray[np.float64], prior: LDAPrior
) -> Thetas:
    from fedtopics.inference.variational import infer  # a server need not compile it

    for batch in batches(rows):
        yield batch, infer(bag[batch], topics, prior.theta_prior, prior.inner_steps).read("mean")


def shortened_documents(bag: sparse.csr_array, most: float) -> sparse.csr_array:
    """Shorten long documents: one of millions of words would dominate the topics."""
    lengths = bag.sum(1, dtype=np.float64)
    if lengths.max(initial=0) <= most:
        return bag
    shorter = bag.copy()
    shorter.data *= np.repeat(np.minimum(1, most / np.maximum(lengths, 1)), np.diff(bag.indptr))
    return shorter


class LDA(Program[LDASettings, Arrays]):
    """The method's program; a model that is trained further continues its numbers of rounds.

    The state is `pseudo_counts` of shape (n_words, n_topics): lambda in the references.
    """

    def first_state(self, agreement: Agreement, run: Run) -> Arrays:
        """Draw the first topics, or take them from a model, given topics or anchors."""
        settings = self.settings
        if self.continued is not None:
            return {"pseudo_counts": np.asarray(self.continued.weights["pseudo_counts"])}
        if self.plan.start is not None:
            topics = self.plan.start.on(agreement.vocabulary.words)
        elif settings.initialisation == "random":
            shape = len(agreement.vocabulary), settings.n_components
            return {"pseudo_counts": np.random.default_rng(self.plan.seed).gamma(100, 0.01, shape)}
        elif settings.initialisation == "nmf":
            sums = first_word_sums(agreement, settings.n_components, self.plan.seed)
            return {"pseudo_counts": np.ascontiguousarray(settings.topic_prior + sums.T)}
        else:
            topics = find_first_topics(agreement, settings, self.plan.seed) / settings.n_components
        n_words = agreement.documents * agreement.length
        return {"pseudo_counts": np.ascontiguousarray(settings.topic_prior + topics.T * n_words)}

    def exchange(self, agreement: Agreement, state: Arrays, round_: int) -> Reply:
        all_documents = self.settings.learning == "batch" or self.added is not None
        function = LDAClient.all_expected_counts if all_documents else LDAClient.expected_counts
        return agreement.ask(function, round=round_, pseudo_counts=state["pseudo_counts"])

    def step(
        self, agreement: Agreement, state: Arrays, reply: dict[str, Any], round_: int
    ) -> RoundResult[Arrays]:
        """Do the M-step: lambda = (1 - rho) lambda + rho (eta + D / S * counts), algorithm 2."""
        n = reply["documents"]
        before = state["pseudo_counts"]
        after: NDArray[np.float64] = reply["counts"].dense()
        is_left_out = ~after.any(0)  # a topic that too few persons have: it stays as it is
        if self.added is not None:  # counts of new documents are added to the model's lambda
            after += before
        else:
            after *= agreement.training / n
            after += self.settings.topic_prior
            rho = (
                (self.settings.learning_offset + round_) ** -self.settings.learning_decay
                if self.settings.learning == "stochastic"
                else 1 - agreement.weight_of_earlier_sums(round_)
            )
            after *= rho
            after += (1 - rho) * before
        after[:, is_left_out] = before[:, is_left_out]
        change = (
            float(np.linalg.norm(after - before) / np.linalg.norm(before))
            if self.settings.tolerance > 0
            else np.inf
        )
        return RoundResult(
            {"pseudo_counts": after}, {"loss": -reply["bound"] / n, "documents": n}, change
        )

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return arrays["pseudo_counts"].T

    def model(self, agreement: Agreement, state: Arrays, rounds: int, run: Run) -> Topics:
        prior = self.settings.shape(LDAPrior)
        earlier = 0 if self.added is None else self.added.info.get("seen", 0)
        pseudo_counts = state["pseudo_counts"]
        if not agreement.is_example:
            counts = np.maximum(pseudo_counts - prior.topic_prior, 0).T
            rounded = rounded_by_word(counts, agreement.vocabulary.occurrences)
            pseudo_counts = np.ascontiguousarray(rounded.T) + prior.topic_prior
        return assemble_model(
            agreement,
            self.settings,
            {"topics": topic_weights(pseudo_counts)},
            self.made(
                VariationalLDA(len(agreement.vocabulary), prior),
                {"pseudo_counts": pseudo_counts},
                rounds,
                seen=earlier + agreement.training,
            ),
            self.plan.start,
        )


METHOD = Method("lda", "federated LDA", LDASettings, LDA, LDAClient, starts_from_models=True)
