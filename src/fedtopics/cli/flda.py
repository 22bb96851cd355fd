"""Commands for F-LDA: decide which topics are the same, and show how topics change over rounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedtopics.cli import options
from fedtopics.cli.options import FOLDER
from fedtopics.errors import DataError, ModelError
from fedtopics.files import write_output
from fedtopics.terminal.display import print_json, say, topic_news


@click.group("flda")
def flda_group() -> None:
    """Find the threshold of F-LDA with a person's help.

    After a first run, `sample-pairs` draws pairs of its topics and writes them to a file. Label the
    pairs there. Then `threshold` finds the cosine above which two topics count as the same.
    """


@flda_group.command("sample-pairs")
@click.argument("run", type=FOLDER)
@options.output("--out", "-o", required=True, help="CSV file to write.")
@options.with_default(
    "--pairs", "n_pairs", type=click.IntRange(1), default=60, help="Number of pairs."
)
@options.with_default("--seed", type=click.IntRange(0), default=0, help="Random seed.")
@options.words
def sample_pairs_command(run: Path, out: Path, n_pairs: int, seed: int, words: int) -> None:
    """Draw pairs of topics of different clients, for a person to label.

    RUN is the server's folder of a run of F-LDA. The pairs cover all degrees of similarity.
    """
    from fedtopics.methods.flda.labelled_pairs import (
        check_free,
        read_topics,
        sample_pairs,
        write_pairs,
    )

    check_free(out)
    pairs = sample_pairs(read_topics(run), n_pairs, seed, words)
    write_pairs(out, pairs)
    cosines = [pair.cosine for pair in pairs]
    few = " (all)" if len(pairs) < n_pairs else ""
    say(
        f"{len(pairs):,} pairs{few} are in {out}, with cosines from {min(cosines):.2f} to "
        f"{max(cosines):.2f}.\nWrite 1 (same topic) or 0 (different topics) into the last column. "
        f"Then run:  fedtopics flda threshold {out}"
    )


@flda_group.command()
@click.argument("pairs", type=FOLDER)
@click.option(
    "--compare", type=click.FloatRange(0, 1), help="Another threshold to compare with that found."
)
@options.output("--plot", help="SVG file to which the curve is drawn.")
@options.as_json
def threshold(pairs: Path, compare: float | None, plot: Path | None, as_json: bool) -> None:
    """Find the cosine above which two topics count as the same, from the labels in PAIRS.

    At this cosine, logistic regression finds "same" and "different" equally likely.
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
    except DataError as error:  # `fit_curve` gets the pairs without the name of their file
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
        f"threshold = {curve.threshold:.3f}   for [method] of the study: topics with at least this "
        "cosine are more likely the same than not\n"
        f"The threshold agrees with the person on {facts['decided_alike']} of {facts['labelled']} "
        f"labelled pairs; the person labelled {facts['same']} the same."
    )
    if compare is not None:
        say(f"{compare:g} as threshold agrees on {facts['compared_decided_alike']} of them.")
    if plot is not None:
        say(f"The plot is in {plot}.")


def print_history(model: Path, as_json: bool) -> None:
    """Print the largest topics of F-LDA in each round, and which are new or vanished.

    A topic can enter this table by growing, without being new, or leave it without having vanished.
    """
    from fedtopics.model.folder import model_folder
    from fedtopics.model.topic_model import TopicModel

    folder = model_folder(model)
    info = TopicModel.from_pretrained(folder).info
    if info.get("method") != "flda":
        raise ModelError(
            f"The model in {folder} is from {info.get('method', 'an unknown method')}, which keeps "
            "no history of topics; give a model of F-LDA."
        )
    history = info["history"]
    rows = _topic_rows(history)
    if as_json:
        print_json({"topics": rows, "rounds": history})
        return
    say(
        "each topic, its share of the words of each round's largest topics ('-': not one of them), "
        "its words"
    )
    say(" " * 5 + "".join(f"{entry['round']:>8}" for entry in history), "bold")
    for row in rows:
        shares = "".join(f"{'-' if x is None else format(x, '.1%'):>8}" for x in row["shares"])
        say(f"{row['id']:>5}{shares}  {' '.join(row['words'])}")
    for entry in history:
        say(f"\n{topic_news(entry)}")


def _topic_rows(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per topic: its last words, and its share (or None) in each round."""
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
