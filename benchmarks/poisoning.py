"""What clients that lie do to models, for each way to add up replies.

Lies are brought within what a reply can hold; the largest number where there is no bound is 1e30.
In place of exchanged labels, which topics do not need, liars exchange their documents' words.

References
----------
Gonzalez and others, ByzFL: Research Framework for Robust Federated Learning, 2025.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import common
from fedtopics import Corpus, Study, TopicModel
from fedtopics.contract.interfaces import Call
from fedtopics.contract.payload import Payload, SparseRows
from fedtopics.contract.replies import Bounds, Template
from fedtopics.errors import FedTopicsError
from fedtopics.federation.door import Door
from fedtopics.federation.finished_model import finished
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import program_of
from fedtopics.federation.run_folder import RunFolder
from fedtopics.metrics import coherence_of, purity, topic_similarity
from fedtopics.protocol.outliers import Robust, Rule
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings
from fedtopics.text.tables import Columns

GROUPS = (
    "rec.sport.hockey",
    "sci.space",
    "talk.politics.mideast",
    "comp.windows.x",
    "sci.med",
    "soc.religion.christian",
    "rec.motorcycles",
    "sci.crypt",
    "talk.politics.guns",
    "misc.forsale",
)
DOCUMENTS = 1200  # of all clients
SEEDS = 3  # where nobody lies; else one
CLOSE = 0.03  # of purity and of NPMI
N_TOPICS = SHOWN = 10
LARGEST = 1e30  # where there is no bound
MOST = 1e12  # of numbers that are squared
REFUSED = "bad reply", "excluded"  # events
AGAIN = 20  # rounds for which an optimal attack keeps its factor
TRIES = 20  # factors that it tries
METHODS: dict[str, dict[str, Any]] = {
    "lda": {"name": "lda", "learning": "stochastic", "batch_size": 400, "max_rounds": 40},
    "nmf": {"name": "nmf", "max_rounds": 20},
    "prodlda": {
        "name": "gfedntm",
        "batch_size": 400,
        "max_rounds": 100,
        "learning_rate": 0.01,
        "beta1": 0.9,
    },
    "discriminative": {
        "name": "discriminative",
        "preset": "single",
        "start": {"tries": 4},
        "max_rounds": 30,
    },
}
LIARS = {"1 of 5": (5, 1), "2 of 10": (10, 2)}
SPLITS = ("subjects", "even")
RULES: tuple[Rule, ...] = get_args(Rule)
WORST = {"purity": 0.0, "npmi": -1.0, "tss": 0.0}  # of a study that ends with an error
INTRODUCTION = f"""\
Documents of ten newsgroups of 20ng ({DOCUMENTS:,} in all, of 5 or 10 newsgroups), {N_TOPICS} \
topics; {SEEDS} seeds where nobody lies, else one. The last clients by name lie, in all sums of a \
study, by ByzFL's attacks; what they say fits each field's bounds, and squares fit what they are \
squares of. Scores are of the honest clients' documents: purity of their main topics by newsgroup; \
NPMI of ten words of these, a document; TSS to the documents' main topics when nobody lies and \
replies are added up, a document. First, differences in purity and NPMI: where nobody lies, from \
adding up, on average; where somebody does, from adding up the honest clients' replies alone \
("liars are away"), over nine attacks, both splits and both numbers of liars: the median, the \
worst, and how many lose no more than {CLOSE} of either. A study that ends with an error has a \
purity of 0 and an NPMI of -1. Command: `make bench NAME=poisoning DATA=folder`."""
Vectors = NDArray[np.float64]  # (n_clients, n_numbers): what a document adds, on average


class Task(NamedTuple):
    method: str
    split: str
    liars: str
    attack: str
    rule: Rule
    seed: int


Measure = Callable[[Vectors], float]  # how far a lie moves the total from the honest mean
Attack = Callable[[Vectors, np.random.Generator], Vectors]


def turned(honest: Vectors, factor: float) -> Vectors:
    """The mean, the other way: sign flip, or inner product manipulation."""
    return np.asarray(-factor * honest.mean(0))


def little(honest: Vectors, factor: float) -> Vectors:
    """As far from the mean as an honest client may be: a little is enough."""
    return np.asarray(honest.mean(0) + factor * honest.std(0, ddof=1))


