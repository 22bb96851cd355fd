"""Passages that many documents repeat are named, the most frequent first."""

from fedtopics import Corpus
from fedtopics.text.repeated import repeated_passages

NOTICE = "Do you have information to share?"


def test_passages_of_many_documents() -> None:
    texts = [f"The ship number {n} has come in. {NOTICE}" for n in range(12)]
    texts += [f"{NOTICE}\nSubscribe to our  letter now | Read more", f"{NOTICE} {NOTICE}"] * 10
    texts += ["Subscribe to our letter now\n", "Read more"] * 3
    assert repeated_passages(Corpus.of(texts)) == [
        (NOTICE, 32),
        ("Subscribe to our letter now", 13),
    ]
    assert repeated_passages(Corpus.of(texts[:9])) == []
    many = texts + [f"a ship of {n} masts came" for n in range(3000)]
    assert repeated_passages(Corpus.of(many)) == [(NOTICE, 32)]
