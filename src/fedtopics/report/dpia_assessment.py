"""Sections 2 to 6 of the impact assessment: measures of the program and residual risks."""

from math import exp

from fedtopics.federation.audit import FALSE_POSITIVES
from fedtopics.federation.policy import Policy
from fedtopics.report.dpia_document import PROGRAM, Part, Section, Statement, Table
from fedtopics.report.dpia_records import (
    TABLES,
    Parts,
    Records,
    answer_or_gap,
    to_controller,
    to_each,
    to_officer,
)
from fedtopics.report.run import LedgerFacts

DOCS = "docs/concepts/differential-privacy.md"
MODEL = "docs/concepts/threat-model.md"

KNOWN = {
    False: "All participants know each other's numbers of documents and shares of topics. "
    "A topic may be about few documents",
    True: "Participants know that the others take part. A topic may be about few documents",
}
NOISY_MODEL = "public words found in documents, topics and weights, all from noisy sums"
THREATS = TABLES["threats"]
PRINCIPLES = "Transparency", "Data minimisation", "Integrity and confidentiality", "Accountability"
CONTROL = (
    "A control without documents shows what public words and the encoder yield by themselves. "
    "On newsgroups its coherence (NPMI) was .193, compared with .227 for k-means at epsilon 3: "
    "the difference comes from the documents."
)
CONTROL_SOURCE = "benchmarks/results/private.md, on other documents than these"


def promised(records: Records) -> list[Part]:
    """State the study's privacy guarantee, and what it leaves out."""
    bound = records.study.differential_privacy
    if bound is None:
        return [
            Statement(
                "What the model and the totals reveal about a single document has no bound: the "
                "study has no [differential_privacy], so no noise is added.",
                f"{records.cited}, without [differential_privacy]",
            )
        ]
    cited = f"{records.cited}, [differential_privacy]"
    sure, most = exp(bound.epsilon), bound.most_documents
    n = len(bound.words)
    words = f"the {n:,} words that may be in topics" if n else "the encoder's words"
    parts: list[Part] = [
        Statement(
            f"All that the study releases, totals and model together, is differentially private "
            f"for each {bound.unit}: epsilon {bound.epsilon:g}, delta {bound.delta:g}. Anything "
            f"an attacker could conclude is at most {sure:,.3g} times as likely with a given "
            f"{bound.unit} as without it, except with probability {bound.delta:g}.",
            f"{cited}; {PROGRAM}, {DOCS}",
        ),
        *([] if most is None else [Statement(
            f"A column of each participant's documents names the author. At most {most:,} "
            "documents per author count, together as one. An author with documents at several "
            "participants has a separate bound at each, not one for all.",
            f"{cited}, most_documents",
        )]),
        Statement(
            f"Public and not protected: settings, names, {words}, the encoder, and when each "
            "participant sends how many bytes.",
            f"{records.cited}, [method]; {PROGRAM}",
        ),
        Statement(CONTROL, CONTROL_SOURCE),
    ]  # fmt: skip
    return [*parts, *_kept(records)]


def _kept(records: Records) -> list[Part]:
    """State who added the noise, and what the clients' privacy budgets contain."""
    if records.place == "simulation" or records.seeded:
        return [
            Statement(
                "Noise was drawn from the study's seed, which everybody knows. So this run does "
                "not keep the guarantee: it is only for tests and demonstrations.",
                PROGRAM if records.place == "simulation" else records.ledgers[0].name,
            )
        ]
    n = len(records.study.clients)
    shares = "The participant adds the noise itself, before it sends anything."
    if n > 1:
        shares = (
            "Each participant adds part of the noise before it sends anything. The noise suffices "
            f"even if {n // 3} of the {n} parts are missing or revealed to others."
        )
    return [Statement(shares, f"{PROGRAM}, {DOCS}"), *map(_spent, records.ledgers)]


def _spent(facts: LedgerFacts) -> Part:
    if facts.spent is None:
        return to_each(
            f"The policy of {facts.client} has no max_epsilon, so no privacy budget is kept. What "
            "else was, or may be, released about the same documents?"
        )
    return Statement(
        f"By the privacy budget of {facts.client}, all studies on its documents had used epsilon "
        f"{facts.spent:.3g} when it took part, including this one; its policy allows "
        f"{facts.policy['max_epsilon']:g}.",
        facts.began,
    )


