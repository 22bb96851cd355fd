"""Passages that documents of many persons repeat, such as notices: they become topics."""

import re
from collections import Counter

from fedtopics.text.corpus import Corpus

FEWEST = 10  # persons with a passage
LEAST_SHARE = 0.01  # of all persons
SHORTEST = 4  # words
LONGEST = 160  # characters that are shown
SHOWN = 5  # passages
ENDS = re.compile(r"(?<=[.!?])\s+|\s*\n+\s*|\s[|•·]\s")  # of sentences, lines and parts of menus


def repeated_passages(corpus: Corpus) -> list[tuple[str, int]]:
    """Return the passages that most persons repeat, with their numbers of persons.

    Leaves the client
        Nothing: passages are document text.
    """
    texts = (text for batch in corpus.texts() for text in batch)
    of_persons = {
        (" ".join(passage.split())[:LONGEST], person)
        for text, person in zip(texts, corpus.person_numbers.tolist(), strict=True)
        for passage in ENDS.split(text)
    }
    persons = Counter(passage for passage, _ in of_persons if passage.count(" ") >= SHORTEST - 1)
    least = max(FEWEST, LEAST_SHARE * corpus.n_persons())
    often = [(passage, n) for passage, n in persons.items() if n >= least]
    return sorted(often, key=lambda pair: (-pair[1], pair[0]))[:SHOWN]
