"""The tables of the F-LDA page."""

from collections.abc import Mapping

import numpy as np

from experiments import costs
from experiments.flda.models import (
    DATA_SETS,
    MANY_ROUNDS,
    MODELS,
    N_ROUNDS,
    NEW_DOCUMENTS,
    RANDOM,
    REPEATED_ROUNDS,
    SAME_DOCUMENTS,
    SKEWED,
    DataSet,
    Model,
)
from experiments.flda.runs import Settings, tasks
from experiments.flda.similarities import MEASURES
from experiments.flda.similarities import tasks as pairs_of
from experiments.report import Rows, Table, mean, scores, select, spread


def tables(settings: Settings, all_rows: Rows) -> list[Table]:
    """Return all tables; a model that has no rows is in none."""
    sets = settings.data_sets
    every = [_scores(settings, data, select(all_rows, data=data.name)) for data in sets]
    every += [_skewed(data, select(all_rows, data=data.name)) for data in sets]
    for data in sets:
        rows = select(all_rows, data=data.name)
        title = f"{data.name}, {MANY_ROUNDS} rounds of {settings.a_round(data, 0.5)} new documents"
        every.append(_rounds(title, rows, NEW_DOCUMENTS, MANY_ROUNDS))
        title = f"{data.name}, {REPEATED_ROUNDS} rounds of the same documents"
        every.append(_rounds(title, rows, SAME_DOCUMENTS, REPEATED_ROUNDS))
    every += [
        _messages(settings, all_rows),
        _seconds(settings, all_rows),
        _similarities(settings, all_rows),
    ]
    return [*every, costs.table(_groups(settings, all_rows))]


def _scores(settings: Settings, data: DataSet, rows: Rows) -> Table:
    """Return the table of documents that are dealt out at random."""
    header = (
        "model",
        "c_v",
        "diversity",
        "topics",
        "c_v as shown",
        "M",
        "M\\*",
        "c_v of M\\*",
        "rounds",
        "replies",
        "KB",
    )
    keys = ("c_v", 3), ("diversity", 3), ("topics", 1), ("shown_c_v", 3)

    def line(name: str, model: Model) -> tuple[str, ...]:
        rounds, replies, size = (
            mean(rows, key, model=name) for key in ("rounds", "replies", "bytes")
        )
        left = (f"{replies:,.0f}", f"{size / 1000:,.0f}") if model.where == "federated" else "--"
        cells = [spread(scores(rows, key, model=name), digits) for key, digits in keys]
        return _title(model), *cells, *_merged(rows, name), f"{rounds:,.0f}", *left

    title = f"{data.name}, {settings.a_round(data)} a round"
    lines = [line(name, model) for name, model in RANDOM.items() if select(rows, model=name)]
    return Table(title, header, tuple(lines))


def _skewed(data: DataSet, rows: Rows) -> Table:
    """Return the table of documents that are dealt out by subject."""
    header = (
        "model",
        "c_v",
        "diversity",
        "subjects",
        "own subjects",
        "own, in M\\*",
        "M",
        "M\\*",
        "c_v of M\\*",
    )
    keys = "c_v", "diversity", "found", "found_own"

    def line(name: str, model: Model) -> tuple[str, ...]:
        cells = [spread(scores(rows, key, model=name), 3) for key in keys]
        merged = MODELS[name].where == "federated"
        in_own = spread(scores(rows, "found_in_own", model=name), 3) if merged else "-"
        return _title(model), *cells, in_own, *_merged(rows, name)

    title = f"{data.name}, documents dealt out by subject"
    lines = [line(name, model) for name, model in SKEWED.items() if select(rows, model=name)]
    return Table(title, header, tuple(lines))


def _title(model: Model) -> str:
    return f"{model.where}: {model.title}"


def _merged(rows: Rows, name: str) -> tuple[str, ...]:
    """Return the sizes of M and M*, and the coherence of M*; dashes where nothing was merged."""
    if not all("m" in row for row in select(rows, model=name)):
        return "-", "-", "-"
    keys = ("m", 1), ("own", 1), ("own_c_v", 3)
    return tuple(spread(scores(rows, key, model=name), digits) for key, digits in keys)


def each_round(rows: Rows, name: str, key: str) -> list[float]:
    """Return what a model's rounds say, the mean over seeds; nan where one does not say it.

    Examples
    --------
    >>> rows = [{"model": "flda-2", "each_round": [{"m": 4.0}, {"m": n}]} for n in (5.0, 7.0)]
    >>> each_round(rows, "flda-2", "m")
    [4.0, 6.0]
    """
    by_seed = [[round_[key] for round_ in row["each_round"]] for row in select(rows, model=name)]
    return np.array(by_seed, float).mean(0).tolist()  # type: ignore[no-any-return]


