"""Approval by people: which updates wait for it, who may approve, and who approved.

What would be sent has a page in plain words, with a keyed digest of the unmasked update. Approvers
sign the SHA-256 of the page, each with an own key, so that a page cannot belong to other bytes. The
page of the whole study covers all steps within its table. All files are in a folder `pending`,
which may be read by others: without the key of a step, nobody can guess an update from its digest.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel

from fedtopics.contract.events import Event, Pending
from fedtopics.errors import (
    FedTopicsError,
    IdentityError,
    PolicyError,
    RunError,
    StudyError,
    nearest_names,
)
from fedtopics.escaping import as_sentence, file_name, for_markdown
from fedtopics.federation.data_sent import AFTER_COUNTS
from fedtopics.federation.exposure import Exposure
from fedtopics.federation.ledger import Ledger, Line
from fedtopics.federation.policy import Policy, n_different
from fedtopics.federation.proposal import proposal_lines
from fedtopics.files import digest, read_bytes, read_text, write_durably
from fedtopics.protocol.keys import framed
from fedtopics.protocol.relay import LONGEST_REASON
from fedtopics.protocol.roster import (
    Key,
    alone,
    certificate_fingerprint,
    has_signed,
    name_of,
    read_pem,
)
from fedtopics.versions import VERSION

PENDING = "pending"  # a folder in an outbox, or in the folder of a run
STUDY = "study.md"  # the page of all steps
PEOPLE = "approvers.json"  # who may approve the pages
FAREWELL = "farewell-"  # begin of the name of a page by which an approver leaves
VERDICT = ".verdict.json"  # end of the name of a file with what an approver says of a page
REPLACED = re.compile(r"# The approver ([\w.-]+) with the certificate ([0-9a-f]{64}) leaves\n")
PEM = re.compile(r"-----BEGIN CERTIFICATE-----\n[\w+/=\n]+-----END CERTIFICATE-----\n")
KEYED = "Keyed SHA-256 of the update before it is masked: "
WHOLE = " would send, in the whole study"  # end of the title of its page
COVERS = (
    "An approval of this page covers each step of these functions, so often and with at most so "
    "many bytes. What is beyond that, and functions with ? bytes, wait for approvals of their own."
)
Content = TypeVar("Content")
People = Mapping[str, bytes]
"""The certificates of approvers in PEM, by name."""


class Verdict(msgspec.Struct, frozen=True):
    """What an approver says of a page."""

    page: str  # its SHA-256
    name: str  # of the approver
    time: str
    refused: str = ""  # why; "" if it is approved
    signature: bytes = b""

    @property
    def signed(self) -> bytes:
        return framed("fedtopics verdict", self.page, self.name, self.time, self.refused)

    @classmethod
    def of(cls, page: str, key: Key, refused: str = "") -> Verdict:
        """Sign a page, given its text."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        unsigned = cls(digest(page), key.name, now, as_sentence(refused[:LONGEST_REASON]))
        return msgspec.structs.replace(unsigned, signature=key.sign(unsigned.signed))

    def is_of(self, page: str, people: People) -> bool:
        """Whether one of these people has signed this text of a page."""
        return (
            self.page == digest(page)
            and self.name in people
            and has_signed(people[self.name], self.signed, self.signature)
        )


VerdictsOf = Callable[[str, People], Mapping[str, Verdict]]
"""Returns what people say of a page, given its text."""


def newest(verdicts: Iterable[Verdict], page: str, people: People) -> dict[str, Verdict]:
    """Return the last verdict of each of these people about a page, given its text."""
    signed = (verdict for verdict in verdicts if verdict.is_of(page, people))
    return {verdict.name: verdict for verdict in sorted(signed, key=lambda v: v.time)}


def readable(
    folder: Path, names: str, read: Callable[[Path], Content]
) -> Iterator[tuple[Path, Content]]:
    """Yield the files of a folder that can be read: one may be half copied, or somebody else's."""
    for path in sorted(folder.glob(names)):
        with suppress(OSError, ValueError):
            yield path, read(path)


