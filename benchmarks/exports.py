"""What pyLDAvis and OCTIS make of a model's exports, beside what fedtopics says itself.

LDA of three clients' synthetic documents is exported; the libraries, which run in the peers'
environment, are handed the exports alone, and for coherence the documents. A line a score. That
coherence is gensim's is a test.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import apart, arguments

TOPICS, WORDS, MANY = 8, 10, 40  # so many words of topics that these share some
SEEN = 0.6  # lambda
Scores = dict[str, Any]
ARRAYS = ("topic_term_dists", "doc_topic_dists", "doc_lengths", "term_frequency")


def pyldavis(exported: Any) -> Scores:
    """Prepare the picture, and read from it what people would see."""
    import pyLDAvis

    drawn = pyLDAvis.prepare(**exported["pyldavis"], n_jobs=1, sort_topics=False, start_index=0)
    json.loads(drawn.to_json(), parse_constant=_refuse)
    frames = drawn.topic_coordinates, drawn.topic_info, drawn.token_table

    def first(topic: int, lambda_: float) -> Any:
        return drawn.sorted_terms(topic, lambda_)["Term"].head(WORDS).tolist()

    numbers = [frame.select_dtypes("number").to_numpy() for frame in frames]
    return {
        "sizes": (drawn.topic_coordinates["Freq"] / 100).sort_index().tolist(),
        "finite": all(bool(np.isfinite(array).all()) for array in numbers),
        "read": {str(lambda_): [first(topic, lambda_) for topic in range(TOPICS)]
                 for lambda_ in (1, SEEN)},
    }  # fmt: skip


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} in what a browser is to read")


def octis(exported: Any) -> Scores:
    from octis.evaluation_metrics.coherence_metrics import Coherence
    from octis.evaluation_metrics.diversity_metrics import InvertedRBO, TopicDiversity
    from octis.evaluation_metrics.topic_significance_metrics import KL_background

    metrics = {
        "diversity": TopicDiversity(topk=MANY),
        "inverted_rbo": InvertedRBO(topk=MANY),
        "npmi": Coherence(texts=exported["texts"], topk=WORDS, measure="c_npmi"),
        "background": KL_background(),
    }
    return {name: float(metric.score(exported["octis"])) for name, metric in metrics.items()}


LIBRARIES: dict[str, Callable[[Any], Scores]] = {"pyLDAvis": pyldavis, "octis": octis}


def answer(name: str) -> dict[str, Any]:
    """Let each library take the exports; return what it says, or why it says nothing."""
    folder = Path(name)
    exported = json.loads((folder / "exports.json").read_text())
    with np.load(folder / "exports.npz") as arrays:
        exported["pyldavis"] |= {name: arrays[name] for name in ARRAYS}
        exported["octis"] |= {name: arrays[name] for name in arrays.files if name not in ARRAYS}
    said: dict[str, Any] = {}
    for name, ask in LIBRARIES.items():
        try:
            said[name] = ask(exported) | {"version": version(name)}
        except ImportError as error:
            said[name] = {"missing": str(error)}
    return said


def export(folder: Path, rounds: int) -> tuple[Any, list[list[str]]]:
    from fedtopics import LDA
    from fedtopics.datasets import synthetic_lda

    drawn = synthetic_lda(
        3, n_words=400, n_topics=TOPICS, shared_topics=2, n_documents=300, n_validation=1, seed=3,
        lengths=(30, 60), eta=0.05,
    )  # fmt: skip
    corpora = {name: documents.corpus() for name, documents in drawn.training.items()}
    texts = [text for corpus in corpora.values() for text in corpus.documents.to_pylist()]
    trained = LDA(n_components=TOPICS, max_rounds=rounds, random_state=0).fit_clients(corpora)
    model = trained.model_
    pictured, output = model.to_pyldavis(), model.to_octis(texts, n_words=MANY)
    words, topics = pictured.pop("vocab"), output.pop("topics")
    np.savez(folder / "exports.npz", **pictured, **output)
    exported = {
        "pyldavis": {"vocab": words}, "octis": {"topics": topics}, "texts": texts,
    }  # fmt: skip
    (folder / "exports.json").write_text(json.dumps(exported))
    return model, texts


def lines(model: Any, texts: list[list[str]], said: dict[str, Any]) -> Iterator[str]:
    """Say what each library says, beside what fedtopics says."""
    from fedtopics.metrics import coherence_of, inverted_rank_biased_overlap, unique_words

    many = model.topics(MANY)
    ours = {
        "diversity": unique_words(many, MANY),
        "inverted_rbo": inverted_rank_biased_overlap(many, n_words=MANY),
        "npmi": float(coherence_of(model.topics(WORDS), texts, "npmi").mean()),
    }
    for library, scores in said.items():
        if "missing" in scores:
            yield f"{library}: does not import here: {scores['missing']}"
            continue
        name = f"{library} {scores.pop('version')}"
        if library == "pyLDAvis":
            yield from (f"{name}: {line}" for line in picture(model, scores))
            continue
        for score, theirs in scores.items():
            own = f"ours {ours[score]:.6f}" if score in ours else "we have none"
            yield f"{name}: {score} {theirs:.6f}, {own}"


def picture(model: Any, scores: Scores) -> Iterator[str]:
    """Hold what people would see against the model."""
    from fedtopics.model.shown_words import Reading

    far = float(np.abs(np.array(scores["sizes"]) - model.share).max())
    yield f"sizes of topics differ from ours by at most {far:.1g}"
    yield f"numbers of the picture that are finite: {'' if scores['finite'] else 'NOT '}all are"
    for lambda_, read in scores["read"].items():
        own = model.read(Reading(float(lambda_)), WORDS)  # from beta, as pyLDAvis does
        same = sum(len(set(a) & set(b)) for a, b in zip(read, own, strict=True))
        of = f"{same} of {WORDS * TOPICS}"
        yield f"first {WORDS} words at lambda {lambda_} that are ours too: {of}"


def main() -> None:
    given = arguments(__doc__, peers=True)
    python = given.peers if given.peers and not given.quick else sys.executable
    with tempfile.TemporaryDirectory() as name:
        model, texts = export(Path(name), 5 if given.quick else 60)
        said = apart(answer, name, python=python)
    print("\n".join(lines(model, texts, said)))
