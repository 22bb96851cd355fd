"""What the scores of the FSTC experiments say on the paper's claims, in sentences.

No sentence knows the outcome: which claims hold is read off the rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from experiments.fstc.methods import DAMAGED, ENCODERS, LOSSES, MASSES, TITLES, VIEWS, DataSet
from experiments.fstc.parts import COMPARED, CONTROLS, FORMS, LEARNED, SHAKEN, SWEEPS, VIEWED
from experiments.fstc.published import PAPERS_ENCODER, PUBLISHED
from experiments.fstc.significance import LEVEL, UTest
from experiments.fstc.tables import STARTS, Wanted, data_sets, pictured
from experiments.report import Found, mean, scores, select, verdict
from fedtopics.text.embeddings import EmbeddingSettings

ENCODER = EmbeddingSettings().model


def sentences(found: Found) -> Iterator[str]:
    """Say what is best, what reaches the paper, what each step adds, and what is the encoder's."""
    for data in data_sets(found, "table2"):
        rows = select(found, part="table2", data=data.name)
        seeds = {title: len(select(rows, name=name)) for name, title in TITLES.items()}
        most = max(seeds.values())
        if fewer := [f"{title} ({n})" for title, n in seeds.items() if n < most]:
            yield f"{data.title}: fewer than {most} seeds were run of {', '.join(fewer)}."
        if all(seeds.values()):
            yield from _of_table2(found, data)
        yield _significant(found, data)
    for data in data_sets(found, "ablation"):
        for start in STARTS:
            yield _of_ablation(found, data, start)
    for data in data_sets(found, "losses"):
        yield _of_losses(found, data)
    for data in data_sets(found, "lambda"):
        for name in FORMS:
            yield _of_lambda(found, data, name)
    for part in ("clients", "shares"):
        for data in data_sets(found, part):
            yield from _of_clients(found, data, part)
    for data in data_sets(found, "skew"):
        yield from _of_skew(found, data)
    for data in data_sets(found, "noise"):
        yield _of_noise(found, data)
    for data in data_sets(found, "views"):
        yield from _of_views(found, data)
    for data in data_sets(found, "encoders"):
        yield from _of_encoders(found, data)
    for data in data_sets(found, "picture"):
        yield _of_picture(found, data)


def _of_table2(found: Found, data: DataSet) -> Iterator[str]:
    rows = select(found, part="table2", data=data.name)
    acc, nmi = ({name: mean(rows, score, name=name) for name in TITLES} for score in ("acc", "nmi"))
    first, second = (max(means, key=means.__getitem__) for means in (acc, nmi))
    yield (
        f"{data.title}: best in ACC is {TITLES[first]} ({acc[first]:.2f}), best in NMI is "
        f"{TITLES[second]} ({nmi[second]:.2f})."
    )
    if data.name in PUBLISHED:
        yield from _beside_published(data, acc, nmi)
    else:
        added = acc["paper"] - acc["fsbert"]
        yield f"{data.title}: {TITLES['paper']} adds {added:+.2f} to FSBERT's ACC."
    gains = [_gain(rows, score, {"name": "fstc"}, {"name": "discriminative"})
             for score in ("acc", "nmi")]  # fmt: skip
    adds = "adds to" if all(gain.clear for gain in gains) else "does not add to"
    yield (
        f"{data.title}: training FSTC {adds} the discriminative start: ACC {gains[0]}; NMI "
        f"{gains[1]}."
    )
    order = [acc[name] for name in ("stc", "rstc", "paper")]
    yield (
        f"{data.title}: the mixture and then the common centres each raise ACC, as in the paper: "
        f"{verdict(order == sorted(set(order)))} "
        f"({', '.join(f'{value:.2f}' for value in order)})."
    )


def _beside_published(
    data: DataSet, acc: Mapping[str, float], nmi: Mapping[str, float]
) -> Iterator[str]:
    """Say which methods reach the published FSTC, and how much of that is the encoder's."""
    known = PUBLISHED[data.name]
    paper = known["paper"]
    reached = {name: (acc[name] >= paper.acc) + (nmi[name] >= paper.nmi) for name in TITLES}
    yield (
        f"{data.title}: the published FSTC ({paper.acc:.2f} / {paper.nmi:.2f}) is reached in "
        f"both scores by {_names(reached, 2)}; in one of them by {_names(reached, 1)}. "
        f"{TITLES['paper']} has {acc['paper']:.2f} / {nmi['paper']:.2f} here."
    )
    here, there, best = acc["fsbert"], known["fsbert"].acc, max(acc.values())
    yield (
        f"{data.title}: k-means of the embeddings (FSBERT) has ACC {here:.2f} with {ENCODER}; "
        f"{there:.2f} was published with {PAPERS_ENCODER}. Our best is {best - there:.2f} above "
        f"the latter, and {here - there:.2f} of it are the encoder's. {TITLES['paper']} adds "
        f"{acc['paper'] - here:+.2f} to FSBERT here, {paper.acc - there:+.2f} as published."
    )


