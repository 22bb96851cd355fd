"""Federated latent Dirichlet allocation: variational Bayes, whose statistics are sums.

The E-step finds, document by document, how many occurrences of each word are expected to be of
each topic. The M-step needs their sum over documents, no matter whose they are: five clients train
exactly the model that one would train on all their documents, but for words that are rarer at a
client than its policy allows. `LDA` is what the server executes, `LDAClient` what a client does.

References
----------
Hoffman, Blei and Bach, Online Learning for Latent Dirichlet Allocation, NIPS 2010: algorithm 1
(``learning="batch"``) and algorithm 2 (``"stochastic"``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.inference.theta import LDAPrior, VariationalLDA, topic_weights
from fedtopics.methods.aggregation import Rows, Template
from fedtopics.methods.agreement import Agreement, describe, reach_agreement
from fedtopics.methods.base import Checkpoint, Clients, Run
from fedtopics.methods.client import Documents, in_order
from fedtopics.methods.minibatches import MinibatchClient
from fedtopics.methods.settings import LDASettings
from fedtopics.methods.warm_start import Start
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.vocabulary import TextRules, VocabularyLimits

if TYPE_CHECKING:
    from fedtopics.inference.variational import Posterior


SLACK = 1e-9  # of a sum that is at most 1


class LDA:
    """The server's half.

    Parameters
    ----------
    settings : LDASettings
    text : TextRules
    limits : VocabularyLimits
    seed : int
    start : Start, optional
        Topics to begin with. A model of this method that is trained further goes on where it was:
        its rounds, by which stochastic ones weigh less and less, count on.

    Raises
    ------
    StudyError
        If `start` has another number of topics.
    """

    def __init__(
        self,
        settings: LDASettings,
        text: TextRules,
        limits: VocabularyLimits,
        seed: int,
        start: Start | None = None,
    ) -> None:
        self.settings = settings
        self.text = text
        self.limits = limits
        self.seed = seed
        self.start = start
        if start is not None:
            start.check_number(settings.n_components)
        self._further = None if start is None else start.further
        self._done = 0 if start is None else start.done
        self._once = start is not None and start.once and self._further is not None

    def train(self, clients: Clients, run: Run) -> TopicModel:
        """Alternate: expected counts at the clients, topics from their sum at the server."""
        settings = self.settings
        draw = settings.draw(self.seed)
        agreement = reach_agreement(
            clients, run, self.limits, settings.n_components, draw, self._further
        )
        saved = run.restore()
        done = self._done if saved is None else saved.round
        topics = self._first(agreement) if saved is None else saved.arrays["pseudo_counts"]
        round_ = done
        last = self._done + (1 if self._once else settings.max_rounds)
        if saved is not None and saved.numbers["stopped"]:
            last = done
        for round_ in run.rounds(done, last):
            exchange = partial(self._exchange, agreement, topics, round_)
            found, report = agreement.round(round_, exchange)
            before, topics = topics, self._step(agreement, topics, found, round_)
            n = found["documents"]
            run.event("round", round=round_, loss=-found["bound"] / n, documents=n, **report)
            stop = settings.tolerance > 0 and _change(before, topics) < settings.tolerance
            if run.due(round_) or stop:
                numbers = {"stopped": int(stop)}
                run.checkpoint(Checkpoint(round_, {"pseudo_counts": topics}, numbers))
            if stop:
                reason = f"the topics changed by less than {settings.tolerance:g}, the tolerance"
                run.event("stopped", round=round_, reason=reason)
                break
        work = partial(self._model, agreement, topics, round_)
        return clients.round(round_ + 1, work)[0]

    def _exchange(
        self, agreement: Agreement, topics: NDArray[np.float64], round_: int
    ) -> dict[str, Any]:
        """Let the clients do the E-step."""
        template: Template = {"counts": topics.shape, "bound": ()}
        of_all = self.settings.learning == "batch" or self._once
        function = "all_expected_counts" if of_all else "expected_counts"
        return agreement.sum(function, template, round=round_, topics=topic_weights(topics))

    def _step(
        self,
        agreement: Agreement,
        topics: NDArray[np.float64],
        found: dict[str, Any],
        round_: int,
    ) -> NDArray[np.float64]:
        """Do the M-step, as if all documents were like those of this round."""
        settings = self.settings
        counts: NDArray[np.float64] = found["counts"].dense()
        if self._once:  # each new document: what was learned before stays
            return topics + counts
        counts *= agreement.training / found["documents"]
        counts += settings.topic_prior
        weight = 1 - agreement.keep(round_)
        if settings.learning == "stochastic":
            weight = (settings.learning_offset + round_) ** -settings.learning_decay
        counts *= weight
        counts += (1 - weight) * topics
        return counts

    def _first(self, agreement: Agreement) -> NDArray[np.float64]:
        """Return the first pseudo-counts, shape (n_words, n_topics)."""
        settings = self.settings
        if self.start is None and settings.initialisation == "random":
            shape = len(agreement.vocabulary), settings.n_components
            drawn: NDArray[np.float64] = np.random.default_rng(self.seed).gamma(100, 0.01, shape)
            return drawn
        if self.start is None:
            topics = agreement.first_topics(settings.n_components) / settings.n_components
        elif self._further is not None:
            kept: NDArray[np.float64] = self._further.weights["pseudo_counts"].numpy()
            return kept
        else:
            topics = self.start.on(agreement.vocabulary.words)
        words = agreement.documents * agreement.length
        return np.ascontiguousarray(settings.topic_prior + topics.T * words)

    def _model(self, agreement: Agreement, topics: NDArray[np.float64], round_: int) -> TopicModel:
        prior = LDAPrior(**self.settings.model_dump(include=set(LDAPrior.model_fields)))
        seen = agreement.training
        if self._once and self._further is not None:
            seen += self._further.info.get("seen", 0)
        make = partial(
            TopicModel,
            inference=VariationalLDA(len(agreement.vocabulary), prior),
            weights={"pseudo_counts": torch.from_numpy(topics)},
            shared={},
            text=self.text,
            info={
                "method": "lda",
                "rounds": round_,
                "seed": self.seed,
                "seen": seen,
            },
        )
        trained = {"topics": topic_weights(topics)}
        return describe(agreement, self.settings, trained, make, self.start)


def _change(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return by how much topics changed, relative to their norm."""
    return float(np.linalg.norm(after - before) / np.linalg.norm(before))


