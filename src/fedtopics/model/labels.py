"""Labels that rules suggest from a topic's words and phrases, and checks of people's labels."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.errors import ModelError, StudyError, check_keys, is_number, nearest_names
from fedtopics.escaping import check_different, is_flooded, is_seen
from fedtopics.files import read_text
from fedtopics.model.finding import TopicFinder
from fedtopics.model.search import is_form
from fedtopics.model.shown_words import LABEL_WORDS
from fedtopics.text.corpus import Corpus
from fedtopics.text.languages import is_unspaced
from fedtopics.text.rules import TextRules, cleaner
from fedtopics.text.vocabulary import tokens
from fedtopics.text.words import WITHIN, composed

LABEL_PARTS = 3  # parts of a label
LONGEST_LABEL = 100  # characters
PHRASES = 2  # phrases per label
LONGEST_PHRASE = 3  # words per phrase
PHRASE_DOCUMENTS = 5  # least documents of a topic with a phrase, as for words in default policies
OWN = 0.5  # least share of a phrase's documents that belong to the topic
CLOSE = 0.7  # least share of the documents with a phrase's words that have it as a phrase
Phrase = tuple[str, ...]


def suggest_labels(
    model: TopicFinder, documents: Any = None, *, min_documents: int = PHRASE_DOCUMENTS
) -> dict[int, str]:
    """Return a rule-based label for each topic that has no label from a person.

    A label is three of the topic's first words, n-grams first, without two forms of one word. With
    documents it begins with a phrase from them.

    Leaves the client
        Nothing. A phrase from your documents may reveal more than the agreed words: check it before
        you share a model with such labels.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes, optional
        Source of phrases of two or three agreed words, at least one among the topic's first.
    min_documents : int
        A phrase must be in at least this many of the topic's documents, and not in more others.

    Returns
    -------
    dict
        Label by topic.
    """
    words = model.topics(LABEL_WORDS)
    phrases = (
        [[] for _ in words] if documents is None else _phrases(model, documents, min_documents)
    )
    return {
        topic: _label([*phrases[topic], *sorted(first, key=lambda word: " " not in word)])
        for topic, first in enumerate(words)
        if topic not in model.labels or topic in model.unconfirmed
    }


def shown_label(row: Mapping[str, Any]) -> str:
    """Return the label of a row of `get_topic_info`, with a mark if it is a suggestion."""
    label = str(row["label"])
    return f"{label} (suggested)" if row.get("suggested") else label


def _label(parts: Iterable[str]) -> str:
    """Join the first parts that share no word form with each other."""
    chosen: list[str] = []
    for part in parts:
        used = " ".join(chosen).split()
        new = not any(is_form(word, other) for word in part.split() for other in used)
        if new and len(", ".join([*chosen, part])) <= LONGEST_LABEL - 2:  # upper case may be longer
            chosen.append(part)
        if len(chosen) == LABEL_PARTS:
            break
    text = ", ".join(chosen)
    return text[:1].upper() + text[1:]


def _phrases(model: TopicFinder, documents: Any, least: int) -> list[list[str]]:
    """Return phrases of each topic's documents, the most frequent first."""
    corpus = Corpus.of(documents)
    counts, theta, seen = model.read(corpus)
    main = np.where(seen, theta.argmax(1), -1)
    column = model.vocabulary.index
    first = [{*topic} for topic in model.topics(LABEL_WORDS)]
    in_all = Counter[Phrase]()
    in_topic = [Counter[Phrase]() for _ in first]
    for topic, segments in zip(main.tolist(), _segments(corpus, model.text), strict=True):
        present = {phrase for words in segments for phrase in _of_segment(words, column.keys())}
        in_all.update(present)
        if topic >= 0:
            in_topic[topic].update(p for p in present if not first[topic].isdisjoint(p))
    contains = (counts > 0).tocsc()

    def fits(phrase: Phrase, count: int) -> bool:
        """Whether it is frequent, and documents with its words mostly contain them as a phrase."""
        if count < max(least, OWN * in_all[phrase]):
            return False
        of_words = contains[:, [column[word] for word in phrase]].tocsr()
        together = np.diff(of_words.indptr) == len(phrase)
        return bool(in_all[phrase] >= CLOSE * together.sum())

    best = ([p for p in _ranked(counts) if fits(p, counts[p])][:PHRASES] for counts in in_topic)
    return [
        [" ".join(phrase) for phrase in phrases if 2 * counts[phrase] >= counts[phrases[0]]]
        for phrases, counts in zip(best, in_topic, strict=True)
    ]


def _segments(corpus: Corpus, rules: TextRules) -> Iterator[list[list[str]]]:
    """Yield each document as lists of consecutive words, split at punctuation."""
    as_written = rules.model_copy(
        update={
            "stop_words": "none",
            "own_stop_words": (),
            "ngrams": (1, 1),
            "languages": rules.languages or (rules.stop_words,),  # needed to split texts
            "html": False,  # removed before, with addresses, which punctuation would cut
            "addresses": "keep",
        }
    )
    if corpus.is_tokenised:
        yield from ([words] for batch in tokens(corpus, as_written) for words in batch)
        return
    import regex  # which treats marks as parts of words; imported late as in `compile_pattern`

    punctuation = regex.compile(rf"[^\w\s{WITHIN}]+|\n+")
    clean = cleaner(rules.html, rules.addresses)
    spaced = not is_unspaced(as_written.languages)
    for batch in corpus.texts():
        parts = (map(str.strip, punctuation.split(clean(text))) for text in batch)
        # A single word is not a phrase.
        documents = [
            [p for p in of_text if p and not (spaced and p.isalnum())] for of_text in parts
        ]
        # One corpus of all segments, because tokenising many small ones is slow.
        flat = Corpus.of([segment for segments in documents for segment in segments])
        words_of_segments = iter([words for part in tokens(flat, as_written) for words in part])
        yield from ([*islice(words_of_segments, len(segments))] for segments in documents)


