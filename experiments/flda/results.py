"""What the F-LDA experiments leave behind: a page, the numbers, a figure, verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments import report
from experiments.flda.models import DATA_SETS, MODELS, DataSet
from experiments.flda.runs import PACKAGES, Settings, local_topics
from experiments.report import Found, Table, mean, scores, select, spread, verdict
from fedtopics.methods.flda.topic_lists import mean_topic
from fedtopics.metrics import cosines

MEANING = """\
Ten topics, three clients, {documents} new documents of each in a round; mean and deviation over
seeds. c_v: coherence of each topic's ten first words in all texts of the set (window of 110).
Diversity: mean cosine dissimilarity of the topics, as vectors of their ten first words' weights.
Words are ranked by weight, as the paper does it; *as shown*, in the way that a model chooses by
itself (relevance). *pooled*: all documents in one place. *alone*: mean over the clients' own
models. *guided*: by the topics of regular LDA of the same documents. *the paper*: its algorithms
word by word, in two readings, as lines of Algorithm 1 are lost: *transitive* merges what a chain of
similar pairs connects and drops the rest; *pairwise* makes a topic of each similar pair and keeps
the rest. *M*: topics after merging, of which a model has the ten largest; *M\\**: those of a
client, and their mean c_v. Bytes and replies: what leaves one client in all; most of it is the end
of a study (shares, words, coherence)."""
SHARED_WORDS = 12  # in the figure


def tables(settings: Settings, found: Found) -> list[Table]:
    """Return a table a data set."""
    header = (
        "model", "c_v", "diversity", "topics", "c_v as shown", "M", "M\\*", "c_v of M\\*", "rounds",
        "replies", "KB",
    )  # fmt: skip
    return [
        Table(
            f"{data.name}, {settings.a_round(data)} a round",
            header,
            tuple(_line(select(found, data=data.name), name) for name in MODELS),
        )
        for data in DATA_SETS
    ]


def _line(rows: Found, name: str) -> tuple[str, ...]:
    """Return a model's line of a data set's table."""
    model = MODELS[name]

    def means(*keys: tuple[str, int]) -> list[str]:
        return [spread(scores(rows, key, model=name), digits) for key, digits in keys]

    cells = means(("c_v", 3), ("diversity", 3), ("topics", 1), ("shown_c_v", 3))
    cells += means(("m", 1), ("own", 1), ("own_c_v", 3)) if model.literal else ["-", "-", "-"]
    rounds, replies, size = (mean(rows, key, model=name) for key in ("rounds", "replies", "bytes"))
    federated = model.where == "federated"
    cells += [
        f"{rounds:,.0f}",
        *([f"{replies:,.0f}", f"{size / 1000:,.0f}"] if federated else "--"),
    ]
    return f"{model.where}: {model.title}", *cells


def sentences(settings: Settings, found: Found) -> Iterator[str]:
    """Say which claims of the paper hold, by the means over seeds."""
    for data in DATA_SETS:
        yield from _of_data(data, select(found, data=data.name))


def _of_data(data: DataSet, rows: Found) -> Iterator[str]:
    def compare(claim: str, one: str, other: str, *keys: str) -> str:
        parts, above = [], []
        for key in keys:
            first, second = mean(rows, key, model=one), mean(rows, key, model=other)
            above.append(first > second)
            name = {"own_c_v": "c_v of M*"}.get(key, key)
            parts.append(f"{name} {first:.3f} {'above' if above[-1] else 'not above'} {second:.3f}")
        return f"{data.name}: {claim}: {verdict(all(above))} ({'; '.join(parts)})."

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


def page(settings: Settings, found: Found, content: Mapping[str, Any]) -> str:
    """Return the tables and sentences in Markdown, of what `plain` returned."""
    documents = " or ".join(f"{settings.a_round(data):,}" for data in DATA_SETS)
    meaning = MEANING.format(documents=documents)
    return report.page("F-LDA", meaning, content, tables(settings, found))


def plain(settings: Settings, found: Found) -> dict[str, Any]:
    """Return all of it for JSON."""
    return report.plain(settings.command, PACKAGES, sentences(settings, found), found)


def write_results(settings: Settings, found: Found) -> list[Path]:
    """Write flda.md, flda.json and the figure; return their paths."""
    content = plain(settings, found)
    written = report.write(settings.folder, "flda", page(settings, found, content), content)
    return written + report.draw(
        settings.folder / "flda", "flda", partial(_draw, settings=settings)
    )


def alike_pair(sent: Mapping[str, Any]) -> tuple[tuple[str, dict[str, float]], ...]:
    """Return the two topics of different clients that are most alike, each with its client."""
    names = sorted(sent)
    best: tuple[float, Any] = (-1.0, ())
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            first, second = sent[one]["topics"], sent[other]["topics"]
            alike = cosines(first, second)
            if alike.size and alike.max() > best[0]:
                i, j = np.unravel_index(alike.argmax(), alike.shape)
                best = float(alike.max()), ((one, first[i]), (other, second[j]))
    pair: tuple[tuple[str, dict[str, float]], ...] = best[1]
    return pair


def _draw(figure: Any, settings: Settings) -> None:
    """Draw the paper's figures 5, 8 and 9: words that two clients share, before and after."""
    figure.set_size_inches(11, 4.5 * len(DATA_SETS))
    grid = figure.subplots(len(DATA_SETS), 1, squeeze=False)[:, 0]
    for axes, data in zip(grid, DATA_SETS, strict=True):
        pair = alike_pair(local_topics(settings, data))
        merged = mean_topic([topic for _, topic in pair], "zero")
        shared = [word for word in merged if all(word in topic for _, topic in pair)]
        words = shared[:SHARED_WORDS]
        bars = [*pair, ("merged", merged)]
        for number, (name, topic) in enumerate(bars):
            places = np.arange(len(words)) + (number - 1) * 0.27
            axes.bar(places, [topic[word] for word in words], 0.25, label=name)
        axes.set_xticks(np.arange(len(words)), words, rotation=30, ha="right")
        axes.set(title=data.name, ylabel="weight in the topic")
        axes.legend()