def attacked(records: Records) -> list[Part]:
    audit = records.audit
    if audit is None:
        return [
            to_each(
                "How well can attacks recognise which of your documents were used? Run fedtopics "
                "audit attack STUDY --data FILE -o audit.json, then write this DPIA again with "
                "--audit."
            )
        ]
    found = [("membership, by the model", (audit.auc, audit.found), f"{audit.documents:,}")]
    if audit.allowed is not None:
        found.append(("allowed by epsilon", audit.allowed, "-"))
    rows = [[name, f"{auc:.3f}", f"{share:.1%}", tried] for name, (auc, share), tried in found]
    title = f"found, at {FALSE_POSITIVES:.0%} false"
    return [
        Statement(
            f"An audit trained {audit.shadows:,} models of this study on halves of one "
            "participant's documents, and tried to recognise from each model the documents of "
            "its training.",
            f"{audit.path.name}, SHA-256 {audit.sha256}",
        ),
        Table(
            ["attack", "AUC (.500 by chance)", title, "tried on"], rows,
            f"{audit.path.name}; description of the attacks: {MODEL}",
        ),
    ]  # fmt: skip


def _lawfulness(records: Records) -> Parts:
    return [
        Section("2", "Analysis of the processing"),
        Section("2.1", "Lawfulness"),
        Section("2.1.a", "Legal basis"),
        to_each(
            "Which legal basis (Article 6(1)) does each purpose have? For legitimate interests, "
            "what is the balancing test?"
        ),
        Section("2.1.b", "Reasons to lift the processing prohibition"),
        to_each("For special categories: which ground of Article 9(2) lifts the prohibition?"),
        Section("2.2", "Data minimisation, retention and quality"),
        Section("2.2.a", "Data minimisation and retention periods"),
        answer_or_gap(records, "recipients", "Who else gets the model, and why?"),
        Statement(
            f"Recipients by design: {records.adder} sees {records.sees}. All participants get all "
            "totals and the model. Only the participant itself has its documents, its ledger and "
            "theta.parquet.",
            f"{records.cited}; {MODEL}",
        ),
        Table(
            ["file", "content", "who has it", "bytes here"],
            _files(records),
            f"files in the folder; {PROGRAM} deletes none of them",
        ),
        Table(
            ["file", "record of its writing"],
            [[*row] for facts in records.ledgers for row in facts.kept.items()],
            ", ".join(facts.name for facts in records.ledgers),
        ),
        answer_or_gap(records, "retention", "How long is each file kept, and why?"),
        to_controller("Who deletes which of these files, when, and how is that documented?"),
        Section("2.2.b", "Data quality"),
        Statement(
            f"The rule {records.study.text.token_pattern!r} defines what a word is. Each "
            "occurrence counts as written; nothing about a person is corrected or inferred.",
            f"{records.cited}, [text]",
        ),
        to_each("Are the documents accurate and complete enough for the purpose?"),
    ]


def _protection(records: Records) -> Parts:
    how = {True: "signs with the key of its certificate", False: "does not sign"}
    return [
        Section("2.3", "Measures"),
        Section("2.3.a", "Measures supporting compliance with principles in Article 5(1)"),
        _measures(records, *PRINCIPLES),
        *(_policy(facts) for facts in records.ledgers),
        *(
            Statement(
                f"Random choices and noise of {facts.client} came from the study's seed, which "
                "everybody knows. They hide nothing: this is only for tests.",
                facts.name,
            )
            for facts in records.ledgers
            if facts.seeded
        ),
        to_controller("Fairness, purpose, accuracy, storage limitation: which measures?"),
        Section("2.3.b", "Measures supporting the exercise of data subjects' rights"),
        Statement(
            "A document's contribution cannot be removed from a model; a model without it must be "
            "trained from the beginning."
        ),
        Statement("The program makes no decision about persons (Article 22)."),
        to_each(
            "How are persons informed (12 to 14)? How can they get access (15, 20), have data "
            "corrected or erased (16, 17, 19), object or restrict (18, 21)?"
        ),
        Section("2.3.c", "Measures supporting compliance with other requirements"),
        to_controller("Consent (7), contracts with processors (28), transfers (chapter V)?"),
        Section("2.3.d", "Measures supporting data protection by design and by default"),
        _measures(records, "Data protection by design and by default"),
        to_controller("Which other measures are there by design and by default?"),
        Section("2.3.e", "Measures supporting security of processing"),
        _measures(records, "Security of processing"),
        *(Statement(f"{f.client} {how[f.has_certificate]}.", f.began) for f in records.ledgers),
        to_each("How are documents and folders protected: disks, accounts, backups, people?"),
    ]


