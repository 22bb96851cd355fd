"""What a study proposes to its members before they join: who takes part, and who can see what."""

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedtopics.federation.study import Study, why_plain
from fedtopics.guarantees import PLAIN, SECURE, promises
from fedtopics.protocol.roster import Key


@dataclass(frozen=True)
class Proposal:
    study: Study
    kind: str  # of aggregation
    members: int  # number in a sum

    @property
    def adversaries(self) -> list[str]:
        """What the server, one member, all others, and readers of the model learn."""
        alone = promises(self.kind, self.members, 1)
        together = promises(self.kind, self.members, self.members - 1)
        chosen = [alone[1], alone[2], *([together[2]] if self.members > 2 else []), alone[-1]]
        return [
            f"{promise.adversary[0].upper()}{promise.adversary[1:]} can see {promise.sees}"
            + (f"; and can {promise.can}." if promise.can != "nothing" else ".")
            for promise in chosen
        ]

    @property
    def lines(self) -> list[str]:
        study = self.study
        members = [*study.clients, *(f"{name} (observes)" for name in study.observers)]
        plain = why_plain(study)
        host = study.server.host
        return [
            f"Study {study.name!r}: {study.method.method_name}, {study.method.number} topics",
            *(f"  {name}: {text}" for name, text in study.about.rows()),
            f"Members: {', '.join(members)}.",
            f"Aggregation is plain, as {plain}: the server sees every update."
            if plain
            else "Aggregation is secure: the server sees no document, word, number, total or "
            "model.",
            f"Digest of the study, to compare with the other members: {study.fingerprint}",
            *(
                [f"{host} runs the server, so {host} sees what the operator and a member see."]
                if host is not None and not plain
                else []
            ),
        ]

    def plain(self) -> dict[str, Any]:
        return {
            "digest": self.study.fingerprint,
            "clients": sorted(self.study.clients),
            "observers": sorted(self.study.observers),
            "aggregation": self.kind,
            "promises": [asdict(promise) for promise in promises(self.kind, self.members)],
        }


def proposal_of(study: Study) -> Proposal:
    kind = SECURE if study.is_secure else PLAIN
    drawn = study.method.clients_per_round or len(study.clients)
    return Proposal(study, kind, min(drawn, len(study.clients)))


def reach(study: Study, folder: Path) -> str:
    """Call the server with a member's key; return a sentence or raise FederationError."""
    key = Key.load(folder)
    with closing(study.server_plan.link(key)) as link:
        link.fetch(b"")
    return (
        f"The server answers, and accepts the certificate of {key.name}. Only joining shows "
        "whether it serves the same study."
    )
