"""F-LDA and guided latent Dirichlet allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from fedtopics.estimators.base import Splitter, StopWords
from fedtopics.estimators.growing import GrowingEstimator
from fedtopics.estimators.seeded import SeededEstimator

if TYPE_CHECKING:
    from fedtopics.methods.events import OnEvent
    from fedtopics.methods.flda.state import FLDAInfo


class FLDA(SeededEstimator, GrowingEstimator):
    """Topics of each client's own LDA, merged by similarity, which guide its LDA of what is new.

    `fit_clients` does `max_rounds` rounds, `partial_fit_clients` one more on new documents. What
    leaves a client in a round are the first words of its topics: some kilobytes.

    Parameters are those of `TopicEstimator`. Among the settings are ``documents_per_round``
    (without it a round takes all documents, unless they say of which round they are),
    ``strength``, ``threshold``, and ``seed_topics`` as `GuidedLDA` takes them. The presets
    "paper-transitive" and "paper-pairwise" take the algorithms word by word, in two readings;
    `start` guides the first round.

    Attributes
    ----------
    model_, topics_, beta_, vocabulary_
        As of `TopicEstimator`: the global topics, the paper's M.
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

    _fixed: ClassVar = {"method": "flda"}

    @property
    def optimal_topics_(self) -> dict[Any, list[int]]:
        """Which of the topics are a client's own, by what it was given under."""
        return self._by_key(self._info["optimal"])

    @property
    def threshold_(self) -> float:
        """That of the last round."""
        return self._info["threshold"]

    @property
    def history_(self) -> list[Any]:
        """What happened to topics, a row a round."""
        return self._info["history"]

    @property
    def _info(self) -> FLDAInfo:
        return cast("FLDAInfo", self.model_.info)


class GuidedLDA(FLDA):
    """LDA some of whose topics begin with words that are given, alone, centralised or federated.

    Parameters
    ----------
    seed_topics : list of lists of words, or path of a TOML file
        Words of the first topics: topic 0 is the first. The file has
        ``seed_topics = [["fever", "cough"], ["sleep"]]``.
    n_components : int, optional
        Number of topics; by default as many as have words, and one for the rest.
    strength : float, optional
        Pseudo-counts that the words of a topic share, a document; 0.1 by default.
    max_rounds : int, optional
        1 by default. More than one goes on as F-LDA does.
    tokenizer, analyzer, verbose, callback
        As of `TopicEstimator`.
    min_document_frequency, max_words, stop_words, random_state, settings
        As of `TopicEstimator`; of the settings, ``n_words`` is 100 by default: alone, nothing
        leaves.

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
        strength: float | None = None,
        max_rounds: int | None = None,
        min_document_frequency: int | None = None,
        max_words: int | None = None,
        stop_words: StopWords = "english",
        tokenizer: Splitter | None = None,
        analyzer: Splitter | None = None,
        random_state: Any = 0,
        verbose: bool = False,
        callback: OnEvent | None = None,
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self._keep(locals())

    def _named_settings(self) -> dict[str, Any]:
        named = super()._named_settings()
        topics = len(named.get("seed_topics", ())) + 1
        usual = {"n_components": topics, "spare_topics": 0, "strength": 0.1, "max_rounds": 1}
        return usual | {"n_words": 100, "min_new_documents": 1} | named
