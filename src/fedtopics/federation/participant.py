"""A member's side of a study: its checks before it joins, its folder, its ledger and its model.

Participation is the same for all engines; `join` connects it to the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from fedtopics import waiting
from fedtopics.contract import events
from fedtopics.contract.events import Offer as Offered
from fedtopics.errors import PolicyError, RunError, refuse
from fedtopics.escaping import file_name
from fedtopics.federation.approval import ApprovalGate
from fedtopics.federation.data_sent import data_sent_in
from fedtopics.federation.door import Door
from fedtopics.federation.egress import Egress
from fedtopics.federation.exposure import Exposure, expose, rehearse_noise
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.memory import (
    Choice,
    Memory,
    Release,
    Remembered,
    changed_memory,
    default_place,
)
from fedtopics.federation.policy import Policy
from fedtopics.federation.program import check_growth, client_of, recipe_of
from fedtopics.federation.run_folder import require_no_other_study
from fedtopics.federation.study import Study
from fedtopics.files import digest, make_folder, read_bytes, write_durably
from fedtopics.methods.core.plan import ClientContext, Secret, WarmStart, default_vocabulary
from fedtopics.model.folder import UNEDITED
from fedtopics.model.topic_model import TopicModel
from fedtopics.privacy.accounting import Account
from fedtopics.privacy.contributions import persons
from fedtopics.protocol.exchange import Patience
from fedtopics.protocol.link import LinkError
from fedtopics.protocol.roster import Key
from fedtopics.text.checks import check_texts
from fedtopics.text.corpus import Corpus, corpus_fingerprint
from fedtopics.text.embeddings import check_embeddings, sentence_encoder
from fedtopics.text.grouping import check_groups
from fedtopics.text.growing import Follow

NO_ACCOUNT = Account()
DONE = "done"  # a file in the state folder of a finished study
DOCUMENTS = "documents"  # a file in the state folder: the digest of the run's documents
SIGNED = "signed"  # a file in the folder of a key that has taken part in a study
TEXTS_CHANGED = "texts changed"  # the operator confirms that texts, or rules for words, changed
SEEDED = (
    "This client's random choices follow from the study's seed, which all know: only for tests."
)


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
        first_release: bool = False,  # confirms that no earlier study used the documents
        texts_changed: bool = False,  # confirms that new texts are not earlier ones, only cleaned
        egress: Egress = Egress(),  # noqa: B008 - it is frozen
    ) -> None:
        self.key = key
        self.name = key.name
        self.corpus = corpus
        self.policy = policy.at_site()
        self.out = out or Path("runs") / key.name
        self._is_default_place = out is None
        self.on_event = on_event
        self.egress = egress
        self.gate: ApprovalGate | None = None  # where the policy requires approvals
        self._growing = growing
        self._embedding_model = embedding_model
        self.start = start
        self._insecure_seed = insecure_seed
        self._accepted_roster = accepted_roster
        self._memory = (self.policy.memory or default_place(self.name)).resolve()
        answers = {"first release": first_release, TEXTS_CHANGED: texts_changed}
        self._confirmed = tuple(answer for answer in answers if answers[answer])
        self.training: Corpus | None = None  # the documents of `corpus` that the study uses
        self._ended = False  # the model is in this folder
        self._ledger: Ledger | None = None
        self._noise = ""  # identity of the secret behind the noise of the run
        if out is not None and out.exists() and not out.is_dir():
            raise RunError(f"{out} is a file; name a folder with --out.")

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
        has_begun = (state / DOCUMENTS).exists()
        # The memory, the ledger, then the digest of the documents: each before anything is sent.
        write_durably(self.out / "study.toml", study.to_toml().encode())
        if self.corpus is None:
            return None
        secret = Secret.keep(state / "secret").of_run(study.identity(self.begun(study)))
        if self._insecure_seed and study.differential_privacy is not None:
            raise RunError(
                "The study has differential privacy, but with --insecure-seed everybody could "
                "compute the noise; leave out --insecure-seed."
            )
        if self._insecure_seed:
            secret = Secret.from_seed(study.seed, self.name)
        policy = self.policy.in_study(study.is_secure)
        self._noise = digest(secret.derive("account").hex())
        account, choice = self._remember(study, self.corpus, self._noise)
        self._ledger = self._opened_ledger(study, has_begun)
        self._ledger.write_start(
            client=self.name,
            certificate=self.key.certificate,
            policy=policy.model_dump(mode="json"),
            corpus=self.corpus.take(choice.rows),
            data_sent=[row.plain() for row in data_sent_in(study, start=self.begun(study))],
            spent=None if policy.max_epsilon is None else account.epsilon,
            confirmed=self._confirmed,
        )
        self._ledger.write_files(self.out, "study.toml")
        self._require_same_documents(state, self.corpus.take(choice.rows))
        self.corpus = study.embedded(
            self.corpus, self._embedding_model, lambda *n: self.notify(events.Embedding(*n))
        )
        self.training = self.corpus.take(choice.rows)
        self.gate = self._gate(study, policy, self._ledger)
        site = ClientContext(
            name=self.name,
            corpus=self.training,
            policy=policy,
            folder=self.out,
            notify=self.notify,
            embedding_model=self._embedding_model,
            growing=self._arriving(study),
            secret=secret,
            masked=study.is_secure,
            apart=True,
        )
        return Door(self.name, client_of(study, site), policy, self._ledger)

    def _gate(self, study: Study, policy: Policy, ledger: Ledger) -> ApprovalGate | None:
        """Return what asks people before anything is sent, if the policy requires approvals."""
        if policy.approvals < ledger.needed:
            raise PolicyError(
                f"This run of {self.name!r} began with a policy that requires {ledger.needed} "
                f"approvals, and now {policy.approvals} are required. Nothing was sent; give the "
                "policy of the run with --policy."
            )
        if not policy.approvals:
            return None
        return ApprovalGate(
            folder=self.egress.outbox or self.out,
            exposure=expose(study, self.training, policy),
            ledger=ledger,
            client=self.name,
            notify=self.notify,
            keep=self.egress.store,
            run=self._noise,
        )

    def _require_same_documents(self, state: Path, corpus: Corpus) -> None:
        """Compare the documents with those of the run's first process, before anything is sent."""
        path = state / DOCUMENTS
        # Where documents may arrive, the memory records them.
        content = "" if self._growing else corpus_fingerprint(corpus)
        if path.exists() and read_bytes(path).decode() != content:
            raise RunError(
                "The documents are not those with which this run began: rows, texts or their order "
                "have changed. Nothing was sent; put them back, or agree with the other members on "
                "another run (run in the study)."
            )
        write_durably(path, content.encode())

    def _opened_ledger(self, study: Study, has_begun: bool) -> Ledger:
        return Ledger(
            method=study.registration.name,
            study=study.fingerprint,
            path=self.out / "ledger.jsonl",
            run=study.fingerprint,
            seeded=self._insecure_seed,
            sign=self.key.sign,
            seen=not study.is_secure,
            begun=has_begun,
            is_own=self.key.has_signed,
            copy=partial(self.egress.copy, self.name, study.fingerprint)
            if self.egress.log
            else None,
        )

    def finished(self, study: Study) -> TopicModel | None:
        """Return the model if this member has finished the study, else None."""
        place = self._place(study)
        if not (place / "state" / DONE).exists():
            return None
        self.out = place
        self.notify(events.AlreadyFinished(str(place / "model")))
        return TopicModel.from_pretrained(place / "model")

    def require_server(self, study: Study, reach: Callable[[], object]) -> None:
        """Raise RunError if this member had the model, and no server waits for it any more."""
        identity = study.identity(self.begun(study))
        releases = Memory.read(self._memory).header.releases if self.corpus is not None else []
        days = [old.finished[:10] for old in releases if old.study == identity and old.finished]
        if not days:
            return
        try:
            Patience(waiting.ENDED_SERVER, self.notify)(reach)
        except LinkError as error:
            raise RunError(
                f"{error} This member finished the study on {days[0]}, but {self._place(study)} "
                "does not contain that run. Put the folder back from a copy, or ask another member "
                "for the model; for another run, all members set run in the study to the next "
                "number."
            ) from None

    def finish(self, study: Study) -> None:
        """Record that this member has the model."""
        if self.corpus is not None:
            identity = study.identity(self.begun(study))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            with changed_memory(self._memory) as memory:
                memory.header.releases = [
                    old.model_copy(update={"finished": now}) if old.study == identity else old
                    for old in memory.header.releases
                ]

    def review(self, study: Study) -> None:
        """Show what the study shares, and check it against the policy; send nothing."""
        if self.corpus is None:
            return
        check_growth(study, self._growing)
        policy = self.policy.in_study(study.is_secure)
        rows = data_sent_in(study, start=self.begun(study))
        exposure = Exposure(study, rows, policy, self.corpus.unit, self.corpus.n_persons())
        learned = [f"{who}: {learns}" for who, learns in exposure.adversaries.items()]
        self.notify(
            Offered(
                study=study,
                data_sent=[row.plain() for row in rows],
                seen="\n".join([*learned, SEEDED] if self._insecure_seed else learned),
                policy=policy.described(
                    seen=not study.is_secure,
                    rarest=study.vocabulary.min_persons_per_word,
                    unit=self.corpus.unit,
                    has_noise=study.differential_privacy is not None,
                ),
                known=(self._place(study) / "study.toml").exists(),
            )
        )
        # Only read: a release is recorded in `consider`, right before anything is sent.
        memory = Memory.read(self._memory)
        choice = self._choose(study, self.corpus, memory)
        self.training = self.corpus.take(choice.rows)
        news = "" if memory.header.releases else f"No earlier run is recorded in {self._memory}. "
        if news + choice.text:
            self.notify(Remembered((news + choice.text).strip()))
        languages, advice = check_policy(
            policy=policy,
            study=study,
            corpus=self.training,
            client=self.name,
            embedding_model=self._embedding_model,
            grows=self._growing is not None,
            accepted_roster=self._accepted_roster,
            account=Account(memory.header.account),
        )
        if languages:
            self.notify(events.Languages(self.name, languages, advice))

    def _choose(self, study: Study, corpus: Corpus, memory: Memory) -> Choice:
        """Choose the documents of a release; PolicyError if earlier releases forbid it."""
        signed = self.key.folder / SIGNED
        n_releases = len(memory.header.releases)
        lacks = int(read_bytes(signed).decode() or 1) - n_releases if signed.exists() else 0
        if lacks > 0 and "first release" not in self._confirmed:
            raise PolicyError(
                f"This key of {self.name!r} has taken part in studies, of which the memory "
                f"{self._memory} lacks {lacks:,}. Without them, somebody could subtract this run "
                "from earlier ones. Nothing was sent; put back the newest memory, or name it in "
                "the policy. Only if there is none, add --first-release."
            )
        start = self.begun(study)
        choice = memory.choose(
            corpus=corpus,
            least=self.policy.min_persons,
            study=study.identity(start),
            once=(start is not None and start.continued is not None and study.method.trains)
            or self._growing is not None,
            grows=self._growing is not None,
            changed=TEXTS_CHANGED in self._confirmed,
        )
        if not choice.is_resumed:
            self._check_earlier(study, memory.earlier(choice))
        return choice

    def _check_earlier(self, study: Study, earlier: Sequence[Release]) -> None:
        """Refuse other members or periods than in earlier releases of the same documents."""
        release = self._release(study)
        rosters = {old.roster for old in earlier} - {""}
        has_other_members = bool(release.roster and rosters) and release.roster not in rosters
        # What is shown is decided in this order, so that further formulas come last.
        compared = [*release.columns.items()]
        others = [
            old
            for old in earlier
            if old.columns
            and ([*old.columns.items()], old.effects)
            != (compared, release.effects[: len(old.effects)])
        ]
        refuse(
            {
                f"These documents of {self.name!r} were in a study with other members. The "
                "difference of two totals can reveal the update of a member that only one of the "
                "studies has. Nothing was sent; if all owners agree, add --accept-roster "
                f"{study.fingerprint}": (
                    has_other_members and self._accepted_roster != study.fingerprint
                ),
                f"These documents of {self.name!r} were in a study with another [text] or "
                "[vocabulary]. The difference of two totals can then be over a single document: "
                "by other rules, hundreds of words are in one document more. Nothing was sent; use "
                "the rules of the earlier study. Only if the owner of the documents accepts this, "
                "add --texts-changed.": (
                    not {old.rules for old in earlier} <= {"", release.rules}
                    and TEXTS_CHANGED not in self._confirmed
                ),
                "An earlier study compared these documents by "
                f"{', '.join(next(iter(others), release).columns)}, in another way than this one. "
                "The differences of such sums can be over a few documents. Nothing was sent; list "
                "the same columns in the same order, with the same levels, period, begin and end "
                "(an end may lie in the future), and further effects after the earlier ones; or "
                "compare by none.": len(compared) > 0 and len(others) > 0,
            },
            error=PolicyError,
        )

    def _release(self, study: Study) -> Release:
        rules = {"text": study.agreed.get("text"), "vocabulary": study.agreed.get("vocabulary")}
        return Release(
            study=study.identity(self.begun(study)),
            rules=digest(json.dumps(rules, sort_keys=True)),
            run=study.run,
            roster=""
            if study.roster is None
            else digest("".join(study.roster.plain[name] for name in sorted(study.clients))),
            columns={name: str(column) for name, column in study.method.compared.items()},
            effects=study.method.effects,
            confirmed=self._confirmed,
        )

    def _remember(self, study: Study, corpus: Corpus, noise: str) -> tuple[Account, Choice]:
        """Record a release and its part of the privacy budget, before anything is sent."""
        with changed_memory(self._memory) as memory:
            choice = self._choose(study, corpus, memory)
            account = self.policy.charge(
                client=self.name,
                privacy=study.differential_privacy,
                study=study.fingerprint,
                account=Account(memory.header.account),
                noise=noise,
            )
            memory.header.account = list(account.entries)
            memory.record(choice, self._release(study), closed=self._growing is not None)
        with suppress(OSError):  # the key may be on a volume that cannot be written
            write_durably(self.key.folder / SIGNED, str(len(memory.header.releases)).encode())
        return account, choice

    def settle(self, study: Study) -> None:
        """Charge the privacy budget only for the sums that left, as the study failed."""
        if self._ledger is None or not self._noise or self.policy.max_epsilon is None:
            return
        share = min(sum(self._ledger.shares.values()), 1.0)
        # If that cannot be written, the whole stays charged, and the first error is shown.
        with suppress(OSError), changed_memory(self._memory) as memory:
            account = Account(memory.header.account).settled(study.fingerprint, self._noise, share)
            memory.header.account = list(account.entries)

    def _arriving(self, study: Study) -> Follow | None:
        """Return a reader of the documents that arrive, which records them before they are used."""
        if self._growing is None:
            return None

        def recorded(corpus: Corpus) -> Corpus:
            _, choice = self._remember(study, corpus, noise="")
            return corpus.take(choice.rows)

        arriving = copy(self._growing)  # those that are only checked are not recorded
        arriving.choose = recorded
        return arriving

    def exposed(self, study: Study) -> Exposure:
        """Return what a study would reveal; FedTopicsError if a rehearsal of it fails."""
        exposure = expose(study, self.training, self.policy)
        if self.training is not None:
            rehearse_noise(study, self.training)
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
            names = *UNEDITED, "README.md", "topics.json"
            self._ledger.write_files(self.out, *(f"model/{n}" for n in names), "theta.parquet")
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
    account: Account = NO_ACCOUNT,
) -> tuple[Mapping[str, float], str]:
    """Check that a policy allows a study and that documents fit; return what `check_texts` does."""
    policy = policy.at_site().in_study(study.is_secure)
    certificates = {} if study.roster is None else study.roster.plain
    policy.check_roster(client, certificates, study.fingerprint, accepted_roster)
    policy.check_aggregation(client, study.is_secure)
    policy.check_approvers(f"of client {client!r}")
    privacy = study.differential_privacy
    policy.check_privacy(client, privacy, study.fingerprint, account)
    method = study.method
    policy.check_text(
        client,
        study.text,
        words=[
            *study.text.own_stop_words,
            *(word for words in getattr(method, "seed_topics", ()) for word in words),
            *(() if privacy is None else privacy.words),
        ],
    )
    used = len(corpus) - (0 if corpus.embeddings is not None else corpus.n_empty)
    clients = min(len(study.clients), method.clients_per_round or len(study.clients))
    policy.check_persons(client, corpus)
    persons(corpus, privacy)  # raises if documents have none and the study needs them
    if not grows:
        check_groups(corpus, method.compared)
    recipe = recipe_of(study)
    if privacy is not None and recipe is not None:
        recipe.public_words(privacy.words, method, study.text)  # raises if there are none
    languages = check_texts(corpus, study.text)
    policy.check_study(
        client=client,
        method=method.method_name,
        rounds=method.max_rounds
        if "max_rounds" in method.model_fields_set or not method.draws
        else 0,
        persons=policy.min_persons if grows else min(used, corpus.n_persons()),
        clients=clients,
        clients_per_word=study.vocabulary.min_clients_per_word,
        most_drawn=None if study.is_secure or not method.draws else corpus.n_persons() // 2,
        drawn=round(method.drawn(1 / clients) * clients) if method.draws else None,
    )
    if (needed := method.needed_embedding) is not None:
        check_embeddings(corpus, needed, embedding_model)
        if corpus.embeddings is None:
            sentence_encoder(embedding_model or needed.model)
    return languages


def _may_hold(folder: Path, study: Study) -> bool:
    before = folder / "study.toml"
    return not before.exists() or Study.read(before).fingerprint == study.fingerprint