def _names(reached: Mapping[str, int], times: int) -> str:
    return ", ".join(TITLES[name] for name, n in reached.items() if n == times) or "none"


def _significant(found: Found, data: DataSet) -> str:
    """Say what FSTC is significantly above, as the paper's table 2 marks it."""
    said: dict[str, list[str]] = {"above": [], "not above": [], "cannot be said of": []}
    for other in ("fbow", "ftfidf", "fsbert", "fsccl"):
        tests = [UTest.of(found, data.name, score, "paper", other) for score in ("acc", "nmi")]
        kind = "above" if all(test.significant for test in tests) else "not above"
        said[kind if all(test.can_tell for test in tests) else "cannot be said of"].append(
            TITLES[other]
        )
    parts = "; ".join(f"{kind} {', '.join(names)}" for kind, names in said.items() if names)
    claim = "cannot be said" if said["cannot be said of"] else verdict(not said["not above"])
    return (
        f"{data.title}: {TITLES['paper']} is above each baseline in both scores by a one-sided "
        f"Mann-Whitney U test (p < {LEVEL}), as in the paper: {claim} ({parts})."
    )


def _of_views(found: Found, data: DataSet) -> Iterator[str]:
    rows = select(found, part="views", data=data.name)
    plain, *others = VIEWS
    for name in VIEWED:
        changes = [
            f"{views}: ACC {_both_gains(rows, name, views, plain)}"
            for views in others
            if select(rows, name=name, views=views) and select(rows, name=name, views=plain)
        ]
        if changes:
            yield f"{data.title}, {TITLES[name]}, by what is seen: {'; '.join(changes)}."


def _both_gains(rows: Found, name: str, views: str, plain: str) -> str:
    gains = (
        str(_gain(rows, score, {"name": name, "views": views}, {"name": name, "views": plain}))
        for score in ("acc", "nmi")
    )
    return "; NMI ".join(gains)


def _of_encoders(found: Found, data: DataSet) -> Iterator[str]:
    rows = select(found, part="encoders", data=data.name)
    for encoder in ENCODERS:
        acc = {
            name: mean(rows, "acc", name=name, encoder=encoder)
            for name in TITLES
            if select(rows, name=name, encoder=encoder)
        }
        if acc:
            best = max(acc, key=acc.__getitem__)
            said = ", ".join(f"{TITLES[name]} {value:.2f}" for name, value in acc.items())
            yield f"{data.title}, {encoder}: best in ACC is {TITLES[best]} ({said})."


class _Gain:
    """By how much one thing is above another, seed by seed."""

    def __init__(self, one: Sequence[float], other: Sequence[float]) -> None:
        gains = np.subtract(one, other)
        self.mean = float(gains.mean())
        self.better, self.seeds = int((gains > 0).sum()), len(gains)

    @property
    def clear(self) -> bool:
        """Whether it is above on average and in most seeds."""
        return self.mean > 0 and 2 * self.better > self.seeds

    def __str__(self) -> str:
        return f"{self.mean:+.2f}, better in {self.better} of {self.seeds} seeds"


def _gain(found: Found, score: str, one: Wanted, other: Wanted) -> _Gain:
    seeds = [{row["seed"] for row in select(found, **wanted)} for wanted in (one, other)]
    both = sorted(seeds[0] & seeds[1])
    values = ([scores(found, score, **wanted, seed=seed)[0] for seed in both]
              for wanted in (one, other))  # fmt: skip
    return _Gain(*values)


def _of_ablation(found: Found, data: DataSet, start: str) -> str:
    rows = select(found, part="ablation", data=data.name, start=start)
    pairs = {
        "training without the mixture": ("plain", "alone"),
        "the mixture from the beginning": ("mixture", "plain"),
        "the mixture from the middle": ("late", "plain"),
        "pulling centres together": ("plain", "unaligned"),
    }
    said = []
    for what, (one, other) in pairs.items():
        gain = _gain(rows, "acc", {"name": one}, {"name": other})
        said.append(f"{what} {'helps' if gain.clear else 'does not help'} ({gain})")
    return f"{data.title}, {STARTS[start]}, by ACC: {'; '.join(said)}."