def verdicts_in(folder: Path) -> list[Verdict]:
    """Return what people say of pages in a folder."""
    files = readable(
        folder, f"*{VERDICT}", lambda path: msgspec.json.decode(read_bytes(path), type=Verdict)
    )
    return [verdict for _, verdict in files]


def where_of(client: str, study: str, number: int) -> str:
    """Return the sentence that says where a farewell counts: once, after so many others."""
    return f"It counts for {client} in the study {study}, after {number} others."


def follow(page: str, people: People, needed: int, place: str, verdicts: VerdictsOf) -> People:
    """Return who may approve, after a farewell of one of `people`, if all others have signed it.

    They must be as many as have to approve an output: fewer people could otherwise approve all.
    """
    match = REPLACED.match(page)
    others = {name: pem for name, pem in people.items() if match and name != match[1]}
    if match is None or place not in page or len(others) in (len(people), *range(needed)):
        return people
    signed_by = {name for name, verdict in verdicts(page, others).items() if not verdict.refused}
    if certificate_fingerprint(people[match[1]]) != match[2] or signed_by != others.keys():
        return people
    if pem := PEM.search(page):
        with suppress(FedTopicsError):
            after = {**others, name_of(pem[0].encode(), "of a successor"): pem[0].encode()}
            return after if n_different(after) > len(others) else people
        return people
    return others


def after_farewells(
    pages: Iterable[tuple[str, VerdictsOf]], policy: Policy, client: str, study: str
) -> tuple[People, list[tuple[str, People]]]:
    """Return who may approve after these pages, and each farewell among them with who signed it."""
    people: People = policy.approvers_by_name
    farewells: list[tuple[str, People]] = []
    for page, verdicts in pages:
        before = people
        people = follow(
            page=page,
            people=before,
            needed=policy.approvals,
            place=where_of(client, study, len(farewells)),
            verdicts=verdicts,
        )
        if people != before:
            farewells.append((page, before))
    return people, farewells


class Approval(BaseModel, frozen=True, use_attribute_docstrings=True):
    """That a person approved a page."""

    name: str
    """The name in the person's certificate."""
    certificate: str
    """SHA-256 of this certificate."""
    time: str
    """When the person signed the page, in UTC."""


class ApprovedPage(BaseModel, frozen=True, use_attribute_docstrings=True):
    """A page that as many people have approved as a member's policy requires."""

    line: int
    """Number of the ledger's line about it."""
    text: str
    """The page, of one update or of the whole study."""
    approved_by: tuple[Approval, ...]
    """People who might approve it, and have signed it."""

    def is_about(self, client: str, study: str, keyed: str) -> bool:
        """Whether it is about an update of a client, given its keyed digest, or about the study."""
        return (
            study in self.text
            and self.text.startswith(f"# {client} would send")
            and (f"{KEYED}{keyed}\n" in self.text or self.text.startswith(f"# {client}{WHOLE}\n"))
        )


def approved_pages(lines: Iterable[Line]) -> dict[str, ApprovedPage]:
    """Return the pages that enough people have approved, by SHA-256, from the lines of a ledger.

    Who may approve follows from the policy of the last start, and from the farewells before a page.
    """
    policy = Policy()
    client = ""
    pages: dict[str, ApprovedPage] = {}
    earlier: list[tuple[str, VerdictsOf]] = []
    for line in lines:
        content = line.content
        match content.get("what"):
            case "started":
                client = content["client"]
                policy = Policy(
                    **{
                        key: value
                        for key, value in content["policy"].items()
                        if key in ("approvals", "approvers")
                    }
                )
            case "approved":
                verdicts = partial(newest, msgspec.convert(content["approvals"], list[Verdict]))
                # Approvers who were replaced before this page do not count any more.
                people, _ = after_farewells(earlier, policy, client, content["study"])
                text = content["page"]
                earlier.append((text, verdicts))
                approvals = [
                    Approval(name=name, certificate=certificate_fingerprint(pem), time=verdict.time)
                    for name, pem in people.items()
                    if (verdict := verdicts(text, people).get(name)) and not verdict.refused
                ]
                if len(approvals) >= max(policy.approvals, 1):
                    pages.setdefault(
                        digest(text),
                        ApprovedPage(line=line.number, text=text, approved_by=tuple(approvals)),
                    )
    return pages


