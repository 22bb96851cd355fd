"""Check offline that a run's folder is as it was written: what `fedtopics audit verify` does.

Without a trusted certificate, a ledger that somebody rewrote as a whole is not detected. Without a
digest that somebody kept, neither is a folder that was restored to an earlier state.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedtopics.errors import FedTopicsError, InputError, RunError, StudyError, first_problem
from fedtopics.federation import ledger
from fedtopics.federation.approval import approved_pages
from fedtopics.federation.audit import AUDIT, Audit
from fedtopics.federation.data_sent import ALL_SEE, TOTAL, data_sent_in
from fedtopics.federation.study import Study
from fedtopics.files import open_file, read_bytes, read_text
from fedtopics.protocol.roster import alone, certificate_fingerprint, has_signed, name_of
from fedtopics.versions import VERSION

EDITED = {"model/README.md", "model/topics.json", "report.html", "report.md"}


class Check(NamedTuple):
    what: str
    holds: bool | None  # None: nothing to check
    text: str


def verify(place: Path, certificate: Path | None = None, head: str = "") -> Iterator[Check]:
    """Check ledgers and the files that they name.

    `place` is a folder, or a ledger alone, of which files and study are not checked. With a
    `certificate`, only signatures with its key count. A kept `head` must be a line's digest.
    """
    trusted = None if certificate is None else alone(read_bytes(certificate), str(certificate))
    if place.is_file():
        yield from _alone(place, trusted, head)
        return
    try:
        study: Study | str = Study.read(place / "study.toml")  # or what is wrong with its file
    except StudyError as error:
        study = str(error)
    places = _places(place, study)
    if not places:
        raise RunError(
            f"There is no ledger in {place}; name the folder of a member or of a simulation."
        )
    for path in places:
        lines = ledger.checked_lines(path)
        yield from _chain(path, lines)
        if path.exists():
            yield _signature(path, lines, trusted)
            yield _study(place / "study.toml", study, lines)
            yield from _files(path.parent, lines)
            if isinstance(study, Study):
                rows = data_sent_in(study, is_simulation=path.parent != place)
                yield from _outputs({row.function: row.plain() for row in rows}, path, lines)
                yield _privacy(study, place, path, lines)
                if (place / AUDIT).exists():
                    yield _audit(place / AUDIT, study)
        if head:
            yield _kept_head(path, lines, head)


def _alone(path: Path, trusted: bytes | None, head: str) -> Iterator[Check]:
    """Check a ledger without the files of its run, as an auditor may get it."""
    lines = ledger.checked_lines(path)
    if not any(line.content for line in lines):
        raise RunError(f"{path} is not a ledger; give ledger.jsonl, or the folder of a run.")
    is_whole = ledger.head_path(path).exists()
    yield from (check for check in _chain(path, lines) if is_whole or check.what != "end")
    yield _signature(path, lines, trusted, has_head=is_whole)
    yield from _outputs({}, path, lines)
    if head:
        yield _kept_head(path, lines, head)
    without = "" if is_whole else f" Without {ledger.head_path(path)}, lines may have been cut off."
    yield Check(
        "files",
        None,
        f"Only {path} was given, so the study and the files that it names were not checked."
        f"{without}",
    )


def _kept_head(path: Path, lines: Sequence[ledger.Line], head: str) -> Check:
    number = next((line.number for line in lines if line.sha256 == head.lower()), 0)
    has = f"the line with the digest that you kept: {number:,}"
    return Check(
        "head",
        number > 0,
        f"{path} has {has if number else 'no line with the digest that you kept'}.",
    )


def _places(folder: Path, study: Study | str) -> list[Path]:
    clients = folder / "clients"
    path = folder / "ledger.jsonl"
    is_member = path.exists() or ledger.head_path(path).exists() or (folder / "state").is_dir()
    places = [path] if is_member else []
    if not clients.is_dir():
        return places
    names = {path.name for path in clients.iterdir() if path.is_dir()}
    names |= study.clients.keys() if isinstance(study, Study) else set()
    return places + [clients / name / "ledger.jsonl" for name in sorted(names)]


def _chain(path: Path, lines: Sequence[ledger.Line]) -> Iterator[Check]:
    """Check that each line has the digest of the one before, and that none is missing."""
    digests, broken = ledger.chain_of(lines)
    head = ledger.Head.read(path)
    fault = first_problem(
        {
            f"{path} is missing. It was deleted or moved, or lost in a power failure.": (
                not path.exists()
            ),
            f"Line {broken} of {path} does not follow the one before: lines were changed, removed, "
            "added or moved.": broken > 0 and len(lines[broken - 1].content) > 0,
            f"Line {broken} of {path} cannot be read.": broken > 0,
        }
    )
    yield Check(
        "lines",
        not fault,
        fault or f"{len(lines):,} lines of {path}, each with the digest of the one before.",
    )
    if head is None:  # only the head shows whether the last lines are missing
        yield Check(
            "end",
            False,
            f"{ledger.head_path(path)} is missing or damaged, so lines may have been cut off.",
        )
        return
    of_head = head.fault(digests)
    fault = first_problem(
        {
            f"{path}: {of_head}; lines were changed or cut off, or lost when power failed.": (
                of_head != ""
            ),
            f"The head of {path} records {head.lines:,} lines, but there are {len(lines):,}: the "
            "client was killed while writing, or lines were added.": head.lines < len(lines),
        }
    )
    yield Check(
        "end",
        not fault,
        fault or f"{head.lines:,} lines, as its head records; the last one is {head.sha256}.",
    )


def _signature(
    path: Path, lines: Sequence[ledger.Line], trusted: bytes | None, has_head: bool = True
) -> Check:
    """Check that each certificate shown is the one whose key signed the head and lines."""
    head = ledger.Head.read(path)
    client = ledger.client_of_ledger(path)
    fault = ""
    key = trusted
    # Each start of the client adds its certificate, and in an untouched ledger all have one key.
    for line in lines:
        if isinstance(certificate := line.content.get("certificate"), str):
            try:
                shown = alone(certificate.encode(), f"line {line.number}")
                name_of(shown, f"line {line.number}")  # a changed byte may be in the name
            except FedTopicsError as error:
                return Check("signature", False, f"{path}: {error}")
            key = key or shown
            if shown != key:
                keys = f"{certificate_fingerprint(shown)}, not {certificate_fingerprint(key)}"
                fault = f"line {line.number} shows the key {keys}"
    is_signed = bool(head and head.signature) if has_head else "signature" in lines[-1].content
    if key is None:
        fault = "its head is signed, but no line contains a certificate to check it with"
        if not is_signed:
            return Check(
                "signature",
                None,
                f"{path} is not signed, as its client had no certificate: anybody with access to "
                "the file can have replaced all of it.",
            )
    elif has_head and (head is None or not has_signed(key, head.signed, head.signature)):
        fault = f"its head is not signed with {certificate_fingerprint(key)}"
    elif not all(
        line.is_signed(partial(has_signed, key)) for line in lines[head.lines if head else 0 :]
    ):
        first = head.lines + 1 if head else 1
        fault = f"lines from {first:,} on are not signed with {certificate_fingerprint(key)}"
    elif (signer := name_of(key, str(path))) != client:
        fault = f"the ledger of {client!r} is signed by {signer!r}"
    if key is None or fault:
        return Check("signature", False, f"{path}: {fault}.")
    source = (
        "the ledger's own certificate: compare its fingerprint, or give one that you trust"
        if trusted is None
        else "the given certificate"
    )
    return Check(
        "signature",
        True,
        f"{path} is signed by {client!r} with the key {certificate_fingerprint(key)} of {source}.",
    )


def _study(path: Path, study: Study | str, lines: Sequence[ledger.Line]) -> Check:
    if isinstance(study, str):
        return Check("study", False, study)
    same = all(line.content.get("study") == study.fingerprint for line in lines)
    writers = {str(line.content["fedtopics"]) for line in lines if "fedtopics" in line.content}
    rest = "which each line names" if same else "but the ledger is of another study"
    if not same and writers and VERSION not in writers:
        rest += (
            f"; it was written by fedtopics {', '.join(sorted(writers))}, whose studies may have "
            "other fingerprints: verify it with that version"
        )
    return Check("study", same, f"{path} is the study {study.fingerprint}, {rest}.")


def _files(folder: Path, lines: Sequence[ledger.Line]) -> Iterator[Check]:
    """Check that files have the digests that the ledger recorded last."""
    records = ledger.last_records(lines)
    if not records:
        yield Check("files", None, f"The ledger in {folder} names no files.")
    for name, line in records.items():
        yield _file(folder, name, line)


def _file(folder: Path, name: str, line: ledger.Line) -> Check:
    """Compare a file with the last line about it; a file outside the folder is not opened."""
    where = f"line {line.number} of the ledger"
    if ledger.outside_of(folder, name):
        return Check(
            "file", False, f"{where.capitalize()} names a file outside {folder}; it was not opened."
        )
    path = folder / name
    if line.content.get("what") == "deleted":
        day = str(line.content.get("time"))[:10]
        return (
            Check("file", False, f"{path} is there, but by {where} it was deleted on {day}.")
            if path.exists()
            else Check("file", True, f"{path} was deleted on {day}, as {where} records.")
        )
    if not path.is_file():
        return Check("file", False, f"{path}, which line {line.number} records, is missing.")
    same = path.stat().st_size == line.content.get("bytes")  # a large file is not read for nothing
    if same:
        with open_file(path) as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == line.content.get("sha256")
    if not same and name in EDITED:
        return Check(
            "file", None, f"{path} is not as {where} records it; people may edit or rewrite it."
        )
    return Check("file", same, f"{path} {'is' if same else 'is not'} as {where} records it.")


def _outputs(
    table: dict[str, dict[str, Any]], path: Path, lines: Sequence[ledger.Line]
) -> Iterator[Check]:
    """Check what the client sent, and that people approved it if the policy required that."""
    try:
        yield _data_sent(table, path, lines)
        if any(
            line.content["policy"].get("approvals")
            for line in lines
            if line.content.get("what") == "started"
        ):
            yield _approvals(path, lines)
    except ledger.DAMAGES:  # of a line that somebody changed
        yield Check("outputs", False, f"A line of {path} is damaged.")


def _approvals(path: Path, lines: Sequence[ledger.Line]) -> Check:
    """Check that enough people had approved what was sent, before it was."""
    pages = approved_pages(lines)
    places: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    client = ""
    needed = 0
    for line in lines:
        content = line.content
        what = str(content.get("what"))
        if what == "started":
            client = content["client"]
            needed = max(needed, content["policy"].get("approvals", 0))  # it must not fall
        place = content.get("function"), *content.get("position", ())
        page = pages.get(str(content.get("page")))
        is_free = (
            page
            and page.line < line.number
            and page.is_about(client, content["study"], content["content"])
        )
        # A step to which the client added nothing has a line about its total only. A process that
        # received a total may have started after the step, with another position.
        is_total = what == "received" and any(
            function == place[0] for function, *_ in places["sent"] - places["released"]
        )
        if is_total or (what == "released" and not is_free):
            return Check(
                "approvals",
                False,
                f"Line {line.number:,} of {path} records that {place[0]} was {what}, but no line "
                "before it that enough people had approved what this client sent.",
            )
        # What was sent while the policy required no approval needs none.
        places[what] |= {place} if needed or what != "sent" else set()
    people = sorted({approval.name for page in pages.values() for approval in page.approved_by})
    return Check(
        "approvals",
        True,
        f"{len(places['released']):,} outputs of {path} were sent after approval. Approvers: "
        f"{', '.join(people) or 'none'}.",
    )


def _data_sent(table: dict[str, dict[str, Any]], path: Path, lines: Sequence[ledger.Line]) -> Check:
    """Check that the client sent only what its table of data sent has, to those who may see it."""
    for line in lines:
        where = f"Line {line.number:,} of {path} records"
        if "data_sent" in line.content:
            recorded = {row["function"]: row for row in line.content["data_sent"]}
            # Another version may describe functions in other words.
            is_same = all(
                row[key] == recorded.get(name, {}).get(key)
                for name, row in table.items()
                for key in ledger.TEXTS
            )
            if not is_same and line.content.get("fedtopics") == VERSION:
                return Check("data sent", False, f"{where} other data sent than the study has.")
            table = recorded
        if line.content.get("what") != "sent":
            continue
        function = str(line.content.get("function"))
        row = table.get(function, {"bytes": None, "seen": ALL_SEE})
        size = line.content.get("bytes", 0)
        most = size if row["bytes"] is None else row["bytes"]
        fault = first_problem(
            {
                f"but with {size:,} bytes, more than the {most:,} that are possible": size > most,
                "as sent in the clear, but the study has secure aggregation for it": (
                    row["seen"] == TOTAL and not line.content.get("masked")
                ),
                "which the study does not have": function not in table,
            }
        )
        if fault:
            return Check("data sent", False, f"{where} {function}, {fault}.")
    seen: dict[str, list[str]] = {}
    for name, row in table.items():
        seen.setdefault(row["seen"], []).append(name)
    shown = "; ".join(f"{who}: {', '.join(names)}" for who, names in seen.items())
    return Check("data sent", True, f"{path} has only what the study sends. Seen by {shown}.")


def _privacy(study: Study, folder: Path, path: Path, lines: Sequence[ledger.Line]) -> Check:
    """Check that study, model and the client's account agree about differential privacy."""
    bound = study.differential_privacy
    claim = None
    with suppress(OSError, InputError, *ledger.DAMAGES):  # it may be missing or damaged
        info = json.loads(read_text(folder / "model/config.json"))["info"]
        claim = info["privacy"] if isinstance(info["privacy"], dict) else {}
    if bound is None:
        text = f"The study {study.fingerprint} has no differential privacy"
        return (
            Check("privacy", None, f"{text}.")
            if claim is None
            else Check("privacy", False, f"{text}, but the model claims it.")
        )
    numbers = f"epsilon {bound.epsilon:g}, delta {bound.delta:g} for each {bound.unit}"
    if claim is not None and {**claim, "seeded": None} != {**bound.promise.plain, "seeded": None}:
        return Check(
            "privacy", False, f"The study promises {numbers}; the model claims another one."
        )
    seeded = (claim or {}).get("seeded") or path.parent != folder  # as in all simulations
    if seeded or any(line.content.get("secret") == ledger.SEEDED for line in lines):
        return Check(
            "privacy",
            None,
            f"The noise for {numbers} follows from the study's seed, so it protects nothing.",
        )
    for line in lines:
        policy = line.content.get("policy")
        spent = line.content.get("epsilon_spent")
        most = policy.get("max_epsilon") if isinstance(policy, dict) else None
        within = (
            isinstance(spent, (int, float)) and isinstance(most, (int, float)) and 0 < spent <= most
        )
        if most is not None and not within:
            return Check(
                "privacy",
                False,
                f"By line {line.number:,} of {path}, the client has spent epsilon {spent}, but its "
                f"policy allows {most}.",
            )
    return Check("privacy", True, f"The study promises {numbers}, and no record contradicts it.")


def _audit(path: Path, study: Study) -> Check:
    try:
        audit = Audit.read(path, study.fingerprint)
    except RunError as error:
        return Check("audit", False, str(error))
    return Check(
        "audit",
        True,
        f"{path} is of this study; its SHA-256 is {audit.sha256}, which no ledger records.",
    )
