"""What a server that sends what it likes learns from an unmodified client.

Each function plays one lie against a client's door, which is where the calls of all engines arrive,
and says what came of it. This runs against the version before participants ran the program
themselves, commit b30fe94: after it, there is no such call.

    python benchmarks/attacks/lying.py
"""

from __future__ import annotations

import multiprocessing
import re
import string
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from solving import report
from tapped import asks, door_of, options, synthetic

from fedtopics.errors import FedTopicsError
from fedtopics.federation.study import Study
from fedtopics.methods.aggregation import Rows
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import fingerprint

N = 400  # documents of the victim
NAME = "ambrosius"
LETTER = (
    "dear sirs, mr ambrosius of mill lane 14 was seen by dr hale on 3 may. he takes lithium, has "
    "not slept since his wife left, and asks that his employer is not told."
)
DIMENSION = 384
Numbers = NDArray[Any]
TOLD = 0.999  # cosine of what was isolated and an embedding
LINEAR = {"norm": "local", "dropout": 0.0, "n_components": 20, "coherence": "nothing"}


def letters() -> Corpus:
    """Return texts of one client; one letter is about a person whom no other names."""
    texts = [" ".join(words) for words in synthetic(N - 1)]
    return Corpus.of([*texts[:137], LETTER, *texts[137:]])


def named(door: Any) -> list[str]:
    """Ask for the client's words, as in each study."""
    words: list[str] = door.call("vocabulary", {})["words"]
    return words


def without(door: Any, words: list[str]) -> int:
    """Ask how many documents have none of some words, by pretending that they were agreed on."""
    adopted = door.call("adopt", {"words": words, "total": N, "length": 60.0})
    return int(adopted["without_known_word"])


def oracle() -> str:
    """In how many documents any word is: rare ones, names, words together."""
    door = door_of(Study.make(method=LINEAR), "north", letters())
    frequent = named(door)[:40]
    asked = sorted(set(re.findall(r"[a-z]{2,}", LETTER)) - ENGLISH_STOP_WORDS)
    base = without(door, frequent[:1])
    right = sum(base - without(door, [frequent[0], word]) == 1 for word in asked)
    both = without(door, [frequent[0], NAME, "lithium"]) == without(door, [frequent[0], NAME])
    return (
        f"{len(asked) + 3} calls: of {right} of {len(asked)} words of one letter, that they are in "
        f"one document; {both and 'and that it is one letter that has'} {NAME!r} and 'lithium'"
    )