class Notice(msgspec.Struct):
    """A file next to pages that wait: whose they are, and who may approve them."""

    client: str
    study: str
    number: int  # of approvers who have left
    people: dict[str, str]  # SHA-256 of certificates, by name


class ApprovalGate:
    """Lets an update of a member pass once enough people have approved its page, or the study's."""

    def __init__(
        self,
        folder: Path,
        exposure: Exposure,  # of the member's documents in the study
        ledger: Ledger,
        client: str,
        notify: Callable[[Event], None],
        keep: Callable[[str, bytes, bytes, People], None],  # stores an update that may leave
        run: str = "",  # an identity of the run's folder: its approvals count for no other
    ) -> None:
        self._folder = folder / PENDING
        self._exposure = exposure
        self._ledger = ledger
        self._client = client
        self._notify = notify
        self._keep = keep
        self._run = run
        self._rows = {row.function: row for row in exposure.rows}
        self._notified: tuple[str, int] = ("", 0)
        if (self._folder / PEOPLE).exists() and notice_of(folder).client != client:
            raise RunError(
                f"The pages in {self._folder} are of another member; give each an own folder."
            )
        self._write(STUDY, self._study_page)
        self.people()

    def people(self) -> People:
        """Return who may approve now, after the farewells that the others have signed."""
        study = self._exposure.study.fingerprint
        # Those that were followed before count first, and also if their files are gone.
        recorded = [page for page, _ in self._ledger.approved.values()]
        pages = [
            *recorded,
            *(text for _, text in readable(self._folder, f"{FAREWELL}*.md", read_text)),
        ]
        people, farewells = after_farewells(
            ((page, self._verdicts) for page in pages * len(pages)),  # one can follow from another
            self._exposure.policy,
            self._client,
            study,
        )
        for page, before in farewells:
            self._record(page, self._verdicts(page, before))
        notice = Notice(
            client=self._client,
            study=study,
            number=len(farewells),
            people={name: certificate_fingerprint(pem) for name, pem in people.items()},
        )
        self._write(PEOPLE, msgspec.json.encode(notice).decode())
        return people

    def _verdicts(self, page: str, people: People) -> dict[str, Verdict]:
        """Return the last verdict of each of these people about a page: recorded, or in a file."""
        _, recorded = self._ledger.approved.get(digest(page), ("", []))
        return newest(
            [*msgspec.convert(recorded, list[Verdict]), *verdicts_in(self._folder)], page, people
        )

    def waits(self, function: str, content: bytes, secret: bytes) -> str:
        """Return "" if the people approved it, else since when it waits; see `MemberSteps`."""
        sent = self._ledger.newest
        position = tuple(sent.get("position", (0, 0, 0)))
        before = self._ledger.released.get((function, position))
        keyed = hmac.digest(secret, content, "sha256").hex()
        is_recorded = sent.get("function") == function
        title = f"{position[0]:04}-{position[-1]}-{file_name(function)}"
        # A client that is not drawn adds zeros, of which the ledger has no line.
        is_absent = not content.strip(b"\0") and (before is not None or not is_recorded)
        if before == keyed or is_absent:
            return self._passed(title)
        if not is_recorded:
            raise PolicyError(f"No line of the ledger is about {function!r}, so nothing was sent.")
        page = self._page(sent, keyed)
        people = self.people()
        verdicts = {text: self._verdicts(text, people) for text in (page, self._study_page)}
        for text, of in verdicts.items():  # also of a page that was approved before
            for verdict in of.values():
                if verdict.refused:
                    self._record(text, of)
                    raise PolicyError(f"Its approver {verdict.name} refuses: {verdict.refused}.")
        for text in (page, self._study_page) if self._is_covered(sent) else (page,):
            if len(verdicts[text]) >= self._exposure.policy.approvals:
                self._record(text, verdicts[text])
                study = self._exposure.study.fingerprint[:8]
                self._keep(f"{file_name(self._client)}-{study}-{title}", secret, content, people)
                self._ledger.add(
                    "released",
                    function=function,
                    position=sent["position"],
                    content=keyed,
                    bytes=len(content),
                    page=digest(text),
                )
                return self._passed(title)
        return self._pend(f"{title}.md", page, len(verdicts[page]))

    def _passed(self, title: str) -> str:
        """Remove the page of a step that may leave."""
        for path in self._folder.glob(f"{title}.*"):
            path.unlink(missing_ok=True)
        return ""

    def _is_covered(self, sent: Mapping[str, Any]) -> bool:
        """Whether the page of the study covers an update, given its line in the ledger."""
        row = self._rows.get(sent["function"])
        if row is None or row.bytes is None:
            return False
        times = row.calls * (2 if AFTER_COUNTS in row.often else 1)
        return self._ledger.n_released[row.function] < times and sent["bytes"] <= row.bytes

    def _record(self, page: str, verdicts: Mapping[str, Verdict]) -> None:
        approvals = [msgspec.to_builtins(verdict) for verdict in verdicts.values()]
        if self._ledger.approved.get(digest(page)) != (page, approvals):
            self._ledger.add("approved", page=page, approvals=approvals)

    def _pend(self, name: str, page: str, n_verdicts: int) -> str:
        """Write a page that waits; return since when it does."""
        path = self._write(name, page)
        if self._notified != (page, n_verdicts):
            self._notified = page, n_verdicts
            self._notify(
                Pending(
                    str(path), n_verdicts, self._exposure.policy.approvals, str(self._folder.parent)
                )
            )
        return f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC"

    def _write(self, name: str, content: str) -> Path:
        path = self._folder / name
        if not path.exists() or read_text(path) != content:
            self._folder.mkdir(parents=True, exist_ok=True)  # approvers are other users
            write_durably(path, content.encode(), public=True)
        return path

    # Pages

    def _page(self, sent: Mapping[str, Any], keyed: str) -> str:
        """Return the page of an update, given its line in the ledger and its keyed digest."""
        row = self._rows.get(sent["function"])
        study = self._exposure.study
        n_persons = sent["documents"] if sent["persons"] is None else sent["persons"]
        turn, attempt, exchange = sent["position"]
        lines = [
            f"Study: {for_markdown(study.name)}, {study.fingerprint}",
            f"Function: {sent['function']}, turn {turn}, attempt {attempt}, exchange {exchange}",
            f"Behind it: {self._counts(sent['documents'], n_persons)}",
            f"Bytes: {sent['bytes']:,}",
            f"{KEYED}{keyed}",
        ]
        if row is not None:
            lines += [
                f"At most: {'?' if row.bytes is None else f'{row.bytes:,}'} bytes; {row.often}",
                f"What: {row.data_sent}",
                f"Seen by: {row.seen}. Over: {row.over}. Bounds: {row.bounds or 'none'}.",
            ]
        what = "something that is not in the study's table" if row is None else row.short
        return self._as_page(f"{self._client} would send: {what}", lines)

    @cached_property
    def _study_page(self) -> str:
        """Return the page of all steps."""
        exposure = self._exposure
        rows = [
            f"{row.function}, at most {row.calls:,} x "
            f"{'?' if row.bytes is None else f'{row.bytes:,}'} bytes: {row.short}; seen by "
            f"{row.seen}"
            for row in exposure.rows
        ]
        return self._as_page(
            f"{self._client}{WHOLE}",
            [
                *map(for_markdown, proposal_lines(exposure.study)),
                f"Run: {self._run[:16]}, over {self._counts(exposure.documents, exposure.persons)}",
                f"At most {exposure.steps:,} steps and {exposure.bytes:,} bytes:",
                *rows,
                COVERS,
            ],
        )

    def _counts(self, documents: int | None, persons: int | None) -> str:
        return (
            f"{documents or 0:,} documents; thresholds count {persons or 0:,} {self._exposure.unit}"
            if self._exposure.study.differential_privacy is None
            else "documents whose number noise hides"
        )

    def _as_page(self, title: str, lines: Sequence[str]) -> str:
        """Add to lines what holds for all pages of a study."""
        exposure = self._exposure
        study = exposure.study
        thresholds = exposure.policy.described(
            seen=not study.is_secure,
            rarest=study.vocabulary.min_persons_per_word,
            unit=exposure.unit,
            has_noise=study.differential_privacy is not None,
        )
        learned = [f"{who}: {learns}" for who, learns in exposure.adversaries.items()]
        sections = {"What it is": lines, "Thresholds": [thresholds], "What others learn": learned}
        listed = [
            f"## {heading}\n\n" + "\n".join(f"- {line}" for line in of)
            for heading, of in sections.items()
        ]
        return "\n\n".join([f"# {title}", *listed, f"Written by fedtopics {VERSION}."]) + "\n"