def _of_segment(words: Sequence[str], vocabulary: Collection[str]) -> Iterator[Phrase]:
    """Yield phrases of different words of the vocabulary; a phrase may come more than once."""
    runs = (tuple(run) for is_known, run in groupby(words, vocabulary.__contains__) if is_known)
    for run in runs:
        for length in range(2, min(LONGEST_PHRASE, len(run)) + 1):
            for start in range(len(run) - length + 1):
                phrase = run[start : start + length]
                if len({*phrase}) == length:
                    yield phrase


def _ranked(counts: Counter[Phrase]) -> list[Phrase]:
    """Return phrases by count; a third word outweighs a 1.4 times higher count."""
    return sorted(counts, key=lambda phrase: (-counts[phrase] * 2 ** (len(phrase) / 2), phrase))


def read_labels(path: Path, n_topics: int) -> tuple[dict[int, str], frozenset[int]]:
    """Return the labels in a ``topics.json``, and the topics whose label is only suggested."""
    try:
        rows = json.loads(read_text(path, "utf-8-sig"))  # editors may write a byte order mark
    except FileNotFoundError:
        return {}, frozenset()
    except json.JSONDecodeError as error:
        raise ModelError(
            f"{path} is not valid JSON at line {error.lineno}; correct it, or delete it, which "
            "removes only the labels of topics."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        refuse_closed(error, path)
        rows = None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ModelError(
            f"{path} is not a list of topics; correct it, or delete it, which removes only the "
            "labels of topics."
        )
    labels: dict[int, str] = {}
    suggested: set[int] = set()
    for place, row in enumerate(rows, 1):
        read = {"topic", "label"}
        if misspelt := [key for key in row.keys() - read if "?" in nearest_names(key, read)]:
            raise ModelError(
                f"Row {place} of {path} has a key {misspelt[0]!r:.40}; "
                f"{nearest_names(misspelt[0], read)}"
            )
        topic = row.get("topic")
        if not is_number(topic, 0, n_topics - 1):
            raise ModelError(
                f"Row {place} of {path} names no topic of the model; set its topic to a number "
                f"from 0 to {n_topics - 1}, or delete the row."
            )
        if topic in labels:
            raise ModelError(f"{path} has two rows for topic {topic}; delete one of them.")
        try:
            labels[topic] = _line(row.get("label", ""), f"label of topic {topic}")
        except StudyError as error:
            raise ModelError(f"{path} cannot be used: {error}") from None
        if labels[topic] and row.get("suggested") == labels[topic]:
            suggested.add(topic)
    return tidy(labels), frozenset(suggested)


def checked_labels(labels: Mapping[Any, Any] | Sequence[Any], n_topics: int) -> dict[int, str]:
    """Return valid labels by topic, of which a list has one for each; refuse invalid ones."""
    if not isinstance(labels, Mapping):
        if not isinstance(labels, Sequence) or isinstance(labels, str) or len(labels) != n_topics:
            raise StudyError(
                f"Give a list of {n_topics} labels, one for each topic, or a mapping of topic to "
                "label."
            )
        labels = dict(enumerate(labels))
    for topic in labels:
        if not is_number(topic, 0, n_topics - 1):
            raise StudyError(
                f"There is no topic {topic!r} to label; the model has topics 0 to {n_topics - 1}."
            )
    return {int(k): _line(label, f"label of topic {k}") for k, label in labels.items()}


def checked_names(names: Mapping[str, Any], clients: Collection[str]) -> dict[str, str]:
    """Return what people call a model's clients, without empty names; refuse invalid ones."""
    check_keys(names, clients, "client")
    named = {client: _line(name, f"name of client {client}") for client, name in names.items()}
    named = {client: name for client, name in named.items() if name not in ("", client)}
    check_different({client: named.get(client, client) for client in clients})
    return named


def _line(value: Any, what: str) -> str:
    """Return a short printable line; StudyError if the value is not one."""
    if not isinstance(value, str):
        raise StudyError(f'The {what} is not a text; put it in quotes, or give "" for none.')
    text = str(value).strip()
    if len(text) > LONGEST_LABEL:
        raise StudyError(
            f"The {what} has {len(text)} characters; shorten it to at most {LONGEST_LABEL}."
        )
    if unseen := [character for character in text if not is_seen(character)]:
        raise StudyError(
            f"The {what} contains a control character (U+{ord(unseen[0]):04X}); write it in one "
            "line, without tabs."
        )
    if is_flooded(text):
        raise StudyError(f"The {what} has accents without a letter or too many; remove them.")
    return composed(text)


def tidy(labels: Mapping[int, str]) -> dict[int, str]:
    """Return labels in order of topics, without empty ones."""
    return {topic: labels[topic] for topic in sorted(labels) if labels[topic]}


def refuse_closed(error: Exception, path: Path) -> None:
    """Report a file that cannot be opened as such: it need not be damaged."""
    if isinstance(error, OSError) and error.strerror and not isinstance(error, FileNotFoundError):
        raise ModelError(f"{error.filename or path} cannot be opened: {error.strerror}.") from None
