"""The estimators: networks, LDA, NMF, the mixture model, F-LDA and guided LDA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from fedtopics.errors import StudyError, check_keys
from fedtopics.estimators.base import Splitter, StopWords, TopicEstimator, Words
from fedtopics.estimators.inputs import Inputs
from fedtopics.federation.policy import Policy
from fedtopics.federation.study_tables import explained
from fedtopics.files import read_toml
from fedtopics.methods.core.plan import WarmStart
from fedtopics.text.tables import Columns

if TYPE_CHECKING:
    from fedtopics.contract.events import OnEvent
    from fedtopics.methods.flda.state import FLDAInfo


class ProdLDA(TopicEstimator):
    """Product-of-experts LDA, trained on one corpus or in a federation.

    Parameters and attributes are those of `TopicEstimator`. The preset "avitm" follows the AVITM
    paper: dropout on theta, minibatches of 64 or more, smaller steps, no bias per word, a learned
    prior, raw counts as input, no reconstruction of embeddings, and topics read by probability.
    "paper" adds separate statistics per client and plain gradient steps (Algorithm 1). "mixtures"
    starts from anchor words. It suits documents that mix topics which have words of their own.

    Examples
    --------
    >>> trees = ["oak and beech and fir grow here", "fir and beech and oak"] * 20
    >>> boats = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 20
    >>> clients = {"a": trees + boats, "b": boats + trees}
    >>> model = ProdLDA(n_components=2, max_rounds=50).fit_clients(clients)
    >>> model.transform(["the fir and the oak"]).shape
    (1, 2)
    """

    _fixed: ClassVar = {"method": "gfedntm", "network": "prodlda"}


class NeuralLDA(ProdLDA):
    """LDA with an encoder; each document mixes topics. Parameters are as in `TopicEstimator`."""

    _fixed: ClassVar = {"method": "gfedntm", "network": "neurallda"}


class CombinedTM(ProdLDA):
    """ProdLDA whose encoder uses the words and an embedding of each document.

    Parameters and attributes are those of `TopicEstimator`. Embeddings are computed once, where the
    documents are, and are never sent.

    References
    ----------
    Bianchi, Terragni and Hovy, Pre-training is a Hot Topic, ACL 2021.
    """

    _fixed: ClassVar = {"method": "gfedntm", "network": "combinedtm"}


class ZeroShotTM(ProdLDA):
    """ProdLDA whose encoder uses only an embedding of each document.

    Parameters and attributes are those of `TopicEstimator`. With a multilingual embedding model it
    also finds topics in documents whose language was not in the training.

    References
    ----------
    Bianchi et al., Cross-lingual Contextualized Topic Models with Zero-shot Learning, EACL 2021.
    """

    _fixed: ClassVar = {"method": "gfedntm", "network": "zeroshottm"}


class GrowingEstimator(TopicEstimator):
    """An estimator that can be trained further on new documents."""

    def partial_fit(
        self, documents: Any, y: Any = None, *, words: Words = None, text: str | None = None
    ) -> Self:
        """Train further on new documents of one corpus, as in `partial_fit_clients`."""
        return self._fit_further(self._read_single(documents, words, text))

    def partial_fit_clients(
        self,
        clients: Any,
        *,
        client: str | None = None,
        names: Mapping[Any, str] | None = None,
        policies: Mapping[Any, Policy] | None = None,
        words: Sequence[str] | None = None,
        text: str | None = None,
        person: str | None = None,
    ) -> Self:
        """Train further on new documents of the same or other clients, each document once.

        Parameters are those of `fit_clients`, and the first call is the same. `LDA` keeps its
        vocabulary, so clients send no words, and it weights new documents like earlier ones. The
        model's numbers of documents, shares and word sums then cover all documents, each with the
        model at the time of its training. Coherence covers only the new documents.
        """
        return self._fit_further(
            self._read_clients(
                clients, client, names, policies, words, Columns(text=text, person=person)
            )
        )

    def _fit_further(self, data: Inputs) -> Self:
        return self._fit(
            data,
            WarmStart.of(self.model_, "keep", adds_documents=True)
            if hasattr(self, "model_")
            else None,
        )


class LDA(GrowingEstimator):
    """Latent Dirichlet allocation by variational Bayes, on one corpus or in a federation.

    A federation trains exactly the model of the pooled documents, except for words that are rarer
    at a client than its policy allows.

    Parameters and attributes are those of `TopicEstimator`; beta is its expected value. Settings
    include ``alpha``, ``eta``, ``learning``, ``initialisation``, ``inner_steps``.

    References
    ----------
    Hoffman, Blei and Bach, Online Learning for Latent Dirichlet Allocation, NIPS 2010.

    Examples
    --------
    >>> trees = ["oak and beech and fir grow here", "fir and beech and oak"] * 20
    >>> boats = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 20
    >>> clients = {"a": trees + boats, "b": boats + trees}
    >>> model = LDA(n_components=2, max_rounds=20).fit_clients(clients)
    >>> model.transform(["the fir and the oak"]).shape
    (1, 2)
    """

    _fixed: ClassVar = {"method": "lda"}


class MixtureTM(GrowingEstimator):
    """A mixture model of embeddings and words, trained on one corpus or in a federation.

    Use it for titles, questions and other short texts: each document has one topic, found from its
    embedding and its words together. A federation trains the model of the pooled documents.

    Parameters and attributes are those of `TopicEstimator`. Settings include ``kappa``,
    ``word_weight`` and ``smoothing``. ``settings={"start": {"tries": 20}}`` tries 20 starting
    points; as a keyword, `start` gives initial topics.

    Examples
    --------
    >>> import numpy as np
    >>> from fedtopics import Corpus
    >>> texts = ["oak and beech", "beech and fir", "a ketch at sea", "a sloop at sea"] * 20
    >>> vectors = np.array([[1, 0.1], [1, -0.1], [0.1, 1], [-0.1, 1]] * 20)  # as an encoder's
    >>> corpus = Corpus.of(texts).with_embeddings(vectors)
    >>> model = MixtureTM(2, embedding_dimension=2).fit(corpus)
    >>> model.transform(corpus).argmax(1)[:4].tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """

    _fixed: ClassVar = {"method": "mixture"}


class SeededEstimator(TopicEstimator):
    """An estimator with ``seed_topics``: lists of words, or the path of a TOML file."""

    def _named_settings(self) -> dict[str, Any]:
        named = super()._named_settings()
        if isinstance(named.get("seed_topics"), (str, Path)):
            path = Path(named["seed_topics"])
            try:
                with explained(f"The words in {path}"):
                    content = read_toml(path)
                    check_keys(content, ["seed_topics"], "key")
                    named["seed_topics"] = content["seed_topics"]
            except KeyError:
                raise StudyError(
                    f'{path} has no words; write: seed_topics = [["fever", "cough"], ["sleep"]].'
                ) from None
        return named


class NMF(SeededEstimator):
    """Non-negative matrix factorisation of weighted words, on one corpus or in a federation.

    It finds coherent and distinct topics in texts of a paragraph or more, in seconds. A federation
    trains exactly the model of the pooled documents, except for words that are rarer at a client
    than its policy allows.

    Parameters and attributes are those of `TopicEstimator`; beta contains the topics' weighted
    words, and its rows sum to 1. Settings include ``seed_topics`` (as in `GuidedLDA`), ``strength``
    (how much they pull the first topics towards their words), ``term_weight`` and ``rarity``.

    References
    ----------
    Lee and Seung, Learning the parts of objects by non-negative matrix factorization, Nature 1999.
    Cichocki and Phan, Fast Local Algorithms for Large Scale Nonnegative Matrix and Tensor
    Factorizations, IEICE Transactions 2009.

    Examples
    --------
    >>> trees = ["oak and beech and fir grow here", "fir and beech and oak"] * 20
    >>> boats = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 20
    >>> model = NMF(n_components=2).fit_clients({"a": trees + boats, "b": boats + trees})
    >>> model.transform(["the fir and the oak", ""]).round(2).tolist()[1]
    [0.5, 0.5]
    """

    _fixed: ClassVar = {"method": "nmf"}


class FLDA(SeededEstimator, GrowingEstimator):
    """Each client trains its own LDA. Similar topics are merged, and guide LDA on new documents.

    `fit_clients` trains `max_rounds` rounds, `partial_fit_clients` one more on new documents. In a
    round, each client sends the first words of its topics: some kilobytes.

    Parameters are those of `TopicEstimator`. Settings include ``documents_per_round`` (without it,
    a round takes all documents, unless they have a column of rounds), ``strength``, ``threshold``,
    and ``seed_topics`` as in `GuidedLDA`. The presets "paper-transitive" and "paper-pairwise"
    follow the paper's algorithms literally, in two readings. `start` guides the first round.

    Attributes
    ----------
    model_, topics_, beta_, vocabulary_
        As in `TopicEstimator`: the global topics, the paper's M.
    optimal_topics_ : mapping of client name to list of int
        The client's own topics, the paper's M*.
    threshold_ : float
        Threshold of the last round.
    history_ : list of dict
        For each round: documents, topics, new topics, vanished topics.

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
        """Each client's own topics, by the clients' keys."""
        return self._by_key(self._info["optimal"])

    @property
    def threshold_(self) -> float:
        """Threshold of the last round."""
        return self._info["threshold"]

    @property
    def history_(self) -> list[Any]:
        """New and vanished topics, one row per round."""
        return self._info["history"]

    @property
    def _info(self) -> FLDAInfo:
        return cast("FLDAInfo", self.model_.info)


