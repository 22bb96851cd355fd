"""A data protection impact assessment, filled in from a study and the records of its run.

Headings: template of the European Data Protection Board, version 1.0, adopted on 10 March 2026 and
published for consultation on 14 April 2026, as reproduced by others.
"""

from datetime import UTC, datetime
from pathlib import Path

from fedtopics.federation.program import exchanges
from fedtopics.methods.registry import find_method
from fedtopics.report.dpia_assessment import ASSESSMENT
from fedtopics.report.dpia_document import PROGRAM, Document, Part, Section, Statement, Table
from fedtopics.report.dpia_records import Parts, Records, answer_or_gap, to_controller, to_each
from fedtopics.report.run import LedgerFacts

MASKED, PLAIN = "in secure sums", "without secure aggregation"
FROM = {
    "study": "a study's file, before any run",
    "client": "the folder of a client's part in a run",
    "server": "the server's folder of a run; the clients' ledgers list what each client sent",
    "simulation": "the folder of a simulation: one process had the documents of all clients",
}


def assess(place: Path, audit: Path | None = None) -> Document:
    """Fill in the DPIA for a run's folder or a study's file, with the audit found there."""
    records = Records.read(place, audit)
    study = records.study
    sections: list[Section] = []
    for part in (part for fill in (*DESCRIPTION, *ASSESSMENT) for part in fill(records)):
        if isinstance(part, Section):
            sections.append(part)
        elif not isinstance(part, Table) or part.rows:
            sections[-1].parts.append(part)
    return Document(
        f"Data protection impact assessment: {study.name}", [
        "The headings are those of the template of the European Data Protection Board, version "
        "1.0 of 10 March 2026, as it was published for consultation; its final version may "
        "differ.",
        f"Filled in by {PROGRAM} on {datetime.now(UTC):%Y-%m-%d} from {FROM[records.place]}. "
        "Each statement names the record that it comes from. Questions that no record answers "
        "are marked for people, whose assessment this is. Statements about the program come "
        "from its documentation and tests.", *(
        f"The {facts.name} has {facts.lines:,} lines, the last with the SHA-256 "
        f"{facts.head}. To check that it is unchanged, run fedtopics audit verify RUN with "
        "this digest as --head, and with --certificate."
        for facts in records.ledgers
        if facts.head
        ), ], sections,
    )  # fmt: skip


DERIVED = {
    False: "words that enough of a client's documents have, with counts; sums over many documents",
    True: "noisy sums over all documents, of public words and of embeddings",
}


def _parties(records: Records) -> Parts:
    names = ", ".join(records.study.clients)
    adds = f"The participants' data are aggregated by {records.adder}, which sees {records.sees}"
    change = "" if records.has_server else "; while that member is offline, the others wait"
    return [
        Section("0", "Overview of the processing"),
        Section("0.1", "Controllers"),
        Statement(
            f"Participants, whose documents stay with them: {names}.", f"{records.cited}, [clients]"
        ),
        answer_or_gap(records, "contact", "Whom can people ask about this processing?"),
        to_controller(
            "Which organisation is behind each of these names, as controller or joint controller? "
            "Who are its responsible unit, its representative and its data protection officer? "
            "Which obligations does each have?"
        ),
        Section("0.2", "Processors and sub-processors"),
        answer_or_gap(records, "operator", "Who runs the study, and the server?"),
        Statement(f"{adds}{change}.", f"{records.cited}; {PROGRAM}"),
        to_controller(
            "Is the operator a processor, a joint controller or neither? Whose machines are used? "
            "Which contracts exist (Article 28)?"
        ),
    ]


def _overview(records: Records) -> Parts:
    ran = [
        Statement(
            f"{facts.client} took part from {_shown(facts.times[0])} to {_shown(facts.times[1])}.",
            f"{facts.name}, lines 1 and {facts.lines:,}",
        )
        for facts in records.ledgers
    ]
    begins = [] if ran else [to_controller("When will the processing begin?")]
    return [
        Section("0.3", "Name of the processing"),
        Statement(
            f"The study is called {records.study.name!r}. This document cites it by its "
            "fingerprint, which changes with its purpose, settings and participants.",
            records.cited,
        ),
        to_controller("What is the processing called in the record of processing activities?"),
        Section("0.4", "Planning of the processing"),
        *ran,
        *begins,
        to_controller("When does the processing end, or on which terms?"),
        Section("0.5", "DPIA technical sheet"),
        Statement(f"This DPIA was written by {PROGRAM}."),
        Statement("It does not cover where the documents come from, or later uses of the model."),
        to_controller("What is the version of this assessment? Who contributes, in which role?"),
        to_controller("Which guidelines, standards and codes of conduct were used?"),
        to_controller(
            "Why is this DPIA done: large-scale special categories or another case of Article "
            "35(3); national law; criteria of supervisory authorities (sensitive data, large "
            "scale, matching of datasets, vulnerable persons, new technology ...); or voluntarily?"
        ),
        to_controller("When was this DPIA finished, and who approved it? Will it be published?"),
    ]


