"""The policy: what a client shares. Only the client can change it.

Each reason to refuse a study, a round or a total is here; `door` checks each reply.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow.compute as pc
from pydantic import BaseModel, Field, field_validator

from fedtopics.errors import PolicyError, StudyError, closest, refuse
from fedtopics.federation.study_tables import FEWEST_CLIENTS, explained
from fedtopics.files import read_bytes, read_text, read_toml
from fedtopics.methods.registry import METHODS
from fedtopics.privacy import Privacy
from fedtopics.privacy.accounting import Account
from fedtopics.protocol.roster import (
    alone,
    certificate_fingerprint,
    name_of,
    public_key_of,
    read_pem,
)
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import Several, TextRules
from fedtopics.text.words import has_name

SEEN_DOCUMENTS = 256
SITE_POLICY = "FEDTOPICS_SITE_POLICY"  # an environment variable
SITE = Path("/etc/fedtopics/policy.toml")
FEW_TELL = (
    "Others see each update, and an update over few documents reveals them: attacks recovered 10 "
    "of 10 documents from one gradient, 49 of 52, and of 256 a third of their words."
)

SITE_HOLDS = " The site's policy applies too: of each key, the stricter value holds."


class Policy(BaseModel, extra="forbid", frozen=True, strict=True):
    """Limits of what a client shares, which only its own operator can change."""

    methods: Several[str] | None = Field(
        None, description="methods that may run; by default all installed ones"
    )
    min_persons: int = Field(
        10,
        ge=1,
        description="a reply must sum over the documents of at least this many persons; between "
        "machines, plain aggregation requires a policy that sets this number",
    )
    min_persons_in_sum: int | None = Field(
        None, ge=1, description="a secure sum must be over this many persons of all clients"
    )
    min_persons_per_word: int = Field(
        5,
        ge=1,
        description="a word is shared only if it is in documents of at least this many persons",
    )
    min_clients_per_word: int = Field(
        1, ge=1, description="studies that share words of fewer clients are refused"
    )
    min_clients_per_group: int = Field(
        1,
        ge=1,
        description="with secure aggregation, sums of a topic or cluster must be over this many "
        "clients, whatever counts_of_all; at least 3 so that no client can subtract its own",
    )
    person_column: Literal["required"] | None = Field(
        None,
        description='"required": documents without a column of persons are refused; without it, '
        "each document counts as a person",
    )
    unknown_persons: Literal["one"] | None = Field(
        None,
        description='"one": documents without a person count as those of one person; by default '
        "they are refused",
    )
    max_rounds: int | None = Field(
        None,
        ge=1,
        description="a study may have at most so many rounds; by default any number, but between "
        "machines rounds of drawn minibatches are at most half as many as the persons of a total",
    )
    min_clients_in_sum: int = Field(
        2,
        ge=1,
        description=f"fewest clients in a sum; with secure aggregation the default is "
        f"{FEWEST_CLIENTS}, because of two, each can subtract its own update and read the other's",
    )
    aggregation: Literal["secure"] | None = Field(
        None, description='"secure": studies with plain aggregation are refused'
    )
    known_members: Several[str] | None = Field(
        None,
        description="the certificates that members and servers of studies may have: a folder of "
        "PEM files, or a list of PEM files and SHA-256 fingerprints",
    )
    max_epsilon: float | None = Field(
        None,
        gt=0,
        description="privacy budget of these documents for all studies together; studies without "
        "differential privacy are refused",
    )
    memory: Path | None = Field(
        None,
        strict=False,
        description="file that records, as digests, which documents earlier runs used, and the "
        "spent budget; by default in your state folder, by the name of the key",
    )
    counts_of_all: bool = Field(
        True,
        description="with secure aggregation, min_persons of a group counts persons of all "
        "clients, not only this client's; set false if clients may lie about their counts",
    )
    token_patterns: Several[str] = Field(
        (), description="patterns that may split texts into words, besides the named ones"
    )
    named_patterns: Several[Literal["words", "words-and-digits", "whitespace", "lists"]] = Field(
        ("words", "words-and-digits", "whitespace", "lists"),
        description="named patterns that may split texts into words",
    )
    addresses: Literal["drop"] | None = Field(
        None, description='"drop": studies that keep web and e-mail addresses are refused'
    )
    never_words: Several[str] | None = Field(
        None,
        description="file of names that are never sent or counted, in any case, alone or in a "
        "longer word or n-gram; of a line with several words, each; studies that list one are "
        "refused",
    )

    approvals: int = Field(
        0,
        ge=0,
        description="so many of the approvers must approve what is sent, the whole study or each "
        "step; 0: nobody has to",
    )
    approvers: Several[str] = Field(
        (),
        description="the certificates of people who may approve what is sent, as PEM files; "
        '"fedtopics key create NAME" makes them',
    )

    @field_validator("methods")
    @classmethod
    def _methods_not_misspelt(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in value or ():
            if name not in METHODS.names and (meant := closest(name, METHODS.names)):
                raise ValueError(f"there is no method {name!r}; did you mean {meant!r}?")
        return value

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file.

        Raises
        ------
        StudyError
            If the file is missing, is not TOML, or has an unknown key, or if every user of the
            machine can write it.
        """
        with explained(f"The policy {path}", cls):
            policy = cls(**read_toml(Path(path)))
        if Path(path).stat().st_mode & stat.S_IWOTH:
            raise StudyError(
                f"Every user of this machine can change the policy {path}; run chmod o-w {path}."
            )
        folder = Path(path).parent
        resolved: dict[str, Any] = {
            name: tuple(_digits(entry) or str(folder / entry) for entry in value)
            for name in ("known_members", "never_words")
            if (value := getattr(policy, name)) is not None
        }
        # Their content, so that the ledger records it, and a site's list can be compared. Each
        # certificate must be valid now.
        resolved["approvers"] = tuple(
            alone(read_pem(folder / name), str(folder / name)).decode() for name in policy.approvers
        )
        _fingerprints_of(resolved.get("known_members", ()))  # a missing file is an error at once
        memory = {} if policy.memory is None else {"memory": folder / policy.memory}
        policy = policy.model_copy(update=resolved | memory)
        policy.check_approvers(str(path))
        return policy

    @classmethod
    def of(cls, path: str | Path | None) -> Policy:
        """Return the policy of the file at `path`, or the default one, as `at_site`."""
        return (cls() if path is None else cls.read(path)).at_site()

    def at_site(self) -> Policy:
        """Return the policy with the stricter of its values and the site's, which holds for all.

        Of a key that only one of them sets, its value holds.
        """
        policy = self
        for site in site_policies():
            policy = policy.model_copy(
                update={
                    name: _stricter(name, getattr(policy, name), getattr(site, name))
                    if name in policy.model_fields_set
                    else getattr(site, name)
                    for name in site.model_fields_set
                }
            )
        return policy

    @property
    def approvers_by_name(self) -> dict[str, bytes]:
        return {name_of(pem.encode(), "of an approver"): pem.encode() for pem in self.approvers}

    def check_approvers(self, which: str) -> None:
        """Refuse a policy, `which` it is, without enough different approvers."""
        n_people = n_different(self.approvers_by_name)
        if n_people < max(self.approvals, len(self.approvers)):
            raise PolicyError(
                f"The policy {which} requires {self.approvals} approvals, and names "
                f"{len(self.approvers)} certificates of {n_people} different names as approvers; "
                "name each person once, with a name of its own, and enough of them."
            )

    def names_in(self, text: TextRules) -> frozenset[str]:
        """Return the words of `never_words` in the form that the rules `text` give to words."""
        with explained(f"The policy's never_words {self.never_words}"):
            files = [read_text(Path(name)) for name in self.never_words or ()]
        return text.forms_of_names(line for file in files for line in file.splitlines())

    def check_text(self, client: str, text: TextRules, words: Iterable[str] = ()) -> None:
        """Refuse a study whose rules `text` are not allowed, or whose `words` have a name."""
        refused = f"which the policy of client {client!r} does not allow. Nothing was sent;"
        refuse(
            {
                f"The study splits texts by the pattern {text.token_pattern!r}, {refused} use one "
                f"of {', '.join(self.named_patterns)}.": (
                    text.token_pattern not in (*self.named_patterns, *self.token_patterns)
                ),
                f"The study keeps web and e-mail addresses as words, {refused} set addresses = "
                '"drop" in its [text].': self.addresses not in (None, text.addresses),
            },
            error=PolicyError,
        )
        if (names := self.names_in(text)) and any(has_name(word, names) for word in words):
            raise PolicyError(  # which word it is, others need not know
                "The study's own_stop_words, seed_topics or public words have a word of the "
                f"policy's never_words, {refused} remove it from the study."
            )

    def check_method(self, client: str, method: str) -> None:
        """Refuse a `method` that is not allowed."""
        if self.methods is not None and method not in self.methods:
            raise PolicyError(
                f"The policy of client {client!r} does not allow the method {method!r}; choose "
                f"one that it allows: {', '.join(self.methods) or 'none'}."
            )

    def check_persons(self, client: str, corpus: Corpus) -> None:
        """Refuse a `corpus` of which the policy requires to know whose its documents are."""
        unknown = -1 if corpus.persons is None else pc.index(corpus.persons, "").as_py()
        refuse(
            {
                f"The policy of client {client!r} requires a column of persons, but its documents "
                "have none, so each document would count as a person. Nothing was sent; name the "
                "column with --columns person=NAME, or as person in the client's table.": (
                    corpus.persons is None and self.person_column is not None
                ),
                f"Document {unknown + 1:,} of client {client!r} has no person. Nothing was sent; "
                'fill in the column of persons, or set unknown_persons = "one" in the policy: such '
                "documents then count as those of one person.": (
                    unknown >= 0 and self.unknown_persons is None
                ),
            },
            error=PolicyError,
        )

    def check_members(self, client: str, members: Collection[str]) -> None:
        """Refuse a sum over too few `members`; simulations do not check this."""
        if len(members) < self.min_clients_in_sum:
            raise PolicyError(
                f"The policy of client {client!r} requires sums over at least "
                f"{self.min_clients_in_sum} clients, but this one is over {len(members)}; wait for "
                "more of them."
            )

    def check_sum(self, client: str, persons: int) -> None:
        """Refuse a total over too few `persons` of all clients."""
        if persons < (self.min_persons_in_sum or 0):
            raise PolicyError(
                f"The policy of client {client!r} requires secure sums over at least "
                f"{self.min_persons_in_sum:,} persons, but this one would be over {persons:,}. "
                "Nothing of it was sent; raise the study's batch_size, or wait for more clients."
            )

    def in_study(self, is_secure: bool) -> Policy:
        """Return the policy between machines, where sums need three clients if `is_secure`."""
        return (
            self
            if not is_secure or "min_clients_in_sum" in self.model_fields_set
            else self.model_copy(update={"min_clients_in_sum": FEWEST_CLIENTS})
        )

    def described(
        self, seen: bool, rarest: int = 0, unit: str = "persons", has_noise: bool = False
    ) -> str:
        """Describe the policy in a study whose single updates are `seen`, with its rarest words.

        `unit` is what thresholds count, in the plural. With noise, words are public.
        """
        together = f" and {self.min_persons_in_sum:,} {unit}" if self.min_persons_in_sum else ""
        few = f" {FEW_TELL}" if seen and self.min_persons < SEEN_DOCUMENTS else ""
        least = max(self.min_persons_per_word, rarest)
        of = "at least" if unit == "documents" else "documents of at least"
        decides = "study" if rarest > self.min_persons_per_word else "policy"
        words = (
            f" A word is shared only if it is in {of} {least:,} of its {unit}, as the {decides} "
            "requires."
        )
        return (
            f"By this client's policy, an update sums over at least {self.min_persons:,} {unit} "
            f"and a total over at least {self.min_clients_in_sum} clients{together}."
            f"{'' if has_noise else words}{few}{SITE_HOLDS if site_policies() else ''}"
        )

    def check_aggregation(self, client: str, is_secure: bool) -> None:
        """Refuse plain aggregation, unless the policy sets min_persons."""
        refuse(
            {
                f"The policy of client {client!r} requires approvals, but the study has plain "
                "aggregation, in which rounds do not wait for people. Nothing was sent; set "
                'aggregation = "secure" in the study.': not is_secure and self.approvals > 0,
                f"The policy of client {client!r} requires secure aggregation, but the study has "
                'plain aggregation. Nothing was sent; set aggregation = "secure" in the study.': (
                    not is_secure and bool(self.aggregation or self.min_persons_in_sum)
                ),
                f"The study has plain aggregation, but the policy of client {client!r} does not "
                f"set min_persons. {FEW_TELL} Nothing was sent; add min_persons = "
                f"{SEEN_DOCUMENTS} to the policy, or another number.": (
                    not is_secure and "min_persons" not in self.model_fields_set
                ),
            },
            error=PolicyError,
        )

    def check_roster(
        self, client: str, certificates: Mapping[str, str], study: str, accepted: str = ""
    ) -> None:
        """Refuse a study with unknown certificates (SHA-256 by name), unless it is `accepted`."""
        if accepted and _digits(accepted) != study:
            raise PolicyError(
                f"--accept-roster names the study {accepted}, but this one is {study}. Nothing was "
                "sent; compare the digest with the other members again."
            )
        for site in site_policies():
            site.require_known(
                certificates,
                "policy of this site",
                "ask who keeps it: --accept-roster does not overrule it.",
            )
        if not accepted:
            self.require_known(
                certificates,
                f"policy of client {client!r}",
                "compare the study's digest with the other members by telephone, then add "
                f"--accept-roster {study}, or add the certificates to the policy's known_members.",
            )

    def require_known(self, certificates: Mapping[str, str], which: str, advice: str) -> None:
        """Raise PolicyError if the policy, `which` it is, knows not all `certificates`."""
        if self.known_members is None:
            return
        trusted = _fingerprints_of(self.known_members)
        if unknown := [name for name, digest in certificates.items() if digest not in trusted]:
            raise PolicyError(
                f"The {which} does not know the certificates of "
                f"{', '.join(name or 'the server' for name in unknown)}. Nothing was sent; {advice}"
            )

    def check_privacy(
        self, client: str, privacy: Privacy | None, study: str, account: Account
    ) -> None:
        """Refuse a study that exceeds the privacy budget."""
        least = self.min_persons_in_sum or 0
        epsilon = self.max_epsilon or 0.0
        refuse(
            {
                f"The policy of client {client!r} requires secure sums over at least {least:,} "
                "persons, but with differential privacy their number is not known. Nothing was "
                "sent; in such studies the noise protects documents, and the policy must be "
                "without min_persons_in_sum.": privacy is not None and least > 0,
                f"The policy of client {client!r} allows epsilon {epsilon:g}, but "
                "the study has no differential privacy. Nothing was sent; add the table "
                "[differential_privacy] to the study.": (
                    privacy is None and self.max_epsilon is not None
                ),
            },
            error=PolicyError,
        )
        if privacy is not None and self.max_epsilon is not None:
            account.check(client, study, privacy, self.max_epsilon)

    def charge(
        self, client: str, privacy: Privacy | None, study: str, account: Account, noise: str
    ) -> Account:
        """Return the `account` with a run of the study, if the policy has a privacy budget."""
        return (
            account
            if self.max_epsilon is None or privacy is None
            else account.charged(
                client=client,
                study=study,
                run=study,
                privacy=privacy,
                most=self.max_epsilon,
                noise=noise,
            )
        )

    def check_study(
        self,
        client: str,
        method: str,
        rounds: int,
        persons: int,
        clients: int = 0,
        clients_per_word: int | None = None,
        most_drawn: int | None = None,
        drawn: int | None = None,
    ) -> None:
        """Refuse a study that is not allowed, before anything is sent.

        `persons` is the number of those whose documents the client has, `clients_per_word` the
        fewest clients that must have a word. With minibatches, `drawn` is the number of documents
        of all clients in a round, and `most_drawn` the most rounds that a policy without max_rounds
        allows, if it is known.

        `rounds` does not include those of a model that the study continues. Simulations omit
        `clients`, which are not checked there.
        """
        self.check_method(client, method)
        most = self.max_rounds or most_drawn
        refuse(
            {
                f"The study has {rounds:,} rounds, but the policy of client {client!r} allows "
                f"{most or 0:,}. Nothing was sent; lower the study's max_rounds.": (
                    most is not None and rounds > most
                ),
                f"The study shares words of {clients_per_word} clients, but the policy of client "
                f"{client!r} requires {self.min_clients_per_word}. Nothing was sent; raise "
                "min_clients_per_word in the study's [vocabulary].": (
                    clients_per_word is not None and clients_per_word < self.min_clients_per_word
                ),
            },
            error=PolicyError,
        )
        if drawn is not None:  # each person has at most one document in a minibatch
            self.check_sum(client, drawn)
        refuse(
            {
                f"The policy of client {client!r} requires sums over at least "
                f"{self.min_clients_in_sum} clients, but a round of the study has {clients}. "
                "Nothing was sent; let more take part.": 0 < clients < self.min_clients_in_sum,
                f"The policy of client {client!r} requires sums over at least "
                f"{self.min_persons:,} persons, but its documents are of {persons:,}. Nothing was "
                "sent; give it documents of more persons.": persons < self.min_persons,
            },
            error=PolicyError,
        )


