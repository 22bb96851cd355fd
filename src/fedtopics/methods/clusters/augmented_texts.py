"""Views of texts: the same texts without some of their words, for networks to learn from.

References
----------
Zhang et al., Supporting Clustering with Contrastive Learning (SCCL), NAACL 2021, omit words or let
a language model replace them; replacing words does not help if the encoder is frozen.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.events import Embedding
from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.methods.clusters.settings import NetworkTraining
from fedtopics.methods.core.plan import ClientContext
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings, require_texts


def text_views(corpus: Corpus, settings: NetworkTraining) -> list[list[str]]:
    """Return each view of all texts; raise DataError if documents have embeddings but no text."""
    if not settings.n_views:
        return []
    require_texts(corpus, "from which views are made")
    texts = list(chain.from_iterable(corpus.texts()))
    return [list(shorten(texts, settings.deletion, view)) for view in range(settings.n_views)]


def embedded_views(
    corpus: Corpus, settings: NetworkTraining, embedding: EmbeddingSettings, site: ClientContext
) -> list[NDArray[np.float32]]:
    """Embed each view of all texts, (n_documents, dimension); this takes minutes and may fail."""
    try:
        return [
            document_embeddings(
                Corpus.of(texts),
                embedding,
                embedding_model=site.embedding_model,
                on_progress=lambda done, of: site.notify(Embedding(done, of, site.name)),
            )
            for texts in text_views(corpus, settings)
        ]
    except FedTopicsError as error:
        raise StudyError(
            f"Client {site.name!r} cannot embed views of its texts: {error} Or set deletion = 0 in "
            "[method.network]."
        ) from None


def shorten(texts: Iterable[str], share: float, view: int) -> Iterator[str]:
    """Omit each word with a probability of `share`, but never all words of a text."""
    for text in texts:
        words = text.split()
        # The text seeds the draw, so a restarted client makes the same views.
        rng = np.random.default_rng(
            [view, int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])]
        )
        stays = rng.random(len(words)) >= share
        if words and not stays.any():
            stays[rng.integers(len(words))] = True
        yield " ".join(compress(words, stays))
