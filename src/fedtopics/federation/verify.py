"""Check, without asking anybody, that what a run's folder says is what was written there.

What this can show, and to whom: without a certificate from elsewhere, that a ledger was not changed
by accident or by somebody who did not write it anew as a whole; with it, that whoever changed it
has the client's key. A whole folder that is put back to an earlier state is noticed only by who has
kept a later digest of its head.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fedtopics.errors import IdentityError, RunError, StudyError
from fedtopics.federation.audit import AUDIT, Audit
from fedtopics.federation.chain import HEAD, Head, digest_of_line, head_path, lines_of
from fedtopics.federation.chain import read_signature as signature_of
from fedtopics.federation.ledger import SEEDED, find_ledgers
from fedtopics.federation.promises import in_the_clear
from fedtopics.federation.study import Study
from fedtopics.pki.files import UNREADABLE, fingerprint
from fedtopics.pki.identity import common_name
from fedtopics.pki.signing import has_signed
from fedtopics.secure.said import CHOSEN


@dataclass(frozen=True)
class Check:
    """What was checked, and what came of it."""

    what: str
    holds: bool | None  # None: there is nothing that could be checked
    text: str


@dataclass(frozen=True)
class _Line:
    number: int
    raw: bytes
    content: Mapping[str, Any]  # nothing, if it cannot be read

    @cached_property
    def sha256(self) -> str:
        return digest_of_line(self.raw)

    @property
    def signed(self) -> tuple[bytes, bytes]:
        return signature_of(self.raw)


@dataclass(frozen=True)
class _Key:
    """A key that lines are signed with, and whose certificate says so."""

    name: str
    key: ec.EllipticCurvePublicKey

    @classmethod
    def of(cls, certificate: bytes, where: str) -> _Key:
        """Read a certificate in PEM; an IdentityError if it is none, or not of a client."""
        try:
            read = x509.load_pem_x509_certificate(certificate)
            name, key = common_name(read.subject, where), read.public_key()
        except UNREADABLE:
            name, key = "", None
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise IdentityError(f"{where} is no certificate of a client in PEM; name another file.")
        return cls(name, key)

    @property
    def shown(self) -> str:
        return fingerprint(self.key)


def verify(folder: Path, certificate: Path | None = None, head: str = "") -> Iterator[Check]:
    """Check the ledgers of a run, and that its files are those that they name.

    Parameters
    ----------
    folder : path
        Of a client's part in a run, or of a simulation.
    certificate : path, optional
        Of the client, in PEM: only what is signed by its key counts.
    head : str, optional
        A digest that somebody has kept: the ledger has to have a line with it.

    Raises
    ------
    RunError
        If there is no ledger.
    IdentityError
        If the file is no certificate.
    """
    ledgers = find_ledgers(folder)
    if not ledgers:
        raise RunError(
            f"There is no ledger in {folder}; name the folder of a client's part in a run."
        )
    trusted = None if certificate is None else _Key.of(certificate.read_bytes(), str(certificate))
    for client, path in ledgers.items():
        lines = list(_read(path))
        yield _chain(path, lines)
        yield _head(path, lines)
        yield _signatures(path, client, lines, trusted)
        yield _study(folder, lines)
        yield from _files(path.parent, lines)
        yield from _facts(folder, path, lines)
        if head:
            yield _kept(path, lines, head)


def _read(path: Path) -> Iterator[_Line]:
    for number, raw in enumerate(lines_of(path), 1):
        try:
            content = json.loads(raw)
        except (ValueError, RecursionError):
            content = {}
        yield _Line(number, raw, content if isinstance(content, dict) else {})


def _chain(path: Path, lines: Sequence[_Line]) -> Check:
    """Check that each line has the digest of the one before."""
    before, chained = "", False
    for line in lines:
        link = line.content.get("before")
        if not line.content:
            return Check("lines", False, f"Line {line.number} of {path} cannot be read.")
        if (chained or link is not None) and link != before:
            return Check(
                "lines", False,
                f"Line {line.number} of {path} does not follow the one before: lines were "
                "changed, taken out, put in or moved.",
            )  # fmt: skip
        if doubt := line.content.get("doubt"):
            return Check("lines", False, _doubted(path, line.number, doubt))
        chained, before = link is not None, line.sha256
    old = sum("before" not in line.content for line in lines)
    if lines and old == len(lines):
        return Check(
            "lines", False,
            f"{path} is of an earlier version, whose lines have no digests: nothing shows that it "
            "is as it was written.",
        )  # fmt: skip
    earlier = f", but for {old:,} of an earlier version, which have none"
    return Check(
        "lines", True,
        f"{len(lines):,} lines of {path}, each with the digest of the one before"
        f"{earlier if old else ''}.",
    )  # fmt: skip


def _doubted(path: Path, number: int, doubt: Any) -> str:
    had = doubt.get("lines") if isinstance(doubt, dict) else None
    said = "had no head" if had is None else f"was not the one whose head said {had:,} lines"
    return (
        f"When line {number} of {path} was written, the ledger before it {said}: lines were cut "
        "off or changed, or lost when power failed."
    )


def _head(path: Path, lines: Sequence[_Line]) -> Check:
    """Check that no lines are missing at the end, or are there that were not counted."""
    head = Head.read(path)
    if head is None:
        return Check(
            "end", False,
            f"There is no {head_path(path)} that says how many lines there were; it was taken "
            "away, or is of an earlier version.",
        )  # fmt: skip
    if head.lines > len(lines):
        return Check(
            "end", False,
            f"The head of {path} says {head.lines:,} lines, and there are {len(lines):,}: the end "
            "was cut off, or lost when power failed.",
        )  # fmt: skip
    last = lines[head.lines - 1].sha256 if head.lines else ""
    if last != head.sha256:
        return Check("end", False, f"Line {head.lines} of {path} is not the one of its head.")
    if head.lines < len(lines):
        return Check(
            "end", False,
            f"The head of {path} says {head.lines:,} lines, and there are {len(lines):,}: the "
            "client was killed as it wrote, or lines were added; start it again.",
        )  # fmt: skip
    return Check("end", True, f"{head.lines:,} lines are what its head says; the last is {last}.")


def _signatures(path: Path, client: str, lines: Sequence[_Line], trusted: _Key | None) -> Check:
    """Check that all lines from the first signed one on, and the head, are signed by one key."""
    first = next((line.number for line in lines if line.signed[1]), 0)
    if not first and trusted is None:
        return Check(
            "signature", None,
            f"{path} is not signed, as its client had no certificate: who can write the file can "
            "have written it anew.",
        )  # fmt: skip
    key, fault = _signed_by(lines if trusted else lines[first - 1 :], trusted)
    if key is None or fault:
        return Check("signature", False, f"{path}: {fault}.")
    head = Head.read(path)
    if head is not None and not has_signed(key.key, *signature_of(head.written, HEAD)):
        return Check("signature", False, f"{path}: the head is not signed with {key.shown}.")
    if key.name != client:
        return Check("signature", False, f"{path} of {client!r} is signed by {key.name!r}.")
    source = "the ledger's own certificate: compare it, or name the one that you trust"
    earlier = "" if trusted or first == 1 else f"; lines before {first:,} are not signed"
    return Check(
        "signature", True,
        f"{path} is signed by {key.name!r} with the key {key.shown} of "
        f"{'the certificate that was named' if trusted else source}{earlier}.",
    )  # fmt: skip


def _signed_by(lines: Sequence[_Line], key: _Key | None) -> tuple[_Key | None, str]:
    """Return whose key has signed the lines, and what is wrong with them if something is."""
    for line in lines:
        shown = line.content.get("certificate")
        if isinstance(shown, str):
            try:
                own = _Key.of(shown.encode(), f"line {line.number}")
            except IdentityError as error:
                return key, str(error).removesuffix(".")
            if key is not None and own.shown != key.shown:
                return key, f"line {line.number} shows the key {own.shown}, not {key.shown}"
            key = key or own
        if key is None or not has_signed(key.key, *line.signed):
            return key, f"line {line.number} is not signed with {key.shown if key else 'any key'}"
    return key, ""


def _study(folder: Path, lines: Sequence[_Line]) -> Check:
    """Check that the study file is of the study that the ledger is of."""
    path = folder / "study.toml"
    said = {line.content.get("study") for line in lines}
    try:
        found = Study.read(path).fingerprint
    except StudyError as error:
        return Check("study", False, str(error))
    if said - {found}:
        return Check("study", False, f"{path} is the study {found}, and the ledger is of another.")
    return Check("study", True, f"{path} is the study {found}, which each line names.")


def _files(folder: Path, lines: Sequence[_Line]) -> Iterator[Check]:
    """Check that files are as they were written, each as the last line of it says."""
    kept = {line.content.get("file"): line for line in lines if line.content.get("what") == "kept"}
    if not kept:
        yield Check("files", None, f"The ledger in {folder} names no files.")
    for name, line in kept.items():
        path = folder / str(name)
        if not path.is_file():
            yield Check("file", False, f"{path} is missing, which line {line.number} has.")
            continue
        same = hashlib.sha256(path.read_bytes()).hexdigest() == line.content.get("sha256")
        is_it = "is as" if same else "is not as"
        yield Check("file", same, f"{path} {is_it} line {line.number} of the ledger has it.")


def _facts(folder: Path, path: Path, lines: Sequence[_Line]) -> Iterator[Check]:
    """Check what a form says besides: what was in the clear, what is promised, an audit."""
    try:
        study = Study.read(folder / "study.toml")
    except StudyError:
        return  # which was said already
    left = [line for line in lines if line.content.get("what") == "left"]
    yield _clear(study, path, left, in_one_process=path.parent != folder)
    yield _privacy(study, folder, path, lines)
    if (audit := folder / AUDIT).exists():
        try:
            found = Audit.read(audit, study.fingerprint)
            text = f"{audit} is of this study; its SHA-256 is {found.sha256}, which no ledger has."
            yield Check("audit", True, text)
        except RunError as error:
            yield Check("audit", False, str(error))


def _clear(study: Study, path: Path, left: Sequence[_Line], in_one_process: bool) -> Check:
    """Check that nothing was seen that masks were to hide."""
    seen: dict[str, int] = {}
    for line in left:
        if not line.content.get("masked") and not _of_masks(line):
            seen.setdefault(str(line.content.get("function")), line.number)
    shown = ", ".join(sorted(seen)) or "nothing"
    if in_one_process or not study.masked:
        why = "one process had all replies" if in_one_process else "replies were not masked"
        return Check("clear", None, f"In {path} {why}: {shown}.")
    for function in sorted(seen.keys() - {*in_the_clear(study), CHOSEN}):
        return Check(
            "clear", False,
            f"By line {seen[function]:,} of {path} {function} left in the clear, and the study has "
            "masks for it.",
        )  # fmt: skip
    return Check("clear", True, f"By {path} all left in masked sums, but for: {shown}.")


def _of_masks(line: _Line) -> bool:
    function = str(line.content.get("function"))
    return function.startswith("secure.") and function != CHOSEN


def _privacy(study: Study, folder: Path, path: Path, lines: Sequence[_Line]) -> Check:
    """Check that study, model and the client's account say the same of a bound."""
    bound, said = study.privacy, _said_of_privacy(folder / "model/config.json")
    if bound is None:
        text = f"The study {study.fingerprint} promises no bound for a document"
        if said is None:
            return Check("privacy", None, f"{text}.")
        return Check("privacy", False, f"{text}, and the model says one.")
    numbers = f"epsilon {bound.epsilon:g}, delta {bound.delta:g} for each {bound.unit}"
    if said is not None and {**said, "seeded": None} != {**bound.told, "seeded": None}:
        return Check("privacy", False, f"The study promises {numbers}; the model says another one.")
    seeded = (said or {}).get("seeded") or path.parent != folder  # as in all simulations
    if seeded or any(line.content.get("secret") == SEEDED for line in lines):
        text = f"Noise as for {numbers} followed from the study's seed: there is no bound."
        return Check("privacy", None, text)
    for line in lines:
        policy, spent = line.content.get("policy"), line.content.get("epsilon_spent")
        most = policy.get("max_epsilon") if isinstance(policy, dict) else None
        if most is not None and not _is_within(spent, most):
            return Check(
                "privacy", False,
                f"By line {line.number:,} of {path} the client's account has epsilon {spent}, of "
                f"{most} that its policy allows.",
            )  # fmt: skip
    return Check("privacy", True, f"The study promises {numbers}, and nothing else says another.")


def _is_within(spent: Any, most: Any) -> bool:
    numbers = all(isinstance(number, (int, float)) for number in (spent, most))
    return numbers and 0 < spent <= most


def _said_of_privacy(config: Path) -> dict[str, Any] | None:
    """Return what a model says; nothing of one that is not there, or cannot be read."""
    try:
        found = json.loads(config.read_text("utf-8"))["info"]["privacy"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else {}


def _kept(path: Path, lines: Sequence[_Line], head: str) -> Check:
    found = next((line.number for line in lines if line.sha256 == head.lower()), 0)
    if found:
        return Check("kept", True, f"{path} has the line with the digest that you kept: {found:,}.")
    return Check("kept", False, f"{path} has no line with the digest that you kept.")
