"""A data protection impact assessment, filled in from a study and the records of its run.

``dpia_sections.toml`` has its sections; this module fills in what depends on the records. Headings:
template of the European Data Protection Board, version 1.0, adopted on 10 March 2026 and published
for consultation on 14 April 2026, as reproduced by others.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from typing import Any

from fedtopics.federation.data_sent import NOT_RECORDED
from fedtopics.federation.exposure import WORDS, Exposure
from fedtopics.federation.policy import Policy
from fedtopics.files import read_toml
from fedtopics.guarantees import not_promised
from fedtopics.privacy.disclosure import FALSE_POSITIVES
from fedtopics.report.dpia_answers import AnsweredQuestion, answered
from fedtopics.report.dpia_document import (
    PROGRAM,
    Document,
    FormTable,
    Gap,
    Part,
    Section,
    Statement,
)
from fedtopics.report.dpia_records import (
    CITED,
    CONDITIONS,
    TABLES,
    Records,
)
from fedtopics.report.run import LedgerFacts

DOCS = "docs/concepts/differential-privacy.md"
MODEL = "docs/concepts/threat-model.md"
SECTIONS = read_toml(Path(__file__).with_name("dpia_sections.toml"))
ABOUT = ["function", "when, from which documents", "data sent", "who sees it"]
DIGESTS = ["record", "what", "digest"]
FROM = {
    "study": "a study's file, before any run",
    "client": "the folder of a client's part in a run",
    "server": "the server's folder of a run; the clients' ledgers list what each client sent",
    "simulation": "the folder of a simulation: one process had the documents of all clients",
}
WHO = {
    "controller": "the controller",
    "officer": "the data protection officer",
    "participant": "each participant",
}
NOISY_MODEL = "public words found in documents, topics and weights, all from noisy sums"


def assess(
    place: Path,
    audit: Path | None = None,
    exposure: Exposure | None = None,
    answers: Sequence[AnsweredQuestion] = (),
) -> Document:
    """Fill in the DPIA.

    Parameters
    ----------
    place : the folder of a run, or the file of a study.
    audit : the result of `fedtopics audit attack`; by default the one that the run's folder has.
    exposure : before a run, what the study would show of the documents of the client that asks.
    answers : what people have answered before, to the questions that no record answers.
    """
    records = Records.read(place, audit, exposure)
    phrases = _phrases(records)
    sections = [
        Section(
            number,
            section["title"],
            parts=[
                answered(number, part, answers)
                for entry in section.get("parts", ())
                for part in _parts(entry, records, phrases)
                if not isinstance(part, FormTable) or part.rows  # no record, or an empty one
            ],
        )
        for number, section in SECTIONS.items()
    ]
    return Document(
        f"Data protection impact assessment: {records.study.name}",
        [
            "The headings are those of the template of the European Data Protection Board, version "
            "1.0 of 10 March 2026, as it was published for consultation; its final version may "
            "differ.",
            f"Filled in by {PROGRAM} on {datetime.now(UTC):%Y-%m-%d} from {FROM[records.place]}. "
            "Numbers in brackets name the records, which are listed at the end. Questions that no "
            "record answers are marked for people, whose assessment this is. Statements about the "
            "program come from its documentation and tests. Annex A has digests: to check that a "
            "ledger is unchanged, run fedtopics audit verify RUN with its digest as --head.",
        ],
        [*sections, Section("A", "Digests", [FormTable(DIGESTS, digests_of(records))])],
    )


def digests_of(records: Records) -> list[list[str]]:
    """Return the digests of a study, its ledgers and its audit, in rows under `DIGESTS`."""
    return [
        ["study.toml", "its fingerprint, which members compare", records.study.fingerprint],
        *([facts.name, f"last of {facts.lines:,} lines", facts.head] for facts in records.ledgers),
        *([audit.path.name, "SHA-256", audit.sha256] for audit in [records.audit] if audit),
    ]


def _phrases(records: Records) -> dict[str, Any]:
    """Return what the names in braces of ``dpia_sections.toml`` stand for."""
    study = records.study
    adder = (
        "the server" if records.has_server else f"the server in the process of {study.server.host}"
    )
    if records.place == "simulation":
        adder = "the one process of this simulation"
    bound = study.differential_privacy
    n = len(study.clients)
    # By default, topics get their words from the encoder's tokens.
    words = 0 if bound is None else len(bound.words)
    seed_source = next((facts.name for facts in records.ledgers), "")
    return {
        "bound": bound,
        "factor": 1.0 if bound is None else exp(bound.epsilon),
        "words": f"the {words:,} words that may be in topics" if words else "the encoder's words",
        "privacy_page": DOCS,
        "spare": n // 3,
        "one": f"a single {records.unit.removesuffix('s')}",
        "seed_source": PROGRAM if records.place == "simulation" else seed_source,
        "records": records,
        "study": CITED,
        "program": PROGRAM,
        "threat_model": MODEL,
        "method": study.registration,
        "settings": study.method,
        "adder": adder,
        "sees": _seen(records),
        "names": ", ".join(study.clients),
        "number": n,
        "absence": "" if records.has_server else "; while that member is offline, the others wait",
    }


def _seen(records: Records) -> str:
    """Say what the server or relay sees."""
    if not records.masked:
        return "the update of each"
    host = records.study.server.host
    also = f"; {host} itself sees all totals, as every member does" if host else ""
    return f"no document, word, number or total{also}"


def _of_ledger(facts: LedgerFacts) -> dict[str, Any]:
    first, last = (f"{time[:19].replace('T', ' ')} UTC" for time in facts.times)
    return {
        "facts": facts,
        "first": first,
        "last": last,
        "signs": "signs with the key of its certificate"
        if facts.start.certificate
        else "does not sign",
    }


def _parts(entry: Sequence[str], records: Records, phrases: Mapping[str, Any]) -> Sequence[Part]:
    """Return the parts that an entry of ``dpia_sections.toml`` describes."""
    match entry:
        case ["if", condition, *part]:
            return _parts(part, records, phrases) if CONDITIONS[condition](records) else []
        case ["say", *texts]:
            return [Statement(*(text.format(**phrases) for text in texts))]
        case ["each ledger", *texts]:
            return [
                Statement(*(text.format(**phrases, **_of_ledger(facts)) for text in texts))
                for facts in records.ledgers
            ]
        case ["answer", name, question]:
            # The study's [about] may answer it.
            answers = dict(records.study.about.rows())
            if name not in answers:
                return [Gap(WHO["controller"], question)]
            text = f"{name.capitalize()}: {answers[name]}"
            return [Statement(text, f"{CITED}, [about] {name}")]
        case ["before a run", question]:
            return [] if records.ledgers else [Gap(WHO["controller"], question)]
        case ["table", name]:
            table = TABLES[name]
            return [FormTable(table["head"], table["rows"], table["source"].format(**phrases))]
        case [("measures" | "attacks" | "settings") as name, *purposes]:
            return _applying(records, name, purposes, phrases)
        case [("controller" | "officer" | "participant") as kind, question]:
            return [Gap(WHO[kind], question)]
    return FILLED[entry[0]](records)


def _flows(records: Records) -> list[Part]:
    """List what each client sent or, before a run, what it will send."""
    if records.ledgers:
        return [part for facts in records.ledgers for part in _flows_of(facts)]
    return [
        FormTable(
            head=[*ABOUT, "numbers, at most", "bytes of one, at most"],
            rows=[
                [
                    *_about(row.function, row.plain()),
                    *("not known" if n is None else f"{n:,}" for n in (row.numbers, row.bytes)),
                ]
                for row in records.planned
            ],
            source=f"{CITED}; {PROGRAM}; no ledger of a run was found",
        )
    ]


def _about(function: str, row: Mapping[str, Any]) -> list[str]:
    """Describe a function by its row in the table of data sent."""
    bounds = f" Bounds: {row['bounds']}." if row["bounds"] else ""
    return [function, f"{row['often']}; {row['over']}", row["data_sent"] + bounds, row["seen"]]


def _flows_of(facts: LedgerFacts) -> list[Part]:
    texts = facts.start.text_bytes
    # Words of a secure study are sent as table, list and counts, which have rows of their own.
    sent = sum(
        row["bytes"] for row in facts.rows if not (row["masked"] and row["function"] == WORDS)
    )
    times = f"{sent / texts:,.0f}" if sent >= 10 * texts else f"{sent / max(texts, 1):.2g}"
    ratio = f", {times} times the size of its texts ({texts:,} bytes)" if texts else ""
    return [
        FormTable(
            head=[
                *ABOUT,
                "messages",
                "fewest documents in one",
                "bytes sent",
                "bytes received",
                "lines",
            ],
            rows=[
                [
                    *_about(row["function"], facts.data_sent.get(row["function"], NOT_RECORDED)),
                    f"{row['replies']:,}",
                    f"{row['documents']:,}" if row["documents"] else "-",
                    f"{row['bytes']:,}",
                    f"{row['bytes_of_totals']:,}",
                    " to ".join(f"{line:,}" for line in facts.spans[row["function"]]),
                ]
                for row in facts.rows
            ],
            source=facts.name,
        ),
        Statement(f"{sent:,} bytes left {facts.client}{ratio}.", f"{facts.began} and those above"),
    ]


def _files(records: Records) -> list[Part]:
    everybody = "all participants"
    with_server = f"{everybody} and the server" if records.has_server else everybody
    # A relay sees no model.
    whose = {"study.toml": with_server, "model": everybody if records.masked else with_server}
    files = {
        **TABLES["files"]["server" if records.place == "server" else "client"],
        **({"model": NOISY_MODEL} if records.bounded else {}),
    }
    holder = "the server" if records.place == "server" else "each participant, its own"
    return [
        FormTable(
            head=["file", "content", "who has it", "bytes here"],
            rows=[
                [
                    name,
                    what,
                    whose.get(name, holder),
                    "" if records.place == "study" else records.size(name),
                ]
                for name, what in files.items()
            ],
            source=f"files in the folder; {PROGRAM} deletes none of them",
        ),
        FormTable(
            head=["file", "record of its writing"],
            rows=[[*row] for facts in records.ledgers for row in facts.stored_files.items()],
            source=", ".join(facts.name for facts in records.ledgers),
        ),
    ]


def _applying(
    records: Records, name: str, purposes: Sequence[str], phrases: Mapping[str, Any]
) -> list[Part]:
    """List the rows of a table that apply to this study, only those for purposes if there are."""
    columns = TABLES["columns"][name]
    rows = [
        [row[key] for key in columns["head"]]
        for row in records.holding(name)
        if not purposes or row["serves"] in purposes
    ]
    return [FormTable([*columns["head"].values()], rows, columns["source"].format(**phrases))]


def _policies(records: Records) -> list[Part]:
    """List the policies, and the clients whose random choices were not secret."""
    meanings = {name: field.description or "" for name, field in Policy.model_fields.items()}
    policies = [
        FormTable(
            head=[f"policy of {client}", "value", "meaning"],
            rows=[
                [name, _shown(value), meanings.get(name, "")]
                for name, value in exposure.policy.model_dump(mode="json").items()
            ],
            source=f"{source}; {PROGRAM}",
        )
        for client, source, exposure in records.exposures
    ]
    seeded = [
        Statement(
            f"Random choices and noise of {facts.client} came from the study's seed, which "
            "everybody knows. They hide nothing: this is only for tests.",
            facts.name,
        )
        for facts in records.ledgers
        if facts.seeded
    ]
    return [*policies, *seeded]


def _documents(records: Records) -> list[Part]:
    """State what each client whose records are here has."""
    return [
        Statement(
            f"{client} has {exposure.documents:,} documents of {exposure.persons:,} "
            f"{exposure.unit}, with {exposure.texts:,} bytes of text."
            if exposure.unit != "documents"
            else f"{client} has {exposure.documents:,} documents with {exposure.texts:,} bytes of "
            "text. No column says whose they are, so each counts as a person.",
            source,
        )
        for client, source, exposure in records.exposures
    ]


def _adversaries(records: Records) -> list[Part]:
    """State what the server, members and readers of the model can learn."""
    unknown = ("any client", CITED, Exposure(records.study, records.planned))
    return [
        Statement(f"{who}, about {client}: {learns}", f"{source}; {MODEL}")
        for client, source, exposure in records.exposures or [unknown]
        for who, learns in exposure.adversaries.items()
    ]


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not set" if value is None else str(value)


def _budgets(records: Records) -> list[Part]:
    """State what the clients' privacy budgets contain."""
    return [
        Gap(
            WHO["participant"],
            f"The policy of {facts.client} has no max_epsilon, so no privacy budget is kept. What "
            "else was, or may be, released about the same documents?",
        )
        if facts.start.epsilon_spent is None
        else Statement(
            f"By the privacy budget of {facts.client}, all studies with differential privacy "
            f"on its documents had used epsilon {facts.start.epsilon_spent:.3g} when it took "
            "part, including this one; its policy allows "
            f"{facts.start.policy['max_epsilon']:g}.",
            facts.began,
        )
        for facts in records.ledgers
    ]