def _of_losses(found: Found, data: DataSet) -> str:
    rows = select(found, part="losses", data=data.name)
    squared, entropy = LOSSES
    gains = {
        name: _gain(rows, "acc", {"name": name, "loss": squared}, {"name": name, "loss": entropy})
        for name in LEARNED
        if select(rows, name=name, loss=squared) and select(rows, name=name, loss=entropy)
    }
    said = "; ".join(f"{TITLES[name]} {gain}" for name, gain in gains.items())
    return (
        f"{data.title}: squared error is above cross entropy in ACC, as the paper has it: "
        f"{verdict(all(gain.clear for gain in gains.values()))} ({said})."
    )


def _of_noise(found: Found, data: DataSet) -> str:
    rows = select(found, part="noise", data=data.name)
    most = max(DAMAGED)
    acc = {
        name: [mean(rows, "acc", name=name, damaged=share) for share in (0.0, most)]
        for name in SHAKEN
        if select(rows, name=name, damaged=most) and select(rows, name=name, damaged=0.0)
    }
    change = {name: after - before for name, (before, after) in acc.items()}
    said = ", ".join(f"{TITLES[name]} {value:+.2f}" for name, value in change.items())
    return (
        f"{data.title}: what mistakes in {most:.0%} of the words change in ACC: {said}; "
        f"{TITLES['paper']} bears them better than {TITLES['fsbert']}: "
        f"{verdict(change['paper'] > change['fsbert'])}."
    )


def _of_lambda(found: Found, data: DataSet, name: str) -> str:
    rows = select(found, part="lambda", data=data.name, name=name)
    lambdas = SWEEPS["lambda"].values
    values = [mean(rows, "acc", alignment=value) for value in lambdas]
    best = int(np.argmax(values))
    steps = [after > before for before, after in pairwise(values)]
    rises_and_falls = steps == sorted(steps, reverse=True) and 0 < best < len(values) - 1
    return (
        f"{data.title}, {TITLES[name]}: best lambda by ACC is {lambdas[best]:g} "
        f"({values[best]:.2f}), the worst has {min(values):.2f}; ACC rises and then falls with "
        f"lambda, as in the paper: {verdict(rises_and_falls)}."
    )


def _of_clients(found: Found, data: DataSet, part: str) -> Iterator[str]:
    rows = select(found, part=part, data=data.name)
    key, values = SWEEPS[part].key, SWEEPS[part].values
    acc = {
        name: [mean(rows, "acc", name=name, **{key: value}) for value in values]
        for name in COMPARED
    }
    for name in FORMS:
        beside = list(zip(values, acc[name], acc["fsccl"], strict=True))
        said = [f"{key} = {value}: {one:.1f} against {other:.1f}" for value, one, other in beside]
        holds = all(one > other for _, one, other in beside)
        yield (
            f"{data.title}: {TITLES[name]} is above {TITLES['fsccl']} in ACC for each {key}: "
            f"{verdict(holds)} "
            f"({'; '.join(said)})."
        )
    change = ", ".join(f"{TITLES[name]} {a[-1] - a[0]:+.1f}" for name, a in acc.items())
    yield f"{data.title}: change of ACC from {key} = {values[0]} to {key} = {values[-1]}: {change}."


def _of_skew(found: Found, data: DataSet) -> Iterator[str]:
    rows = select(found, part="skew", data=data.name)
    skewed, even = select(rows, labels="skewed"), select(rows, labels="even")
    lines: list[Wanted] = [{"name": name} for name in CONTROLS]
    lines.append({"name": "fstc", "masses": "even"})
    change = [
        f"{TITLES[line['name']]} {mean(skewed, 'acc', **line) - mean(even, 'acc', **line):+.2f}"
        for line in lines
    ]
    yield f"{data.title}: what skewed labels change in ACC: {', '.join(change)}."
    for labels, of_labels in (("skewed", skewed), ("even", even)):
        acc = {masses: mean(of_labels, "acc", masses=masses) for masses in MASSES}
        said = ", ".join(f"{masses} {value:.2f}" for masses, value in acc.items())
        best = max(acc, key=acc.__getitem__)
        yield (
            f"{data.title}, {labels} labels: the best masses for FSTC's transport are {best!r} "
            f"(ACC: {said}; discriminative clustering, which it begins with, "
            f"{mean(of_labels, 'acc', name='discriminative'):.2f})."
        )


def _of_picture(found: Found, data: DataSet) -> str:
    rows = pictured(found, data)
    said = ", ".join(f"{TITLES[row['name']]} {row['neighbours']:.1f}" for row in rows)
    return f"{data.title}: per cent of nearest neighbours of the same label: {said}."
