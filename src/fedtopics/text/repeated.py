"""Passages that many documents repeat, such as notices of copyright: they become topics."""

import re
from collections import Counter

from fedtopics.text.corpus import Corpus

FEWEST = 10  # documents with a passage
LEAST_SHARE = 0.01  # of all documents
SHORTEST = 4  # words
SHOWN = 5  # passages
ENDS = re.compile(r"(?<=[.!?])\s+|\s*\n+\s*|\s[|•·]\s")  # of sentences, lines and parts of menus


def repeated_passages(corpus: Corpus) -> list[tuple[str, int]]:
    """Return the passages that most documents repeat, with their numbers of documents.

    Leaves the client
        Nothing: passages are document text.
    """
    documents = Counter[str]()
    for batch in corpus.texts():
        for text in batch:
            documents.update({" ".join(passage.split()) for passage in ENDS.split(text)})
    least = max(FEWEST, LEAST_SHARE * len(corpus))
    often = ((passage, n) for passage, n in documents.most_common() if n >= least)
    return [(passage, n) for passage, n in often if passage.count(" ") >= SHORTEST - 1][:SHOWN]
