"""A member's outputs: what was sent, and who approved it, as JSON and as an RO-Crate."""

from __future__ import annotations

from io import BytesIO
from itertools import chain, starmap
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedtopics.errors import RunError
from fedtopics.extras import require
from fedtopics.federation import ledger
from fedtopics.federation.approval import ApprovedPage, approved_pages
from fedtopics.files import make_folder, read_bytes
from fedtopics.protocol.roster import certificate_fingerprint

RECORD = "egress.json"  # its name in a crate


class Output(BaseModel, frozen=True, use_attribute_docstrings=True):
    """An update or another message of a member."""

    function: str
    """What computed it."""
    position: tuple[int, int, int]
    """Where in the run: turn, attempt and exchange."""
    time: str
    """When it might leave, in UTC."""
    documents: int | None
    """Documents behind it."""
    persons: int | None
    """Persons behind it; null if each document counts as a person."""
    bytes: int
    """Its size before it was masked; without approvals, the size of its fields."""
    sha256: str
    """SHA-256 of its fields."""
    keyed_sha256: str
    """HMAC-SHA-256 of its bytes before they were masked; empty without approvals."""
    page: str
    """SHA-256 of the page that people approved; empty without approvals."""
    line: int
    """Number of the ledger's line by which it might leave."""
    line_sha256: str
    """SHA-256 of this line."""


class EgressRecord(BaseModel, frozen=True, use_attribute_docstrings=True):
    """The outputs of a member of a study, and who approved them, from the member's ledger."""

    study: str
    """Fingerprint of the study."""
    client: str
    """Name of the member."""
    certificate: str
    """SHA-256 of the member's certificate; empty if there was none, as in simulations."""
    fedtopics: str
    """Version of fedtopics that wrote the ledger."""
    format: int
    """Version of the ledger's format."""
    thresholds: dict[str, int | None]
    """Of the member's policy: approvals, and min_..., below which nothing is sent."""
    lines: int
    """Number of the ledger's lines."""
    last_line: str
    """SHA-256 of the ledger's last line."""
    outputs: tuple[Output, ...]
    """All outputs, in their order."""
    approvals: dict[str, ApprovedPage]
    """Approved pages, by SHA-256; empty if the policy required no approvals."""


def egress_record(run: Path) -> EgressRecord:
    """Read the outputs of a member from its ledger.

    Parameters
    ----------
    run : folder of a member's run.
    """
    path = run / "ledger.jsonl"
    lines = ledger.checked_lines(path)
    digests, broken = ledger.chain_of(lines)
    try:
        if broken or not lines:
            raise ValueError
        start = [line.content for line in lines if line.content["what"] == "started"][-1]
        certificate = start.get("certificate", "").encode()
        # These lines have the numbers of documents and persons, also of what was approved later.
        sent = {
            (line.content["function"], *line.content["position"]): line.content
            for line in lines
            if line.content["what"] == "sent"
        }
        outputs = {}
        wanted = ""
        for line in lines:
            content = line.content
            if content["what"] == "started":
                wanted = "released" if content["policy"].get("approvals") else "sent"
            elif content["what"] == wanted:
                place = content["function"], *content["position"]
                outputs[place] = {  # a process that is started again may repeat the line
                    **sent[place],
                    **content,
                    "keyed_sha256": content.get("content", ""),
                    "page": content.get("page", ""),
                    "line": line.number,
                    "line_sha256": line.sha256,
                }
        return EgressRecord.model_validate(
            {
                **start,
                "certificate": certificate and certificate_fingerprint(certificate),
                "thresholds": {
                    name: value
                    for name, value in start["policy"].items()
                    if name == "approvals" or name.startswith("min_")
                },
                "lines": len(lines),
                "last_line": digests[-1],
                "outputs": [*outputs.values()],
                "approvals": approved_pages(lines),
            }
        )
    except ledger.DAMAGES:
        raise RunError(
            f"{path} is missing, or somebody changed it; name the folder of a member's run, and "
            "see what fedtopics audit verify finds."
        ) from None


def write_crate(record: EgressRecord, run: Path, folder: Path) -> None:
    """Write an RO-Crate with a record and the files that it is about.

    Parameters
    ----------
    record : of the same run.
    run : folder of a member's run.
    folder : new or empty.

    References
    ----------
    The Five Safes RO-Crate profile, https://w3id.org/5s-crate/0.4, section "Disclosure phase". The
    crate has no workflow, so it does not claim to conform to the profile.
    """
    require("An RO-Crate needs", "'fedtopics[crate]'", ("rocrate", "rocrate"))
    from rocrate.rocrate import ROCrate

    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} has files already; name a new folder for the crate.")
    paths = [run / name for name in ("study.toml", "ledger.jsonl", "model/README.md")]
    contents = {
        **{path.name: read_bytes(path) for path in paths if path.exists()},
        RECORD: record.model_dump_json(indent=2).encode(),
    }
    crate = ROCrate()
    crate.name = f"Outputs of {record.client} in the study {record.study}"
    crate.description = "What a member of a federated study sent, and who approved it."
    for name, content in contents.items():
        crate.add_file(BytesIO(content), name)
    for entity in chain(*starmap(_assessed, record.approvals.items())):
        crate.add_or_update_jsonld(entity)
    crate.root_dataset["mentions"] = [{"@id": f"#check-{sha256}"} for sha256 in record.approvals]
    make_folder(folder)  # readable only by its owner, as is the ledger
    crate.write(folder)


def _assessed(sha256: str, page: ApprovedPage) -> list[dict[str, Any]]:
    """Return, as JSON-LD, a page, the people who approved it, and the check that it was."""
    people = [
        {"@id": f"#{approval.certificate}", "@type": "Person", "name": approval.name}
        for approval in page.approved_by
    ]
    return [
        *people,
        {"@id": f"#page-{sha256}", "@type": "CreativeWork", "text": page.text, "sha256": sha256},
        {
            "@id": f"#check-{sha256}",
            "@type": "AssessAction",
            "additionalType": {"@id": "https://w3id.org/shp#DisclosureCheck"},
            "name": f"Disclosure check, approved: {page.text.splitlines()[0].removeprefix('# ')}",
            "agent": [{"@id": person["@id"]} for person in people],
            "object": [{"@id": "./"}, {"@id": RECORD}, {"@id": f"#page-{sha256}"}],
            "endTime": max(approval.time for approval in page.approved_by),
            "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
        },
    ]
