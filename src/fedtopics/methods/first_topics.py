"""First topics of methods that train by minibatches: all that a study can name, but for chance."""

from __future__ import annotations

from functools import partial

from fedtopics.inference.points import Numbers
from fedtopics.methods import anchors
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.nmf.factorisation import topics_before
from fedtopics.methods.settings import MinibatchSettings


def find_first_topics(agreement: Agreement, settings: MinibatchSettings, seed: int) -> Numbers:
    """Return p(word | topic) to begin with, (n_topics, n_words), by sums over all documents."""
    n_topics = settings.n_components
    if settings.initialisation == "nmf":
        return topics_before(agreement, n_topics, seed)
    sizes = n_topics, len(agreement.vocabulary), agreement.documents
    work = partial(anchors.first_topics, agreement.sum, *sizes)
    return agreement.round(0, work)[0]
