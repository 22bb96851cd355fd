"""A member's side of a study: its checks before it joins, its folder, its ledger and its model.

Participation is the same for all engines; `join` connects it to the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedtopics.contract import events
from fedtopics.contract.events import Offer as Offered
from fedtopics.errors import PolicyError, RunError
from fedtopics.escaping import file_name
from fedtopics.federation.door import Door
from fedtopics.federation.exposure import Exposure, expose, rehearse_noise
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import Policy
from fedtopics.federation.program import client_of, exchanges, recipe_of
from fedtopics.federation.run_folder import require_no_other_study
from fedtopics.federation.study import Study, why_plain
from fedtopics.federation.study_tables import ClientData
from fedtopics.files import digest, make_folder, read_text, write_durably
from fedtopics.methods.core.groups import check_times
from fedtopics.methods.core.plan import ClientContext, Secret, WarmStart, default_vocabulary
from fedtopics.model.folder import UNEDITED
from fedtopics.model.topic_model import TopicModel
from fedtopics.privacy.contributions import authors
from fedtopics.protocol.roster import Key
from fedtopics.text.checks import check_texts
from fedtopics.text.corpus import Corpus, corpus_fingerprint
from fedtopics.text.embeddings import check_embeddings, sentence_encoder
from fedtopics.text.growing import Follow

DONE = "done"  # a file in the state folder of a finished study
ROSTERS = "rosters.json"  # in a key's folder: the members of earlier studies of documents
SECURE = (
    "Aggregation is secure: the server sees no document, word, number, total or model. All members "
    "see totals over all members, each member's number of documents, its replies to calls, and "
    "which candidate words it lists."
)
SEEDED = (
    "This client's random choices follow from the study's seed, which all know: only for tests."
)
PLAIN = "Aggregation is plain, as {}: the server sees every update of this client."


class Participation:
    def __init__(
        self,
        key: Key,
        corpus: Corpus | None,  # None for an observer
        policy: Policy,
        out: Path | None,  # folder of ledger, model and topics; None: runs/CLIENT/STUDY
        on_event: events.OnEvent | None = None,
        embedding_model: str | None = None,  # folder of the study's model, or the model of `corpus`
        growing: Follow | None = None,  # documents that arrive during the study
        start: TopicModel | None = None,  # to continue from
        insecure_seed: bool = False,  # for tests: everybody can repeat its random choices
        accepted_roster: str = "",  # digest of a study to accept with unknown certificates
    ) -> None:
        self.key = key
        self.name = key.name
        self.corpus = corpus
        self.policy = policy
        self.out = out or Path("runs") / key.name
        self._is_default_place = out is None
        self.on_event = on_event
        self._growing = growing
        self._embedding_model = embedding_model
        self.start = start
        self._insecure_seed = insecure_seed
        self._accepted_roster = accepted_roster
        self._ended = False  # the model is in this folder
        self._ledger: Ledger | None = None
        if out is not None and out.exists() and not out.is_dir():
            raise RunError(f"{out} is a file; name a folder with --out.")

    @classmethod
    def of(
        cls,
        key: Key,
        data: ClientData,
        out: Path,
        on_event: events.OnEvent | None = None,
        **more: Any,
    ) -> Participation:
        return cls(
            key=key,
            policy=Policy() if data.policy is None else Policy.read(data.policy),
            corpus=data.read(key.name),
            out=out,
            on_event=on_event,
            embedding_model=data.embedding_model,
            **more,
        )

    def close(self) -> None:
        if self._ledger is not None:
            with suppress(OSError):  # on a full disk, nothing was sent either
                self._ledger.close()

    def begun(self, study: Study) -> WarmStart | None:
        """Return the model to start from, which is the same for all members."""
        return None if self.start is None else start_of(self.start, study)

    def state_folder(self, study: Study) -> Path:
        """Make the folder of the run's state, and return it."""
        self.out = self._place(study)
        require_no_other_study(self.out, "state")
        state = self.out / "state"
        make_folder(state)
        return state

    def consider(self, study: Study, state: Path) -> Door | None:
        """Return the door to the documents, once no other process uses the run's state."""
        has_begun = (state / "secret").exists()
        write_durably(self.out / "study.toml", study.to_toml().encode())
        if self.corpus is None:
            return None
        self._check_earlier(study, self.corpus, begins=True)
        run = study.fingerprint
        # Also made for a seeded run, because the file shows later that this run has begun.
        stored_secret = Secret.keep(state / "secret")
        if self._insecure_seed and study.differential_privacy is not None:
            raise RunError(
                "The study has differential privacy, but with --insecure-seed everybody could "
                "compute the noise; leave out --insecure-seed."
            )
        secret = stored_secret.of_run(run)
        if self._insecure_seed:
            secret = Secret.from_seed(study.seed, self.name)
        policy = self.policy.in_study(study.is_secure)
        noise = digest(secret.derive("account").hex())
        policy.check_privacy(self.name, study.differential_privacy, study=run, run=run, noise=noise)
        self._ledger = Ledger(
            method=study.registration.name,
            study=run,
            path=self.out / "ledger.jsonl",
            run=run,
            seeded=self._insecure_seed,
            sign=self.key.sign,
            seen=not study.is_secure,
            begun=has_begun,
            is_own=self.key.has_signed,
        )
        limits = policy.model_dump(mode="json")
        self._ledger.write_start(
            self.name, self.key.certificate, limits, self.corpus, spent=policy.spent
        )
        self._ledger.write_files(self.out, "study.toml")
        self.corpus = study.embedded(
            self.corpus, self._embedding_model, lambda *n: self.notify(events.Embedding(*n))
        )
        site = ClientContext(
            name=self.name,
            corpus=self.corpus,
            policy=policy,
            folder=self.out,
            notify=self.notify,
            embedding_model=self._embedding_model,
            growing=self._growing,
            secret=secret,
            masked=study.is_secure,
        )
        return Door(self.name, client_of(study, site), policy, self._ledger)

    def finished(self, study: Study) -> TopicModel | None:
        """Return the model if this member has finished the study, else None."""
        place = self._place(study)
        if not (place / "state" / DONE).exists():
            return None
        self.out = place
        self.notify(events.AlreadyFinished(str(place / "model")))
        return TopicModel.from_pretrained(place / "model")

    def review(self, study: Study) -> None:
        """Show what the study shares, and check it against the policy; send nothing."""
        if self.corpus is None:
            return
        data_sent = {
            exchange.function: {"often": exchange.often, "what": exchange.data_sent}
            for exchange in exchanges(study)
        }
        policy = self.policy.in_study(study.is_secure)
        seen = SECURE if study.is_secure else PLAIN.format(why_plain(study))
        seen = f"{seen} {SEEDED}" if self._insecure_seed else seen
        offer = Offered(
            study=study,
            data_sent=data_sent,
            seen=seen,
            policy=policy.described(not study.is_secure, study.vocabulary.min_document_frequency),
            known=(self._place(study) / "study.toml").exists(),
        )
        self.notify(offer)
        languages, advice = check_policy(
            policy=policy,
            study=study,
            corpus=self.corpus,
            client=self.name,
            embedding_model=self._embedding_model,
            grows=self._growing is not None,
            accepted_roster=self._accepted_roster,
        )
        self._check_earlier(study, self.corpus)
        if languages:
            self.notify(events.Languages(self.name, languages, advice))

    def _check_earlier(self, study: Study, corpus: Corpus, begins: bool = False) -> None:
        """Refuse documents that were in a study with other members: totals can be subtracted."""
        path = self.key.folder / ROSTERS
        roster = study.roster
        if roster is None or not self.key.folder.is_dir():
            return
        digest = roster.digest_of(study.clients)
        rosters: dict[str, list[str]] = json.loads(read_text(path)) if path.exists() else {}
        before = rosters.setdefault(corpus_fingerprint(corpus), [])
        if digest in before:
            return
        if before and self._accepted_roster != study.fingerprint:
            raise PolicyError(
                f"These documents of {self.name!r} were in a study with other members. The "
                "difference of two totals can reveal the update of a member that only one of the "
                "studies has. Nothing was sent; if all owners agree, add --accept-roster "
                f"{study.fingerprint}"
            )
        if begins:
            before.append(digest)
            write_durably(path, json.dumps(rosters).encode())

    def exposed(self, study: Study) -> Exposure:
        """Return what a study would reveal; FedTopicsError if a rehearsal of it fails."""
        exposure = expose(study, self.corpus, self._embedding_model, policy=self.policy)
        if self.corpus is not None:
            rehearse_noise(study, self.corpus)
        return exposure

    def _place(self, study: Study) -> Path:
        if self._is_default_place:
            # The name is from others: it must not lead out of the client's folder.
            place = Path("runs") / self.name / file_name(study.name)
            if study.run > 1:
                place = place.with_name(f"{place.name}-run{study.run}")
            return place if _may_hold(place, study) else place.with_name(study.fingerprint)
        if not _may_hold(self.out, study):
            raise RunError(
                f"{self.out} contains another study of this client; name another folder with --out."
            )
        return self.out

    def receive(self, model: TopicModel, notify: Callable[[events.Event], None]) -> None:
        folder = self.out / "model"
        model.save_pretrained(folder)
        self._ended = True
        if self.corpus is None:
            notify(events.ModelReceived(str(folder), 0, 0))
            return
        self.corpus = self._growing() if self._growing else self.corpus
        corpus = model.embedded(self.corpus, self._embedding_model)
        unknown = model.write_theta(corpus, self.out / "theta.parquet")
        if self._ledger is not None:
            self._ledger.write_files(self.out, *(f"model/{n}" for n in UNEDITED), "theta.parquet")
        notify(events.ModelReceived(str(folder), len(self.corpus), unknown))

    def notify(self, event: events.Event) -> None:
        """Pass on an event, except disconnections after the end."""
        if self.on_event is not None and not (
            self._ended and isinstance(event, events.Reconnecting)
        ):
            self.on_event(event.plain())


