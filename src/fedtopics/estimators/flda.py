"""F-LDA and guided latent Dirichlet allocation."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from fedtopics.errors import StudyError
from fedtopics.estimators.base import GrowingEstimator
from fedtopics.federation.study_file import explain


class TopicListEstimator(GrowingEstimator):
    """An estimator whose clients send topics as lists of words."""

    def _method(self, given: dict[str, Any]) -> dict[str, Any]:
        return given | {"name": "flda"} | _seeds(given.get("seed_topics"))

    def _fit(self, clients: Mapping[str, Any], *args: Any, **kwargs: Any) -> Self:
        super()._fit(clients, *args, **kwargs)
        info = self.model_.info
        self.optimal_topics_: dict[str, list[int]] = info["optimal"]
        self.threshold_: float = info["threshold"]
        self.history_: list[dict[str, Any]] = info["history"]
        return self


class FLDA(TopicListEstimator):
    """Topics of each client's own LDA, merged by similarity, which guide its LDA of what is new.

    `fit_clients` does `max_rounds` rounds, `partial_fit_clients` one more on new documents. What
    leaves a client in a round are the first words of its topics: some kilobytes.

    Parameters
    ----------
    n_components : int, default 20
        Number of topics.
    preset : {"default", "paper"}
        What is not given below is filled in from it; "paper" takes the algorithms word by word.
    max_rounds : int
        Of `fit_clients`. Each takes all documents, unless `documents_per_round` is given or
        documents say which round they are of.
    documents_per_round : int, optional
        A round takes so many documents more.
    min_new_documents : int
        A client with fewer new documents skips the round.
    stop : {"documents", "coherence"}, optional
        "coherence" ends with the first round whose topics are less coherent, and keeps those of
        the round before.
    seed_topics : list of lists of words, or path of a TOML file, optional
        Words of the first topics, which keep them in all rounds. The file has
        ``seed_topics = [["fever", "cough"], ["sleep"]]``.
    strength : float
        Pseudo-counts that the words of a guiding topic share, a document.
    threshold : float, optional
        Cosine from which topics of two clients are the same; by default what one in a hundred
        pairs of topics of one client reaches.
    linkage : {"average", "single"}, optional
        Merge the most alike first, at most one topic of a client; or all that a chain connects.
    absent_words : {"zero", "ignored"}, optional
        What a word counts in the mean where a topic lacks it.
    weighting : {"topics", "documents"}
        What counts the same in that mean.
    keep_unmatched, refill : bool, optional
        Whether topics of one client stay; whether guided clients have as many topics as others.
    memory : float, optional
        How much a topic of the round before counts beside one of this round.
    spare_topics : int, optional
        Topics of a client besides n_components.
    n_words : int, optional
        Words of a topic that leave a client.
    alpha, eta : float
        Dirichlet priors of theta and of the topics.
    iterations : int
        Sweeps of the Gibbs sampler in a round.
    start : TopicModel or (beta, words), optional
        Topics that guide the first round.
    min_document_frequency, max_words, max_document_share, stop_words, relevance, coherence, \