def _rounds(title: str, rows: Rows, models: Mapping[str, Model], n_rounds: int) -> Table:
    """Return how topics change from round to round, the means over seeds."""
    pairs = (
        ("topics of M / M\\*", "m", "own", 1),
        ("c_v / of M\\*", "c_v", "own_c_v", 3),
        ("like the round before / at a client", "alike", "sent_alike", 2),
    )
    lines = []
    for name, model in models.items():
        if select(rows, model=name):
            for what, one, other, digits in pairs:
                both = zip(each_round(rows, name, one), each_round(rows, name, other), strict=True)
                cells = (" / ".join(spread([value], digits) for value in pair) for pair in both)
                lines.append((f"{model.title}: {what}", *cells))
    return Table(title, ("model", *map(str, range(1, n_rounds + 1))), tuple(lines))


def _messages(settings: Settings, all_rows: Rows) -> Table:
    """Return what M and a client's M* take in a message, round by round."""
    lines = []
    for data in settings.data_sets:
        rows = select(all_rows, data=data.name)
        for name in ("flda-3", "transitive-3", "pairwise-3"):
            keys = "m", "own", "m_bytes", "own_bytes"
            values = zip(*(each_round(rows, name, key) for key in keys), strict=True)
            title = MODELS[name].title.partition(", round")[0]
            for number, (m, optimal, whole, part) in enumerate(values, 1):
                cells = f"{m:.1f}", f"{whole / 1000:.1f}", f"{optimal:.1f}", f"{part / 1000:.1f}"
                lines.append((f"{data.name}, {title}, round {number}", *cells, _saved(whole, part)))
    header = "to a client", "topics of M", "KB", "topics of M\\*", "KB", "saved"
    return Table("M or M\\* in a message", header, tuple(lines))


def _saved(whole: float, part: float) -> str:
    return f"{1 - part / whole:.0%}"


def client_seconds(rows: Rows, name: str) -> float:
    """Return the core-seconds of one of the clients of a model: a third of what is not merging."""
    return (mean(rows, "training_seconds", model=name) - server_seconds(rows, name)) / 3


def server_seconds(rows: Rows, name: str) -> float:
    """Return the core-seconds that merging takes in all rounds of a model."""
    return sum(each_round(rows, name, "seconds"))


def _seconds(settings: Settings, all_rows: Rows) -> Table:
    """Return what is computed where, in core-seconds."""
    header = "core-seconds of a training", *(data.name for data in settings.data_sets)
    of = [select(all_rows, data=data.name) for data in settings.data_sets]
    what = {
        f"pooled: regular LDA, documents of {N_ROUNDS} rounds": [
            mean(rows, "training_seconds", model="pooled-all") for rows in of
        ],
        f"alone: regular LDA, documents of {N_ROUNDS} rounds": [
            mean(rows, "training_seconds", model="alone-all") for rows in of
        ],
        "the same, the client with the most": [
            mean(rows, "most_training_seconds", model="alone-all") for rows in of
        ],
        f"F-LDA, {N_ROUNDS} rounds, a client": [client_seconds(rows, "flda-3") for rows in of],
        f"F-LDA, {N_ROUNDS} rounds, merging": [server_seconds(rows, "flda-3") for rows in of],
    }
    lines = [(name, *(f"{value:.2f}" for value in values)) for name, values in what.items()]
    return Table("What is computed where", header, tuple(lines))


def _similarities(settings: Settings, all_rows: Rows) -> Table:
    """Return how well similarities tell which topics are the same."""
    lines = []
    labelled = {data.name for data in DATA_SETS}
    for pairs in dict.fromkeys(name for name, _ in pairs_of(settings.used_seeds)):
        rows = select(all_rows, data=pairs, model="similarity")
        numbers = [f"{sum(row[key] for row in rows) / len(rows):,.0f}" for key in ("pairs", "same")]
        aucs = [spread(auc(rows, measure), 3) for measure in MEASURES]
        title = f"{pairs}, labelled by a person" if pairs in labelled else pairs
        lines.append((title, *numbers, *aucs))
    names = "cosine", "Hellinger", "Jensen-Shannon", "Jaccard"  # in the order of MEASURES
    header = "area under the ROC curve", "pairs", "same", *names
    return Table("Which topics are the same, by similarity", header, tuple(lines))


def auc(rows: Rows, measure: str) -> list[float]:
    """Return the areas under a similarity's ROC curve, those that there are."""
    values = [row["scores"].get(measure, {}).get("auc") for row in rows]
    return [value for value in values if value is not None]


def _groups(settings: Settings, all_rows: Rows) -> costs.Groups:
    """Return the rows by what takes about the same time."""
    names = [name for _, name, _ in tasks(settings)]
    groups = {}
    for kind in dict.fromkeys(map(_kind, names)):
        rows = [row for row in all_rows if row["model"] in MODELS and _kind(row["model"]) == kind]
        groups[kind] = sum(_kind(name) == kind for name in names), rows
    pairs = select(all_rows, model="similarity")
    return groups | {"similarities": (len(pairs_of(settings.used_seeds)), pairs)}


def _kind(name: str) -> str:
    model = MODELS[name]
    if model.where != "federated":
        return "LDA, pooled and alone"
    return "LDA and F-LDA, federated" if model.method.get("name") == "flda" else model.title
