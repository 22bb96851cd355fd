"""Merge models that were trained separately; no documents are needed.

References
----------
Algorithm 1 of the paper of F-LDA, as in `topic_lists.group_topics`, finds which topics are the
same. Merging down to a number of topics is as in `merging.hierarchy`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError, refuse
from fedtopics.escaping import check_client_name
from fedtopics.inference.lda import LDAPrior, VariationalLDA
from fedtopics.methods.core.plan import fingerprint_of
from fedtopics.methods.flda.topic_lists import group_topics
from fedtopics.metrics import usual_threshold
from fedtopics.model.comparison import word_weights
from fedtopics.model.folder import model_folder
from fedtopics.model.merging import manual_labels
from fedtopics.model.shown_words import WordRanking
from fedtopics.model.topic_model import TopicModel
from fedtopics.model.topics import MergedModel
from fedtopics.text.vocabulary import Vocabulary

STEPS = 20  # cosines that are tried for a number of topics


def merge_models(
    models: Sequence[TopicModel], n_topics: int | None = None, threshold: float | None = None
) -> TopicModel:
    """Combine the topics of several models; similar topics of different models become one topic.

    The merged model has the words of all models, with summed counts; a word that a model lacks
    counts as zero in it. In new documents, it finds topics by LDA's posterior from words, for
    models of any method. A client keeps the shares that its own model found, and has zero shares of
    other topics. Labels from people are kept, as in `merge_topics`; suggested labels are not.

    Parameters
    ----------
    models : sequence of TopicModel
        At least two, of any methods, with the same text settings and different clients.
    n_topics : int, optional
        Then merge the nearest topics, even two topics of one model, until this many remain.
    threshold : float in (0, 1], optional
        Without `n_topics`: the least cosine of topics that are the same. By default it is F-LDA's,
        which one in a hundred pairs of topics of one model reaches.

    Raises
    ------
    StudyError
        If there are fewer than two models, two models have a client of the same name, text settings
        differ, `n_topics` is impossible, or the threshold is not a cosine.
    """
    cosine = 1.0 if threshold is None else threshold
    refuse(
        {
            "One model cannot be merged; name two or more.": len(models) < 2,
            f"threshold={cosine:g} is not valid; it must be above 0 and at most 1.": (
                not 0 < cosine <= 1
            ),
        },
        error=StudyError,
    )
    _check(models)
    joined = _side_by_side(models)
    names = [f"{number:06d}" for number in range(len(models))]  # sorted like the models
    local = {name: word_weights(model) for name, model in zip(names, models, strict=True)}
    least_cosine = usual_threshold(local) if threshold is None else threshold
    first = dict(zip(names, _firsts(models), strict=True))
    # With a number, topics of different models are joined first, the most similar ones if few are.
    for least in (least_cosine,) if n_topics is None else np.linspace(least_cosine, 1, STEPS):
        groups = group_topics(local, least, "average")
        if joined.n_topics - sum(len(group) - 1 for group in groups) >= (n_topics or 1):
            break
    merged = joined.merge_topics([[first[name] + k for name, k in group] for group in groups])
    return merged if n_topics is None else merged.reduce_topics(n_topics)


def _check(models: Sequence[TopicModel]) -> None:
    clients = [*chain.from_iterable(model.documents for model in models)]
    if twice := [name for name in clients if clients.count(name) > 1]:
        raise StudyError(
            f"Two models have a client {twice[0]!r}; name each model's client, as in north=MODEL, "
            "and give no model twice."
        )
    first, *others = (model.text.model_dump() for model in models)
    for number, rules in enumerate(others, 2):
        if different := [key for key in rules if rules[key] != first[key]]:
            raise StudyError(
                f"Model {number} and the first one have different text settings: "
                f"{', '.join(different)} of [text]; train both with the same settings."
            )


def _side_by_side(models: Sequence[TopicModel]) -> TopicModel:
    vocabulary = _all_words(model.vocabulary for model in models)
    sums = np.zeros((sum(model.n_topics for model in models), len(vocabulary)))
    shares: dict[str, NDArray[np.float64]] = {}
    for model, first in zip(models, _firsts(models), strict=True):
        rows = slice(first, first + model.n_topics)
        sums[rows, [vocabulary.index[word] for word in model.vocabulary.words]] = model.word_sums
        shares |= {
            name: np.pad(share, (first, len(sums) - rows.stop))
            for name, share in model.shares.items()
        }
    prior = LDAPrior(n_components=len(sums))
    return TopicModel(
        inference=VariationalLDA(len(vocabulary), prior),
        weights={"pseudo_counts": np.ascontiguousarray(sums.T + prior.topic_prior)},
        shared={},
        vocabulary=vocabulary,
        text=models[0].text,
        shares=shares,
        documents={name: n for model in models for name, n in model.documents.items()},
        client_names={key: name for model in models for key, name in model.client_names.items()},
        word_sums=sums,
        word_ranking=WordRanking(0.4),
        labels={
            first + topic: label
            for model, first in zip(models, _firsts(models), strict=True)
            for topic, label in manual_labels(model).items()
        },
        info={"method": "merged", "merged": [_described(model) for model in models]},
    )


def _firsts(models: Sequence[TopicModel]) -> list[int]:
    return [0, *np.cumsum([model.n_topics for model in models]).tolist()][: len(models)]


def _all_words(vocabularies: Iterable[Vocabulary]) -> Vocabulary:
    counts: dict[str, NDArray[np.int64]] = {}
    for vocabulary in vocabularies:
        pairs = np.stack([vocabulary.document_frequency, vocabulary.occurrences], axis=1)
        for word, pair in zip(vocabulary.words, pairs, strict=True):
            counts[word] = counts.get(word, 0) + pair
    words = sorted(counts, key=lambda word: (-counts[word][1], word))
    frequency, occurrences = np.array([counts[word] for word in words]).T
    return Vocabulary(tuple(words), frequency.copy(), occurrences.copy())


def _described(model: TopicModel) -> MergedModel:
    return {
        "model": fingerprint_of(model),
        "method": model.info.get("method", "an unknown method"),
        "topics": model.n_topics,
        "clients": [*model.documents],
    }


def read_models(places: Iterable[str]) -> list[TopicModel]:
    """Read models from folders, each given as FOLDER, or as NAME=FOLDER to name its client."""
    return [_read_model(place) for place in places]


def _read_model(place: str) -> TopicModel:
    name, equals, folder = place.partition("=")
    if not equals or Path(place).exists():
        return TopicModel.from_pretrained(model_folder(place))
    check_client_name(name)
    model = TopicModel.from_pretrained(model_folder(folder))
    if len(model.documents) != 1:
        raise StudyError(
            f"The model given as {name}= has {len(model.documents)} clients, which have names of "
            "their own; leave the name out."
        )
    (share,), (documents,) = model.shares.values(), model.documents.values()
    return replace(model, shares={name: share}, documents={name: documents}, client_names={})