random_state
        As of `ProdLDA`.

    Attributes
    ----------
    model_, topics_, beta_, vocabulary_
        As of `ProdLDA`: the global topics, the paper's M.
    optimal_topics_ : mapping of client name to list of int
        Which of the topics are the client's own, the paper's M*.
    threshold_ : float
        That of the last round.
    history_ : list of dict
        Of each round: documents, topics, which are new, which vanished.

    References
    ----------
    The F-LDA paper (federated topic modelling with guided LDA), sections 3.1 to 3.3.

    Examples
    --------
    >>> trees = ["oak and beech and fir grow here", "fir and beech and oak"] * 60
    >>> boats = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 60
    >>> clients = {"a": trees, "b": boats, "c": trees[:60] + boats[:60]}
    >>> model = FLDA(2, max_rounds=1, iterations=50).fit_clients(clients)
    >>> len(model.history_), len(model.partial_fit_clients(clients).history_)
    (1, 2)
    """

    def __init__(
        self,
        n_components: int = 20,
        *,
        preset: Literal["default", "paper"] = "default",
        max_rounds: int = 3,
        documents_per_round: int | None = None,
        min_new_documents: int = 100,
        stop: Literal["documents", "coherence"] | None = None,
        seed_topics: Sequence[Sequence[str]] | str | Path | None = None,
        strength: float = 0.03,
        threshold: float | None = None,
        linkage: Literal["average", "single"] | None = None,
        absent_words: Literal["zero", "ignored"] | None = None,
        weighting: Literal["topics", "documents"] = "topics",
        keep_unmatched: bool | None = None,
        refill: bool | None = None,
        memory: float | None = None,
        spare_topics: int | None = None,
        n_words: int | None = None,
        alpha: float = 0.1,
        eta: float = 0.01,
        iterations: int = 300,
        start: Any = None,
        min_document_frequency: int = 5,
        max_words: int = 5000,
        max_document_share: float = 0.5,
        stop_words: str = "english",
        relevance: float | None = None,
        coherence: Literal["windows", "documents", "nothing"] = "windows",
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.preset = preset
        self.max_rounds = max_rounds
        self.documents_per_round = documents_per_round
        self.min_new_documents = min_new_documents
        self.stop = stop
        self.seed_topics = seed_topics
        self.strength = strength
        self.threshold = threshold
        self.linkage = linkage
        self.absent_words = absent_words
        self.weighting = weighting
        self.keep_unmatched = keep_unmatched
        self.refill = refill
        self.memory = memory
        self.spare_topics = spare_topics
        self.n_words = n_words
        self.alpha = alpha
        self.eta = eta
        self.iterations = iterations
        self.start = start
        self.min_document_frequency = min_document_frequency
        self.max_words = max_words
        self.max_document_share = max_document_share
        self.stop_words = stop_words
        self.relevance = relevance
        self.coherence = coherence
        self.random_state = random_state


class GuidedLDA(TopicListEstimator):
    """LDA some of whose topics begin with words that are given, alone, centralised or federated.

    Parameters
    ----------
    seed_topics : list of lists of words, or path of a TOML file
        Words of the first topics: topic 0 is the first. The file has
        ``seed_topics = [["fever", "cough"], ["sleep"]]``.
    n_components : int, optional
        Number of topics; by default as many as have words, and one for the rest.
    strength : float
        Pseudo-counts that the words of a topic share, a document.
    n_words : int
        Words of a topic that leave a client; alone, nothing leaves.
    max_rounds : int
        More than one goes on as F-LDA does.
    threshold, weighting, alpha, eta, iterations, min_new_documents, min_document_frequency, \
max_words, max_document_share, stop_words, relevance, coherence, random_state
        As of `FLDA`.

    Attributes
    ----------
    model_, topics_, beta_, vocabulary_, optimal_topics_, threshold_, history_
        As of `FLDA`.

    References
    ----------
    Jagarlamudi, Daumé and Udupa, Incorporating Lexical Priors into Topic Models, EACL 2012.

    Examples
    --------
    >>> trees = ["oak and beech and fir grow here", "fir and beech and oak"] * 60
    >>> boats = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 60
    >>> model = GuidedLDA([["yawl"], ["oak"]], n_components=2, iterations=50)
    >>> int(model.fit(trees + boats).transform(["the ketch and the sloop"]).argmax())
    0
    """

    def __init__(
        self,
        seed_topics: Sequence[Sequence[str]] | str | Path,
        n_components: int | None = None,
        *,
        strength: float = 0.1,
        n_words: int = 100,
        max_rounds: int = 1,
        threshold: float | None = None,
        weighting: Literal["topics", "documents"] = "topics",
        alpha: float = 0.1,
        eta: float = 0.01,
        iterations: int = 300,
        min_new_documents: int = 1,
        min_document_frequency: int = 5,
        max_words: int = 5000,
        max_document_share: float = 0.5,
        stop_words: str = "english",
        relevance: float | None = None,
        coherence: Literal["windows", "documents", "nothing"] = "windows",
        random_state: Any = 0,
    ) -> None:
        self.seed_topics = seed_topics
        self.n_components = n_components
        self.strength = strength
        self.n_words = n_words
        self.max_rounds = max_rounds
        self.threshold = threshold
        self.weighting = weighting
        self.alpha = alpha
        self.eta = eta
        self.iterations = iterations
        self.min_new_documents = min_new_documents
        self.min_document_frequency = min_document_frequency
        self.max_words = max_words
        self.max_document_share = max_document_share
        self.stop_words = stop_words
        self.relevance = relevance
        self.coherence = coherence
        self.random_state = random_state

    def _method(self, given: dict[str, Any]) -> dict[str, Any]:
        method = super()._method(given)
        usual = {"n_components": len(method["seed_topics"]) + 1, "spare_topics": 0}
        return usual | method


def _seeds(given: Any) -> dict[str, Any]:
    """Return the words as a study has them, read from a file if they are in one."""
    if given is None:
        return {}
    if isinstance(given, (str, Path)):
        try:
            given = tomllib.loads(Path(given).read_text(encoding="utf-8"))["seed_topics"]
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise StudyError(f"The words in {given} cannot be used: {explain(error)}") from None
        except KeyError:
            raise StudyError(
                f'{given} has no words; write: seed_topics = [["fever", "cough"], ["sleep"]].'
            ) from None
    return {"seed_topics": given}
