"""Commands for studies between machines: check, serve, join."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedtopics import waiting
from fedtopics.cli import options
from fedtopics.cli.options import FOLDER
from fedtopics.errors import FederationError, FedTopicsError, PolicyError
from fedtopics.escaping import as_json as to_json
from fedtopics.escaping import file_name, for_csv
from fedtopics.files import write_output
from fedtopics.terminal.display import event_sentence, print_json, say, write
from fedtopics.terminal.run_display import MEMBER_SENTENCES, RunDisplay, show_exposure
from fedtopics.terminal.run_report import show_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedtopics import Corpus, Policy, TopicModel
    from fedtopics.contract.events import OnEvent
    from fedtopics.federation.memory import Choice
    from fedtopics.federation.participant import Participation
    from fedtopics.federation.study import Study
    from fedtopics.privacy.accounting import Account
    from fedtopics.protocol.roster import Key

key_option = click.option(
    "--key",
    "key_folder",
    type=FOLDER,
    required=True,
    metavar="FOLDER",
    help="Folder of your key, which `fedtopics key create` made.",
)
listen_option = click.option(
    "--listen",
    default="",
    metavar="HOST:PORT",
    help="Address to listen on.  [default: the port of the study's server address]",
)
metrics_option = click.option(
    "--metrics",
    default="",
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus at this address, which others must not reach.",
)
json_lines = click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines.")


def print_event(event: dict[str, Any]) -> None:
    study = event.get("study")
    plain = event | {"study": getattr(study, "agreed", study)} if "study" in event else event
    plain |= {"exposure": event["exposure"].plain()} if "exposure" in event else {}
    write(to_json({"time": time.time()} | plain, default=str, allow_nan=False) + "\n")


SHOWN_ONCE = {"offer", "documents", "memory", "languages", "joined"}  # events of each process


@click.command()
@click.argument("study", type=FOLDER)
@click.option(
    "--key",
    "key_folder",
    type=FOLDER,
    metavar="FOLDER",
    help="Folder of this member's key, to check that the server answers.",
)
@click.option("--data", type=FOLDER, help="Documents, to check that the policy allows the study.")
@options.columns("text", "tokens", "embedding", "person", "time", "by")
@options.embedding_model
@options.policy
@click.option(
    "--words",
    type=FOLDER,
    metavar="FILE",
    help="CSV file for the words that could be shared, the rarest first. It stays here.",
)
@click.option(
    "--others",
    default="",
    metavar="N,N,...",
    help="Persons of each other member, as you suppose; by default their number is not known.",
)
@options.as_json
def check_command(
    study: Path,
    key_folder: Path | None,
    data: Path | None,
    columns: dict[str, Any],
    embedding_model: str | None,
    policy: Path | None,
    words: Path | None,
    others: str,
    as_json: bool,
) -> None:
    """Show what a study would share, and with whom.

    With --key, this checks that the server answers. With --data, it checks that the policy allows
    the study, and counts the words that these documents would add. No data is sent.
    """
    from fedtopics import Corpus, Policy, Study
    from fedtopics.federation.exposure import expose, rehearse_noise
    from fedtopics.federation.participant import check_policy
    from fedtopics.federation.proposal import proposal_lines, proposed, reach

    if data is None and (policy is not None or words is not None or any(columns.values())):
        raise click.UsageError("--policy, --words and options about columns need --data FILE.")
    plan = Study.read(study)
    supposed = _numbers(others, len(plan.clients) - 1)
    corpus = None if data is None else Corpus.read(data, plan.columns(columns))
    rules = Policy.of(policy)
    reached = remembered = rehearsed = ""
    problem: FedTopicsError | None = None
    try:
        if corpus is not None:
            choice, account = _chosen(rules, key_folder, plan, corpus)
            remembered = choice.text
            corpus = corpus.take(choice.rows)
            check_policy(rules, plan, corpus, "this client", embedding_model, account=account)
        reached = "" if key_folder is None else reach(plan, key_folder)
    except (PolicyError, FederationError) as error:
        problem = error  # shown last, below the proposal
    exposure = None
    try:
        if corpus is not None:
            exposure = expose(plan, corpus, rules.in_study(plan.is_secure), supposed)
        if corpus is not None and problem is None:
            rehearsed = rehearse_noise(plan, corpus, supposed)
    except FedTopicsError as error:  # policy or noise do not allow it for these documents
        problem = problem or error
    exposure = exposure or expose(plan)
    if corpus is not None and words is not None:
        _write_words(words, corpus, plan, rules)
    if as_json:
        print_json({**proposed(plan), "exposure": exposure.plain(), "server": reached})
    else:
        say("\n".join(proposal_lines(plan)))
        if corpus is not None:
            _show_own_policy(corpus, rules.in_study(plan.is_secure), plan, problem)
            say(remembered)
        show_exposure(exposure)
        for news in filter(None, (rehearsed, reached)):
            say(news)
    if problem is not None:
        raise problem


def _numbers(text: str, n_others: int) -> list[int]:
    """Return the numbers of persons of the other members."""
    numbers = [int(part) for part in text.split(",") if part.strip().isdigit()]
    if text and (len(numbers) != n_others or len(text.split(",")) != n_others):
        raise click.UsageError(
            f"--others {text} has to be {n_others} whole numbers with commas between them: the "
            "persons of each other member."
        )
    return numbers


def _chosen(
    policy: Policy, key: Path | None, study: Study, corpus: Corpus
) -> tuple[Choice, Account]:
    """Return which documents a study would use, and the budget that earlier ones have spent."""
    from fedtopics.federation.memory import Memory
    from fedtopics.privacy.accounting import Account

    # Without a key, nobody knows whose memory it is.
    memory = (
        Memory()
        if policy.memory is None and key is None
        else Memory.read(options.memory_of(policy, key))
    )
    return (
        memory.choose(corpus, policy.min_persons, study.fingerprint),
        Account(memory.header.account),
    )


def _show_own_policy(
    corpus: Corpus, policy: Policy, study: Study, problem: FedTopicsError | None
) -> None:
    from fedtopics.contract.events import Documents
    from fedtopics.text.grouping import unlisted

    answer = "REFUSES" if isinstance(problem, PolicyError) else "allows"
    say(f"Your policy {answer} this study.", "bold")
    say(event_sentence(Documents.of("this client", corpus).plain()))
    say(
        policy.described(
            seen=not study.is_secure,
            rarest=study.vocabulary.min_persons_per_word,
            unit=corpus.unit,
            has_noise=study.differential_privacy is not None,
        )
    )
    if problem is None:
        say("\n".join(unlisted(corpus, study.method.compared)))
    if corpus.persons is None:
        say(
            "Thresholds count documents: one person may have written all of them. If so, name the "
            "column of persons, with --columns person=NAME or as person in the client's table."
        )
    if study.method.draws:
        say(
            "Each round draws a minibatch. Unless the policy sets max_rounds, there are at most "
            "half as many rounds as the persons that a total is over (with plain aggregation, as "
            "this client has): from more, documents could be computed. The method's own number of "
            "rounds falls to that."
        )


def _write_words(path: Path, corpus: Corpus, study: Study, policy: Policy) -> None:
    from fedtopics.text.vocabulary import count_words

    policy.check_text("this client", study.text)
    least = max(study.vocabulary.min_persons_per_word, policy.min_persons_per_word)
    named, counts = count_words(corpus, study.text, names=policy.names_in(study.text)).named(
        least, corpus.owners
    )
    numbers = counts[:, [2, 0]].tolist()  # of persons and documents
    rows = sorted(zip(numbers, map(for_csv, named), strict=True))
    quoted = (f'"{word.replace(chr(34), chr(34) * 2)}",{n[1]},{n[0]}' for n, word in rows)
    names = ["word", "documents", "persons"]
    content = "\n".join([",".join(names), *quoted, ""]).encode()
    write_output(path, content, suffixes=[".csv"], names=names)
    say(f"{len(rows):,} words could be shared; {path} has them, the rarest first.")


@click.command()
@click.argument("study", type=FOLDER)
@key_option
@listen_option
@click.option(
    "--exchange",
    type=FOLDER,
    metavar="FOLDER",
    help="Listen on no port: read and write the files of `fedtopics step` in this folder.",
)
@metrics_option
@options.out
@options.from_model
@json_lines
def serve(
    study: Path,
    key_folder: Path,
    listen: str,
    exchange: Path | None,
    metrics: str,
    out: Path | None,
    start: Path | None,
    as_json: bool,
) -> None:
    """Serve a study for members on other machines.

    With secure aggregation, this process is the relay: it adds encrypted updates, and learns no
    document, word, number or model. With plain aggregation, it is a trusted server, which also
    trains and writes the model. To resume an interrupted run, start the same command again.
    """
    from fedtopics import Study, TopicModel
    from fedtopics.federation.by_folders import exchange_of, relay_by_folders
    from fedtopics.federation.connection import listen_address
    from fedtopics.federation.metrics import serve_metrics
    from fedtopics.federation.participant import start_of
    from fedtopics.federation.relay import lead_relay, listening
    from fedtopics.federation.serve import lead
    from fedtopics.protocol.roster import Key

    key = Key.load(key_folder)
    plan = Study.read(study)
    plan.members  # noqa: B018 - an error at once, if it has none
    folder = out or Path("runs") / file_name(plan.name)
    news = RunDisplay()
    on_event: OnEvent = print_event if as_json else news
    with nullcontext() if as_json else news, serve_metrics(metrics, lambda: folder):
        if exchange is not None:
            relay_by_folders(
                study=plan,
                key=key,
                exchange=exchange_of(plan, exchange, exchange, notify=say),
                folder=folder,
                notify=lambda e: on_event(e.plain()),
                turns=inf,
            )
            return
        listen_there = partial(listening, plan, key, listen_address(plan, listen))
        if plan.is_secure:
            lead_relay(plan, folder, listen_there, notify=lambda e: on_event(e.plain()))
            return
        trained = lead(
            plan,
            folder,
            listen_there,
            on_event=on_event,
            start=None if start is None else start_of(TopicModel.from_pretrained(start), plan),
        )
    show_run(trained, folder, quiet=as_json)


MEMBER_OPTIONS = (
    key_option,
    click.option("--data", type=FOLDER, help="Documents, which stay here. An observer has none."),
    options.columns("text", "tokens", "id", "embedding", "person", "time", "round", "by"),
    options.embedding_model,
    options.policy,
    click.option("--out", type=FOLDER, help="Folder of the results.  [default: runs/NAME/STUDY]"),
    click.option(
        "--egress-log",
        "log",
        default="",
        metavar="FOLDER|syslog",
        help="Second place of each line of the ledger, or of its digest in the system's log.",
    ),
    click.option(
        "--keep",
        type=FOLDER,
        help="Folder for what is sent, encrypted for the approvers; see `fedtopics audit open`.",
    ),
    click.option(
        "--accept-roster",
        "accepted_roster",
        metavar="DIGEST",
        default="",
        help="Accept the certificates of the study with this digest. First compare it with "
        "members.",
    ),
    click.option(
        "--first-release",
        is_flag=True,
        help="Confirm that no earlier study used these documents, if the memory of studies is "
        "lost.",
    ),
    click.option(
        "--texts-changed",
        is_flag=True,
        help="Confirm that new texts of the same persons are other documents, or that nobody has "
        "left.",
    ),
    options.from_model,
    click.option(
        "--insecure-seed",
        is_flag=True,
        help="For tests: draw minibatches and noise from the study's seed, which everybody knows.",
    ),
    json_lines,
)


def member_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a member, with or without a connection."""
    for option in reversed(MEMBER_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("study", type=FOLDER)
@member_options
@click.option(
    "--follow", is_flag=True, help="In each round, use documents added to --data since the last."
)
@click.option("--host", is_flag=True, help="Run the server inside this process.")
@listen_option
@metrics_option
@click.option("--dry-run", is_flag=True, help="Only check that the policy allows the study.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=waiting.MEMBER,
    metavar="SECONDS",
    help="Stop if the server is silent for so long.  [default: seven days]",
)
def join_command(
    study: Path,
    key_folder: Path,
    host: bool,
    listen: str,
    metrics: str,
    dry_run: bool,
    timeout: float,
    out: Path | None,
    as_json: bool,
    **member: Any,
) -> None:
    """Join a study with documents that stay on this machine.

    All members use the same STUDY file. This command shows what the study shares, checks that the
    policy allows it, and trains: this machine computes each step of the model itself. It reconnects
    when the connection breaks. To resume an interrupted run, start the same command again. The
    model and theta.parquet, the topics of your own documents, are then in the --out folder.
    """
    from fedtopics import Study
    from fedtopics.federation.join import check_key
    from fedtopics.federation.join import join as take_part
    from fedtopics.federation.metrics import serve_metrics
    from fedtopics.protocol.roster import Key

    key = Key.load(key_folder)
    plan = Study.read(study)
    check_key(plan, key)
    news = RunDisplay(MEMBER_SENTENCES, key.name)
    on_event: OnEvent = print_event if as_json else news
    with news:
        # A dry run writes nothing, so it takes no --out.
        part = _participation(plan, key, on_event, out=None if dry_run else out, **member)
        with serve_metrics(metrics, lambda: part.out):
            model = take_part(
                part, plan, dry_run=dry_run, host=host, listen=listen, timeout=timeout
            )
    _show_model(model, part, as_json)


@click.command()
@click.argument("study", type=FOLDER)
@click.argument("inbox", type=FOLDER)
@click.argument("outbox", type=FOLDER)
@member_options
def step(
    study: Path, inbox: Path, outbox: Path, key_folder: Path, as_json: bool, **member: Any
) -> None:
    """Take one step of a study whose members are not connected.

    This command reads the files that have arrived in INBOX, computes, writes a file for the others
    into OUTBOX, and ends. Carry the files *.fedtopics of OUTBOX to the others; INBOX and OUTBOX can
    be one folder that a program copies. Start it again whenever files may have arrived: what was
    sent before is sent again, byte for byte. With the server's key, it takes a step of the relay.
    """
    from fedtopics import Study
    from fedtopics.federation.by_folders import exchange_of, relay_by_folders, take_turn
    from fedtopics.federation.join import check_key
    from fedtopics.protocol.link import NotYetError
    from fedtopics.protocol.roster import Key
    from fedtopics.transport.folders import SUFFIX

    key = Key.load(key_folder)
    plan = Study.read(study)
    exchange = exchange_of(plan, inbox, outbox, notify=say)
    news = RunDisplay(MEMBER_SENTENCES, key.name)
    has_begun = any(outbox.glob(f"{key.name}@{plan.fingerprint[:8]}-*"))
    on_event = partial(_tell, print_event if as_json else news, has_begun)
    with news:
        try:
            if key.certificate == plan.members.server and key.name not in plan.members.names:
                folder = member["out"] or Path("runs") / file_name(plan.name)
                relay_by_folders(plan, key, exchange, folder, lambda e: on_event(e.plain()))
                return
            check_key(plan, key)
            part = _participation(plan, key, on_event, outbox=outbox, follow=False, **member)
            model = take_turn(part, plan, exchange)
        except NotYetError as error:
            say(
                f"{error} Carry the files *{SUFFIX} of {outbox}; start the same command again when "
                f"others have arrived in {inbox}."
            )
            return
    _show_model(model, part, as_json)


def _tell(show: OnEvent, has_begun: bool, event: dict[str, Any]) -> None:
    """Show an event of a step, except what earlier steps have shown, and what its end says."""
    if event["event"] != "waits for" and not (has_begun and event["event"] in SHOWN_ONCE):
        show(event)


def _show_model(model: TopicModel | None, part: Participation, as_json: bool) -> None:
    from fedtopics.federation.after_run import record_files

    if model is not None:
        show_run(model, part.out, quiet=as_json)
        record_files(part.out, ["report.html", "report.md"], part.key)


def _participation(
    study: Study,
    key: Key,
    on_event: OnEvent,
    data: Path | None,
    columns: dict[str, Any],
    policy: Path | None,
    follow: bool,
    start: Path | None,
    log: str,
    keep: Path | None,
    outbox: Path | None = None,
    **more: Any,
) -> Participation:
    from fedtopics import Corpus, Policy, TopicModel
    from fedtopics.contract.events import Documents, Unreadable
    from fedtopics.federation.egress import Egress
    from fedtopics.federation.participant import Participation
    from fedtopics.text.growing import Follow

    name = key.name
    if (data is None) != (name in study.observers):
        raise click.UsageError(
            f"{name} is an observer; leave out --data."
            if data is not None
            else "Only an observer can join without documents; give --data FILE."
        )
    take_part = partial(
        Participation,
        key=key,
        policy=Policy.of(policy),
        on_event=on_event,
        start=None if start is None else TopicModel.from_pretrained(start),
        egress=Egress(outbox, log, keep),
        **more,
    )
    if data is None:
        return take_part(corpus=None)
    kinds = {kind: column for kind, column in columns.items() if kind != "round"}
    column_names = study.columns({"rounds": columns["round"], **kinds})
    growing = Follow(data, column_names, lambda reason: on_event(Unreadable(reason).plain()))
    corpus = growing() if follow else Corpus.read(data, column_names)
    on_event(Documents.of(name, corpus).plain())
    return take_part(corpus=corpus, growing=growing if follow else None)
