"""Labels that rules suggest, of a topic's own words and phrases; people decide.

A suggestion is marked wherever it is shown, until somebody confirms or changes it, and never takes
the place of a label that somebody gave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from fedtopics.model.finding import Finder
from fedtopics.model.search import is_form
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import tokens
from fedtopics.text.words import WITHIN, normal

WORDS, PARTS = 10, 3  # of a topic that are looked at; of a label
LONGEST_LABEL = 100  # characters
PHRASES, LONGEST_PHRASE = 2, 3  # of a label; words
LEAST = 5  # documents of a topic that have a phrase, as of a word in the usual policy
OWN = 0.5  # share of a phrase's documents that have to be the topic's
CLOSE = 0.7  # share of the documents with a phrase's words that have to have it as a phrase
Phrase = tuple[str, ...]


def suggest_labels(
    model: Finder, documents: Any = None, *, min_documents: int = LEAST
) -> dict[int, str]:
    """Return a label for each topic that people have given none, by rules.

    It is three of the topic's first words, none a form of another, n-grams before single words.
    With documents of one's own it begins with a phrase of theirs.

    Leaves the client
        Nothing. A phrase of one's own documents may say more than words that were agreed on: look
        at it before a model that has it is shared.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes, optional
        Of which phrases of two or three agreed words are taken, one of them among the topic's
        first.
    min_documents : int
        A phrase is in so many of the topic's documents at least, and in no more of others.

    Returns
    -------
    dict
        Label by topic.
    """
    words = model.topics(WORDS)
    phrases = (
        [[] for _ in words] if documents is None else _phrases(model, documents, min_documents)
    )
    return {
        topic: _label([*phrases[topic], *sorted(own, key=lambda word: " " not in word)])
        for topic, own in enumerate(words)
        if topic not in model.labels or topic in model.suggested
    }


def shown_label(row: Mapping[str, Any]) -> str:
    """Return the label of a row of `get_topic_info`, marked where it is a suggestion."""
    label = str(row["label"])
    return f"{label} (suggested)" if row.get("suggested") else label


def _label(parts: Iterable[str]) -> str:
    """Put the first parts together that are no form, and no part, of each other."""
    kept: list[str] = []
    for part in parts:
        used = [word for each in kept for word in each.split()]
        new = not any(is_form(word, other) for word in part.split() for other in used)
        if new and len(", ".join([*kept, part])) <= LONGEST_LABEL - 2:  # upper case may be longer
            kept.append(part)
        if len(kept) == PARTS:
            break
    text = ", ".join(kept)
    return text[:1].upper() + text[1:]


def _phrases(model: Finder, documents: Any, least: int) -> list[list[str]]:
    """Return phrases of each topic's documents, the most frequent first."""
    corpus = Corpus.of(documents)
    main = model.main_topics(corpus)
    known, first = model.vocabulary.index.keys(), [{*topic} for topic in model.topics(WORDS)]
    every, own = Counter[Phrase](), [Counter[Phrase]() for _ in first]
    for topic, segments in zip(main.tolist(), _segments(corpus, model.text), strict=True):
        found = {phrase for words in segments for phrase in _of_segment(words, known)}
        every.update(found)
        if topic >= 0:
            own[topic].update(phrase for phrase in found if not first[topic].isdisjoint(phrase))
    bag = (model.count(corpus) > 0).tocsc()

    def is_one(phrase: Phrase) -> bool:
        """Whether documents with these words mostly have them as this phrase."""
        columns = [model.vocabulary.index[word] for word in phrase]
        together = np.ones(len(corpus), bool)
        for column in columns:
            together &= np.bincount(bag[:, [column]].nonzero()[0], minlength=len(corpus)) > 0
        return bool(every[phrase] >= CLOSE * together.sum())

    def fits(phrase: Phrase, number: int) -> bool:
        return number >= max(least, OWN * every[phrase]) and is_one(phrase)

    best = ([p for p in _ranked(counts) if fits(p, counts[p])][:PHRASES] for counts in own)
    return [
        [" ".join(phrase) for phrase in phrases if 2 * counts[phrase] >= counts[phrases[0]]]
        for phrases, counts in zip(best, own, strict=True)
    ]


def _segments(corpus: Corpus, rules: TextRules) -> Iterator[list[list[str]]]:
    """Yield each document as lists of words that follow each other: texts end at punctuation."""
    changes: dict[str, Any] = {"stop_words": "none", "own_stop_words": (), "ngrams": (1, 1)}
    changes["languages"] = rules.languages or (rules.stop_words,)  # of texts, stop words or not
    as_written = rules.model_copy(update=changes)
    if corpus.is_tokenised:
        yield from ([words] for batch in tokens(corpus, as_written) for words in batch)
        return
    import regex  # to which marks are parts of words; here, as in `compile_pattern`

    punctuation = regex.compile(rf"[^\w\s{WITHIN}]+|\n+")
    for batch in corpus.texts():
        parts = [punctuation.split(normal(text)) for text in batch]
        flat = Corpus.of([part for each in parts for part in each])
        words = iter([each for some in tokens(flat, as_written) for each in some])
        yield from ([*islice(words, len(each))] for each in parts)


def _of_segment(words: Sequence[str], known: Collection[str]) -> Iterator[Phrase]:
    """Yield the phrases of different words that are known, each once or oftener."""
    for start in range(len(words)):
        for length in range(2, LONGEST_PHRASE + 1):
            phrase = tuple(words[start : start + length])
            if len({*phrase}) == length and all(word in known for word in phrase):
                yield phrase


def _ranked(counts: Counter[Phrase]) -> list[Phrase]:
    """Return phrases by their count; three words before two that have 1.4 times as many."""
    weight = {phrase: count * 2 ** (len(phrase) / 2) for phrase, count in counts.items()}
    return sorted(counts, key=lambda phrase: (-weight[phrase], phrase))
