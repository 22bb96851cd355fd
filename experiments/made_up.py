"""Made-up files for quick runs: what an experiment reads, with the columns that it asks for."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedtopics.datasets import synthetic_lda

CLIENTS = 3
SHARED = 2
LETTERS = np.array(list("abcdefghijklmnopqrst"))


def write(folder: Path, names: tuple[str, ...], documents: int) -> Path:
    """Write files of these names, each of so many documents; return their folder.

    They have text, its tokens, a label (the document's main topic) and a node (its client).
    """
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(names):
        drawn = synthetic_lda(
            CLIENTS,
            n_words=300,
            n_topics=2 * CLIENTS + SHARED,
            shared_topics=SHARED,
            eta=0.05,
            n_documents=documents // CLIENTS,
            n_validation=1,
            lengths=(15, 30),
            seed=seed,
        )
        words = np.array([_word(number) for number in range(len(drawn.words))])
        tokens = []
        labels = []
        nodes = []
        for node, client in drawn.training.items():
            for counts, theta in zip(client.counts, client.theta, strict=True):
                tokens.append(np.repeat(words[counts.indices], counts.data).tolist())
                labels.append(int(theta.argmax()))
                nodes.append(node)
        texts = [" ".join(document) for document in tokens]
        content = {"text": texts, "question": texts, "tokens": tokens, "label": labels}
        content["node"] = nodes
        pq.write_table(pa.table(content), folder / f"{name}.parquet")
    return folder


def _word(number: int) -> str:
    """Spell a number with four letters."""
    return "".join(LETTERS[number // 20 ** np.arange(4) % 20])
