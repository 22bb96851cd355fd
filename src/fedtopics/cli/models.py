"""Commands that make a model live on: train it further, hold it against another, merge several."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from fedtopics.cli import options
from fedtopics.cli.display import RoundProgress, print_json, print_topics, say
from fedtopics.cli.options import FOLDER
from fedtopics.cli.report import show_run
from fedtopics.errors import ModelError
from fedtopics.harmless import file_name

SHOWN = 8  # words of a topic

if TYPE_CHECKING:
    from fedtopics.methods.core.plan import Words
    from fedtopics.model.comparison import Comparison


@click.command("continue")
@click.argument("model", type=FOLDER)
@click.option("--study", type=FOLDER, required=True, help="The study file.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds more.  [default: as the study says]")
@options.vocabulary
@click.option("--out", type=FOLDER, help="Folder of the run.  [default: runs/NAME-continued]")
@options.resume
def continue_(
    model: Path,
    study: Path,
    rounds: int | None,
    vocabulary: Words | None,
    out: Path | None,
    resume: bool,
) -> None:
    """Train MODEL further: more rounds, new documents, with its words or such as are agreed anew.

    The study names the documents, as for `run`; MODEL stays as it is. With its own words the model
    goes on as it is and its rounds count on; with new ones its topics are carried over word by
    word. It keeps its words if the study has its method and rules of text.
    """
    from fedtopics import Study, TopicModel, train
    from fedtopics.methods.core.plan import usual_words

    plan = Study.read(study)
    plan = plan if rounds is None else plan.with_rounds(rounds)
    start = TopicModel.from_pretrained(model)
    folder = out or Path("runs") / f"{file_name(plan.name)}-continued"
    words = vocabulary or usual_words(start, plan.method, plan.text)
    with RoundProgress() as display:
        trained = train(
            plan, out=folder, resume=resume, on_event=display, start=start, vocabulary=words
        )
    show_run(trained, folder)
    say(f"What changed:  fedtopics compare {model} {folder}/model")


@click.command()
@click.argument("model_a", type=FOLDER)
@click.argument("model_b", type=FOLDER)
@options.words
@options.threshold
@options.as_json
def compare(
    model_a: Path, model_b: Path, words: int, threshold: float | None, as_json: bool
) -> None:
    """Match the topics of two models one to one; say which are new in B, which of A are gone.

    By default two topics are the same from the cosine that one in a hundred pairs of different
    topics of one model reaches.
    """
    from fedtopics.model.comparison import compare as compared
    from fedtopics.model.topic_model import TopicModel

    a, b = (TopicModel.from_pretrained(folder) for folder in (model_a, model_b))
    comparison = compared(a, b, words, threshold)
    if as_json:
        print_json(asdict(comparison))
    else:
        _print(comparison)


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--out", "-o", type=FOLDER, required=True, help="Folder of the merged model.")
@click.option(
    "--topics",
    "n_topics",
    type=click.IntRange(1),
    help="Put the nearest together until so many are left.  [default: as many as differ]",
)
@options.threshold
def merge(
    models: tuple[str, ...], out: Path, n_topics: int | None, threshold: float | None
) -> None:
    """Merge models that were trained apart, without a study: topics that are alike become one.

    Each MODEL is a folder, or NAME=FOLDER to name the client of a model that has one. No document
    is needed, and none is read. The result finds topics by words. docs/models.md has scores of it
    beside those of a federation.
    """
    from fedtopics.methods.flda.merged_models import merge_models, read_models

    if n_topics is not None and threshold is not None:
        raise click.UsageError("--topics and --threshold exclude each other.")
    if (out / "config.json").exists():
        raise ModelError(f"There is a model in {out} already; name another folder.")
    parts = read_models(models)
    merged = merge_models(parts, n_topics, threshold)
    merged.save_pretrained(out)
    print_topics(merged, 10)
    before = sum(part.n_topics for part in parts)
    say(f"\n{merged.n_topics} of {before} topics of {len(parts)} models are in {out}.")


def _print(comparison: Comparison) -> None:
    say(
        f"{len(comparison.pairs)} topics are the same, "
        f"from a cosine of {comparison.threshold:.2f} on"
        + (f"; on average {comparison.similarity:.2f}" if comparison.pairs else "")
        + f". {len(comparison.new)} are new in B, {len(comparison.gone)} of A are gone.\n"
        f"Words: {comparison.words_common:,} of both, {comparison.words_new:,} new, "
        f"{comparison.words_gone:,} gone.\n"
    )
    if comparison.pairs:
        say("  A    B  cosine   share of A   of B  words; + new among the first, - gone", "bold")
    for pair in comparison.pairs:
        changed = [f"+{word}" for word in pair.new] + [f"-{word}" for word in pair.gone]
        say(
            f"{pair.a:>3}  {pair.b:>3}  {pair.similarity:>6.2f}   {pair.share_a:>10.1%} "
            f"{pair.share_b:>6.1%}  {' '.join([*pair.common, *changed])}"
        )
    for title, topics in (("new in B", comparison.new), ("gone from A", comparison.gone)):
        if topics:
            say(f"\n{title}", "bold")
        for topic in topics:
            say(f"{topic.topic:>3} {topic.share:>6.1%}  {' '.join(topic.words)}")


@click.command()
@click.argument("model", type=FOLDER)
@click.argument("file", type=FOLDER)
@click.option(
    "--by",
    type=click.Choice(["words", "meaning"]),
    default="words",
    show_default=True,
    help="Words in common, or embeddings.",
)
@click.option("--top", type=click.IntRange(1), default=3, show_default=True, help="Terms a topic.")
@options.as_json
def terms(
    model: Path, file: Path, by: Literal["words", "meaning"], top: int, as_json: bool
) -> None:
    """Match MODEL's topics with the terms of FILE, an ontology of one's own; nothing leaves.

    FILE is TOML, a line a term with its synonyms, as J45 = ["asthma", "wheezing"], or a .csv with
    the columns term and synonym.
    """
    from fedtopics.model.search import read_terms
    from fedtopics.model.topic_model import TopicModel

    rows = TopicModel.from_pretrained(model).match_terms(read_terms(file), top, by=by)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        say(f"{row['topic']:>3}  {' '.join(row['words'][:SHOWN])}")
        near = "  ".join(f"{name} {near:.2f}" for name, near in row["terms"])
        say(f"     {near or 'no term has a word in common with it'}", "dim")
