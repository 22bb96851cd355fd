"""The methods of the FSTC paper's experiments, what they are called, and what parts vary of them.

FSTC of the paper is here in variants, which their titles name: *frozen* is the paper's start, steps
and losses on embeddings of an encoder that is not trained, of texts as they are, with pseudo-labels
of the start for a tenth of the steps and a mixture whose variances and width have lower bounds.
"""

from dataclasses import dataclass
from typing import Any

Method = dict[str, Any]


@dataclass(frozen=True)
class DataSet:
    """Labelled short texts in one file, and the paper's lambda."""

    name: str
    title: str
    alignment: float = 1.0


DATA_SETS = {
    data.name: data
    for data in (
        DataSet("agnews", "AgNews"),
        DataSet("stackoverflow", "StackOverflow", 0.01),
        DataSet("biomedical", "Biomedical"),
        DataSet("searchsnippets", "SearchSnippets"),
    )
}

TITLES = {
    "fbow": "FBOW",
    "ftfidf": "FTF-IDF",
    "fsbert": "FSBERT",
    "fsccl": "FSCCL (frozen)",
    "stc": "FSTC-STC (frozen)",
    "rstc": "FSTC-RSTC (frozen)",
    "paper": "FSTC (frozen)",
    "discriminative": "discriminative clustering (ours)",
    "fstc": "FSTC, discriminative start (ours)",
}
SHORT: Method = {"max_rounds": 10, "network": {"local_steps": 40}}
TRAINED = ("fstc", "fsccl")  # methods with a schedule
ROUGH: Method = {"separation": {"finalists": 1, "tolerance": 0.05}}
STEPS: Method = {"max_rounds": 2, "network": {"local_steps": 5}}
QUICK: dict[str, Method] = {
    "kmeans": {},
    "discriminative": ROUGH,
    "fstc": ROUGH | STEPS,
    "fsccl": STEPS,
}
VARIANTS: dict[str, Method] = {
    "plain": {},
    "mixture": {"mixture_from": 0.0},
    "late": {"mixture_from": 0.5},
    "unaligned": {"alignment": 0.0},
}
MASSES = ("even", "global", "own")
VIEWS: dict[str, Method] = {  # a fifth of the words, as SCCL has it
    "texts as they are": {"network": {"deletion": 0.0}},
    "words left out": {"network": {"deletion": 0.2}},
}
LOSSES = {"squared error": "squared", "cross entropy": "cross_entropy"}
DAMAGED = (0.0, 0.1, 0.3)  # shares of words with a typing mistake
DIMENSION = 200  # of word vectors
OWN = "word vectors of the same texts"
OTHER = "word vectors of other texts"
ENCODERS: dict[str, Method] = {
    "all-MiniLM-L6-v2": {},
    OWN: {"embedding": {"model": OWN, "dimension": DIMENSION}},
    OTHER: {"embedding": {"model": OTHER, "dimension": DIMENSION}},
}
# Few and small, as a step of 200 texts takes more than three seconds of a core. The head, which is
# drawn, has to learn the labels of the start first, or its own labels would be noise.
TUNED_DOCUMENTS = 800
TUNED: Method = {
    "max_rounds": 10,
    "network": {"local_steps": 10, "batch_size": 50},
    "warm_up": 0.5,
    "transports": 3,
}
TUNINGS: dict[str, Method] = {"frozen": {}, "fine-tuned": {"fine_tune": True}}


def methods(data: DataSet) -> dict[str, Method]:
    """Return the methods of table 2: the paper's baselines, its FSTC in three forms, and ours."""
    return {
        "fbow": {"name": "kmeans", "preset": "fbow"},
        "ftfidf": {"name": "kmeans", "preset": "ftfidf"},
        "fsbert": {"name": "kmeans", "preset": "fsbert"},
        "fsccl": {"name": "fsccl"},
        "stc": {"name": "fstc", "preset": "stc"},
        "rstc": {"name": "fstc", "preset": "rstc"},
        "paper": {"name": "fstc", "preset": "frozen", "alignment": data.alignment},
        "discriminative": {"name": "discriminative", "preset": "single"},
        "fstc": {"name": "fstc"},
    }


def short(data: DataSet, name: str) -> Method:
    """Return a method of table 2 with the short schedule, if it has a schedule."""
    method = methods(data)[name]
    return method | SHORT if method["name"] in TRAINED else method
