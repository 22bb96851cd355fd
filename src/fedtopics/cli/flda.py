"""Commands for F-LDA: which topics are the same, and what became of them over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedtopics.cli import options
from fedtopics.cli.display import print_json, say
from fedtopics.cli.options import FOLDER
from fedtopics.errors import DataError, ModelError
from fedtopics.files import write_output


@click.group("flda")
def group() -> None:
    """Find the threshold of F-LDA with a person's help.

    After a first run `sample-pairs` draws pairs of its topics. Label them in the file that it
    writes; `threshold` then finds the cosine from which topics are the same, for the next study.
    """


@group.command()
@click.argument("run", type=FOLDER)
@options.output("--out", "-o", required=True, help="CSV file to write.")
@options.with_default(
    "--pairs", "n_pairs", type=click.IntRange(1), default=60, help="How many to draw."
)
@options.with_default("--seed", type=click.IntRange(0), default=0, help="Of what is drawn.")
@options.words
def sample_pairs(run: Path, out: Path, n_pairs: int, seed: int, words: int) -> None:
    """Draw pairs of topics of different clients, for a person to label.

    RUN is the folder of a run of F-LDA, at the server. The pairs are of all degrees of similarity:
    as many of each as there are.
    """
    from fedtopics.methods.flda.labelled_pairs import check_free, read_topics, write_pairs
    from fedtopics.methods.flda.labelled_pairs import sample_pairs as sample

    check_free(out)
    pairs = sample(read_topics(run), n_pairs, seed, words)
    write_pairs(out, pairs)
    alike = [pair.cosine for pair in pairs]
    few = ", all there are," if len(pairs) < n_pairs else ""
    say(
        f"{len(pairs):,} pairs{few} to {out}; of a cosine from {min(alike):.2f} to "
        f"{max(alike):.2f}.\nWrite 1 (the same topic) or 0 (another one) into its last column; "
        f"then:  python -m fedtopics.cli.flda threshold {out}"
    )


@group.command()
@click.argument("pairs", type=FOLDER)
@click.option(
    "--compare", type=click.FloatRange(0, 1), help="Another threshold to hold against it."
)
@options.output("--plot", help="SVG file of the curve to write.")
@options.as_json
def threshold(pairs: Path, compare: float | None, plot: Path | None, as_json: bool) -> None:
    """Find from which cosine on topics are the same, by the labels of PAIRS.

    It is the cosine at which they are as likely the same as not, by logistic regression.
    """
    from fedtopics.methods.flda.labelled_pairs import (
        decided_alike,
        draw_curve,
        fit_curve,
        read_pairs,
    )

    drawn = read_pairs(pairs)
    try:
        curve = fit_curve(drawn)
    except DataError as error:
        raise DataError(f"{pairs}: {error}") from None
    if plot is not None:
        write_output(plot, draw_curve(drawn, curve).encode(), [".svg"], [pairs])
    facts = {
        "threshold": curve.threshold,
        "pairs": len(drawn),
        "labelled": sum(pair.same is not None for pair in drawn),
        "same": sum(pair.same is True for pair in drawn),
        "decided_alike": decided_alike(drawn, curve.threshold),
    }
    if compare is not None:
        facts |= {"compared": compare, "compared_decided_alike": decided_alike(drawn, compare)}
    if as_json:
        print_json(facts)
        return
    say(
        f"threshold = {curve.threshold:.3f}   for [method] of the study: from this cosine on two "
        "topics are rather the same\n"
        f"It decides {facts['decided_alike']} of {facts['labelled']} labelled pairs as the person "
        f"did, who found {facts['same']} the same."
    )
    if compare is not None:
        say(f"{compare:g} decides {facts['compared_decided_alike']} of them so.")
    if plot is not None:
        say(f"The picture is {plot}.")


def print_history(model: Path, as_json: bool) -> None:
    """Print the topics of a model of F-LDA in each round: which are new, vanished, how large.

    The table has the largest topics of each round. One that was there before, but small, can enter
    it without being new, and leave it without having vanished.
    """
    from fedtopics.model.folder import model_folder
    from fedtopics.model.topic_model import TopicModel

    folder = model_folder(model)
    info = TopicModel.from_pretrained(folder).info
    if info.get("method") != "flda":
        raise ModelError(
            f"The model in {folder} is of {info.get('method', 'an unknown method')}, whose topics "
            "do not come and go by rounds; name one of F-LDA."
        )
    history = info["history"]
    rows = _topic_rows(history)
    if as_json:
        print_json({"topics": rows, "rounds": history})
        return
    say(
        "topic, its share of the words of a round's largest topics, its words; '-' where it is not "
        "one of them"
    )
    say(" " * 5 + "".join(f"{entry['round']:>8}" for entry in history), "bold")
    for row in rows:
        shares = "".join(f"{'-' if x is None else format(x, '.1%'):>8}" for x in row["shares"])
        say(f"{row['id']:>5}{shares}  {' '.join(row['words'])}")
    for entry in history:
        _print_round(entry)


def _topic_rows(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row a topic: its last words, and its share in each round, none where it is not."""
    words: dict[int, list[str]] = {}
    shares: list[dict[int, float]] = []
    for entry in history:
        total = sum(topic["occurrences"] for topic in entry["topics"]) or 1.0
        shares.append({topic["id"]: topic["occurrences"] / total for topic in entry["topics"]})
        words |= {topic["id"]: topic["words"] for topic in entry["topics"]}
    return [
        {"id": id_, "words": words[id_], "shares": [of_round.get(id_) for of_round in shares]}
        for id_ in sorted(words)
    ]


def _print_round(entry: Mapping[str, Any]) -> None:
    arrived = ", ".join(f"{name} {n:,}" for name, n in entry["arrived"].items())
    say(
        f"\nround {entry['round']}: {entry['documents']:,} documents ({arrived}), threshold "
        f"{entry['threshold']:.3f}"
    )
    by_id = {topic["id"]: topic for topic in entry["topics"]}
    new = [by_id[id_] for id_ in entry["new"]]
    if new and len(new) == len(by_id):
        say("  new: all")
        new = []
    for kind, topics in (("new", new), ("vanished", entry["vanished"])):
        if topics:
            named = (f"{topic['id']} {' '.join(topic['words'])}" for topic in topics)
            say(f"  {kind}: {'; '.join(named)}")


if __name__ == "__main__":
    from fedtopics.cli import main

    main(group)
