"""Guess from all data of a private study whether a document was there: a lower bound of epsilon.

New secrets are drawn each time; later questions follow from earlier sums; two of three clients give
their parts of the noise, which is enough. Masks and the network are left out: they cancel. The
guess is the best one there is, the likelihood ratio.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from benchmarks.common import arguments, each_group, table, write
from fedtopics import Corpus, Study
from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.files import RowFile
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.plan import ClientContext, Secret
from fedtopics.privacy import Noise, PrivacySettings, estimates
from fedtopics.privacy.client import NoisyClient, PrivatePlan
from fedtopics.privacy.recipe import RECIPES
from fedtopics.protocol.layout import Layout
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary, VocabularyLimits

TIMES = 50_000  # runs on each of the two corpora
PART = 500  # runs a part
FEWER = 10  # times, where noise is too small: that shows soon
DELTA = 1e-3  # which so many runs can tell from 0
CONFIDENCE = 1e-3
CLIENTS = 3
THERE = 2
THEMES = 2
WORDS = 12  # words of a theme
DOCUMENTS = 300  # documents of a client
PUBLIC = tuple(f"{chr(97 + k)}word{chr(97 + i)}" for k in range(THEMES) for i in range(WORDS))
DIMENSION = 8
THRESHOLDS = 40
Half = NoisyClient[Any]
FIELDS = "size", "sums", "counts"  # of replies, whose noise has another name
ROUNDS = {"lda": 3}  # of others as many as a study with privacy has by default


class Case(NamedTuple):
    """What is claimed, and how much of the noise there is."""

    method: str
    epsilon: float
    noise: float = 1.0


CLAIMED = {"kmeans": 1.0, "lda": 3.0, "nmf": 3.0}
CASES = [Case(name, bound, noise) for name, bound in CLAIMED.items() for noise in (1 / 3, 1.0)]


class Overheard(Noise):
    """A client's noise, of a share of the size that it should have; it keeps what it hides."""

    def __init__(self, secret: Secret, share: float) -> None:
        super().__init__(secret.derive, CLIENTS)
        self._share = share
        self.hidden: dict[str, tuple[Any, float]] = {}  # what, and the size of the noise

    def added(self, values: Any, sigma: float, purpose: str) -> Any:
        self.hidden[purpose] = np.asarray(values, np.float64), self._share * sigma
        return super().added(values, self._share * sigma, purpose)


class Sums:
    """Clients whose replies are added up as in secure aggregation; it guesses from each sum."""

    def __init__(self, halves: Sequence[Half], alone: Half, present: bool) -> None:
        self.names = [half.name for half in halves]
        self.guess = 0.0
        self._halves = halves
        self._alone = alone
        self._present = present

    def sum(self, function: str, template: Any, **payload: Any) -> dict[str, Any]:
        """Ask each half; return the sum, of fixed-point numbers."""
        layout = Layout.of(template, self.names, len(self.names))
        everybody = (*self._halves, self._alone)
        for half in everybody:
            overheard(half).hidden.clear()
        *replies, _ = (half.execute(function, payload) for half in everybody)
        total = layout.decode(np.sum([layout.encode(reply)[0] for reply in replies], axis=0))
        self._listen(total)
        return total

    def _listen(self, total: Mapping[str, Any]) -> None:
        """Weigh a total: how far it is from that without the document, by the document's."""
        for purpose, (document, sigma) in overheard(self._alone).hidden.items():
            hidden = sum(overheard(half).hidden[purpose][0] for half in self._halves)
            without = hidden - (document if self._present else 0)
            named = purpose, purpose.split()[0], *FIELDS
            field = next(name for name in named if name in total)
            apart = float(np.sum((total[field] - without) * document))
            self.guess += (apart - float(np.sum(document**2)) / 2) / sigma**2


def overheard(half: Half) -> Overheard:
    return half.noise  # type: ignore[return-value]  # it was given one


@cache
def plan_of(case: Case) -> PrivatePlan:
    method: dict[str, Any] = {"name": case.method, "n_components": THEMES}
    if case.method in ROUNDS:
        method["max_rounds"] = ROUNDS[case.method]
    if case.method == "kmeans":
        method["embedding"] = {"model": "none", "dimension": DIMENSION}
    bound = {"epsilon": case.epsilon, "delta": DELTA}
    study = Study.make(method=method, differential_privacy=bound)
    privacy = PrivacySettings(**bound)
    budget = RECIPES.find(case.method).budget(privacy, study.method)
    return PrivatePlan(
        settings=study.method,
        text=TextRules(),
        limits=VocabularyLimits(),
        seed=0,
        privacy=privacy,
        budget=budget,
        clients=CLIENTS,
    )


@cache
def vectors() -> NDArray[np.float32]:
    """Return the embeddings of words: those of a theme are alike."""
    rng = np.random.default_rng(1)
    centres = np.repeat(np.eye(DIMENSION)[:THEMES], WORDS, axis=0)
    return unit(centres + 0.2 * rng.normal(size=centres.shape))


