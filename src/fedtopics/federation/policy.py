"""What a client lets out; nobody else can change it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fedtopics.errors import PolicyError
from fedtopics.federation.study_tables import FEWEST_CLIENTS, explained
from fedtopics.files import read_bytes, read_toml
from fedtopics.privacy import Privacy
from fedtopics.privacy.accounting import Account
from fedtopics.protocol.roster import fingerprint
from fedtopics.text.rules import TextRules
from fedtopics.text.words import LISTS, PATTERNS

SEEN_DOCUMENTS = 256
FEW_TELL = (
    "Where replies are seen, sums over few documents are documents: of 10, each can be read from "
    "one gradient (10 of 10 exactly, 49 of 52 in another trial), of 256 a third of the words."
)


class Policy(BaseModel):
    """What a client lets out, whatever the others of a study want."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    methods: tuple[str, ...] | None = Field(
        None, description="methods that may run; by default all that are installed"
    )
    min_documents: int = Field(
        10,
        ge=1,
        description="a reply must sum over at least this many documents; between machines, plain "
        "aggregation needs a policy that says how many",
    )
    min_documents_in_sum: int | None = Field(
        None, ge=1, description="a secure sum must be over at least this many documents of all"
    )
    min_document_frequency: int = Field(
        5, ge=1, description="a word may leave only if this many documents have it"
    )
    max_rounds: int = Field(100_000, ge=1, description="most training rounds of a study")
    min_clients_in_sum: int = Field(
        2,
        ge=1,
        description="fewest clients of a sum; of two, each can subtract its own update and read "
        f"the other's, so with secure aggregation it is {FEWEST_CLIENTS} by default",
    )
    aggregation: Literal["secure"] | None = Field(
        None, description='"secure": studies with plain aggregation are refused'
    )
    known_members: str | tuple[str, ...] | None = Field(
        None,
        description="the certificates that members and servers of studies may have: a folder of "
        "PEM files, or a list of PEM files and SHA-256 fingerprints",
    )
    max_epsilon: float | None = Field(
        None,
        gt=0,
        description="the most that all studies on these documents may say of one of "
        "them together; studies without privacy are refused",
    )
    account: Path | None = Field(
        None, description="where it is written down; by default beside the policy"
    )
    counts_of_all: bool = Field(
        True,
        description="with secure aggregation, whether a group needs min_documents of all clients' "
        "documents, not of this client's own; false where another client may lie about its own",
    )
    token_patterns: tuple[str, ...] = Field(
        (), description="patterns of words that texts may be split by, besides those with a name"
    )

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file.

        Raises
        ------
        StudyError
            If the file is missing, is not TOML, or has an unknown key.
        """
        with explained(f"The policy {path}", cls):
            policy = cls(**read_toml(Path(path)))
        if policy.known_members is not None:
            members = policy.known_members
            entries = (members,) if isinstance(members, str) else members
            known = [_digits(each) or str(Path(path).parent / each) for each in entries]
            policy = policy.model_copy(update={"known_members": tuple(known)})
        if policy.max_epsilon is None:  # no account is kept
            return policy
        account = policy.account or Path(path).with_suffix(".account.jsonl")
        return policy.model_copy(update={"account": account})

    def check_method(self, client: str, method: str) -> None:
        """Refuse a method that is not allowed, before anything is computed."""
        if self.methods is not None and method not in self.methods:
            raise PolicyError(
                f"The policy of client {client!r} does not allow the method {method!r}; "
                "add it to the policy's methods."
            )

    def check_members(self, client: str, members: Collection[str]) -> None:
        """Refuse a sum over too few clients; where all are in one process, nobody asks."""
        if len(members) < self.min_clients_in_sum:
            raise PolicyError(
                f"The policy of client {client!r} asks for sums over at least "
                f"{self.min_clients_in_sum} clients, this one is over {len(members)}; wait for "
                "more of them, or lower min_clients_in_sum in its policy."
            )

    def check_sum(self, client: str, documents: int) -> None:
        """Refuse a secure sum over too few documents of all clients, when the total has come."""
        if documents < (self.min_documents_in_sum or 0):
            raise PolicyError(
                f"The policy of client {client!r} asks for secure sums over at least "
                f"{self.min_documents_in_sum:,} documents, this one is over {documents:,}; raise "
                "the study's batch_size, wait for more clients, or lower min_documents_in_sum in "
                "its policy."
            )

    def in_study(self, is_secure: bool) -> Policy:
        """Return the policy as it holds in a study between machines.

        With secure aggregation of two clients each of them can compute the other's update.
        """
        if not is_secure or "min_clients_in_sum" in self.model_fields_set:
            return self
        return self.model_copy(update={"min_clients_in_sum": FEWEST_CLIENTS})

    def of_enough(self, clients: int) -> Policy:
        """Return the policy where so many clients have to be in each sum, or more by its own."""
        least = max(self.min_clients_in_sum, clients)
        return self.model_copy(update={"min_clients_in_sum": least})

    def described(self, seen: bool) -> str:
        """Say what holds in a study, in which replies are seen one by one, or masked."""
        of_all = self.min_documents_in_sum
        together = f" and {of_all:,} documents" if of_all else ""
        few = f" {FEW_TELL}" if seen and self.min_documents < SEEN_DOCUMENTS else ""
        return (
            f"By this client's policy a reply sums over at least {self.min_documents:,} documents, "
            f"a total over at least {self.min_clients_in_sum} clients{together}, and a word leaves "
            f"if at least {self.min_document_frequency:,} documents have it.{few}"
        )

    def check_aggregation(self, client: str, is_secure: bool) -> None:
        """Refuse plain aggregation, unless the policy says of how many documents an update is."""
        if is_secure:
            return
        if not (self.aggregation or self.min_documents_in_sum):
            if "min_documents" in self.model_fields_set:
                return
            raise PolicyError(
                f"The study has plain aggregation, and the policy of client {client!r} does not "
                f"say of how many documents each update has to be; nothing has left. {FEW_TELL} "
                f"Add min_documents = {SEEN_DOCUMENTS} to the policy, or another number."
            )
        demand = 'aggregation = "secure"' if self.aggregation else "min_documents_in_sum"
        raise PolicyError(
            f"The policy of client {client!r} requires secure aggregation, and the study has plain "
            f'aggregation; set aggregation = "secure" in the study, or leave {demand} out of the '
            "policy. Nothing has left."
        )

    def check_roster(
        self, client: str, certificates: Mapping[str, str], study: str, accepted: str = ""
    ) -> None:
        """Refuse a study with certificates that the policy does not know.

        `certificates` are SHA-256 by name; a study is `accepted` by its digest.
        """
        if accepted and _digits(accepted) != study:
            raise PolicyError(
                f"--accept-roster names the study {accepted}, and this one is {study}; compare it "
                "with the other members once more. Nothing has left."
            )
        if accepted or self.known_members is None:
            return
        entries = self.known_members
        known = _known((entries,) if isinstance(entries, str) else entries)
        if unknown := [name for name, each in certificates.items() if each not in known]:
            raise PolicyError(
                f"The policy of client {client!r} does not know the certificates of "
                f"{', '.join(name or 'the server' for name in unknown)}; nothing has left. Compare "
                f"the study's digest with the other members by telephone, then add "
                f"--accept-roster {study}, or add the certificates to the policy's known_members."
            )

    def check_privacy(
        self, client: str, privacy: Privacy | None, study: str, run: str | None = None,
        noise: str = "",
    ) -> None:  # fmt: skip
        """Refuse a study that may say too much of a document, with those before; charge a run."""
        if privacy is not None and self.min_documents_in_sum:
            raise PolicyError(
                f"The policy of client {client!r} asks for secure sums over at least "
                f"{self.min_documents_in_sum:,} documents, and where a study has a bound nobody "
                "says how many there are; nothing has left. Leave min_documents_in_sum out of the "
                "policy."
            )
        if self.max_epsilon is None:
            return
        if privacy is None:
            raise PolicyError(
                f"The policy of client {client!r} allows epsilon {self.max_epsilon:g}, and the "
                "study has no bound for a document; nothing has left. Set privacy in the study, or "
                "leave max_epsilon out of the policy."
            )
        if self.account is None:
            raise PolicyError(
                f"The policy of client {client!r} has max_epsilon, and no file for its account; "
                "name one with account, or read the policy from a file."
            )
        account = Account(self.account)
        if run is None:
            account.check(client, study, privacy, self.max_epsilon)
        else:
            account.charge(client, study, run, privacy, self.max_epsilon, noise)

    @property
    def spent(self) -> float | None:
        """The epsilon that all studies had by now, if an account is kept."""
        if self.max_epsilon is None or self.account is None:
            return None
        return Account(self.account).epsilon

    def check_study(
        self, client: str, method: str, rounds: int, documents: int,
        text: TextRules | None = None, clients: int = 0,
    ) -> None:  # fmt: skip
        """Refuse a study that is not allowed, before anything leaves the client.

        The rounds are the most of the study's training, without those of a model that it continues;
        the documents those that the client has, or will have. In simulations, which are one's own,
        no rules of texts are given, and no number of a round's clients: any do.
        """
        self.check_method(client, method)
        named = (*PATTERNS, LISTS, *self.token_patterns)
        if text is not None and text.token_pattern not in named:
            raise PolicyError(
                f"The study splits texts by the pattern {text.token_pattern!r}, which the policy "
                f"of client {client!r} does not name; use one of {', '.join(PATTERNS)}, or add it "
                "to the policy's token_patterns."
            )
        if rounds > self.max_rounds:
            raise PolicyError(
                f"The study asks for {rounds:,} rounds, the policy of client {client!r} allows "
                f"{self.max_rounds:,}; nothing has left. Lower the study's max_rounds or raise "
                "that of the policy."
            )
        if 0 < clients < self.min_clients_in_sum:
            raise PolicyError(
                f"The policy of client {client!r} asks for sums over at least "
                f"{self.min_clients_in_sum} clients, and a round of the study has {clients}; "
                "nothing has left. Let more take part, or lower min_clients_in_sum in the policy."
            )
        if documents < self.min_documents:
            raise PolicyError(
                f"The policy of client {client!r} asks for sums over at least "
                f"{self.min_documents:,} documents, and it has {documents:,}; nothing has left. "
                "Give it more documents, or lower min_documents in its policy."
            )


def _known(entries: Sequence[str]) -> set[str]:
    """Return the SHA-256 of certificates: of folders, files and digests."""
    known = set()
    for entry in entries:
        if digits := _digits(entry):
            known.add(digits)
            continue
        path = Path(entry)
        try:
            files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
            known |= {fingerprint(read_bytes(file)) for file in files}
        except (OSError, ValueError):
            raise PolicyError(
                f"The certificates in {path}, which the policy's known_members names, cannot be "
                "read; nothing has left."
            ) from None
    return known


def _digits(text: str) -> str:
    """Return a SHA-256 without the spaces and colons that people write; "" if it is none."""
    digits = re.sub(r"[\s:]", "", text).lower()
    return digits if re.fullmatch("[0-9a-f]{64}", digits) else ""


OPEN_POLICY = Policy(min_documents=1, min_document_frequency=1, min_clients_in_sum=1)
"""For documents that stay in one's own hands: one corpus, trained where it is."""
