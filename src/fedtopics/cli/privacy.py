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
@options.key
@options.as_json
def budget(policy: Path, key: Path | None, as_json: bool) -> None:
    """Show the privacy budget that studies have spent.

    POLICY is the client's policy; its max_epsilon is the limit for all studies together. If it
    names no memory, --key says whose memory is read.
    """
    from fedtopics import Policy
    from fedtopics.federation.memory import Memory
    from fedtopics.privacy.accounting import Account, together

    rules = Policy.of(policy)
    if rules.max_epsilon is None:
        raise StudyError(f"The policy {policy} has no max_epsilon, so no account is kept; add one.")
    file = options.memory_of(rules, key)
    account = Account(Memory.read(file).header.account)
    if as_json:
        print_json(
            {
                "max_epsilon": rules.max_epsilon,
                "epsilon": account.epsilon,
                "delta": account.delta,
                "runs": [entry.model_dump() for entry in account.entries],
            }
        )
        return
    table = Table(
        "date", "study", "run", "epsilon used", "of", "delta", "unit", box=None, pad_edge=False
    )
    for entry in account.entries:
        bound = entry.privacy
        table.add_row(
            entry.date,
            shortened(entry.study),
            entry.run[:8],  # enough to tell runs apart
            f"{together([bound], [entry.share]):.3g}",
            f"{bound.epsilon:g}",
            f"{bound.delta:g}",
            bound.unit,
        )
    if account.entries:
        console.print(table)
    at = f" at delta {account.delta:g}" if account.delta else ""
    say(
        f"Spent in all: epsilon {account.epsilon:.3g}{at}; the policy allows {rules.max_epsilon:g} "
        f"({file})."
    )


@click.command()
@click.argument("person")
@options.policy
@options.key
def forget(person: str, policy: Path | None, key: Path | None) -> None:
    """Use no document of a person in further studies.

    PERSON is a value of the column of persons. Nothing is sent. Delete the documents too: this
    command changes only the memory of earlier studies.
    """
    from fedtopics import Policy
    from fedtopics.federation.memory import changed_memory

    rules = Policy.of(policy)
    with changed_memory(options.memory_of(rules, key)) as memory:
        documents, releases = memory.erase(person)
    if not documents:
        say(
            "The memory knows no document of this person. If she is in earlier runs, check the "
            "name: it has to be as in the column of persons."
        )
    say(
        f"No further study uses documents of {person}. Earlier runs ({releases:,}) used "
        f"{documents:,} documents; what these runs opened stays with their members."
    )
    if documents:
        say(
            "In the next run, the person leaves together with others, at least "
            f"{rules.min_persons:,} persons in all, so that the difference of two runs is not over "
            "one person. Do not train again only for this."
        )
    say(
        "Keyed digests of the name and of these texts stay in the memory, as later runs must be "
        "compared with earlier ones. Without the memory's secret they show nothing. Delete the "
        "file when no model of these runs is used any more."
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
@options.columns("text", "tokens", "person", "by")
@options.as_json
def attack(
    study: Path, data: Path, shadows: int, out: Path | None, columns: dict[str, Any], as_json: bool
) -> None:
    """Attack a study's model to find out whose documents it was trained on.

    The result estimates how well an attacker could recognise persons: the values of the column
    named with --columns person=NAME, or else each document. STUDY is the study's file, or the
    folder of a run. The study is trained several times in this process, each time on half of your
    persons. Nothing is sent.
    """
    from fedtopics import Corpus, Study
    from fedtopics.federation.audit import audit
    from fedtopics.privacy.disclosure import FALSE_POSITIVES

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
    corpus = Corpus.read(data, plan.columns(columns))
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
    unit = "documents" if corpus.persons is None else "persons"
    say(
        f"From the model, the attack separates the {unit} of the training from others with an AUC "
        f"of {audited.auc:.3f} (.500 by chance). At {FALSE_POSITIVES:.0%} false positives it "
        f"recognises {audited.found:.1%} of these {unit} ({audited.persons:,} trials)."
    )
    if audited.allowed is not None:
        auc, share = audited.allowed
        say(f"The study's epsilon limits every attack to an AUC of {auc:.3f}, finding {share:.1%}.")


@click.command()
@click.argument("run", type=FOLDER)
@options.output("--out", "-o", required=True, help="File to write: .md, or .html for printing.")
@click.option("--data", type=FOLDER, help="The documents of the training.")
@click.option(
    "--others",
    type=FOLDER,
    help="Documents of other persons, not used for training, to attack the model.",
)
@click.option(
    "--earlier",
    type=FOLDER,
    multiple=True,
    help="Earlier run or model whose model the same readers have. Give it once for each.",
)
@click.option(
    "--list-words",
    is_flag=True,
    help="List the words of few persons: such a page is only for the owner of the documents.",
)
@options.columns("text", "tokens", "embedding", "person")
def dossier(
    run: Path,
    out: Path,
    data: Path | None,
    others: Path | None,
    earlier: tuple[Path, ...],
    list_words: bool,
    columns: dict[str, Any],
) -> None:
    """Write one page about a model, for an output checker.

    It shows which numbers the model contains, of how few persons its words and topics are, how well
    an attack recognises persons, and what an approver should look at. RUN is the folder of a
    member, or of a model. The page contains no text of a document, and words of few persons only
    with --list-words.
    """
    from fedtopics import Columns, Corpus
    from fedtopics.report.dossier import dossier_of
    from fedtopics.report.dpia_document import write_document

    training, strangers = (
        None if path is None else Corpus.read(path, Columns(**columns)) for path in (data, others)
    )
    write_document(
        dossier_of(run, training, strangers, earlier, list_words),
        out,
        [run, data, others, *earlier, columns["rules"]],
    )
    say(f"The dossier is in {out}." + " Do not share it: it lists words." * list_words)
