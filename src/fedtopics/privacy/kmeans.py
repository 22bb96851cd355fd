"""k-means with differential privacy: sums of embeddings by the nearest centre, with noise."""

from functools import cached_property, lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.contract.published import NO_DOCUMENTS, ONCE, Reply, published, unknown
from fedtopics.contract.replies import Bounds, counts
from fedtopics.errors import first_problem
from fedtopics.inference.clusters import Centres, ClusterShape
from fedtopics.inference.vectors import Numbers, unit_rows
from fedtopics.methods.clusters.settings import KMeansSettings
from fedtopics.methods.clusters.sums import sums_by_label
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays
from fedtopics.privacy import contributions, estimates
from fedtopics.privacy.client import (
    NOISE,
    WHOSE,
    NoisyClient,
    PrivatePlan,
    n_pairs,
    noisy,
    repeated,
)
from fedtopics.privacy.recipe import Recipe
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, cache_folder, document_embeddings

OTHERS_SHARE = 0.02  # share of a word's count with which its other topics start
LEAST_WORD_COUNT = 1e-3  # minimum count of a word in a topic
DEAD_SHARE = 0.1  # share of clusters that may keep their centre from public words


class NoisyKMeansClient(NoisyClient[KMeansSettings]):
    """The client-side code of k-means with differential privacy."""

    @published(
        "For each public word, in how many documents it is among the words nearest to the "
        "document's embedding; the sums of embeddings and of their outer products. In each sum, "
        f"{WHOSE} a vector of length 1. The sums are sent {NOISE}.",
        "counts of words, sums of embeddings and of their products",
        often=ONCE,
        reply=lambda agreement, settings: noisy(
            words=(len(agreement.vocabulary),),
            mean=(settings.embedding.dimension,),
            products=(n_pairs(settings.embedding.dimension),),
        ),
        has_documents=False,
    )
    def noisy_key_words(self) -> Reply:
        """Sum the documents' nearest words, and their embeddings."""
        self._check_request("noisy_key_words", ())
        mean, products = contributions.moments(self.embeddings, self._weights)
        return {
            "words": self._noisy("words", self._nearest.sum(0)),
            "mean": self._noisy("mean", mean),
            "products": self._noisy("products", products),
        }

    @published(
        "The embedding model's vectors of public words, which do not depend on documents.",
        "vectors of public words",
        often=ONCE,
        reply=lambda settings, columns: {
            "vectors": Bounds((len(columns), settings.embedding.dimension), dtype="float32"),
            "clients": counts(),
        },
        largest=lambda s, n_words: {"columns": unknown(n_words)},
        over=NO_DOCUMENTS,
        has_documents=False,
    )
    def word_vectors(self, columns: NDArray[np.int64]) -> Reply:
        """Return the words' vectors. All use the clients' mean, so a server needs no model."""
        return {"vectors": self._vectors[columns], "clients": 1}

    @published(
        "For each cluster, the sum of its documents' embeddings (less a common origin, scaled to "
        f"length 1), {NOISE}.",
        "sums of embeddings by cluster",
        often=repeated(3),
        reply=lambda settings: noisy(sums=(settings.n_components, settings.embedding.dimension)),
        has_documents=False,
    )
    def noisy_cluster_sums(self, number: int, origin: Numbers, centres: Numbers) -> Reply:
        """Sum the points nearest to each centre, (n_clusters, n_dimensions)."""
        points, nearest = self._placed(
            "noisy_cluster_sums", (), origin=origin, centres=centres, number=number
        )
        points *= self._weights[:, None]
        sums, _ = sums_by_label(points, nearest, len(centres))
        return {"sums": self._noisy(f"clusters {number}", sums)}

    @published(
        "For each word and cluster, how often the word is among the nearest words of the cluster's "
        f"documents, as a sum in which {WHOSE} a vector of length 1, {NOISE}.",
        "words by cluster",
        often=ONCE,
        reply=lambda settings, columns: noisy(counts=(len(columns), settings.n_components)),
        largest=lambda s, n_words: {"columns": unknown(n_words)},
        has_documents=False,
    )
    def noisy_cluster_words(
        self, origin: Numbers, centres: Numbers, columns: NDArray[np.int64]
    ) -> Reply:
        """Sum the nearest words of documents by cluster, (n_words, n_clusters)."""
        _, nearest = self._placed("noisy_cluster_words", columns, origin=origin, centres=centres)
        sums, _ = sums_by_label(self._nearest[:, columns], nearest, len(centres))
        return {"counts": self._noisy("histogram", sums.T)}

    @property
    def embeddings(self) -> NDArray[np.float32]:
        return cast("NDArray[np.float32]", self.corpus.embeddings)  # see `Study.embedded`

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        return _vectors_of(tuple(self._words), self.settings.embedding, self.site.embedding_model)

    @cached_property
    def _nearest(self) -> sparse.csr_array:
        return contributions.weighted_rows(
            contributions.nearest_words(
                self.bag, self.embeddings, self._vectors, self._plan.privacy.nearest_words
            ),
            self._weights,
        )

    def _placed(
        self,
        function: str,
        columns: Any,
        origin: Numbers,
        centres: Numbers,
        number: int = 1,
    ) -> tuple[contributions.Vectors, NDArray[np.int64]]:
        """Check a request; return embeddings minus the origin, and the nearest centre of each."""
        n = self.embeddings.shape[1]
        self._check_request(
            function,
            columns,
            (origin, (n,)),
            (centres, (self.settings.n_components, n)),
            number=number,
        )
        return contributions.placed(self.embeddings, origin, centres)