# What approvers do


def pages_in(folder: Path) -> dict[Path, str]:
    """Return the pages that wait in a folder, by file."""
    if pages := dict(readable(folder / PENDING, "*.md", read_text)):
        return pages
    raise RunError(
        f"Nothing waits for approval in {folder}; name an outbox, or the folder of a run."
    )


def notice_of(folder: Path) -> Notice:
    """Return whose the pages in a folder are, and who may approve them."""
    try:
        return msgspec.json.decode(read_bytes(folder / PENDING / PEOPLE), type=Notice)
    except (OSError, ValueError):
        raise RunError(
            f"Nothing waits for approval in {folder}; start the member's step there."
        ) from None


def require_approver(folder: Path, key: Key) -> Notice:
    """Return the notice in a folder; IdentityError if this person may not approve its pages."""
    notice = notice_of(folder)
    if notice.people.get(key.name) != certificate_fingerprint(key.certificate):
        raise IdentityError(
            f"The certificate of {key.name!r} is not that of an approver; these may approve: "
            f"{', '.join(notice.people)}. A new one may after the next step of this member."
        )
    return notice


def propose_farewell(folder: Path, key: Key, name: str, successor: Path | None) -> Path:
    """Write the page by which an approver leaves, as another one asks; return its path."""
    notice = require_approver(folder, key)
    if name not in notice.people:
        raise StudyError(f"There is no approver {name!r}; {nearest_names(name, notice.people)}")
    end = "nobody.\n"
    if successor is not None:
        pem = alone(read_pem(successor), str(successor))
        end = (
            f"{name_of(pem, '')}, SHA-256 {certificate_fingerprint(pem)}; compare it by "
            f"telephone.\n\n{pem.decode()}"
        )
    page = (
        f"# The approver {name} with the certificate {notice.people[name]} leaves\n\n"
        "All other approvers have to approve this page. "
        f"{where_of(notice.client, notice.study, notice.number)} Who takes this place: {end}"
    )
    path = folder / PENDING / f"{FAREWELL}{name}-{digest(page)[:8]}.md"
    write_durably(path, page.encode(), public=True)
    return path


def decide(path: Path, page: str, key: Key, refused: str | None = None) -> None:
    """Write what an approver says of a page, which was shown; IdentityError for other people."""
    require_approver(path.parent.parent, key)
    if refused is not None and not as_sentence(refused):
        raise StudyError("A refusal needs a reason; all members learn it.")
    verdict = Verdict.of(page, key, refused or "")
    write_durably(
        path.with_name(f"{path.stem}.{key.name}{VERDICT}"),
        msgspec.json.encode(verdict),
        public=True,
    )
