"""The privacy guarantee and the attacks of the impact assessment."""

from math import exp

from fedtopics.federation.audit import FALSE_POSITIVES
from fedtopics.report.dpia_document import PROGRAM, Part, Statement, Table
from fedtopics.report.dpia_records import Records, to_each
from fedtopics.report.run import LedgerFacts

DOCS = "docs/concepts/differential-privacy.md"
MODEL = "docs/concepts/threat-model.md"

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
