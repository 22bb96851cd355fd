"""Commands that show what others can learn about a client's documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from fedtopics.cli import options
from fedtopics.cli.options import FOLDER
from fedtopics.errors import StudyError
from fedtopics.files import check_output, shortened, write_output
from fedtopics.terminal.display import console, print_json, say, status


@click.command()
@click.argument("policy", type=FOLDER)
@options.as_json
def budget(policy: Path, as_json: bool) -> None:
    """Show the privacy budget that studies have spent.

    POLICY is the client's policy; its max_epsilon is the limit for all studies together.
    """
    from fedtopics import Policy
    from fedtopics.privacy.accounting import Account

    rules = Policy.read(policy)
    if rules.max_epsilon is None or rules.account is None:
        raise StudyError(f"The policy {policy} has no max_epsilon, so no account is kept; add one.")
    account = Account(rules.account)
    if as_json:
        spent = {"epsilon": account.epsilon, "delta": account.delta}
        runs = [entry.model_dump() for entry in account.entries]
        print_json({"max_epsilon": rules.max_epsilon, **spent, "runs": runs})
        return
    table = Table("date", "study", "run", "epsilon", "delta", "unit", box=None, pad_edge=False)
    for entry in account.entries:
        bound = entry.privacy
        numbers = f"{bound.epsilon:g}", f"{bound.delta:g}", bound.unit
        table.add_row(entry.date, shortened(entry.study), entry.run[:8], *numbers)
    if account.entries:
        console.print(table)
    at = f" at delta {account.delta:g}" if account.delta else ""
    say(
        f"Spent in all: epsilon {account.epsilon:.3g}{at}; the policy allows {rules.max_epsilon:g} "
        f"({rules.account})."
    )


@click.command()
@click.argument("study", type=FOLDER)
@click.option("--data", type=FOLDER, required=True, help="Documents of this client.")
@options.with_default(
    "--shadow-models",
    "shadows",
    type=click.IntRange(4),
    default=16,
    help="Number of models that the attacker trains.",
)
@options.output("--out", "-o", help="JSON file for the result.")
@options.columns("text", "tokens", "author")
@options.as_json
def attack(
    study: Path, data: Path, shadows: int, out: Path | None, columns: dict[str, Any], as_json: bool
) -> None:
    """Attack a study's model to find out which documents it was trained on.

    The result estimates how well an attacker could recognise training documents. STUDY is the
    study's file, or the folder of a run. The study is trained several times in this process, each
    time on half of your documents. Nothing is sent.
    """
    from fedtopics import Columns, Corpus, Study
    from fedtopics.federation.audit import FALSE_POSITIVES, audit

    replaceable: dict[str, Any] = {
        "suffixes": [".json"],
        "inputs": (study, data, columns["rules"]),
        "names": ["study", "shadows"],
    }
    if out is not None:  # checked here too, as the training takes long
        check_output(out, **replaceable)
    path = study / "study.toml" if study.is_dir() else study
    plan = Study.read(path)
    if not plan.clients:
        raise StudyError(f"The study {path} names no clients; add a table [clients.NAME] for each.")
    corpus = Corpus.read(data, Columns(**columns))
    with status("Training models to attack") as shown:
        audited = audit(
            plan,
            corpus,
            shadows,
            on_progress=lambda done, of: shown.update(f"Trained {done} of {of} models"),
        )
    if out is not None:
        write_output(out, (audited.model_dump_json(indent=1) + "\n").encode(), **replaceable)
    if as_json:
        print_json(audited.model_dump())
        return
    say(
        "From the model, the attack separates training documents from others with an AUC of "
        f"{audited.auc:.3f} (.500 by chance). At {FALSE_POSITIVES:.0%} false positives it "
        f"recognises {audited.found:.1%} of the training documents ({audited.documents:,} trials)."
    )
    if audited.allowed is not None:
        auc, share = audited.allowed
        say(f"The study's epsilon limits every attack to an AUC of {auc:.3f}, finding {share:.1%}.")