def _necessity(records: Records) -> Parts:
    rows = [
        [each[key] for key in ("who", "what", "figure", "command", "less_by")]
        for each in records.holding("attacks")
    ]
    head = ["who", "what can be learned", "in an experiment", "its command", "reduced by"]
    source = f"{MODEL}; {records.cited}. The experiments used other documents than these"
    return [
        Section("3", "Considerations on necessity and proportionality"),
        Section("3.1", "Impacts of the processing on the rights and freedoms of data subjects"),
        Table(head, rows, source),
        Statement(f"{KNOWN[records.private]}, and its words reveal their subject.", MODEL),
        *promised(records),
        *attacked(records),
        to_controller("What would that mean for the persons whom the texts are about?"),
        Section("3.2", "Necessity of the processing"),
        Statement(
            "A less intrusive alternative in the program: each participant trains alone and sends "
            "nothing (fedtopics train with one client). A more intrusive one: pooling the texts."
        ),
        to_controller("Does the purpose need a common model? Which alternatives were considered?"),
        Section("3.3", "Proportionality of the processing"),
        to_controller("Do the benefits outweigh the impacts in 3.1? For whom?"),
    ]


def _risks(records: Records) -> Parts:
    bound = records.study.differential_privacy
    within = "without a bound" if bound is None else f"within epsilon {bound.epsilon:g}"
    learned = [f"{each['what']}, by {each['who']}" for each in records.holding("attacks")]
    learned.append(f"what the model and totals reveal about a single document, {within}")
    threat = ["threat", "how it happens", "what the program does"]
    head = ["risk of 3.1 or 4.1.a", "likelihood", "severity", "what modulates it", "acceptable?"]
    rows = [[risk, "", "", "", ""] for risk in (*learned, *(row[0] for row in THREATS))]
    return [
        Section("4", "Risk assessment and management"),
        Section("4.1", "Risk assessment"),
        Section("4.1.a", "Impacts caused by accidental, unlawful or abnormal events"),
        Table(threat, THREATS, f"{PROGRAM}; {MODEL}"),
        Statement("A certificate replaced before digests are compared admits an attacker.", MODEL),
        to_each("Which other events can happen in your environment?"),
        Section("4.1.b", "Method"),
        to_controller("Which levels of likelihood and severity apply? Which are acceptable?"),
        Section("4.1.c", "Inherent risk assessment"),
        to_controller("Fill in the empty cells of this table. Which rows are missing?"),
        Table(head, rows, "3.1 and 4.1.a"),
    ]


def _plan(records: Records) -> Parts:
    rows = []
    if records.seeded:
        rows.append(["no --insecure-seed", "noise and random choices are secret"])
    elif not records.masked:
        rows.append(['aggregation = "secure" in the study', "nobody sees a single client's update"])
    rows += TABLES["settings"]["with_noise" if records.private else "without_noise"]
    return [
        Section("4.2", "Action plan"),
        Section("4.2.a", "Additional mitigating measures"),
        Table(["measure that settings allow", "what it changes"], rows, f"{PROGRAM}; {MODEL}"),
        to_controller("Which of these and other measures are taken?"),
        Section("4.2.b", "Residual risk assessment"),
        to_controller("What are likelihood, severity and acceptance of the residual risks?"),
        Section("4.2.c", "Plan"),
        to_controller("Who does what until when, and when is this reviewed?"),
        Section("5", "Involvement of interested parties"),
        Section("5.1", "DPO advice"),
        to_officer("What is your advice, and how was it followed?"),
        Section("5.2", "Views of data subjects or their representatives"),
        to_controller("What are their views? If they were not asked, why?"),
        Section("6", "Conclusion and decision"),
        to_controller(
            "Rejected; consultation of the supervisory authority (Article 36); approved; "
            "or approved on conditions (which)? Why, by whom, when?"
        ),
    ]


def _files(records: Records) -> list[list[str]]:
    everybody = "all participants"
    with_server = f"{everybody} and the server" if records.has_server else everybody
    # A relay sees no model.
    whose = {"study.toml": with_server, "model": everybody if records.masked else with_server}
    files = TABLES["files"]["server" if records.place == "server" else "client"]
    files = files | ({"model": NOISY_MODEL} if records.private else {})
    holder = "the server" if records.place == "server" else "each participant, its own"
    here = records.place != "study"
    return [
        [name, what, whose.get(name, holder), records.size(name) if here else ""]
        for name, what in files.items()
    ]


def _measures(records: Records, *serves: str) -> Table:
    rows = [
        [each["serves"], each["what"], ", ".join(each["tests"])]
        for each in records.holding("measures")
        if each["serves"] in serves
    ]
    head = ["principle or requirement", "measure, implemented in the program", "its tests"]
    return Table(head, rows, f"{PROGRAM}; {MODEL}")


def _policy(facts: LedgerFacts) -> Table:
    meanings = {name: field.description or "" for name, field in Policy.model_fields.items()}
    rows = [[n, _shown(value), meanings.get(n, "")] for n, value in facts.policy.items()]
    source = f"{facts.began}; meanings: {PROGRAM}"
    return Table([f"policy of {facts.client}", "value", "meaning"], rows, source)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not set" if value is None else str(value)


ASSESSMENT = _lawfulness, _protection, _necessity, _risks, _plan
