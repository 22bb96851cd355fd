"""Membership inference: find out whose documents a study's model was trained on (Audit, audit).

The study is trained several times on random halves of the persons, with all documents of each. The
attacker knows all models and halves except one, and guesses which persons that model was trained
on: a person's score adds those of the documents. Without a column of persons, each document is one.

References
----------
Carlini and others, Membership Inference Attacks From First Principles, IEEE S&P 2022, section V.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from scipy.special import ndtr, ndtri

from fedtopics.errors import DataError, RunError
from fedtopics.escaping import visible
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.files import read_bytes
from fedtopics.inference.vectors import Numbers
from fedtopics.privacy import Privacy
from fedtopics.privacy.accounting import mu_of
from fedtopics.privacy.disclosure import FALSE_POSITIVES, likelihoods, rates
from fedtopics.text.corpus import Corpus

AUDIT = "audit.json"  # in a run's folder, or next to a study's file
PER_SET = 20  # persons in each client's half
SEED = 0x61756469  # for random choices independent of other uses of the seed
Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Members = NDArray[np.bool_]  # (n_models, n_persons): whether a model was trained on a person


class Audit(BaseModel, frozen=True):
    """How well the attack separates members from other documents, and what epsilon allows."""

    study: str  # fingerprint
    shadows: int = Field(ge=1)
    documents: int = Field(ge=1)  # over all models
    persons: int = Field(ge=1)  # trials, over all models; documents without a column of persons
    auc: Rate  # how often a member scores higher than another person; .5 by chance
    found: Rate  # of the members, at `FALSE_POSITIVES`
    allowed: tuple[Rate, Rate] | None  # limits of AUC and found by the study's epsilon
    path: Path = Field(Path(AUDIT), exclude=True)
    sha256: str = Field("", exclude=True)

    @classmethod
    def read(cls, path: Path, study: str) -> Audit:
        try:
            content = read_bytes(path)
            stored = cls.model_validate_json(content)
        except (OSError, ValidationError):
            raise RunError(
                f"{path} is not an audit; write one with: fedtopics audit attack STUDY --data FILE "
                f"-o {path}"
            ) from None
        if stored.study != study:
            raise RunError(
                f"{path} is an audit of the study {visible(stored.study)}, not of {study}; attack "
                "this study, or remove the file."
            )
        return stored.model_copy(
            update={"path": path, "sha256": hashlib.sha256(content).hexdigest()}
        )


def audit(
    study: Study,
    documents: Corpus,
    shadows: int = 16,
    on_progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Attack a study's model with one's own documents; more `shadows` (models) help the attack."""
    names = list(study.clients)
    n = documents.n_persons()
    if n // 2 // len(names) < PER_SET:
        raise DataError(f"An audit needs {2 * PER_SET} persons per client; give more documents.")
    corpus = study.embedded(documents)
    whose = corpus.person_numbers
    rng = np.random.default_rng([study.seed, SEED])
    drawn = np.array([rng.permutation(n) < n // 2 for _ in range(shadows // 2)])
    halves = np.stack([drawn, ~drawn], axis=1).reshape(-1, n)  # a person is in one of each pair
    scores = np.empty((len(halves), len(corpus)))
    # By lot, as documents may be in an order in which each client would get words of its own.
    clients = np.array(names)[rng.permutation(n) % len(names)]
    for number, members in enumerate(halves):
        dealt = {  # numbered, because a client's secret follows from its name
            f"{name}-{number}": corpus.take(np.flatnonzero((members & (clients == name))[whose]))
            for name in names
        }
        scores[number] = likelihoods(
            train(study.here(dealt), dealt, policies=dict.fromkeys(dealt, OPEN_POLICY)), corpus
        )
        if on_progress is not None:
            on_progress(number + 1, len(halves))
    ratios = likelihood_ratios(scores, halves[:, whose])
    by_person = np.array([np.bincount(whose, of_model, n) for of_model in ratios], np.float64)
    auc, share_found = rates(by_person, halves)
    return Audit(
        study=study.fingerprint,
        shadows=len(halves),
        documents=scores.size,
        persons=by_person.size,
        auc=auc,
        found=share_found,
        allowed=allowed(study.differential_privacy),
    )


def likelihood_ratios(scores: Numbers, members: Members) -> Numbers:
    """Return how much likelier scores are with a document, assuming normal scores."""
    ratios = np.empty_like(scores)
    for target in range(len(scores)):
        others = np.arange(len(scores)) // 2 != target // 2  # half of them have each document
        inside = members[others]
        score = scores[others]
        mean_with = np.where(inside, score, 0).sum(0) / np.maximum(inside.sum(0), 1)
        mean_without = np.where(inside, 0, score).sum(0) / np.maximum((~inside).sum(0), 1)
        variance = ((score - np.where(inside, mean_with, mean_without)) ** 2).mean(0) + 1e-12
        difference = (scores[target] - mean_without) ** 2 - (scores[target] - mean_with) ** 2
        ratios[target] = difference / (2 * variance)
    return ratios


def allowed(privacy: Privacy | None) -> tuple[float, float] | None:
    """Return the limits of AUC and found members for any attack, by the study's epsilon."""
    if privacy is None:
        return None
    mu = privacy.sensitivity * mu_of(privacy)
    return float(ndtr(mu / math.sqrt(2))), float(ndtr(ndtri(FALSE_POSITIVES) + mu))