def _purposes(records: Records) -> Parts:
    sizes = [
        Statement(
            f"{facts.client} has {facts.documents:,} documents, {facts.text_bytes:,} bytes.",
            facts.began,
        )
        for facts in records.ledgers
    ]
    return [
        Section("1", "Systematic description of the processing"),
        Section("1.1", "High-level description"),
        Section("1.1.a", "Processed personal data"),
        *sizes,
        to_each(
            "Which personal data do the texts contain, about which persons? Special categories "
            "(Article 9), criminal convictions (Article 10)? Are names removed first?"
        ),
        Statement(
            f"Derived from the texts: {DERIVED[records.private]}; the model; for each document its "
            "shares of topics, which stay with its client. Table 1.2 lists them."
        ),
        Section("1.1.b", "Purposes of the processing"),
        answer_or_gap(records, "purpose", "What is the model for?"),
        to_controller("Which of the personal data in the texts does this purpose need, and why?"),
        Section("1.1.c", "Secondary or compatible uses"),
        Statement(
            "All participants have the model and can use it on other texts; the program does not "
            "limit that."
        ),
        to_controller("What else are model and topics used for, and is that compatible?"),
    ]


def _nature(records: Records) -> Parts:
    study = records.study
    method = find_method(records.method)
    chosen = study.method.method_name == "auto" != method.name
    why = " The program chose it by the length of all participants' documents." if chosen else ""
    return [
        Section("1.1.d", "Nature, scope and context of the processing"),
        Statement(
            f"Nature: {method.title} finds {study.method.number} {method.shows} in texts of "
            f"{len(study.clients)} participants. Each computes sums over its own documents; these "
            f"are aggregated, and every participant gets the same model.{why}",
            f"{records.cited}, [method]; {PROGRAM}",
        ),
        Statement(
            f"Scope: at most {study.method.max_rounds:,} rounds of training.",
            f"{records.cited}, method.max_rounds",
        ),
        Statement("The program makes no decision about a person."),
        to_controller(
            "Scope: how many persons, from where, over which period? Context: what is their "
            "relation to the participants, are some vulnerable, do they expect this processing?"
        ),
        to_controller("Is it cross-border? Does personal data go to a third country (Chapter V)?"),
    ]


def _functions(records: Records) -> Parts:
    head = ["phase", "operations", "what happens"]
    rows = [
        ["preparation", "collection, use", "each participant reads its own documents"],
        ["training", "use, sharing", "the next table lists data sent; totals are returned"],
        ["result", "storage", "the model, and at each participant its documents' topics"],
        ["afterwards", "storage, deletion", "files stay until they are deleted: 2.2.a"],
    ]
    software = [
        Statement(f"Software at {facts.client}: fedtopics {facts.version}.", facts.began)
        for facts in records.ledgers
    ]
    return [
        Section("1.2", "Functional description"),
        Table(head, rows, PROGRAM),
        *(part for facts in records.ledgers for part in _flows(records, facts)),
        *([] if records.ledgers else [_schedule(records)]),
        to_controller("How are the documents collected, and when are they deleted?"),
        Section("1.3", "Means of processing, supporting assets and underlying architecture"),
        *software,
        Statement("Organisational: each client's own policy, below in 2.3.a."),
        to_each("Which machines, networks, rooms and people are involved? Who has access?"),
        Section("1.4", "Compliance with approved codes of conduct"),
        to_controller("Which approved codes of conduct apply?"),
    ]


def _shown(time: str) -> str:
    return f"{time[:19].replace('T', ' ')} UTC"


def _flows(records: Records, facts: LedgerFacts) -> list[Part]:
    head = ["function", "data sent", "how", "messages", "fewest documents in one"]
    rows = [
        [
            row["function"], records.leaves(row["function"]), MASKED if row["masked"] else PLAIN,
            f"{row['replies']:,}",
            f"{row['documents']:,}" if row["documents"] else "-",
            f"{row['bytes']:,}", f"{row['bytes_of_totals']:,}",
            " to ".join(f"{line:,}" for line in facts.spans[row["function"]]),
        ]
        for row in facts.rows
    ]  # fmt: skip
    head += ["bytes sent", "bytes received", "lines"]
    table = Table(head, rows, f"{facts.name}; meanings: {PROGRAM}")
    left = sum(row["bytes"] for row in facts.rows)
    texts = facts.text_bytes
    times = f"{left / texts:,.0f}" if left >= 10 * texts else f"{left / max(texts, 1):.2g}"
    ratio = f", {times} times the size of its texts ({texts:,} bytes)" if texts else ""
    source = f"{facts.began} and those above"
    return [table, Statement(f"{left:,} bytes left {facts.client}{ratio}.", source), _clear(facts)]


def _clear(facts: LedgerFacts) -> Statement:
    """Describe what others saw of one client."""
    clear = [row["function"] for row in facts.rows if row["replies"] and not row["masked"]]
    if not any(row["masked"] for row in facts.rows):
        return Statement(f"The server saw everything that left {facts.client}.", facts.name)
    seen = f"{', '.join(clear)}; all else was sent in secure sums" if clear else "nothing"
    return Statement(f"Members saw from {facts.client}: {seen}.", facts.name)


def _schedule(records: Records) -> Table:
    masked = MASKED if records.masked else PLAIN
    rows = [
        [each.function, each.often, each.leaves, PLAIN if each.seen_by_all else masked]
        for each in exchanges(records.study)
    ]
    head = ["function", "how often", "data sent", "how"]
    return Table(head, rows, f"{records.cited}; {PROGRAM}; no ledger of a run was found")


DESCRIPTION = _parties, _overview, _purposes, _nature, _functions