@lru_cache(maxsize=1)  # public, and the same for all clients of a process
def _vectors_of(
    words: tuple[str, ...], embedding: EmbeddingSettings, model: str | None
) -> NDArray[np.float32]:
    # Not in the documents' cache, where a document of one word can have slightly other numbers.
    folder = cache_folder()
    return document_embeddings(
        Corpus.of(list(words)), embedding, embedding_model=model, cache=folder and folder / "words"
    )


def key_words(plan: PrivatePlan, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the words that occur, and the directions in which embeddings spread."""
    reply = agreement.ask(NoisyKMeansClient.noisy_key_words)
    columns = plan.known_words(reply["words"])
    products = contributions.unpacked(reply["products"], plan.settings.embedding.dimension)
    number = max(float(np.trace(products)), 1.0)
    origin = reply["mean"] / number
    return {
        "kept": columns,
        "frequency": reply["words"][columns],
        "origin": origin,
        "directions": estimates.find_directions(
            origin, products, number, plan.budget.sigma("products")
        ),
    }


def word_vectors(plan: PrivatePlan, agreement: Agreement, state: Arrays) -> Arrays:
    """Place public words among the embeddings, by their public vectors, and cluster them."""
    frequency = state["frequency"]
    reply = agreement.ask(NoisyKMeansClient.word_vectors, columns=state["kept"])
    vectors = reply["vectors"].astype(np.float64) / reply["clients"]
    centred = unit_rows(vectors - np.average(vectors, axis=0, weights=frequency))
    return {
        "vectors": centred,
        "centres": estimates.first_centres(
            centred @ state["directions"],
            frequency,
            plan.settings.n_components,
            plan.seed,
        ),
    }


def cluster_sums(plan: PrivatePlan, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the new centres from sums of embeddings: a round of spherical k-means."""
    n_topics = plan.settings.n_components
    clusters = clusters_of(state)
    sums = agreement.ask(
        NoisyKMeansClient.noisy_cluster_sums,
        number=plan.number,
        origin=clusters["origin"],
        centres=clusters["centres"],
    )["sums"]
    centres, alive = estimates.move(
        state["centres"],
        sums,
        state["directions"],
        plan.budget.sigma(f"clusters {plan.number}"),
    )
    dead = int(np.count_nonzero(~alive))
    if dead > DEAD_SHARE * n_topics:
        raise plan.refusal(
            f"{dead} of {n_topics} clusters have too few documents to be distinct from noise"
        )
    return {"centres": centres, "sums": sums}


def words_of_clusters(plan: PrivatePlan, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the words of the clusters."""
    summed = agreement.ask(
        NoisyKMeansClient.noisy_cluster_words, columns=state["kept"], **clusters_of(state)
    )["counts"]
    sigma = plan.budget.sigma("histogram")
    chance = estimates.expected_by_chance(
        summed, sigma, state["frequency"], plan.budget.sigma("words")
    )
    expected = estimates.by_closeness(summed, chance, state["vectors"] @ unit_rows(state["sums"]).T)
    counts = estimates.shrunk(summed, expected, sigma)
    others = OTHERS_SHARE / plan.settings.n_components * counts.sum(1, keepdims=True)
    return {
        "frequency": chance.sum(1),
        "counts": counts,
        "topics": estimates.smoothed_topics(counts + others, LEAST_WORD_COUNT),
    }


def clusters_of(state: Arrays) -> dict[str, Numbers]:
    """Return the origin, and centres of length 1, which determine the cluster of an embedding."""
    return {"origin": state["origin"], "centres": state["centres"] @ state["directions"].T}


def why_unsupported(settings: KMeansSettings) -> str:
    """Return why these settings have no sums with noise; see `Recipe`."""
    return first_problem(
        {
            "the clients' own centres, which k-FED merges, depend on all documents: set "
            'algorithm = "lloyd"': settings.algorithm == "k-fed",
            "centres of words would be only noise: leave out representation": (
                settings.representation != "embedding"
            ),
        }
    )


def kmeans_inferred(settings: KMeansSettings, state: Arrays, counts: Numbers) -> Reply:
    """Return the inference for new documents; see `Recipe`."""
    inference = Centres(counts.shape[1], settings.shape(ClusterShape))
    return {"inference": inference, "weights": inference.with_words(clusters_of(state), counts)}


RECIPE = Recipe(
    NoisyKMeansClient,
    first=(key_words, word_vectors),
    repeated=cluster_sums,
    last=(words_of_clusters,),
    inferred=kmeans_inferred,
    once={"words": 0.15, "mean": 0.02, "products": 0.08, "histogram": 0.55},
    shares={"clusters": 0.2},
    defaults={"coherence": "nothing", "max_rounds": 5},
    why_unsupported=why_unsupported,
)
