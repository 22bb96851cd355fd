"""The study: everything that server and clients agree on, in one TOML file.

Look here for a study's fields, its fingerprint, and why its aggregation is secure or plain; its
tables are in `study_tables`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    field_validator,
    model_validator,
)

from fedtopics.errors import StudyError, first_problem, refuse
from fedtopics.escaping import check_client_name, check_different
from fedtopics.federation import study_tables as tables
from fedtopics.federation.policy import Policy
from fedtopics.files import digest, read_toml
from fedtopics.methods.core.plan import WarmStart
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.methods.registry import DEFAULT_METHOD, METHODS, Method, find_method
from fedtopics.privacy import PrivacySettings
from fedtopics.protocol.roster import Roster
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import document_embeddings
from fedtopics.text.rules import TextRules
from fedtopics.text.tables import Columns
from fedtopics.text.vocabulary import VocabularyLimits
from fedtopics.text.words import RULES


def _settings_of(value: Any) -> Any:
    """Make a method's settings from a study's table, for the method that it names."""
    if isinstance(value, TopicSettings):
        return value
    name = value.get("name", DEFAULT_METHOD) if isinstance(value, Mapping) else None
    if not isinstance(name, str):
        raise ValueError(f"a method is a table with name = one of {', '.join(METHODS.names)}")
    return find_method(name).settings(**value)


class Study(BaseModel, extra="forbid", frozen=True):
    """Everything that members agree on: what is trained, how, and by whom.

    Examples
    --------
    >>> study = Study(method={"n_components": 5}, seed=1)
    >>> study.method.n_components, study.method.name
    (5, 'nmf')
    """

    name: tables.Line = Field("study", max_length=100, description="a name for people and folders")
    about: tables.About = Field(
        tables.About(),
        description="the study's purpose and who is responsible, shown to all members",
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="the seed of all random choices")
    checkpoint_every: int = Field(50, ge=1, description="rounds between two checkpoints")
    method: Annotated[SerializeAsAny[TopicSettings], BeforeValidator(_settings_of)] = Field(
        {}, validate_default=True, description="the method; nmf if the study names none"
    )
    run: int = Field(1, ge=1, description="number of the run; another number makes another study")
    aggregation: Literal["secure", "plain"] | None = Field(
        None,
        description='"secure": the server sees no update and no total; "plain": it sees all of '
        "them; by default secure if rounds have three or more clients, the method computes sums, "
        "and federation.outliers is unset",
    )
    differential_privacy: PrivacySettings | None = Field(
        None, description="differential privacy for each document, by noise in all sums"
    )
    text: TextRules = Field(TextRules(), description="how texts become words")
    vocabulary: VocabularyLimits = Field(
        VocabularyLimits(), description="which words form the vocabulary"
    )
    federation: tables.FederationSettings = Field(
        tables.FederationSettings(),
        description="how plain aggregation treats absent and faulty clients",
    )
    server: tables.ServerData = Field(
        tables.ServerData(), description="the server, between machines"
    )
    clients: dict[str, tables.ClientData] = Field(
        {}, description="the clients, and for a simulation their documents"
    )
    observers: dict[str, tables.ObserverData] = Field(
        {}, description="members without documents, which also get the model"
    )

    _fill_in_defaults = model_validator(mode="before")(tables.fill_in_defaults_of_method)

    @field_validator("clients", "observers")
    @classmethod
    def _names_of_members(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            check_client_name(name)
        return value

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Study:
        least = self.federation.quorum or 0
        drawn = self.method.clients_per_round
        check_different({name: client.name or name for name, client in self.clients.items()})
        reason = _why_plain(self)
        host = self.server.host
        both = min(self.clients.keys() & self.observers.keys(), default="")
        refuse(
            {
                f"text.version = {self.text.version}, but this fedtopics has version {RULES} of "
                "the rules; leave it out, and install the same fedtopics at all members": (
                    self.text.version != RULES
                ),
                # A study without clients gets them when it is trained: no number to check yet.
                f"federation.quorum = {least} is more than the {len(self.clients)} clients": (
                    0 < len(self.clients) < least
                ),
                f"federation.quorum = {least} is more than method.clients_per_round = {drawn}": (
                    drawn is not None and drawn < least
                ),
                f'aggregation = "secure" is not possible: {reason}; change that, or leave this '
                "out": self.aggregation == "secure" and reason != "",
                f"server.host = {host!r} is not a member of the study": (
                    host is not None and host not in {*self.clients, *self.observers}
                ),
                f"{both!r} is a client and an observer; remove one of the two": both != "",
                "n-grams lose the order of the words in a document; set coherence to "
                '"documents" or "nothing"': (
                    self.text.ngrams[1] > 1 and self.method.coherence == "windows"
                ),
            }
        )
        if self.differential_privacy is not None:
            tables.check_privacy(
                self.method, len(self.clients), self.is_secure, self.federation.outliers
            )
        return self

    @property
    def is_secure(self) -> bool:
        """Whether aggregation between machines is secure; one process hides nothing."""
        return not why_plain(self)

    @property
    def quorum(self) -> int:
        """The fewest clients of a round with plain aggregation."""
        drawn = self.method.clients_per_round or len(self.clients)
        return self.federation.quorum or min(drawn, len(self.clients)) // 2 + 1

    @property
    def roster(self) -> Roster | None:
        """The certificates of all members, if any; IdentityError if one cannot be used."""
        certificates = {name: client.certificate for name, client in self.clients.items()}
        certificates |= {name: member.certificate for name, member in self.observers.items()}
        host = self.server.host
        if not any(certificates.values()) and self.server.certificate is None:
            return None
        return Roster.of(
            certificates, self.server.certificate if host is None else certificates[host]
        )

    @property
    def members(self) -> Roster:
        """The certificates of members and server; StudyError for a study without any."""
        if (roster := self.roster) is None:
            raise StudyError(
                "The study has no certificates, so it cannot be run between machines; let each "
                'member make a key with "fedtopics key create NAME", and add its certificate to '
                'the study: [clients.NAME] certificate = "NAME.pem".'
            )
        return roster

    @property
    def agreed(self) -> dict[str, Any]:
        """What all members agree on, as plain data, without the paths of documents."""
        plain = self.model_dump(mode="json", include={"seed", "method", "text", "vocabulary"})
        plain["clients"] = sorted(self.clients)
        optional = {
            "aggregation": "secure" if self.is_secure else "",
            "observers": sorted(self.observers),
            "run": self.run if self.run > 1 else 0,
            "certificates": {} if (roster := self.roster) is None else roster.plain,
            "differential_privacy": self.differential_privacy and self.differential_privacy.plain,
            "about": self.about.model_dump(mode="json", exclude_defaults=True),
        }
        return plain | {key: value for key, value in optional.items() if value}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of `agreed`."""
        return digest(json.dumps(self.agreed, sort_keys=True))

    def with_rounds(self, rounds: int) -> Study:
        """Return the study with this number of rounds."""
        return self.model_copy(
            update={"method": self.method.model_copy(update={"max_rounds": rounds})}
        )

    def identity(self, start: WarmStart | None = None) -> str:
        """Return the identity of a run, which resumes only with the same study and start."""
        return self.fingerprint + ("" if start is None else f"-{start.fingerprint}")

    @property
    def described(self) -> dict[str, Any]:
        """The name and settings for a run's events, without lists of words or paths of files."""
        keys = ("seed", "aggregation", "differential_privacy", "method", "text", "vocabulary")
        plain = {key: self.agreed[key] for key in keys if key in self.agreed}
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "settings": {**dict(tables.dotted(plain)), "clients": len(self.clients)},
        }

    @property
    def registration(self) -> Method:
        """The registered method of the study."""
        return find_method(self.method.method_name)

    def embedded(
        self,
        corpus: Corpus,
        embedding_model: str | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Corpus:
        """Return a client's corpus with embeddings, if the method needs them; send nothing.

        `embedding_model` is the folder of the study's model, or the model of embeddings in the
        corpus. `on_progress` gets how many documents of how many are done. StudyError or DataError
        if embeddings do not fit or contain NaN.
        """
        settings = self.method.needed_embedding
        if settings is None:
            return corpus
        return corpus.with_embeddings(
            document_embeddings(
                corpus,
                settings,
                embedding_model=embedding_model,
                on_progress=on_progress,
                apart=self.differential_privacy is not None,
            )
        )

    def with_clients(self, names: Iterable[str]) -> Study:
        """Return the study with exactly these clients."""
        return self.model_copy(
            update={
                "clients": {name: self.clients.get(name, tables.ClientData()) for name in names}
            }
        )

    def here(self, names: Iterable[str]) -> Study:
        """Return the study with these clients on this machine, without server and certificates."""
        return self.model_copy(
            update={
                "clients": {name: tables.ClientData() for name in names},
                "observers": {},
                "server": type(self.server)(),
                "aggregation": "secure" if self.is_secure else "plain",
            }
        )

    @classmethod
    def make(cls, **settings: Any) -> Study:
        """Make a study from plain values.

        Raises
        ------
        StudyError
            If a key is unknown or a value does not fit.
        """
        with tables.explained("The study", cls) as content:
            content |= settings
            return cls(**settings)

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """Read a study; paths in it are relative to its file.

        Raises
        ------
        StudyError
            If the file is missing, is not TOML, or has an unknown key or wrong value.
        """
        path = Path(path)
        with tables.explained(f"The study {path}", cls) as content:
            content |= read_toml(path)
            for table in tables.member_tables(content):
                tables.resolve_paths(table, path.parent.resolve())
            return cls(**content)

    def corpora(self) -> dict[str, Corpus]:
        """Read the documents of every client.

        Raises
        ------
        StudyError
            If the study names no clients.
        """
        if not self.clients:
            raise StudyError('The study names no clients; add [clients.NAME] with data = "FILE".')
        return {name: client.read(name, self.method.by) for name, client in self.clients.items()}

    def columns(self, names: Mapping[str, Any]) -> Columns:
        """Return columns by their `names`, with those by which the study compares documents."""
        named = names.get("by") or {}
        return Columns(**{**names, "by": {name: named.get(name, name) for name in self.method.by}})

    def policies(self) -> dict[str, Policy]:
        """Read each client's policy; without a file, use the default."""
        return {name: Policy.of(client.policy) for name, client in self.clients.items()}

    def to_toml(self) -> str:
        """Return the study as commented TOML with all values and absolute paths."""
        return tables.value_as_toml(self)


def why_plain(study: Study) -> str:
    """Return why aggregation is plain; "" if it is secure."""
    if study.aggregation == "secure":
        return ""
    return _why_plain(study) or ("" if study.aggregation is None else "the study sets it")


def _why_plain(study: Study) -> str:
    """Return why aggregation cannot be secure, or ""."""
    outliers = study.federation.outliers
    clients = len(study.clients)
    drawn = study.method.clients_per_round
    has_noise = bool(study.clients) and study.differential_privacy is not None
    is_open = study.aggregation == "secure" and not has_noise
    return first_problem(
        {
            f"{study.method.method_name} merges the updates of clients one by one": (
                not study.method.can_hide
            ),
            f"a round has fewer than {tables.FEWEST_CLIENTS} clients, so each could subtract its "
            "update": clients < tables.FEWEST_CLIENTS and not is_open,
            "clients_per_round gives totals of different clients, whose differences tell each": (
                drawn is not None and (drawn < clients or not clients)
            ),
            f'federation.outliers = "{outliers}" needs single updates': (
                outliers not in (None, "none")
            ),
        }
    )


def example_study(method: str = DEFAULT_METHOD) -> str:
    """Return a commented study of a method with all keys and their defaults."""
    study = Study.make(
        name="example",
        clients={name: {"data": f"{name}.csv", "text": "text"} for name in ("north", "south")},
        method={"name": method},
    )
    return (
        "# A fedtopics study. Settings that are commented out show the default.\n\n"
        + tables.value_as_toml(study, example=True)
    )
