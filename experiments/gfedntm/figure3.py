"""gFedNTM, section 4.1 and figure 3: what pooling or federating brings, on topics that are known.

Documents are drawn from topics of which the clients share some. Each client trains a model alone,
all of them a federated one, and for comparison one has all documents. TSS says how well the true
topics are found, DSS how well the similarities of documents are.

References
----------
Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models, section 4.1, equations 4 to 6.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from experiments.costs import measured
from experiments.gfedntm.figure3_runs import (
    REFERENCES,
    Case,
    Recipe,
    Task,
    alone,
    reference,
    run,
    study_of,
)
from experiments.report import require
from experiments.settings import ExperimentSettings
from fedtopics import __version__
from fedtopics.contract.events import OnEvent
from fedtopics.files import RowFile, digest

SHARED = (5, 10, 15, 30, 40)  # the paper's setting A
ETAS = (0.01, 0.02, 0.03, 0.04, 0.08, 1.0)  # its setting B
ALPHAS = (0.1, 1.0)  # of the authors' configuration; of their text, 50 / K
RECIPES = {
    "algorithm-1": Recipe("ProdLDA by Algorithm 1", {"preset": "paper", "tolerance": 0.0}),
    "paper": Recipe("ProdLDA, the paper's settings", {"preset": "avitm"}),
    "prodlda": Recipe("ProdLDA", {}),
    "prodlda-mixtures": Recipe(
        "ProdLDA for mixtures",
        {"preset": "mixtures", "posterior_gain": 4.0, "encoder_input": "shares"},
    ),
    "ntm": Recipe("NeuralLDA for mixtures", {"network": "neurallda", "preset": "mixtures"}),
    "lda": Recipe("LDA", {"name": "lda", "learning": "stochastic", "max_rounds": 100}),
    "nmf": Recipe("NMF", {"name": "nmf"}, refined=False),
}
PACKAGES = ("fedtopics", "torch", "numpy", "scipy", "numba")
QUICK: dict[str, Any] = {"max_rounds": 3}


@dataclass(frozen=True)
class Settings(ExperimentSettings):
    """How the experiment is run, and which models are trained now.

    `seeds` are LDA's, and NMF's in the first setting; `few_seeds` those of networks, and of NMF
    elsewhere; of networks with the second alpha there is one elsewhere.
    """

    experiment: ClassVar[str] = "gfedntm-figure3"

    seeds: int = 10
    few_seeds: int = 3
    models: tuple[str, ...] = field(default=tuple(RECIPES))

    @property
    def cases(self) -> list[Case]:
        """The corpora: the first setting, A and B, each with the first alpha and then the other."""
        if self.quick:
            first = Case(n_documents=40, n_validation=4)
            return [first, replace(first, shared=40)]
        cases = []
        for alpha in ALPHAS:
            first = Case(alpha=alpha)
            cases += [first, *(replace(first, shared=shared) for shared in SHARED)]
            cases += [replace(first, eta=eta) for eta in ETAS]
        return list(dict.fromkeys(cases))

    def seeds_of(self, model: str, case: Case) -> range:
        """Return the seeds of a model in a setting."""
        if model == "lda" or (model == "nmf" and case.is_first):
            return self.used_seeds
        one = model != "nmf" and case.alpha != ALPHAS[0] and not case.is_first
        return self.used_seeds[: 1 if one else self.few_seeds]

    def recipe(self, model: str) -> Recipe:
        """Return a model's recipe."""
        recipe = RECIPES[model]
        return replace(recipe, method={**recipe.method, **QUICK}) if self.quick else recipe


def tasks(settings: Settings) -> Iterator[Task]:
    """List the trainings, the most telling first: the first corpus, then seed by seed."""
    first, *others = settings.cases

    def of(cases: list[Case], seed: int) -> Iterator[Task]:
        for case in cases:
            for model in settings.models:
                if seed in settings.seeds_of(model, case):
                    scenarios = "federated", "centralised", *alone(case, seed)
                    yield from (Task(case, model, scenario, seed) for scenario in scenarios)

    for seed in settings.used_seeds:
        yield from of([first], seed)
    for seed in settings.used_seeds:
        yield from of(others, seed)


def reproduce(settings: Settings, on_event: OnEvent = lambda _: None) -> list[dict[str, Any]]:
    """Train and score what is not yet there; return a row a training or reference."""
    require(matplotlib="matplotlib")
    row_file = RowFile(settings.folder / "runs.jsonl")
    rows = _references(settings, row_file)
    name = partial(_name, settings)

    def title(task: Task) -> str:
        case = task.case
        where = f"K' = {case.shared}, eta = {case.eta:g}, alpha = {case.alpha:g}"
        return f"{task.model}, {where}, {task.scenario}, seed {task.seed}"

    def work(task: Task) -> dict[str, Any]:
        return run(task, settings.recipe(task.model), on_event)

    row_file.fill(tasks(settings), name, measured(work, PACKAGES), title, on_event)
    every = tasks(replace(settings, models=tuple(RECIPES)))
    return rows + [row for task in every if (row := row_file.find(name(task)))]


def _references(settings: Settings, row_file: RowFile) -> list[dict[str, Any]]:
    """Score what needs no training, for every corpus."""
    rows = []
    for case in settings.cases:
        for seed in settings.used_seeds:
            for name in REFERENCES:
                wanted = _name(settings, Task(case, name, "", seed))
                row = row_file.find(wanted)
                rows.append(row or row_file.keep(wanted | reference(name, case, seed)))
    return rows


def _name(settings: Settings, task: Task) -> dict[str, Any]:
    """Return what says which task it is, and what its model is made of."""
    made_of = ""
    if task.model in RECIPES:
        study = study_of(settings.recipe(task.model), task.seed)
        made_of = study.model_dump_json(include={"seed", "method", "vocabulary"})
    return asdict(task) | {"made_of": digest(f"{__version__} {made_of}")}
