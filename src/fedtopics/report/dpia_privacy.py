"""What the impact assessment says of a bound for each document, and of attacks that were tried."""

from __future__ import annotations

from math import exp

from fedtopics.federation.audit import FALSE_POSITIVES
from fedtopics.report.dpia_document import PROGRAM, Gap, Part, Statement, Table
from fedtopics.report.dpia_records import CONTROL, CONTROL_SOURCE, EACH, Records
from fedtopics.report.run import LedgerFacts

DOCS = "docs/privacy.md"


def promised(records: Records) -> list[Part]:
    """Say what the study promises for each document, and what it leaves out."""
    bound = records.study.privacy
    if bound is None:
        return [
            Statement(
                "What the model and the totals tell of a single document has no bound: the study "
                "has no privacy, and no noise is added.",
                f"{records.cited}, without [privacy]",
            )
        ]
    cited = f"{records.cited}, [privacy]"
    sure, most = exp(bound.epsilon), bound.most_documents
    n = len(bound.words)
    words = f"the {n:,} words that may be in topics" if n else "the encoder's words"
    parts: list[Part] = [
        Statement(
            f"All that the study releases, totals and model together, is differentially private "
            f"for each {bound.unit}: epsilon {bound.epsilon:g}, delta {bound.delta:g}. Whatever "
            f"somebody makes of it is at most {sure:,.3g} times as likely with a given "
            f"{bound.unit} as without it, but for cases of probability {bound.delta:g}.",
            f"{cited}; {PROGRAM}, {DOCS}",
        ),
        *([] if most is None else [Statement(
            f"An author is what a column of each participant's documents says; at most {most:,} "
            "documents of each count, together as one. Whose documents several participants have, "
            "has a bound at each of them, not one for all.",
            f"{cited}, most_documents",
        )]),
        Statement(
            f"Public, and under no bound: settings, names, {words}, the encoder, when "
            "who sends how many bytes.",
            f"{records.cited}, [method]; {PROGRAM}",
        ),
        Statement(CONTROL, CONTROL_SOURCE),
    ]  # fmt: skip
    return [*parts, *_kept(records)]


def _kept(records: Records) -> list[Part]:
    """Say who added noise, and what clients' accounts have by now."""
    if records.place == "simulation" or records.seeded:
        return [
            Statement(
                "Noise followed from the study's seed, which all know: in this run the promise is "
                "not kept. For tests and demonstrations alone.",
                PROGRAM if records.place == "simulation" else records.ledgers[0].name,
            )
        ]
    n = len(records.study.clients)
    shares = "The participant adds the noise itself, before anything leaves."
    if n > 1:
        shares = (
            "Each participant adds a part of the noise before anything leaves; parts are enough if "
            f"{n // 3} of the {n} are missing, or tell others theirs."
        )
    return [Statement(shares, f"{PROGRAM}, {DOCS}"), *map(_spent, records.ledgers)]


def _spent(facts: LedgerFacts) -> Part:
    if facts.spent is None:
        return Gap(
            EACH,
            f"The policy of {facts.client} has no max_epsilon, so no account is kept: what else "
            "was, and may be, released of the same documents?",
        )
    return Statement(
        f"By the account of {facts.client} all studies on its documents had epsilon "
        f"{facts.spent:.3g} together when it took part, this one included; its policy allows "
        f"{facts.policy['max_epsilon']:g}.",
        facts.began,
    )


def attacked(records: Records) -> list[Part]:
    """Quote an audit, or ask for one."""
    audit = records.audit
    if audit is None:
        return [
            Gap(
                EACH,
                "How well do attacks tell which of one's own documents were there? Run fedtopics "
                "audit attack STUDY --data FILE -o audit.json, and write this form again with "
                "--audit.",
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
            "participant's documents, and tried to tell from each model which of them it was "
            "trained on.",
            f"{audit.path.name}, SHA-256 {audit.sha256}",
        ),
        Table(
            ["attack", "AUC (.500 by chance)", title, "tried on"], rows,
            f"{audit.path.name}; what attacks are: {DOCS}",
        ),
    ]  # fmt: skip
