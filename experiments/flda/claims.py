"""Which claims of the F-LDA paper hold, by the means over seeds."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from experiments.flda.models import WAYS, DataSet
from experiments.flda.runs import Settings
from experiments.flda.similarities import MEASURES
from experiments.flda.tables import auc, client_seconds, each_round, server_seconds
from experiments.report import Found, mean, select, verdict

MERGING = {way: title for way, (title, _, _) in WAYS.items() if way != "anew"}
CONVERGED = 0.95  # how like the round before the last round's topics are
STILL = 0.02  # by how much c_v changes over the last three rounds at most
CLOSE = 0.05  # by how much the best similarity may be above the cosine
KEPT = 0.9  # of what clients find alone


def sentences(settings: Settings, found: Found) -> Iterator[str]:
    """Say which claims of the paper hold, by the means over seeds."""
    for data in settings.data_sets:
        rows = select(found, data=data.name)
        yield from _of_data(data, rows)
        for claims in (_of_clients_that_differ, _of_rounds, _of_messages, _of_seconds):
            yield from (f"{data.name}: {claim}" for claim in claims(rows))
    yield from _of_similarities(found)


def _compare(rows: Found, claim: str, one: str, other: str, *keys: str) -> str:
    """Say whether one model is above another in all scores."""
    parts, above = [], []
    for key in keys:
        first, second = mean(rows, key, model=one), mean(rows, key, model=other)
        above.append(first > second)
        name = {"own_c_v": "c_v of M*"}.get(key, key)
        parts.append(f"{name} {first:.3f} {'above' if above[-1] else 'not above'} {second:.3f}")
    return f"{claim}: {verdict(all(above))} ({'; '.join(parts)})."


def _of_data(data: DataSet, rows: Found) -> Iterator[str]:
    """Claims on documents that are dealt out at random."""

    def compare(claim: str, *what: str) -> str:
        return f"{data.name}: {_compare(rows, claim, *what)}"

    both = "c_v", "diversity"
    yield compare("guided LDA beats regular LDA, pooled", "pooled-guided", "pooled", *both)
    yield compare("guided LDA beats regular LDA, alone", "alone-guided", "alone", *both)
    yield compare("pooled LDA is more coherent than clients alone", "pooled", "alone", "c_v")
    yield compare("F-LDA (round 3) beats federated regular LDA", "flda-3", "federated", *both)
    yield compare(
        "F-LDA (round 3) beats federated regular LDA of all its documents",
        "flda-3", "federated-all", *both,
    )  # fmt: skip
    for reading in ("transitive", "pairwise"):
        claim = f"the paper's algorithms, {reading}, beat their regular LDA"
        yield compare(claim, f"{reading}-3", f"{reading}-1", "own_c_v")
    rounds = [mean(rows, "c_v", model=model) for model in ("federated", "flda-2", "flda-3")]
    change = max(abs(after / before - 1) for before, after in pairwise(rounds))
    alone = mean(rows, "c_v", model="alone")
    yield (
        f"{data.name}: rounds change c_v by a tenth at most and stay above clients alone: "
        f"{verdict(change <= 0.1 and min(rounds) > alone)} "
        f"({', '.join(f'{value:.3f}' for value in rounds)}; alone {alone:.3f})."
    )
    yield compare("round 3 is above pooled regular LDA", "flda-3", "pooled", *both)
    for reading in ("transitive", "pairwise"):
        sizes = [mean(rows, "m", model=f"{reading}-{number}") for number in (1, 2, 3)]
        own = mean(rows, "own", model=f"{reading}-3")
        yield (
            f"{data.name}: word by word, {reading}, with the paper's threshold of {data.gamma}, "
            f"M has {', '.join(f'{size:.1f}' for size in sizes)} topics after rounds 1 to 3, and "
            f"a client {own:.1f} of them at last."
        )


def _of_clients_that_differ(rows: Found) -> Iterator[str]:
    """Claims on documents that are dealt out by subject."""
    alone = mean(rows, "found_own", model="skewed-alone-all")
    for way, title in MERGING.items():
        model = f"skewed-{way}-3"
        claim = f"clients differ: {title}, round 3, beats regular LDA alone of the same documents"
        yield _compare(rows, claim, model, "skewed-alone-all", "c_v")
        shown, kept = (mean(rows, key, model=model) for key in ("found_own", "found_in_own"))
        yield (
            f"clients differ: {title} keeps what only one client has: in the model "
            f"{verdict(shown >= KEPT * alone)}, in its M* {verdict(kept >= KEPT * alone)} "
            f"({shown:.3f}, {kept:.3f}; alone {alone:.3f})."
        )


def _of_rounds(rows: Found) -> Iterator[str]:
    """Claims on how topics change over many rounds."""
    for kind, title in (("new", "new documents"), ("same", "the same documents")):
        for way, name in MERGING.items():
            keys = "alike", "c_v", "m"
            alike, c_v, m = (each_round(rows, f"{way}-{kind}", key) for key in keys)
            change = max(c_v[-3:]) - min(c_v[-3:])
            yield (
                f"{name}, rounds of {title}, converges: "
                f"{verdict(alike[-1] >= CONVERGED and change <= STILL)} (like the round before "
                f"{alike[1]:.2f} at first, {alike[-1]:.2f} at last; c_v changes by {change:.3f} in "
                f"the last three rounds; topics of M {m[0]:.1f} at first, {m[-1]:.1f} at last)."
            )


def _of_messages(rows: Found) -> Iterator[str]:
    """Claims on what is sent to a client."""
    for way, title in MERGING.items():
        whole, part = (sum(each_round(rows, f"{way}-3", key)) for key in ("m_bytes", "own_bytes"))
        yield (
            f"sending M* in place of M saves, {title}: {verdict(part < whole)} "
            f"({part / 1000:.1f} KB in place of {whole / 1000:.1f} to a client in three rounds)."
        )


def _of_seconds(rows: Found) -> Iterator[str]:
    """Claims on what is computed where."""
    pooled = mean(rows, "training_seconds", model="pooled-all")
    client, server = client_seconds(rows, "flda-3"), server_seconds(rows, "flda-3")
    yield (
        f"nobody computes as much as who has all documents: {verdict(client + server < pooled)} "
        f"(core-seconds: a client {client:.2f}, merging {server:.2f}, pooled {pooled:.2f})."
    )


def _of_similarities(found: Found) -> Iterator[str]:
    """Claims on the cosine."""
    rows = select(found, model="similarity")
    behind, least = {}, {}
    for pairs in dict.fromkeys(row["data"] for row in rows):
        own = select(rows, data=pairs)
        means = {name: float(np.mean(auc(own, name))) for name in MEASURES if auc(own, name)}
        behind[pairs], least[pairs] = max(means.values()) - means["cosine"], means["cosine"]
    most, worst = max(behind, key=behind.__getitem__), min(least, key=least.__getitem__)
    yield (
        f"no similarity tells better than the cosine which topics are the same, within {CLOSE}: "
        f"{verdict(behind[most] <= CLOSE)} (the best is {behind[most]:.3f} above it, {most}); its "
        f"least area under the ROC curve is {least[worst]:.3f} ({worst})."
    )
