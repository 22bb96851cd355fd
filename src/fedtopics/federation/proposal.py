"""What a study proposes to its members before they join: who takes part, and who can see what."""

from contextlib import closing
from pathlib import Path
from typing import Any

from fedtopics.federation.connection import link_to_server
from fedtopics.federation.study import Study, why_plain
from fedtopics.protocol.roster import Key
from fedtopics.versions import VERSION


def proposal_lines(study: Study) -> list[str]:
    network = study.described["settings"].get("method.network")
    method = f"{study.method.method_name}{f' with {network}' if network else ''}"
    members = [*study.clients, *(f"{name} (observes)" for name in study.observers)]
    plain = why_plain(study)
    kind = "relay" if study.is_secure else "server"
    return [
        f"Study {study.name!r}: {method}, {study.method.number} topics",
        *(f"  {name}: {text}" for name, text in study.about.rows()),
        f"Members: {', '.join(members)}. {study.server.host} also runs the {kind}."
        if study.server.host is not None
        else f"Members: {', '.join(members)}.",
        f"Aggregation is {f'plain, as {plain}' if plain else 'secure'}.",
        f"Digest of the study, to compare with the other members: {study.fingerprint}",
    ]


def proposed(study: Study) -> dict[str, Any]:
    return {
        "digest": study.fingerprint,
        "clients": sorted(study.clients),
        "observers": sorted(study.observers),
        "aggregation": "secure" if study.is_secure else "plain",
    }


def reach(study: Study, folder: Path) -> str:
    """Call the server with a member's key; return a sentence or raise FederationError."""
    key = Key.load(folder)
    with closing(link_to_server(study, key)) as link:
        link.fetch(b"")
    news = (
        ""
        if link.software == VERSION
        else f" The server runs fedtopics {link.software}, this is {VERSION}."
    )
    return (
        f"The server answers{link.through}, accepts the certificate of {key.name}, and serves this "
        f"study.{news}"
    )