def unit(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def half_of(case: Case, name: str, texts: list[list[str]]) -> Half:
    of_words = dict(zip(PUBLIC, vectors(), strict=True))
    sums = np.array([np.sum([of_words[word] for word in text], axis=0) for text in texts])
    corpus = Corpus.of(texts).with_embeddings(unit(sums))
    half: Any = RECIPES.find(case.method).client(
        plan_of(case), ClientContext(name, corpus, OPEN_POLICY)
    )
    half.take(list(PUBLIC))
    half.__dict__["_vectors"] = vectors()  # so that no model is needed
    return half  # type: ignore[no-any-return]


@cache
def halves_of(case: Case) -> tuple[list[Half], Half, Half]:
    """Return the halves of clients, that of the first with a document more, and the document's."""
    rng = np.random.default_rng(2)
    document = list(PUBLIC[:WORDS])  # the most a document can be, in nearly all sums
    halves = []
    texts = []
    for number in range(THERE):
        theme = rng.integers(THEMES, size=(DOCUMENTS, 1))
        drawn = WORDS * theme + rng.integers(WORDS, size=(DOCUMENTS, 3))
        texts.append([[PUBLIC[word] for word in row] for row in drawn])
        halves.append(half_of(case, f"client-{number}", texts[number]))
    with_it = half_of(case, "client-0", [*texts[0], document])
    return halves, with_it, half_of(case, "alone", [document])


def run(case: Case, present: bool, number: int) -> tuple[float, bool]:
    """Do a study; return what it says of the document, and whether it was refused."""
    halves, with_it, alone = halves_of(case)
    chosen = [with_it if present else halves[0], *halves[1:]]
    for half in (*chosen, alone):
        secret = Secret.from_seed(number, f"{case} {present} {half.name}")
        half.noise = Overheard(secret, case.noise)
        half._requests.clear()
    plan = plan_of(case)
    program: Any = RECIPES.find(case.method).program(plan)
    sums = Sums(chosen, alone, present)
    nothing = np.zeros(len(PUBLIC), np.int64)
    vocabulary = Vocabulary(PUBLIC, nothing, nothing)
    agreement = Agreement(
        clients=sums,  # type: ignore[arg-type]
        settings=plan.settings,
        vocabulary=vocabulary,
        documents=DOCUMENTS,
        training=DOCUMENTS,
    )
    agreement.ask(NoisyClient.noisy_document_count)
    state: dict[str, Any] = {}
    try:
        for stage in program.stages:
            state |= stage(agreement, state)
    except StudyError:  # follows from noisy sums, so it says nothing more
        return sums.guess, True
    return sums.guess, False


def counted(task: dict[str, Any]) -> dict[str, Any]:
    """Do the runs; return how many guesses are above each threshold, and below minus it."""
    # Of clusters of public words: a third of the time, and nothing of documents.
    estimates.STARTS = 1
    *case, present, part, times = task.values()
    numbers = range(part * times, (part + 1) * times)
    guesses, refused = zip(*(run(Case(*case), present, n) for n in numbers), strict=True)
    guessed = np.array(guesses)
    levels = thresholds(task["epsilon"])[:, None]
    above = (guessed > levels).sum(1)
    below = (guessed < -levels).sum(1)
    return {"above": above.tolist(), "below": below.tolist(), "refused": int(sum(refused))}


def thresholds(epsilon: float) -> NDArray[np.float64]:
    """Return from where on a guess is "it was there", chosen before looking at any."""
    return np.linspace(0, 3 * epsilon + 3, THRESHOLDS)


def least_epsilon(rows: Sequence[Mapping[str, Any]]) -> float:
    """Bound epsilon from below by how often guesses are right, and wrong."""
    times = {
        present: sum(r["times"] for r in rows if r["there"] == present) for present in (True, False)
    }
    chance = CONFIDENCE / (4 * THRESHOLDS)  # of each of so many bounds that it is wrong
    best = 0.0
    for side, guessed in ("above", True), ("below", False):
        right, wrong = (
            np.sum([row[side] for row in rows if row["there"] == present], axis=0)
            for present in (guessed, not guessed)
        )
        surely = np.nan_to_num(beta.ppf(chance, right, times[guessed] - right + 1))
        most = beta.ppf(1 - chance, wrong + 1, times[not guessed] - wrong)
        ratios = np.maximum(surely - DELTA, 1e-12) / np.nan_to_num(most, nan=1.0)
        best = max(best, float(np.log(ratios.max())))
    return best


HEAD = f"""# What is learned of a document, by trying

Neighbouring corpora, {CLIENTS} clients of which {THERE} are there, with {DOCUMENTS} documents each;
runs of the real halves, stages, noise and fixed-point numbers on each of the two. *At least* is the
bound from below (Clopper and Pearson, together wrong with probability {CONFIDENCE:g}) by the best
guess there is; delta {DELTA:g}. Where there is a third of the noise on purpose, it has to be above
what is claimed. *Refused* are runs in which noise hid too much for topics: what would follow does
not leave. Command: `make bench NAME=neighbours`.
"""


def cells_of(case: Case, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    times = sum(row["times"] for row in rows)
    refused = f"{sum(row['refused'] for row in rows) / times:.1%}"
    least = f"{least_epsilon(rows):.2f}"
    return [case.method, f"{case.noise:.2f}", f"{case.epsilon:g}", least, f"{times:,}", refused]


def main() -> None:
    given = arguments(__doc__, times=TIMES, at_once=os.cpu_count(), show=False)
    times, size = (8, 8) if given.quick else (given.times, PART)
    row_file = RowFile(given.folder / "neighbours.jsonl")
    tasks = [
        case._asdict() | {"there": present, "part": part, "times": size}
        for case in CASES
        for part in range(max(times // (1 if case.noise == 1 else FEWER) // size, 1))
        for present in (True, False)
    ]
    todo = [task for task in tasks if not (given.show or row_file.find(task))]
    with ProcessPoolExecutor(given.at_once) as pool:
        for task, answer in zip(todo, pool.map(counted, todo), strict=True):
            row_file.keep(task | answer)
    groups = each_group([row for task in tasks if (row := row_file.find(task))], *Case._fields)
    head = "method | noise | claimed epsilon | at least | runs | refused"
    write(given, [HEAD, *table(head, (cells_of(Case(*case), rows) for case, rows in groups))])
