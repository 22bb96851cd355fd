"""Pairs of agreed words whose documents differ by few: the difference of two sums is over these.

python -m experiments.disclosure.alike_words 20ng.parquet
"""

import sys
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
from scipy import sparse

from fedtopics import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import VocabularyLimits, count_words

CLIENTS = 3


def print_pairs(path: str, n_documents: int) -> None:
    """Count the pairs of words of so many documents, dealt to three clients."""
    texts = pq.read_table(path, columns=["tokens"])["tokens"].to_pylist()
    drawn = np.random.default_rng(0).permutation(len(texts))[:n_documents]
    counted = [
        count_words(Corpus.of([texts[row] for row in drawn[place::CLIENTS]]), TextRules())
        for place in range(CLIENTS)
    ]
    proposed = [set(words.named(5)[0]) for words in counted]
    clients = Counter(word for words in proposed for word in words)
    least = VocabularyLimits().min_clients_per_word
    index = {
        word: column for column, word in enumerate(w for w, n in clients.items() if n >= least)
    }
    bags = [
        words.columns(index) @ sparse.diags_array([word in of_client for word in index], dtype=int)
        for words, of_client in zip(counted, proposed, strict=True)
    ]
    has = (sparse.vstack(bags).tocsc() > 0).astype(int)
    both = (has.T @ has).toarray()
    frequency = both.diagonal()
    differ = (frequency[:, None] + frequency - 2 * both)[np.triu_indices(len(index), 1)]
    few = [int((differ == 1).sum()), int(((differ > 1) & (differ < 10)).sum())]
    print(f"{n_documents:,} documents, {len(index):,} words: pairs that differ by 1, 2 to 9: {few}")


if __name__ == "__main__":
    for n in (1800, 9000):
        print_pairs(sys.argv[1], n)