class LDAClient(MinibatchClient[LDASettings]):
    """The client's half: expected counts of minibatches, or of all documents.

    Words that are in fewer of its documents than the policy allows are not counted: what leaves
    are counts of words, and such a word would be as good as named.
    """

    method = "lda"
    version = 1
    published = (
        "size", "vocabulary", "adopt", "projections", "expected_counts", "all_expected_counts",
        "shares", "word_sums", "pairs",
    )  # fmt: skip

    @staticmethod
    def rounds(settings: LDASettings) -> dict[str, str]:
        """Say which functions a study with these settings calls in its rounds, and how often."""
        batch = settings.learning == "batch"
        return {"all_expected_counts" if batch else "expected_counts": "each round"}

    def begin(self, length: float) -> None:
        """Leave rare words out."""
        self.bag = self.frequent()

    def expected_counts(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        topics: NDArray[np.float64],
    ) -> dict[str, Any]:
        """Find how many occurrences of each word are of each topic, in a minibatch (the E-step).

        Parameters
        ----------
        vocabulary : str
        round : int
        topics : float64 array of shape (n_words, n_topics)
            exp(E[log beta]).

        Leaves the client
            For each word that enough of the client's documents have and that occurs in the
            minibatch, the expected number of occurrences of each topic: together, how often it
            occurs there; the evidence bound (nats) and the number of documents.
        """
        return self._counted(self.minibatch(vocabulary, round), topics)

    def all_expected_counts(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        topics: NDArray[np.float64],
    ) -> dict[str, Any]:
        """Find how many occurrences of each word are of each topic, in all documents.

        Parameters are those of `expected_counts`.

        Leaves the client
            For each word that enough of the client's documents have, the expected number of
            occurrences of each topic; the evidence bound (nats) and the number of documents.
        """
        self.check(vocabulary)
        return self._counted(self.minibatches.training, topics)

    def _counted(self, rows: Documents, topics: NDArray[np.float64]) -> dict[str, Any]:
        total = np.zeros(self._checked(topics).shape)
        present = np.zeros(len(topics), bool)
        bound = 0.0
        for some, posterior in self._posteriors(np.sort(rows), topics):
            words, counts = posterior.word_counts(topics)
            total[words] += counts
            present[words] = True
            bound += posterior.bound(self.bag[some], self.settings.theta_prior)
        words = np.flatnonzero(present)
        sums = Rows(words, total[words], len(topics))
        return {"counts": sums, "bound": bound, "documents": len(rows)}

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, NDArray[np.float64]]]:
        """Find theta of all documents by variational inference, some at a time."""
        topics = self._checked(model["topics"])
        for some, posterior in self._posteriors(self.known, topics):
            yield some, posterior.read("mean")

    def _posteriors(
        self, rows: Documents, topics: NDArray[np.float64]
    ) -> Iterator[tuple[Documents, Posterior]]:
        from fedtopics.inference.variational import infer  # a server need not compile it

        prior, steps = self.settings.theta_prior, self.settings.inner_steps
        for some in in_order(rows):
            yield some, infer(self.bag[some], topics, prior, steps)

    def _checked(self, topics: Any) -> NDArray[np.float64]:
        """Refuse what is no exp(E[log beta]), whose columns sum to less than 1."""
        shape = self.bag.shape[1], self.settings.n_components
        if (
            not isinstance(topics, np.ndarray)
            or (topics.shape, topics.dtype) != (shape, np.float64)
            or not (topics > 0).all()
            or not (topics.sum(0) < 1 + SLACK).all()
        ):
            raise StudyError(
                f"Client {self.name!r} was sent topics that are none; find out what the server "
                "runs."
            )
        return topics
