"""Sections 2 to 6 of the impact assessment: what the program does about risks, and what is left.

The assessment itself is people's: likelihood, severity and decision are gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedtopics.federation.policy import Policy
from fedtopics.report.dpia_document import PROGRAM, Gap, Part, Statement, Table
from fedtopics.report.dpia_privacy import attacked, promised
from fedtopics.report.dpia_records import (
    ACCOUNTABILITY,
    ATTACKS,
    CONFIDENTIALITY,
    CONTROLLER,
    DESIGN,
    EACH,
    MEASURES,
    MINIMISATION,
    OFFICER,
    SECURITY,
    TABLES,
    TRANSPARENCY,
    Fill,
    Filled,
    Parts,
    Records,
    asks,
    said_or_asked,
)
from fedtopics.report.run import LedgerFacts

MODEL = "docs/threat-model.md"

KNOWN = {
    False: "Of each participant all others know its number of documents and its shares of topics; "
    "a topic may be about few documents",
    True: "Of a participant others know that it takes part; a topic may be about few documents",
}
NOISY_MODEL = "public words that documents surely have, topics, weights, all of sums with noise"
THREATS = TABLES["threats"]


# 2. Analysis of the processing


def _minimisation(records: Records) -> Parts:
    return [
        said_or_asked(
            records, "recipients", CONTROLLER, "Who gets the model, besides the participants; why?"
        ),
        Statement(
            f"Recipients by the way it works: {records.adder} sees {records.sees}; all who take "
            "part have all totals, and the model; each participant alone has its documents, its "
            "ledger and theta.parquet.",
            f"{records.cited}; {MODEL}",
        ),
        Table(
            ["file", "what is in it", "who has it", "bytes here"],
            _files(records),
            f"files in the folder; {PROGRAM} deletes none of them",
        ),
        *_digests(records),
        said_or_asked(
            records, "retention", CONTROLLER, "How long is each file kept, and why so long?"
        ),
        Gap(CONTROLLER, "Who deletes which of these files, when, and how is it shown?"),
    ]


def _files(records: Records) -> list[list[str]]:
    whose = {
        "study.toml": "all participants and the server",
        "model": "all participants and the server",
    }
    if not records.has_server:
        whose = dict.fromkeys(whose, "all participants")
    files = TABLES["files"]["server" if records.place == "server" else "client"]
    files = files | ({"model": NOISY_MODEL} if records.private else {})
    holder = "the server" if records.place == "server" else "each participant its own"
    here = records.place != "study"
    return [
        [name, what, whose.get(name, holder), records.size(name) if here else ""]
        for name, what in files.items()
    ]


def _digests(records: Records) -> list[Part]:
    rows = [
        [name, said]
        for facts in records.ledgers
        for name, said in facts.kept.items()
    ]  # fmt: skip
    if not rows:
        return []
    names = ", ".join(facts.name for facts in records.ledgers)
    return [Table(["file", "as it was written"], rows, names)]


def _quality(records: Records) -> Parts:
    return [
        Statement(
            f"What is a word says the rule named {records.study.text.token_pattern!r}. "
            "A word counts as it stands, each time; nothing about a person is corrected or "
            "inferred.",
            f"{records.cited}, [text]",
        ),
        Gap(EACH, "Are the documents accurate and complete enough for the purpose?"),
    ]


def _measures(*serves: str) -> Fill:
    def fill(records: Records) -> Parts:
        rows = [
            [each.serves, each.what, ", ".join(each.tests)]
            for each in MEASURES
            if each.serves in serves and each.holds(records)
        ]
        head = ["principle or requirement", "measure, implemented in the program", "its tests"]
        return [Table(head, rows, f"{PROGRAM}; {MODEL}")] if rows else []

    return fill


def _principles(records: Records) -> Parts:
    fill = _measures(TRANSPARENCY, MINIMISATION, CONFIDENTIALITY, ACCOUNTABILITY)
    return [
        *fill(records),
        *(part for facts in records.ledgers for part in _policy(facts)),
        *(_seeded(facts) for facts in records.ledgers if facts.seeded),
        Gap(CONTROLLER, "Fairness, purpose, accuracy, storage limitation: which measures?"),
    ]


def _policy(facts: LedgerFacts) -> list[Part]:
    if not facts.policy:
        return []
    fields = Policy.model_fields
    meanings = {name: field.description or "" for name, field in fields.items()}
    rows = [[n, _shown(value), meanings.get(n, "")] for n, value in facts.policy.items()]
    source = f"{facts.began}; meanings: {PROGRAM}"
    return [Table([f"policy of {facts.client}", "value", "what it says"], rows, source)]


def _seeded(facts: LedgerFacts) -> Statement:
    return Statement(
        f"Draws of {facts.client} followed from the study's seed, which all know, masks and noise "
        "too: they hide nothing. That is for tests and demonstrations alone.",
        facts.name,
    )


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not set" if value is None else str(value)


def _rights(records: Records) -> Parts:
    return [
        Statement(
            "What a document has added to a model cannot be taken out of it again; a model without "
            "it is trained anew."
        ),
        Statement("The program makes no decision about persons (Article 22)."),
        Gap(
            EACH,
            "How are persons informed (12 to 14), how can they have access (15, 20), have data "
            "corrected or erased (16, 17, 19), object or restrict (18, 21)?",
        ),
    ]


def _design(records: Records) -> Parts:
    return [*_measures(DESIGN)(records), Gap(CONTROLLER, "What else, by design and default?")]


def _security(records: Records) -> Parts:
    how = {True: "signs with the key of its certificate", False: "does not sign"}
    return [
        *_measures(SECURITY)(records),
        *(Statement(f"{f.client} {how[f.has_certificate]}.", f.began) for f in records.ledgers),
        Gap(EACH, "Disks, accounts, backups, people: how are documents and folders protected?"),
    ]


# 3. Considerations on necessity and proportionality


def _impacts(records: Records) -> Parts:
    rows = [
        [each.who, each.what, each.figure, each.command, each.less_by]
        for each in ATTACKS
        if each.holds(records)
    ]
    head = ["who", "what can be learned", "in an experiment", "its command", "less by"]
    source = f"{MODEL}; {records.cited}. The experiments are on other documents than these"
    return [
        *([Table(head, rows, source)] if rows else []),
        Statement(f"{KNOWN[records.private]}, and its words about what they say.", MODEL),
        *promised(records),
        *attacked(records),
        Gap(CONTROLLER, "What would that mean for the persons whom the texts are about?"),
    ]


def _necessity(records: Records) -> Parts:
    return [
        Statement(
            "A less intrusive way that the program has: each participant trains alone, and nothing "
            "leaves (fedtopics run with one client). A more intrusive one: texts in one place."
        ),
        Gap(
            CONTROLLER, "Does the purpose need a common model? Which alternatives were considered?"
        ),
    ]


# 4. Risk assessment and management


def _events(records: Records) -> Parts:
    head = ["threat", "how it comes about", "what the program does"]
    return [
        Table(head, THREATS, f"{PROGRAM}; {MODEL}"),
        Statement("Whoever has the key of the authority can make clients up.", MODEL),
        Gap(EACH, "Which other events can happen where you are?"),
    ]


def _inherent(records: Records) -> Parts:
    bound = records.study.privacy
    within = "without a bound" if bound is None else f"within epsilon {bound.epsilon:g}"
    learned = [f"{each.what}, by {each.who}" for each in ATTACKS if each.holds(records)]
    learned.append(f"what model and totals tell of a single document, {within}")
    head = ["risk of 3.1 or 4.1.a", "likelihood", "severity", "what modulates it", "acceptable?"]
    rows = [[risk, "", "", "", ""] for risk in (*learned, *(threat[0] for threat in THREATS))]
    return [
        Gap(CONTROLLER, "The empty cells of this table, and rows that it lacks?"),
        Table(head, rows, "3.1 and 4.1.a"),
    ]


def _additional(records: Records) -> Parts:
    rows = []
    if records.seeded:
        rows.append(["no --secret-from-seed", "masks and noise hide, and draws are not known"])
    elif not records.masked:
        rows.append(["masks: no secure = false in the study", "single replies are seen by nobody"])
    rows += TABLES["settings"]["with_noise" if records.private else "without_noise"]
    return [
        Table(["measure that settings allow", "what it changes"], rows, f"{PROGRAM}; {MODEL}"),
        Gap(CONTROLLER, "Which of them, and which others, are taken?"),
    ]


ASSESSMENT: Sequence[Filled] = (
    ("2", "Analysis of the processing", None),
    ("2.1", "Lawfulness", None),
    ("2.1.a", "Legal basis", asks(
        EACH, "Which legal basis (Article 6(1)) has each purpose; of legitimate interests, which "
        "balance?")),
    ("2.1.b", "Reasons to lift the processing prohibition", asks(
        EACH, "For special categories: which ground of Article 9(2) lifts the prohibition?")),
    ("2.2", "Data minimisation, retention and quality", None),
    ("2.2.a", "Data minimisation and retention periods", _minimisation),
    ("2.2.b", "Data quality", _quality),
    ("2.3", "Measures", None),
    ("2.3.a", "Measures supporting compliance with principles in Article 5(1)", _principles),
    ("2.3.b", "Measures supporting the exercise of data subjects' rights", _rights),
    ("2.3.c", "Measures supporting compliance with other requirements", asks(
        CONTROLLER, "Consent (7), contracts with processors (28), transfers (chapter V)?")),
    ("2.3.d", "Measures supporting data protection by design and by default", _design),
    ("2.3.e", "Measures supporting security of processing", _security),
    ("3", "Considerations on necessity and proportionality", None),
    ("3.1", "Impacts of the processing on the rights and freedoms of data subjects", _impacts),
    ("3.2", "Necessity of the processing", _necessity),
    ("3.3", "Proportionality of the processing", asks(
        CONTROLLER, "Do the benefits outweigh what 3.1 says? For whom?")),
    ("4", "Risk assessment and management", None),
    ("4.1", "Risk assessment", None),
    ("4.1.a", "Impacts caused by accidental, unlawful or abnormal events", _events),
    ("4.1.b", "Method", asks(
        CONTROLLER, "Levels of likelihood and severity, and which risks are acceptable?")),
    ("4.1.c", "Inherent risk assessment", _inherent),
    ("4.2", "Action plan", None),
    ("4.2.a", "Additional mitigating measures", _additional),
    ("4.2.b", "Residual risk assessment", asks(
        CONTROLLER, "Likelihood, severity and acceptance of what is left then?")),
    ("4.2.c", "Plan", asks(
        CONTROLLER, "Who does what until when, and when is this looked at again?")),
    ("5", "Involvement of interested parties", None),
    ("5.1", "DPO advice", asks(OFFICER, "What is your advice, and what was made of it?")),
    ("5.2", "Views of data subjects or their representatives", asks(
        CONTROLLER, "What do they say; if they were not asked, why?")),
    ("6", "Conclusion and decision", asks(
        CONTROLLER, "Rejected; consultation of the supervisory authority (Article 36); approved; "
        "or approved on which conditions? Why, by whom, when?")),
)  # fmt: skip