def site_policies() -> list[Policy]:
    """Read the policies of this machine, to which every client's policy is compared."""
    paths = [Path(named)] if (named := os.environ.get(SITE_POLICY)) else []
    return [Policy.read(path) for path in (*paths, SITE) if path in paths or path.exists()]


def _stricter(name: str, value: Any, of_site: Any) -> Any:
    """Return the stricter of two values of a key; of two memories, the site's."""
    if None in (value, of_site):
        return value if of_site is None else of_site
    match name, of_site:
        case "known_members", _:
            return tuple(sorted(_fingerprints_of(value) & _fingerprints_of(of_site)))
        case "never_words", _:
            return tuple(dict.fromkeys([*value, *of_site]))
        case _, tuple():
            return tuple(entry for entry in value if entry in of_site)
        case _, int() | float():  # counts_of_all is stricter if false
            is_least = name.startswith("min_") or name == "approvals"
            return max(value, of_site) if is_least else min(value, of_site)
    return of_site


def _fingerprints_of(entries: Sequence[str]) -> set[str]:
    """Return the SHA-256 of certificates, which are given as folders, files or SHA-256."""
    fingerprints = set()
    for entry in entries:
        if digits := _digits(entry):
            fingerprints.add(digits)
            continue
        path = Path(entry)
        try:
            files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
            fingerprints |= {certificate_fingerprint(read_bytes(file)) for file in files}
        except (OSError, ValueError):
            raise PolicyError(
                f"The certificates in {path}, which the policy's known_members names, cannot be "
                "read. Nothing was sent; correct the policy."
            ) from None
    return fingerprints


def n_different(people: Mapping[str, bytes]) -> int:
    """Return of how many different keys certificates are, in PEM."""
    return len({public_key_of(pem).public_numbers() for pem in people.values()})


def _digits(text: str) -> str:
    """Return a SHA-256 without spaces and colons; "" if the text is not one."""
    digits = re.sub(r"[\s:]", "", text).lower()
    return digits if re.fullmatch("[0-9a-f]{64}", digits) else ""


OPEN_POLICY = Policy(
    min_persons=1, min_persons_per_word=1, min_clients_in_sum=1, unknown_persons="one"
)
"""A policy for training on a single corpus, of which nothing is sent."""