def reading() -> str:
    """Read a text, character by character: a pattern whose words are pieces of text."""
    window = 12
    text = {"token_pattern": f"(?s)(?=(.{{{window}}}))", "stop_words": "none"}
    door = door_of(Study.make(method=LINEAR, text=text), "north", letters())
    base_words = named(door)[:1]
    base, calls = without(door, base_words), 1
    alphabet = string.ascii_lowercase + " .,'-" + string.digits
    start = f"mr {NAME}"[:window]
    read = start
    while True:
        choice = alphabet
        while choice:
            half = choice[: (len(choice) + 1) // 2]
            calls += 1
            if without(door, base_words + [read[1 - window :] + c for c in half]) < base:
                if len(half) == 1:
                    break
                choice = half
            else:
                choice = choice[len(half) :]
        if not choice:
            break
        read += half
    length = len(read) - len(start) if read in LETTER else 0
    return f"{calls:,} calls: {length} characters of a letter verbatim, from {start!r} to its end"


def forever() -> str:
    """Keep a client busy: a pattern that takes exponentially long."""
    text = {"token_pattern": r"(?:(?:\w+)+ ?)+#", "stop_words": "none"}
    study = Study.make(method=LINEAR, text=text)
    process = multiprocessing.get_context("fork").Process(target=_count, args=(study,))
    process.start()
    before = time.perf_counter()
    process.join(15)
    seconds = time.perf_counter() - before
    busy = process.is_alive()
    process.kill()
    return f"after {seconds:.0f} s the client is {'still busy with' if busy else 'done with'} it"


def _count(study: Study) -> None:
    door_of(study, "north", letters()).call("vocabulary", {})


def clusters(name: str) -> tuple[Any, Numbers, str]:
    """Return a client that adopted its words, its embeddings, and the words' fingerprint."""
    rng = np.random.default_rng(5)
    middles = 2 * rng.normal(size=(8, DIMENSION))
    vectors = rng.normal(size=(N, DIMENSION)) + middles[np.arange(N) % 8]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    corpus = Corpus.of(synthetic(N)).with_embeddings(vectors.astype(np.float32))
    method = {"name": name, "n_components": 8, "embedding": {"dimension": DIMENSION}}
    door = door_of(Study.make(method=method), "north", corpus)
    words = named(door)
    without(door, words)
    return door, vectors, fingerprint(words)


def isolated(sums: Numbers, counts: Numbers, vectors: Numbers) -> int:
    """Count the embeddings that are the difference of two neighbouring sums."""
    found: set[int] = set()
    for (a, n), (b, m) in pairwise(zip(sums, counts, strict=True)):
        if abs(n - m) == 1:
            cosine = vectors @ (a - b) / max(float(np.linalg.norm(a - b)), 1e-12)
            best = int(np.abs(cosine).argmax())
            if abs(cosine[best]) > TOLD:
                found.add(best)
    return len(found)


def cuts() -> str:
    """Turn a cut around a plane: neighbouring cuts differ by the documents between them."""
    door, vectors, words = clusters("discriminative")
    rng, steps = np.random.default_rng(0), 3000
    plane = np.linalg.qr(rng.normal(size=(DIMENSION, 2)))[0]
    angle = np.linspace(0, np.pi, steps)
    projection = (plane @ np.array([np.cos(angle), np.sin(angle)])).T[:, :, None]
    directions = np.broadcast_to([[1e6], [-1e6]], (steps, 2, 1)).copy()
    payload = {
        "vocabulary": words, "round": 1, "origin": np.zeros(DIMENSION), "projection": projection,
        "directions": directions, "bias": np.zeros((steps, 2)), "half": 2,
    }  # fmt: skip
    reply = door.call("class_sums", payload)
    found = isolated(reply["sums"][:, 0], reply["weights"][:, 0].round(), vectors)
    return f"1 reply: {found} of {N} embeddings"


def starts() -> str:
    """Move a plane through all documents; each position is called another start."""
    door, vectors, words = clusters("kmeans")
    rng, steps = np.random.default_rng(0), 4000
    normal = rng.normal(size=DIMENSION)
    normal /= np.linalg.norm(normal)
    positions = np.linspace(-0.15, 0.15, steps)
    ends = np.array([positions + 1, positions - 1])  # the plane is half-way between
    centres = (ends[:, :, None] * normal).transpose(1, 0, 2)
    payload = {
        "vocabulary": words, "round": 1, "origin": np.zeros(DIMENSION), "centres": centres,
        "starts": list(range(steps)), "half": 2,
    }  # fmt: skip
    reply = door.call("cluster_sums", payload)
    found = isolated(reply["sums"][:, 0], reply["counts"][:, 0], vectors)
    return f"1 reply: {found} of {N} embeddings"


def network(**method: Any) -> tuple[Any, dict[str, Numbers], str, Numbers]:
    """Return a client of gFedNTM that adopted its words, and first weights for it."""
    study = Study.make(method=LINEAR | {"batch_size": 52, "batch_split": "fixed"} | method)
    texts = synthetic(N)
    door = door_of(study, "north", Corpus.of(texts))
    words = named(door)
    without(door, words)
    settings: Any = study.method
    weights = settings.build(len(words), 60.0).initial_weights(0)
    arrays = {name: tensor.numpy().copy() for name, tensor in weights.items()}
    index = {word: i for i, word in enumerate(words)}
    bag = np.zeros((N, len(words)))
    for row, text in enumerate(texts):
        for word in text:
            if word in index:
                bag[row, index[word]] += 1
    return door, arrays, fingerprint(words), bag


def traps() -> str:
    """Send a first layer whose every unit only opens for the documents with one word."""
    door, weights, adopted, bag = network()
    frequency = (bag > 0).sum(0)
    rare = np.argsort(np.abs(frequency - N / 52), kind="stable")  # about one in a minibatch
    read: set[int] = set()
    first = 0
    for turn in range(10):
        units = rare[turn * 100 : turn * 100 + 100]
        layer = np.zeros_like(weights["encoder_words"])
        layer[units, np.arange(len(units))] = 200
        sent = weights | {
            "encoder_words": layer, "encoder_bias": np.full_like(weights["encoder_bias"], -60),
            "hidden": np.abs(weights["hidden"]),
        }  # fmt: skip
        payload = {"vocabulary": adopted, "round": 1, "weights": sent, "shared": {}}
        rows = door.call("gradients", payload)["weights"]["encoder_words"]
        gradient = rows.dense() if isinstance(rows, Rows) else rows
        for unit in range(len(units)):
            column = gradient[:, unit]
            if np.abs(column).max() > 0:
                read |= {i for i in range(N) if _same(column, bag[i])}
        first = first or len(read)
    return f"1 reply: {first} of the 52 documents of a minibatch wholly; 10 replies: {len(read)}"


def _same(column: Numbers, document: Numbers) -> bool:
    """Whether a unit's gradient is log(1 + counts) of one document, but for a factor."""
    logs = np.log1p(document)
    length = np.linalg.norm(column) * np.linalg.norm(logs)
    return bool(length > 0 and abs(column @ logs) > (1 - 1e-9) * length)


def order() -> str:
    """Call what the study calls later, again, with other contents; and rounds that it has not."""
    method = {"name": "lda", "n_components": 5, "max_rounds": 5, "batch_size": 52}
    door = door_of(Study.make(method=method), "north", Corpus.of(synthetic(N)))
    words = named(door)
    without(door, words)
    adopted, rng, asked, answered = fingerprint(words), np.random.default_rng(0), 0, 0
    for turn in range(100):
        model = {"topics": rng.dirichlet(np.ones(len(words)), 5).T * 0.9}
        for function, more in (
            ("word_sums", {}), ("shares", {}), ("projections", None), ("vocabulary", ...),
            ("expected_counts", {"round": 7}), ("expected_counts", {"round": 10**9 - turn}),
        ):  # fmt: skip
            payload: dict[str, Any] = {} if more is ... else {"vocabulary": adopted}
            payload |= {**model, **more} if isinstance(more, dict) else {}
            asked += 1
            answered += _answers(lambda f=function, p=payload: door.call(f, p))  # type: ignore[misc]
            if function == "vocabulary":
                without(door, words)
    return f"{answered} of {asked} calls answered, of a study that has 5 rounds and none of these"


def not_a_number() -> str:
    """Send NaN as the weights of one word: a reply of NaN says that a document has it."""
    door, weights, adopted, _ = network()
    replies = right = 0
    for word in range(0, 200, 10):
        layer = weights["encoder_words"].copy()
        layer[word] = np.nan
        payload = {
            "vocabulary": adopted, "round": 1, "weights": weights | {"encoder_words": layer},
            "shared": {},
        }  # fmt: skip
        reply = door.call("gradients", payload)
        replies += 1
        present = word in set(reply["weights"]["encoder_words"].index)
        right += bool(np.isnan(reply["loss"])) == present
    return f"{replies} of 20 calls answered, {right} say whether the minibatch has the word"


def repeated() -> str:
    """Send other weights for the same round, again and again: the minibatch stays."""
    door, weights, adopted, _ = network()
    rng, answered = np.random.default_rng(0), 0
    for _ in range(100):
        moved = {n: w + rng.normal(0, 0.01, w.shape).astype(w.dtype) for n, w in weights.items()}
        payload = {"vocabulary": adopted, "round": 1, "weights": moved, "shared": {}}
        answered += _answers(lambda p=payload: door.call("gradients", p))  # type: ignore[misc]
    return f"{answered} of 100 calls of one round, each with other weights, answered"


def _answers(call: Callable[[], Any]) -> bool:
    try:
        call()
    except FedTopicsError:
        return False
    return True


LIES = (oracle, reading, forever, cuts, starts, traps, order, not_a_number, repeated)


def main() -> None:
    options(__doc__)
    for lie in LIES if asks() else ():
        report([f"{lie.__name__}: {(lie.__doc__ or '').splitlines()[0]} {lie()}"])


if __name__ == "__main__":
    main()
