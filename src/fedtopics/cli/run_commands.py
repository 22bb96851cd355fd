"""Commands that read the records of a run: status, log, verify, dpia, report."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table

from fedtopics.cli import options
from fedtopics.cli.options import FOLDER
from fedtopics.errors import DataError, RunError
from fedtopics.terminal import display
from fedtopics.terminal.display import print_json, say
from fedtopics.terminal.run_report import write_report_of

MARKS = {True: ("ok  ", ""), None: ("--  ", ""), False: ("FAIL", "bold red")}


@click.command("status")
@click.argument("run", type=FOLDER)
@click.option(
    "--check",
    is_flag=True,
    help="Print one line, for monitoring. Exit code 0: works or finished; 1: waits for somebody "
    "for longer than --late; 2: no process, frozen, failed or stopped.",
)
@options.with_default(
    "--late", type=click.FloatRange(0), default=15, metavar="MINUTES", help="Limit of --check."
)
@options.as_json
def show_status(run: Path, check: bool, late: float, as_json: bool) -> int | None:
    """Show how far a run is.

    This shows rounds, time left, clients, and the topics so far. RUN is the folder of a member, a
    simulation, or a server with plain aggregation, during the run or afterwards. The command only
    reads files.
    """
    from fedtopics.federation.run_status import read_run

    reading = read_run(run)
    if check:
        code, line = reading.check(60 * late, time.time())
        say(line)
        return code
    if as_json:
        print_json(reading.plain())
        return None
    for line in reading.lines(time.time()):
        say(line)
    if reading.clients:
        table = Table("client", "state", Column("rounds", justify="right"))
        for name, client in reading.clients.items():
            table.add_row(name, client.state, f"{client.rounds:,}")
        display.console.print(table)
    say(reading.title)
    for number, words in enumerate(reading.topics):
        say(f"{number:>5}  {' '.join(words)}")
    return None


@click.command()
@click.argument("run", type=FOLDER)
@options.as_json
def log(run: Path, as_json: bool) -> None:
    """List what each client sent and received.

    RUN is the folder of a run or of a client's part in one, or a ledger file.
    """
    from fedtopics.federation import ledger
    from fedtopics.report.run import LedgerFacts
    from fedtopics.terminal.run_display import explain_functions

    paths = [run] if run.is_file() else [*ledger.find_ledgers(run).values()]
    if not paths:
        raise RunError(f"There is no ledger in {run}; name the folder of a run.")
    clients = [LedgerFacts.read(path) for path in paths]
    if as_json:
        print_json({facts.client: facts.rows for facts in clients})
        return
    if seen := ", ".join(facts.client for facts in clients if facts.seen):
        say(f"For {seen}, aggregation was plain: the server saw each update.\n")
    for facts in clients:
        display.print_ledger(facts.client, facts.rows)
    say(
        "documents: the smallest number of documents in a reply. values: numbers or words in the "
        "largest reply. totals: totals received.\nFor each reply, the ledger file records time, "
        "fields, shapes, and the SHA-256 of the reply and of the call.\n"
    )
    if seeded := ", ".join(facts.client for facts in clients if facts.seeded):
        say(
            f"The random choices of {seeded} follow from the study's seed (--insecure-seed), which "
            "all members know. Use --insecure-seed only for tests and demonstrations.\n"
        )
    if any(row["masked"] for facts in clients for row in facts.rows):
        say(
            "*: with secure aggregation: members saw only the total of all clients, and the server "
            "saw nothing.\n"
        )
    # Below all tables, and each function once: most clients call the same functions.
    sent = {name: row for facts in clients for name, row in facts.data_sent.items()}
    functions = dict.fromkeys(name for facts in clients for name in facts.functions)
    explain_functions([sent[function] for function in functions if function in sent])


@click.command()
@click.argument("run", type=FOLDER)
@click.option("--certificate", type=FOLDER, help="Only signatures with its key count.")
@click.option("--head", default="", help="Digest of the ledger's last line that you noted earlier.")
@options.as_json
def verify_command(run: Path, certificate: Path | None, head: str, as_json: bool) -> None:
    """Check that nobody has changed a run's ledger and files.

    RUN is the folder of a member or of a simulation, or a ledger.jsonl alone. The command works
    offline. To detect that somebody changed all files and signed them with another key, give
    --certificate. To detect that somebody restored an earlier state of all files, give --head.
    """
    from fedtopics.federation.verify import verify as verified

    checks = list(verified(run, certificate, head))
    if as_json:
        print_json([check._asdict() for check in checks])
    else:
        for check in checks:
            mark, style = MARKS[check.holds]
            say(f"{mark} {check.what:<10} {check.text}", style)
    if any(check.holds is False for check in checks):
        raise RunError(f"A check of the files in {run} failed; see the lines above.")


@click.command()
@click.argument("run", type=FOLDER)
@click.option(
    "--what",
    required=True,
    multiple=True,
    metavar="NAME",
    help="File or folder of the run, such as theta.parquet or model. Give it once for each.",
)
@options.key
def delete(run: Path, what: tuple[str, ...], key: Path | None) -> None:
    """Delete files of a run, and record it in the ledger.

    RUN is the folder of a member. Without this record, `fedtopics audit verify` says that the files
    are missing, as it says of files that somebody removed. A signed ledger needs --key.
    """
    from fedtopics.federation.after_run import delete_files
    from fedtopics.protocol.roster import Key

    deleted = delete_files(run, what, None if key is None else Key.load(key))
    say(f"Deleted {', '.join(deleted)}; {run / 'ledger.jsonl'} records it. Other copies remain.")


@click.command()
@click.argument("place", metavar="RUN|STUDY", type=FOLDER)
@options.output("--out", "-o", required=True, help="File to write: .md, or .html for printing.")
@click.option(
    "--audit", type=FOLDER, help="File of `fedtopics audit attack`.  [default: RUN/audit.json]"
)
@click.option("--data", type=FOLDER, help="Before a run: the documents that would take part.")
@options.columns("text", "tokens", "embedding", "person", "time", "by")
@options.policy
@click.option(
    "--answers",
    type=FOLDER,
    help="File of people's answers, which gets the questions.  [default: answers.toml next to OUT]",
)
def dpia(
    place: Path,
    out: Path,
    audit: Path | None,
    data: Path | None,
    columns: dict[str, Any],
    policy: Path | None,
    answers: Path | None,
) -> None:
    """Draft a data protection impact assessment.

    Before a run, give the STUDY file, with --data and --policy of a client; nothing is sent. After
    it, give RUN, the folder of a member, a server, or a simulation. The draft contains no text of a
    document. Questions that only people can answer are marked, and are in a file for the answers,
    which the next draft uses.
    """
    from fedtopics import Corpus, Policy, Study
    from fedtopics.federation.exposure import expose
    from fedtopics.report.dpia import assess
    from fedtopics.report.dpia_answers import FILE, read_answers, write_answers
    from fedtopics.report.dpia_document import write_document

    if (data is None and (policy is not None or any(columns.values()))) or (
        data and place.is_dir()
    ):
        raise click.UsageError("--data is for a STUDY file; --policy and --columns need --data.")
    exposure = None
    if data is not None:
        study = Study.read(place)
        exposure = expose(
            study=study,
            policy=Policy.of(policy).in_study(study.is_secure),
            corpus=Corpus.read(data, study.columns(columns)),
        )
    file = answers or out.with_name(FILE)
    earlier = read_answers(file)
    form = assess(place, audit, exposure, earlier)
    write_document(form, out, [place, audit, data, policy, file])
    write_answers(form, file, earlier)
    say(f"The draft is in {out}; {file} has {form.gaps} questions for people to answer.")


@click.command()
@click.argument("run", type=FOLDER)
@options.output(
    "--out", "-o", help="HTML file to write.  [default: report.html in the run's folder]"
)
@options.with_default(
    "--min-documents",
    type=click.IntRange(1),
    default=10,
    help="Leave out a client's share of a topic if it stands for fewer documents than this.",
)
@click.option(
    "--examples-from",
    "examples",
    type=FOLDER,
    help="Your own documents, for examples and a map; do not share that report.",
)
@click.option("--with-text", is_flag=True, help="Show the beginning of each document in the map.")
@options.columns("text", "time", rules=False)
@click.option(
    "--labels",
    type=FOLDER,
    help="File of topic names that the report's page saved; they become the model's labels.",
)
def report(
    run: Path,
    out: Path | None,
    min_documents: int,
    examples: Path | None,
    with_text: bool,
    columns: dict[str, Any],
    labels: Path | None,
) -> None:
    """Write a report: topics, clients and training in one HTML file.

    RUN is the folder of a run, a member, or a model. The file works offline. It contains no text of
    a document, unless you add your own documents with --examples-from.
    """
    from fedtopics import Columns, Corpus

    time = columns.pop("time")
    text = Columns(**columns)
    documents = examples and Corpus.read(examples, text)
    if with_text and documents is None:
        raise click.UsageError("--with-text needs --examples-from FILE.")
    if labels is not None:
        keep_labels(run, labels)
    page = write_report_of(
        run,
        out,
        dated={"own": examples, "columns": text, "time": time},
        inputs=(examples, labels),
        documents=documents,
        with_text=with_text,
        min_documents=min_documents,
    )
    say(f"The report is {page}; the same as Markdown is {page.with_suffix('.md')}.")
    if examples is not None:
        say("It contains beginnings of documents: do not share it.")


def keep_labels(run: Path, labels: Path) -> None:
    from fedtopics.model.folder import model_folder, write_labels
    from fedtopics.model.labels import read_labels
    from fedtopics.model.topic_model import TopicModel

    if not labels.is_file():
        raise DataError(f"There is no file {labels}; save the topic names in the report's page.")
    folder = model_folder(run)
    model = TopicModel.from_pretrained(folder)
    names, suggested = read_labels(labels, model.n_topics)
    write_labels(replace(model, labels=names, unconfirmed=suggested), folder)