def start_of(model: TopicModel, study: Study) -> WarmStart:
    return WarmStart.of(model, default_vocabulary(model, study.method, study.text))


def check_policy(
    policy: Policy,
    study: Study,
    corpus: Corpus,
    client: str,
    embedding_model: str | None = None,
    grows: bool = False,
    accepted_roster: str = "",
) -> tuple[Mapping[str, float], str]:
    """Check that a policy allows a study and that documents fit; return what `check_texts` does."""
    policy = policy.in_study(study.is_secure)
    certificates = {} if study.roster is None else study.roster.plain
    policy.check_roster(client, certificates, study.fingerprint, accepted_roster)
    policy.check_aggregation(client, study.is_secure)
    privacy = study.differential_privacy
    policy.check_privacy(client, privacy, study.fingerprint)
    method = study.method
    used = len(corpus) - (0 if corpus.embeddings is not None else corpus.n_empty)
    documents = policy.min_documents if grows else used
    clients = min(len(study.clients), method.clients_per_round or len(study.clients))
    authors(corpus, privacy)  # raises if documents have none and the study needs them
    if not grows:
        check_times(corpus, method.over_time)
    recipe = recipe_of(study)
    if privacy is not None and recipe is not None:
        recipe.public_words(privacy.words, method, study.text)  # raises if there are none
    languages = check_texts(corpus, study.text)
    policy.check_study(
        client=client,
        method=method.method_name,
        rounds=method.max_rounds,
        documents=documents,
        text=study.text,
        clients=clients,
    )
    needed = method.embedding_of(corpus)
    if needed is not None:
        check_embeddings(corpus, needed, embedding_model)
        if corpus.embeddings is None:
            sentence_encoder(embedding_model or needed.model)
    return languages


def _may_hold(folder: Path, study: Study) -> bool:
    before = folder / "study.toml"
    return not before.exists() or Study.read(before).fingerprint == study.fingerprint