class GuidedLDA(FLDA):
    """LDA in which some topics start from given words, on one corpus or in a federation.

    Parameters
    ----------
    seed_topics : list of lists of words, or path of a TOML file
        Words of the first topics, beginning with topic 0. A file contains, for example,
        ``seed_topics = [["fever", "cough"], ["sleep"]]``.
    n_components : int, optional
        Number of topics; by default one more than there are lists of words.
    strength : float, optional
        Pseudo-counts per document, divided among the words of a topic; 0.1 by default.
    max_rounds : int, optional
        1 by default. Further rounds continue as in F-LDA.
    tokenizer, analyzer, verbose, callback
        As in `TopicEstimator`.
    min_persons_per_word, max_words, stop_words, random_state, settings
        As in `TopicEstimator`; the setting ``n_words`` is 100 by default.

    Attributes
    ----------
    model_, topics_, beta_, vocabulary_, optimal_topics_, threshold_, history_
        As in `FLDA`.

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
        min_persons_per_word: int | None = None,
        max_words: int | None = None,
        stop_words: StopWords = "english",
        tokenizer: Splitter | None = None,
        analyzer: Splitter | None = None,
        text: str | None = None,
        random_state: Any = 0,
        verbose: bool = False,
        callback: OnEvent | None = None,
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self._keep(locals())

    def _named_settings(self) -> dict[str, Any]:
        named = super()._named_settings()
        seeds = named.get("seed_topics", ())
        return {
            "n_components": len(seeds) + 1 if isinstance(seeds, Sized) else 2,
            "spare_topics": 0,
            "strength": 0.1,
            "max_rounds": 1,
            "n_words": 100,
            "min_new_documents": 1,
            **named,
        }
