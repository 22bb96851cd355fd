"""Pairs of topics that a person labels as the same topic, or as different ones.

F-LDA merges topics of different clients whose cosine reaches a threshold. Here pairs of topics that
clients sent are drawn from a run and stored with their labels in a CSV file, from which `threshold`
estimates that number. All of it happens at the server, which has the topics anyway.

References
----------
The F-LDA paper (federated topic modelling with guided LDA), before Algorithm 1, and figure 6. The
paper labels a random sample, almost all of whose pairs are unlike; ours has all degrees of
similarity, which does not bias a regression of labels given the cosine.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError, RunError
from fedtopics.files import open_file, read_text, write_durably
from fedtopics.harmless import for_csv
from fedtopics.metrics import cosines
from fedtopics.metrics.similarity import Topic

COLUMNS = ["first", "second", "cosine", "same"]
LABELS = {
    "": None,
    **dict.fromkeys(("1", "y", "yes", "true"), True),
    **dict.fromkeys(("0", "n", "no", "false"), False),
}
BINS = 10  # degrees of similarity that a sample has equally many pairs of


@dataclass(frozen=True)
class TopicPair:
    """Two topics of different clients (their words, separated by spaces), and a person's label.

    `same` is None as long as there is no label.
    """

    first: str
    second: str
    cosine: float
    same: bool | None = None


def read_topics(run: str | Path) -> list[dict[str, list[Topic]]]:
    """Read the topics that clients sent from the folder of a run of F-LDA, a mapping a round.

    Raise RunError if it is not such a run, or a file is damaged.
    """
    files = sorted(Path(run).glob("topics-*.json"))
    if not files:
        raise RunError(
            f"There is no topics-*.json in {run}, so it is not the folder of a run of F-LDA whose "
            "clients have sent topics; name one that is."
        )
    return [_read_round(path) for path in files]


def _read_round(path: Path) -> dict[str, list[Topic]]:
    try:
        sent = json.loads(read_text(path))
        return {
            name: [
                {str(word): float(weight) for word, weight in topic.items()}
                for topic in reply["topics"]
                if topic
            ]
            for name, reply in sent.items()
        }
    except (ValueError, LookupError, TypeError, AttributeError):
        raise RunError(f"{path} is damaged; copy the folder of the run again.") from None


def sample_pairs(
    rounds: Sequence[Mapping[str, Sequence[Topic]]],
    n_pairs: int = 60,
    seed: int = 0,
    n_words: int = 10,
) -> list[TopicPair]:
    """Draw pairs of topics of different clients and the same round, of all degrees of similarity.

    At most `n_pairs`, in random order, without labels. A person sees the first `n_words` of a
    topic; the cosine is that of all its words. Raise RunError if there is no such pair.
    """
    blocks = [
        (sent[one], sent[other], cosines(sent[one], sent[other]))
        for sent in rounds
        for one, other in combinations(sorted(sent), 2)
    ]
    alike = np.concatenate([np.zeros(0), *(block.ravel() for *_, block in blocks)])
    if not len(alike):
        raise RunError(
            "In no round two clients have sent topics, and a pair is of two; take the run of a "
            "study with more clients, or with more documents."
        )
    starts = np.cumsum([0, *(block.size for *_, block in blocks)])
    pairs = []
    for number in sample_evenly(alike, n_pairs, seed).tolist():
        at = int(np.searchsorted(starts, number, side="right")) - 1
        rows, columns, block = blocks[at]
        row, column = divmod(number - int(starts[at]), block.shape[1])
        first, second = (" ".join([*topic][:n_words]) for topic in (rows[row], columns[column]))
        pairs.append(TopicPair(first, second, round(float(alike[number]), 6)))
    return pairs


def sample_evenly(values: NDArray[np.float64], n: int, seed: int) -> NDArray[np.int64]:
    """Draw equally many from each tenth of the range of values, as far as there are; return places.

    Examples
    --------
    >>> values = np.array([0.0] * 1000 + [0.5] * 2 + [1.0] * 1000)
    >>> sorted(values[sample_evenly(values, 8, seed=0)].tolist())
    [0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1.0]
    """
    rng = np.random.default_rng(seed)
    low, high = values.min(), values.max()
    width = max(high - low, 1e-300)  # all may be the same
    bins = np.minimum((values - low) / width * BINS, BINS - 1).astype(np.int64)
    order, turn = rng.permutation(len(values)), np.empty(len(values), np.int64)
    for number in range(BINS):
        members = order[bins[order] == number]
        turn[members] = np.arange(len(members))
    chosen = np.lexsort((-bins, turn))[:n]  # one of each bin in turn, the most alike first
    return rng.permutation(chosen)


def read_pairs(path: str | Path) -> list[TopicPair]:
    """Read a CSV file of pairs; labels are 1 and 0, or yes, no, true, false or a first letter.

    Raise DataError if it does not exist, or is not such a file.
    """
    path = Path(path)
    try:
        with open_file(path, "r", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
    except FileNotFoundError:
        raise DataError(
            f"There is no file {path}; make it with: fedtopics flda sample-pairs RUN -o {path}"
        ) from None
    except (UnicodeDecodeError, csv.Error):
        header, rows = [], []
    if header != COLUMNS or not rows:
        raise DataError(
            f"{path} is not a table of pairs, CSV in UTF-8 with the columns {', '.join(COLUMNS)}; "
            "make one with: fedtopics flda sample-pairs"
        )
    return [_read_pair(row, f"Line {line} of {path}") for line, row in rows]


def _read_pair(row: Sequence[str], where: str) -> TopicPair:
    try:
        first, second, number, label = row
        cosine = float(number)
        if not 0 <= cosine <= 1:  # NaN neither
            raise ValueError
    except ValueError:
        raise DataError(
            f"{where} is not a pair with a cosine from 0 to 1; correct or delete it."
        ) from None
    if label.strip().lower() not in LABELS:
        raise DataError(
            f"{where} has the label {label!r}; write 1 for the same, 0 for not, or nothing."
        )
    return TopicPair(first, second, cosine, LABELS[label.strip().lower()])


def write_pairs(path: str | Path, pairs: Sequence[TopicPair]) -> None:
    """Write a CSV file of pairs, over an older one; see `check_free`."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    for pair in pairs:
        label = "" if pair.same is None else int(pair.same)
        topics = for_csv(pair.first), for_csv(pair.second)
        writer.writerow([*topics, f"{pair.cosine:.6f}", label])
    write_durably(Path(path), table.getvalue().encode())


def check_free(path: str | Path) -> None:
    """Raise DataError if there is a file that has labels, or that is not one of pairs."""
    path = Path(path)
    if not path.exists():
        return
    try:
        labels = sum(pair.same is not None for pair in read_pairs(path))
    except (DataError, OSError):
        raise DataError(
            f"There is something else in {path} already; name a file that does not exist."
        ) from None
    if labels:
        raise DataError(
            f"{path} has {labels} labels already; go on with: fedtopics flda label {path}, or name "
            "another file."
        )