def optimal(attack: Callable[[Vectors, float], Vectors], honest: Vectors, moved: Measure) -> float:
    """Return the factor of an attack that moves the total furthest, by ByzFL's search."""
    best = 0.0
    step = 10.0
    grows = True
    farthest = moved(attack(honest, best))
    for _ in range(TRIES - 1):
        distance = moved(attack(honest, best + step))
        further = distance > farthest
        best, farthest = (best + step, distance) if further else (best, farthest)
        grows &= further
        step *= 2 if grows else 0.8
    return best


ATTACKS: dict[str, Attack] = {
    "sign flip": lambda honest, rng: turned(honest, 1.0),
    "inner product": lambda honest, rng: turned(honest, 2.0),
    "a little": lambda honest, rng: little(honest, 1.5),
    "mimic": lambda honest, rng: honest[0],
    "infinity": lambda honest, rng: np.full(honest.shape[1], LARGEST),
    "gaussian": lambda honest, rng: np.asarray(rng.standard_normal(honest.shape[1])),
}
OPTIMAL = {"optimal inner product": turned, "optimal little": little}
WORDS = "words exchanged"  # what documents say, not replies
NOBODY = "nobody lies"
AWAY = "liars are away"
CASES = (NOBODY, AWAY, *ATTACKS, *OPTIMAL, WORDS)