def audit_table(records: Records) -> list[Part]:
    """Return the table of the attack by shadow models, if the folder has its result."""
    audit = records.audit
    if audit is None:
        return []
    unit = "persons" if audit.persons < audit.documents else "documents"
    attacks = [
        (f"membership of {unit}, by the model", (audit.auc, audit.found), f"{audit.persons:,}"),
        *([] if audit.allowed is None else [("allowed by epsilon", audit.allowed, "-")]),
    ]
    return [
        FormTable(
            head=[
                "attack",
                "AUC (.500 by chance)",
                f"found, at {FALSE_POSITIVES:.0%} false",
                "tried on",
            ],
            rows=[
                [name, f"{auc:.3f}", f"{share:.1%}", tried] for name, (auc, share), tried in attacks
            ],
            source=f"{audit.path.name}; description of the attacks: {MODEL}",
        )
    ]


def _risks(records: Records) -> list[Part]:
    bound = records.study.differential_privacy
    within = "without a bound" if bound is None else f"within epsilon {bound.epsilon:g}"
    risks = [
        *(f"{attack['what']}, by {attack['who']}" for attack in records.holding("attacks")),
        f"what model and totals reveal about a single {records.unit.removesuffix('s')}, {within}",
        *(row[0] for row in TABLES["threats"]["rows"]),
        *(
            f"not promised: {sentence.removesuffix('.')}"
            for sentence in not_promised(
                secure=records.masked,
                noise=bool(records.bounded),
                draws=records.study.method.draws,
                persons=records.unit != "documents",
            )
        ),
    ]
    return [
        FormTable(
            head=[
                "risk of 3.1 or 4.1.a",
                "likelihood",
                "severity",
                "what modulates it",
                "acceptable?",
            ],
            rows=[[risk, "", "", "", ""] for risk in risks],
        )
    ]


FILLED = {
    "adversaries": _adversaries,
    "documents": _documents,
    "flows": _flows,
    "files": _files,
    "policies": _policies,
    "budgets": _budgets,
    "audit": audit_table,
    "risks": _risks,
}
