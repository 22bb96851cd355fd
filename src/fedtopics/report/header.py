"""Header of a report: who took part, purpose, dates, privacy and policies."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from typing import Any

from fedtopics.federation.data_sent import Rows
from fedtopics.federation.study_tables import About
from fedtopics.model.card import counted_units, odds, promise
from fedtopics.model.topic_model import TopicModel
from fedtopics.report.run import RunFacts

Fact = dict[str, Any]
MOST_NAMED = 8  # clients
LATER = {"recipients": "Who gets the model", "retention": "Kept for", "contact": "Whom to ask"}
UNBOUND = "Sums have no bound for a single document: there is no differential privacy."
UPDATES_SEEN: Mapping[object, str] = {
    True: "Aggregation was secure: nobody saw the updates of one client.",
    False: "Aggregation was plain: the server saw the updates of each client.",
}
KEPT = (
    "Each client's own program refuses whatever its policy does not allow. The client's ledger, "
    "which stays with the client, is the proof."
)


def facts(model: TopicModel, run: RunFacts) -> list[Fact]:
    """Return the facts: ``name``, ``value``, ``detail`` and ``good`` (True, False or None)."""
    about = dict(About(**run.study.get("about", {})).rows())
    when = run.ended
    with suppress(ValueError):  # written as 1 March 2026
        day = date.fromisoformat(when)
        when = f"{day.day} {day:%B %Y}"
    names = [model.client_name(name) for name in sorted(model.documents)]
    counted = counted_units(model)
    if "privacy" in model.info:  # the model counts all clients together
        names = sorted(run.study.get("clients", {})) or names
        counted += ", counted with noise"
    rest = len(names) - MOST_NAMED
    named = ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    who = f"{len(names)} clients" if len(names) > 1 else "One client"
    return [
        _fact(
            "Who runs it",
            about.get("operator", "not stated"),
            detail="" if "operator" in about else "The study's [about] can name an operator.",
        ),
        _fact("Who took part", who, f"{named}: {sum(model.documents.values()):,} {counted}."),
        _private(model, run),
        _policy(run),
        *([_fact("When", when)] if when else []),
        *(_fact(title, about[name]) for name, title in LATER.items() if name in about),
    ]


def _fact(name: str, value: str, detail: str = "", good: bool | None = None) -> Fact:
    return {"name": name, "value": value, "detail": detail, "good": good}


def _private(model: TopicModel, run: RunFacts) -> Fact:
    bound = model.info.get("privacy")
    seen = "All clients were on one machine." if run.place == "simulation" else ""
    seen = UPDATES_SEEN.get(model.info.get("masked", ""), seen)
    if bound is None:
        return _fact("Is it private?", "Only sums, no guarantee", f"{UNBOUND} {seen}".strip())
    if bound["seeded"]:
        return _fact("Is it private?", "Only for experiments", f"{promise(model)}.", False)
    learned = odds(bound["epsilon"], bound["delta"], bound["unit"])
    detail = f"{learned[0].upper()}{learned[1:]}. {seen}".strip()
    return _fact("Is it private?", f"Epsilon {bound['epsilon']:g}", detail)


def _policy(run: RunFacts) -> Fact:
    name = "Was its policy met?" if run.place == "client" else "Were policies met?"
    if not run.policies:
        return _fact(name, "Not known here" if run.place == "model" else "At each client", KEPT)
    if broken := sorted(set(_broken(run))):
        return _fact(name, "No", f"{' '.join(broken)} See fedtopics audit verify.", False)
    fewest = min(
        (row["documents"] for rows in run.ledgers.values() for row in _replies(rows)), default=0
    )
    required = max(policy.min_persons for policy in run.policies.values())
    updates = f"Each update sums {fewest:,} or more documents" if fewest else "Nothing was sent"
    return _fact(name, "Yes", f"{updates}; those of {required:,} persons are required.", True)


def _replies(rows: Rows) -> Rows:
    """Return the ledger's rows about updates that were computed from documents."""
    return [row for row in rows if row["replies"] and row["documents"]]


def _broken(run: RunFacts) -> Iterator[str]:
    """Yield violations of the policies that the ledgers name."""
    for client, policy in run.policies.items():
        for row in _replies(run.ledgers.get(client, [])):
            if row["documents"] < policy.min_persons:
                yield f"An update of {client} is over {row['documents']:,} documents."
            if policy.methods is not None and row["method"] not in policy.methods:
                yield f"The policy of {client} does not allow {row['method']}."