def arrays(value: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays of a reply that are no counts, of rows with those that are zero."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from arrays(part)
    dense = value.dense() if isinstance(value, SparseRows) else value
    if isinstance(dense, np.ndarray) and dense.dtype.kind == "f":
        yield dense


def possible_moments(vector: Vectors) -> Vectors:
    """Make moments possible: squares are at least, and products span, what the means say."""
    vector = np.clip(vector, -MOST, MOST)
    k = N_TOPICS
    if len(vector) == 4 * k:  # of the posterior's parameters
        mean, squares = np.split(vector, 2)
        return np.concatenate([mean, np.maximum(squares, mean**2)])
    mean = vector[:k]  # theta's mean
    products = vector[k:].reshape(k, k)  # mean of products of theta
    about = np.outer(mean, mean)
    values, vectors = np.linalg.eigh((products + products.T) / 2 - about)
    spread = (vectors * np.maximum(values, 0)) @ vectors.T
    return np.concatenate([mean, (spread + about).ravel()])


def flat(reply: Payload) -> Vectors:
    parts = [np.ravel(array) for array in arrays(reply)]
    return np.concatenate([np.zeros(0), *parts])


def with_arrays(value: Any, template: Any, numbers: Iterator[Vectors], documents: int) -> Any:
    """Return a reply with other arrays, brought within a template's bounds."""
    if isinstance(value, Mapping):
        of = template.get if isinstance(template, Mapping) else lambda _: None
        return {k: with_arrays(part, of(k), numbers, documents) for k, part in value.items()}
    dense = value.dense() if isinstance(value, SparseRows) else value
    if not isinstance(dense, np.ndarray) or dense.dtype.kind != "f":
        return value
    field = template if isinstance(template, Bounds) else Bounds()
    array = fitting(next(numbers).reshape(dense.shape), field, documents).astype(dense.dtype)
    return (
        SparseRows(np.arange(len(array)), array, len(array))
        if isinstance(value, SparseRows)
        else array
    )


def fitting(array: Vectors, field: Bounds, documents: int) -> Vectors:
    bound = min(field.per_document * documents, LARGEST)
    fits = np.clip(array, np.maximum(field.least, -bound), np.minimum(field.most, bound))
    if field.adds_up:
        fits = fits if fits.any() else np.asarray(array == array.max(), float)
        fits = fits * (documents / fits.sum())
    if field.products:
        reach = np.sqrt(fits.diagonal().clip(0))
        fits = np.clip(fits, -np.outer(reach, reach), np.outer(reach, reach))
    return np.asarray(fits)


class Lies:
    """What liars know and say in a training."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._rng = np.random.default_rng(task.seed)
        self._factors: dict[str, tuple[int, float]] = {}  # by function: its age, the factor
        self._exchange: tuple[str, Template] = ("", {})
        self.honest: dict[str, Payload] = {}
        self.refused = 0  # lies that were seen to be none

    def hear(self, event: dict[str, Any]) -> None:
        self.refused += event["event"] in REFUSED and event["client"].startswith("liar")

    def begin(self, function: str, template: Template) -> None:
        self._exchange = (function, template)
        self.honest = {}

    def reply(self, true_reply: dict[str, Any]) -> dict[str, Any]:
        """Return a liar's reply, which would be its own if it did not lie."""
        if not flat(true_reply).size or not self.honest:
            return true_reply
        honest = np.stack(
            [flat(reply) / max(reply["documents"], 1) for reply in self.honest.values()]
        )
        name = self._task.attack
        if name in ATTACKS:
            return self._said(true_reply, ATTACKS[name](honest, self._rng))
        return self._said(true_reply, OPTIMAL[name](honest, self._factor(name, honest, true_reply)))

    def _said(self, true_reply: dict[str, Any], vector: Vectors) -> dict[str, Any]:
        if self._exchange[0] == "batch_sums":
            vector = possible_moments(vector)
        ends = np.cumsum([array.size for array in arrays(true_reply)])
        with np.errstate(over="ignore"):
            parts = iter(np.split(vector * true_reply["documents"], ends))
        said: dict[str, Any] = with_arrays(
            true_reply, self._exchange[1], parts, true_reply["documents"]
        )
        return said

    def _factor(self, name: str, honest: Vectors, true_reply: dict[str, Any]) -> float:
        key = f"{self._exchange[0]} {honest.shape[1]}"
        age, factor = self._factors.get(key, (AGAIN, 0.0))
        if age >= AGAIN:
            age = 0
            factor = optimal(OPTIMAL[name], honest, self._measure(honest, true_reply))
        self._factors[key] = age + 1, factor
        return factor

    def _measure(self, honest: Vectors, true_reply: dict[str, Any]) -> Measure:
        def moved(vector: Vectors) -> float:
            function, template = self._exchange
            total = Robust(self._task.rule, lambda _: None).sum(function, template, 1, 0)
            said = self._said(true_reply, vector)
            liars = {f"liar-{number}": said for number in range(LIARS[self._task.liars][1])}
            for name, reply in {**self.honest, **liars}.items():
                total.add(reply, name)
            combined = total.total()
            return float(np.linalg.norm(flat(combined) / combined["documents"] - honest.mean(0)))

        return moved


class Told(LocalClients):
    """Clients whose liars hear what is asked."""

    def __init__(self, lies: Lies, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self._lies = lies

    def _replies(self, call: Call, template: Template) -> Iterator[tuple[str, dict[str, Any]]]:
        self._lies.begin(call.function, template)
        return super()._replies(call, template)


class Between:
    """A door whose replies liars hear, or make."""

    def __init__(self, name: str, door: Door, lies: Lies, lying: bool) -> None:
        self._name = name
        self._door = door
        self._lies = lies
        self._lying = lying
        self.repeat = door.repeat

    def call(self, call: Call) -> dict[str, Any]:
        reply = self._door.call(call)
        if self._lying:
            return self._lies.reply(reply)
        self._lies.honest[self._name] = reply
        return reply


class Bench:
    """Documents, and what was trained on them without lies."""

    def __init__(self, documents: Corpus, quick: bool) -> None:
        self.documents = documents
        self.quick = quick
        self._references: dict[Task, TopicModel] = {}

    def clients(self, task: Task) -> dict[str, Corpus]:
        n, liars = LIARS[task.liars]
        labels = np.array(self.documents.labels.to_pylist())  # type: ignore[union-attr]
        rng = np.random.default_rng(task.seed)
        order = {group: number for number, group in enumerate(GROUPS)}
        groups = list(dict.fromkeys(sorted(labels, key=lambda g: order.get(g, len(GROUPS)))))[:n]
        chosen = [rng.permutation(np.flatnonzero(labels == g))[: DOCUMENTS // n] for g in groups]
        if task.split == "even":
            chosen = np.array_split(rng.permutation(np.concatenate(chosen)), n)
        names = [f"honest-{i}" for i in range(n - liars)] + [f"liar-{i}" for i in range(liars)]
        rows = dict(zip(names, chosen, strict=True))
        corpora = {name: self.documents.take(np.sort(part)) for name, part in rows.items()}
        if task.attack == WORDS:
            corpora |= {name: exchanged(corpora[name], task.seed) for name in names[n - liars :]}
        if task.attack == AWAY:
            corpora = {name: part for name, part in corpora.items() if name.startswith("honest")}
        return corpora

    def train(self, task: Task, lies: Lies) -> tuple[TopicModel, dict[str, Corpus]]:
        clients = self.clients(task)
        method = METHODS[task.method] | {"n_components": N_TOPICS, "coherence": "nothing"}
        method |= {"relevance": 1} | ({"max_rounds": 2} if self.quick else {})
        limits = {"max_words": 2000, "max_document_share": 1} | (
            {"min_clients_per_word": 1} if self.quick else {}
        )
        study = Study.make(seed=task.seed, method=method, vocabulary=limits).with_clients(clients)
        truthful = common.doors_of(study, clients, OPEN_POLICY if self.quick else Policy())
        lied = task.attack not in (NOBODY, AWAY, WORDS)
        doors = {
            name: Between(name, door, lies, lied and name.startswith("liar"))
            for name, door in truthful.items()
        }
        return robustly(study, doors, task.rule, lies.hear, partial(Told, lies)), clients

    def measure(self, task: Task) -> dict[str, Any]:
        reference = self.reference(task)
        lies = Lies(task)
        try:
            model, clients = self.train(task, lies)
        except (FedTopicsError, ArithmeticError, ValueError) as error:
            # What is computed from lies can be no number.
            return {"failed": type(error).__name__, "refused": lies.refused}
        honest = [corpus for name, corpus in clients.items() if name.startswith("honest")]
        labels = [label for corpus in honest for label in corpus.labels.to_pylist()]  # type: ignore[union-attr]
        texts = [text for corpus in honest for text in corpus.documents.to_pylist()]
        main = main_topics(model, honest)
        before = main_topics(reference, honest)
        npmi = np.nan_to_num(coherence_of(model.topics(SHOWN, 1), texts, "npmi", None), nan=-1.0)
        words = reference.vocabulary.words, model.vocabulary.words
        beta = np.nan_to_num(model.beta)
        similar = [topic_similarity(topic[None], beta, *words) for topic in reference.beta]
        share = np.bincount(before, minlength=N_TOPICS) / len(before)
        scores = {"purity": purity(labels, main), "npmi": npmi[main].mean(), "tss": share @ similar}
        rounded = {name: round(float(score), 4) for name, score in scores.items()}
        return rounded | {"refused": lies.refused}

    def reference(self, task: Task) -> TopicModel:
        honest = task._replace(attack=NOBODY, rule="none")
        if honest not in self._references:
            self._references = {honest: self.train(honest, Lies(honest))[0]}
        return self._references[honest]


def robustly(
    study: Study,
    doors: Mapping[str, Any],
    rule: Rule,
    hear: Callable[[dict[str, Any]], None],
    engine: Callable[..., LocalClients] = LocalClients,
) -> TopicModel:
    """Train on clients in this process, some of which lie, with a rule of sums."""
    run = RunFolder(None, study.identity(None), on_event=hear)
    clients = engine(doors, robust=Robust(rule, run.event), notify=run.event)
    return finished(study, None, program_of(study).train(clients, run))


def main_topics(model: TopicModel, corpora: list[Corpus]) -> NDArray[np.int64]:
    return np.concatenate([model.transform(corpus).argmax(1) for corpus in corpora])


def exchanged(corpus: Corpus, seed: int) -> Corpus:
    """Exchange words for other words, and what embeddings say for something else."""
    rng = np.random.default_rng(seed)
    texts: Any = corpus.documents.to_pylist()
    words = sorted({word for text in texts for word in text})
    other = dict(zip(words, rng.permutation(words).tolist(), strict=True))
    said = Corpus.of([[other[word] for word in text] for text in texts]).documents
    vectors = corpus.embeddings
    if vectors is not None:
        vectors = vectors[:, rng.permutation(vectors.shape[1])]
    return replace(corpus, documents=said, embeddings=vectors)


def read(data: Path | None) -> Corpus:
    """Return the documents of the newsgroups, with embeddings; or made-up ones."""
    if data is None:
        clients = common.made_up_clients(10, 12)
        texts = [text for corpus in clients.values() for text in corpus.documents.to_pylist()]
        labels = [name for name, corpus in clients.items() for _ in range(len(corpus))]
        corpus = replace(Corpus.of(texts), labels=pa.chunked_array([labels]))
        vectors = np.random.default_rng(0).standard_normal((len(texts), 384), np.float32)
    else:
        file = pq.read_table(common.parquet(data, "20ng"), filters=[("label", "in", GROUPS)])
        corpus = Corpus.of(file, Columns(text="text", tokens="tokens", label="label"))
        groups = np.array(file["label"].to_pylist())
        rng = np.random.default_rng(0)
        most = DOCUMENTS // min(n for n, _ in LIARS.values())
        rows = [rng.permutation(np.flatnonzero(groups == group))[:most] for group in GROUPS]
        corpus = corpus.take(np.sort(np.concatenate(rows)))
        vectors = document_embeddings(corpus, EmbeddingSettings())
    return corpus.with_embeddings(vectors)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return what each rule costs where nobody lies, and loses where somebody does."""
    splits = " | ".join(f"nobody lies, {split}" for split in SPLITS)
    head = f"method | rule | {splits} | lies, median | lies, worst | within {CLOSE}"
    lines = []
    for method, rule in product(METHODS, RULES):
        honest: dict[str, list[list[float]]] = {split: [] for split in SPLITS}
        lied: list[list[float]] = []
        for split, liars in product(SPLITS, LIARS):
            place = {"method": method, "split": split, "liars": liars}.items()
            these = [row for row in rows if place <= row.items()]
            of_rule = [row for row in these if row["rule"] == rule]
            honest[split] += against(NOBODY, these, [r for r in of_rule if r["attack"] == NOBODY])
            lies = [row for row in of_rule if row["attack"] not in (NOBODY, AWAY)]
            lied += against(AWAY, these, lies)
        cells = [method, rule, *(of_all(cost, statistics.mean) for cost in honest.values())]
        cells += [of_all(lied, statistics.median), of_all(lied, min)]
        lines.append([*cells, f"{sum(min(lost) >= -CLOSE for lost in lied)}/{len(lied)}"])
    return common.table(head, lines, left=2)


def against(
    attack: str, rows: list[dict[str, Any]], compared: list[dict[str, Any]]
) -> list[list[float]]:
    """Return differences in purity and NPMI from what is added up in another case."""
    reference = {
        row["seed"]: row for row in rows if (row["attack"], row["rule"]) == (attack, "none")
    }
    return [
        [
            row.get(score, WORST[score]) - reference[row["seed"]][score]
            for score in ("purity", "npmi")
        ]
        for row in compared
        if row["seed"] in reference
    ]


def of_all(lost: list[list[float]], choose: Callable[[list[float]], float]) -> str:
    columns = (list(column) for column in zip(*lost, strict=True))
    return " / ".join(f"{choose(column):+.3f}" for column in columns) or "not run"


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table a method, split and number of liars: an attack a line, a rule a column."""
    for method, split, liars in product(METHODS, SPLITS, LIARS):
        yield from ("", f"**{method}, {split}, {liars}**: purity / NPMI / TSS", "")
        wanted = {"method": method, "split": split, "liars": liars}.items()
        these = (row for row in rows if wanted <= row.items())
        groups = dict(common.each_group(these, "attack", "rule"))
        lines = [[a, *(cell(groups.get((a, rule), [])) for rule in RULES)] for a in CASES]
        yield from common.table(f"attack | {' | '.join(RULES)}", lines)


def cell(rows: list[dict[str, Any]]) -> str:
    if not rows or any("failed" in row for row in rows):
        return "ended" if rows else "-"
    return " / ".join(f"{statistics.mean(row[score] for row in rows):.3f}" for score in WORST)


def main() -> None:
    given = common.arguments(__doc__, "20ng.parquet", methods=METHODS, splits=SPLITS, liars=LIARS)
    bench = Bench(read(None if given.quick else given.data), given.quick)
    splits = given.splits
    liars = given.liars
    seeds = range(SEEDS)
    if given.quick:
        splits = ["even"]
        liars = ["1 of 5"]
        seeds = range(1)
    tasks = [*product(seeds, given.methods, splits, liars, CASES, RULES)]
    if given.quick:  # each attack, and each rule, with some method
        tasks = [t for n, t in enumerate(tasks) if t[4] in (NOBODY, AWAY) or n % 5 == 0]
    common.measured(
        given,
        [
            Task(method, split, number, attack, rule, seed)
            for seed, method, split, number, attack, rule in tasks
            if (seed == 0 or attack == NOBODY) and (rule == "none" or attack != AWAY)
        ],
        bench.measure,
    )
    rows = common.kept_rows(given)
    common.write(given, [INTRODUCTION, "", *summary(rows), *tables(rows)])
