"""A client's part in a study, whichever engine brings the messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from fedtopics.engines.adder import Rules
from fedtopics.engines.exchange import Door as AnyDoor
from fedtopics.engines.handshake import Introduction, Proposal, Signatures, Unsigned
from fedtopics.engines.links import SERVER
from fedtopics.engines.log import Log
from fedtopics.engines.messages import Offer
from fedtopics.engines.node import CaughtUpError, NewRunError, Node
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Transport
from fedtopics.errors import FederationError, FedTopicsError, RunError
from fedtopics.extras import VERSION
from fedtopics.federation.door import Door
from fedtopics.federation.exposure import Exposure, expose
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import Policy
from fedtopics.federation.replicated_run import ReplicatedRun, begin, run_of
from fedtopics.federation.run_folder import has_run, require_no_other_study
from fedtopics.federation.server import exchange_of, gathered, nonce, origin
from fedtopics.federation.study import Study, finished, unmasked
from fedtopics.federation.study_tables import ClientData
from fedtopics.files import digest, hold, make_folder, write_durably
from fedtopics.harmless import file_name
from fedtopics.methods.bounded.contributions import authors
from fedtopics.methods.core.events import (
    Embedding,
    Event,
    Joined,
    Languages,
    ModelReceived,
    Narrowed,
    OnEvent,
    Reconnecting,
)
from fedtopics.methods.core.events import Offer as Offered
from fedtopics.methods.core.groups import check_times
from fedtopics.methods.core.plan import Secret, Site, WarmStart
from fedtopics.methods.registry import versions
from fedtopics.model.folder import UNEDITED
from fedtopics.model.topic_model import TopicModel
from fedtopics.secure.door import MaskedDoor
from fedtopics.text.arrivals import Follow
from fedtopics.text.checks import check_texts
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import check_embeddings, sentence_encoder

UNSIGNED = (
    "Participants do not sign here. That each is who it says, that there are as many as who adds "
    "says, and that all are told the same totals, is its word alone; from who makes up all the "
    "others, masks hide nothing."
)
UNSIGNED_MASKS = (
    "Masks hide replies from who adds as it should alone: one that makes up clients, or keys of "
    "them, can read what the others send."
)
MASKED = (
    "Replies are masked: who adds sees what at least three clients add up to, and all check that "
    "it is that. Of the words it learns those that are agreed on; the other clients learn as well "
    "which others came into question, and which clients have them. Not masked is what the model "
    "says of each client: its numbers of documents, its topics' shares; nor the min_documents of "
    "its policy, which then is that of all clients' groups."
)
SEEDED = (
    "Replies are masked, and this client's masks follow from the study's seed, which all know: "
    "they hide nothing. That is for demonstrations."
)
SEEN = "Replies are not masked, as {}: whoever adds sees each one."
ALONE = Rules(1, 0.0, 0.0, 0.0)  # of who never adds


class Participation:
    """A client's part in a study."""

    holds = False  # its folder: a server sends a second process of a name away

    def __init__(
        self,
        name: str,
        corpus: Corpus,
        policy: Policy,
        out: Path | None,  # for ledger, model and the documents' topics; None: runs/CLIENT/STUDY
        on_event: OnEvent | None = None,
        embedding_model: str | None = None,  # where this client has the study's, or of `corpus`
        growing: Follow | None = None,  # documents that become more during the study
        start: TopicModel | None = None,  # what the study begins with
        secret_from_seed: bool = False,  # for tests and demonstrations: everybody can repeat it
    ) -> None:
        self.name = name
        self.corpus = corpus
        self.policy = policy
        self.out = out or Path("runs") / name
        self._usual_place = out is None
        self._on_event = on_event
        self._growing = growing
        self._embedding_model = embedding_model
        self.start = start
        self._secret_from_seed = secret_from_seed
        self.signatures: Signatures = Unsigned()
        self._ended = False  # the model is here
        self._ledger: Ledger | None = None
        self._held: IO[str] | None = None
        if out is not None and out.exists() and not out.is_dir():
            raise RunError(f"{out} is a file; name a folder with --out.")

    @classmethod
    def of(
        cls, name: str, data: ClientData, out: Path, on_event: OnEvent | None = None, **more: Any
    ) -> Participation:
        """Read the documents and the policy that a study's table [clients.NAME] names, or raise."""
        policy = Policy() if data.policy is None else Policy.read(data.policy)
        corpus = data.read(name)
        return cls(name, corpus, policy, out, on_event, data.embedding_model, **more)

    def close(self) -> None:
        """Close the ledger."""
        for file in (self._ledger, self._held):
            if file is not None:
                with suppress(OSError):  # on a full disk; the reply has not left either
                    file.close()
        self._held = None

    def take_part(self, transport: Transport, signatures: Signatures | None = None) -> None:
        """Take part in the study that is offered over a transport, until the model is there.

        A `FederationError` if this client is refused, or has no connection for a reason that
        waiting does not mend; other errors if it declines, or a reply may not leave.
        """
        unknown = Proposal("", "", 0, {}, "")
        signed = self.signatures = signatures or Unsigned()
        introduction = Introduction(self.name, unknown, b"", signed)
        node = Node(self.name, (), transport, introduction, self.notify, keeps=False)
        node.start()
        try:
            while True:
                try:
                    return self._join(node, *node.offered())
                except NewRunError:
                    node.forget()
        finally:
            node.stop()
            self.close()

    def _join(self, node: Node, link: str, offer: Offer) -> None:
        """Consider an offer; join, and train, or raise to decline."""
        proposal = Proposal.of(offer)
        try:
            if objection := proposal.objection((VERSION, versions(proposal.method)), offer.wire):
                raise FederationError(objection)
            study = self.look(proposal, bool(self.signatures.certificate))
            start = self._begun(proposal)
            door, state = self.consider(study, offer.run)
        except Exception:
            node.decline(link)
            raise

        log = Log(origin(study, offer.run))

        def begin(run: ReplicatedRun) -> None:
            names = list(study.clients)
            replica = Replica(
                self.name, [SERVER], names, log, nonce=nonce(), now=node.now(),
                install=lambda state: run.install(state.content, node),
            )  # fmt: skip
            least = self.policy_in(study).min_clients_in_sum
            introduction = Introduction(
                self.name, proposal, offer.run, self.signatures, least, key_of(door)
            )
            node.join(link, offer, names, introduction, replica)

        self.train(study, start, (door, state), node, log, ALONE, begin)
        node.done()

    def train(
        self, study: Study, start: WarmStart | None, kept: tuple[AnyDoor, Path], node: Node,
        log: Log, rules: Rules, begin: Callable[[ReplicatedRun], None],
    ) -> None:  # fmt: skip
        """Execute the program to its end, behind the last checkpoint; `begin` takes part.

        Where a state comes in place of decisions, the program goes on from that.
        """
        door, folder = kept
        every, identity = study.checkpoint_every, study.identity(start)
        pause = 0.0 if rules is ALONE else study.federation.pause  # a server waits for its clients
        begun = False
        while True:
            resumed = has_run(folder)
            run = ReplicatedRun(folder, identity, every, resumed, self._on_event, pause)
            try:
                position = run.position()
                if position.index > log.last:  # what came before is in the checkpoint
                    log.reset(position.index, position.digest)
                exchange = exchange_of(run, node, rules, self.name, door)
                node.notify = run.event
                if not begun:
                    run.describe(study, start)
                    begin(run)
                    self.notify(Joined(study.fingerprint))
                    begun = True
                clients = gathered(study, exchange, run)
                model = study.server_half(start).train(clients, run)
                return self.receive(finished(study, start, model), run.event)
            except CaughtUpError:
                node.go_on_from(None)
            except OSError as error:
                raise FedTopicsError(
                    f"What this participant keeps in {self.out} cannot be written: "
                    f"{error.strerror}. Make room or mend the disk, then start it again."
                ) from None
            finally:
                node.notify = self.notify
                run.close()

    def _begun(self, proposal: Proposal) -> WarmStart | None:
        """Return the model that a study begins with, which has to be this client's as well."""
        if not proposal.start:
            return None
        if self.start is not None:
            for start in (WarmStart.of(self.start, "keep"), WarmStart.of(self.start, "agree")):
                if start.fingerprint == proposal.start:
                    return start
        raise FederationError(
            f"The study begins with the model {proposal.start}, and this client "
            f"{'has none' if self.start is None else 'has another'}; name the model with --start."
        )

    def consider(self, study: Study, run: bytes) -> tuple[AnyDoor, Path]:
        """Make the door to the documents for a run; return it and the folder of the run's state."""
        self.out = self._place(study)
        require_no_other_study(self.out, "state")
        make_folder(self.out)
        if self.holds:
            self._held = self._held or hold(self.out)
        state = self.out / "state"
        begun = run_of(state) is not None
        if self._secret_from_seed:
            secret = Secret.from_seed(study.seed, self.name)
        else:
            secret = Secret.keep(state / "secret").of_run(study.fingerprint, run)
        if study.privacy is not None and self._secret_from_seed:
            raise RunError(
                "The study promises privacy by noise, which everybody could repeat with "
                "--secret-from-seed; leave that out."
            )
        signs, seen, policy = self.signatures, not study.masked, self.policy_in(study)
        noise, bound = digest(secret.derive("account").hex()), study.privacy
        policy.check_privacy(self.name, bound, study.fingerprint, run.hex(), noise)
        write_durably(self.out / "study.toml", study.to_toml().encode())
        self._ledger = Ledger(
            study.registration.name, study.fingerprint, self.out / "ledger.jsonl", run.hex(),
            self._secret_from_seed, signs.sign, seen, begun, partial(signs.fits, self.name),
        )  # fmt: skip
        held = policy.model_dump(mode="json")
        self._ledger.began(self.name, signs.certificate, held, self.corpus, policy.spent)
        self._ledger.kept(self.out, "study.toml")
        begin(state, run)  # from now on there is a ledger, unless somebody removed it
        model = self._embedding_model
        self.corpus = study.embedded(self.corpus, model, lambda *n: self.notify(Embedding(*n)))
        site = Site(
            self.name, self.corpus, policy, self.out, self.notify, model, self._growing, secret,
            study.masked,
        )  # fmt: skip
        door = Door(self.name, study.client_half(site), policy, self._ledger)
        if seen:
            return door, state
        keys, told_of = secret.derive("masked sums"), lambda factor: self.notify(Narrowed(factor))
        return MaskedDoor(door, self.name, keys, self.signatures.sign, told_of), state

    def look(self, proposal: Proposal, signed: bool) -> Study:
        """Say what the study asks for, and hold it against the policy; nothing leaves."""
        study = Study.of_agreed(proposal.study)
        if study.fingerprint != proposal.fingerprint:
            raise FederationError(
                f"The server calls its study {proposal.fingerprint}, what it sent is "
                f"{study.fingerprint}; ask its operator, and use one version of fedtopics."
            )
        exchanges = study.registration.exchanges(study.method)
        leaves = {each.function: {"often": each.often, "what": each.leaves} for each in exchanges}
        policy = self.policy_in(study)
        masks = SEEDED if self._secret_from_seed else MASKED
        seen = masks if study.masked else SEEN.format(unmasked(study))
        told = policy.described(seen=not study.masked)
        unsigned = f"{UNSIGNED} {UNSIGNED_MASKS}" if study.masked else UNSIGNED
        self.notify(Offered(study, leaves, seen, told, None if signed else unsigned))
        policy.check_masks(self.name, study.masked, signed)
        policy.check_privacy(self.name, study.privacy, study.fingerprint)
        grows = self._growing is not None
        corpus, method = self.corpus, study.method
        said = len(corpus) - (0 if corpus.embeddings is not None else corpus.n_empty)
        documents = policy.min_documents if grows else said
        clients = min(len(study.clients), method.clients_per_round or len(study.clients))
        authors(corpus, study.privacy)
        if not grows:
            check_times(corpus, method.over_time)
        if study.privacy is not None:
            study.method.public_words(study.text)  # raises StudyError if this computer lacks them
        shares, advice = check_texts(corpus, study.text)
        if shares:
            self.notify(Languages(self.name, shares, advice))
        asked = method.method_name, method.max_rounds, documents, study.text, clients
        policy.check_study(self.name, *asked)
        needed = method.embedding_of(corpus)
        if needed is not None:
            check_embeddings(corpus, needed, self._embedding_model)
            if corpus.embeddings is None:
                sentence_encoder(self._embedding_model or needed.model)
        return study

    def exposed(self, study: Study) -> Exposure:
        """Say what a study would show of the documents; without bytes if it cannot be rehearsed."""
        try:
            return expose(study, self.corpus, self._embedding_model)
        except FedTopicsError:  # of too few documents, say; taking part will tell
            return expose(study)

    def policy_in(self, study: Study) -> Policy:
        """Return the policy as it holds in a study."""
        policy = self.policy if study.masked else self.policy.where_seen()
        if study.privacy is None:
            return policy
        return policy.of_enough(study.min_clients)  # whose parts of the noise are enough

    def _place(self, study: Study) -> Path:
        """Return the folder of this study; refuse one with the ledger and model of another."""
        if self._usual_place:
            # The server chose the name: it may not lead out of the client's folder.
            place = Path("runs") / self.name / file_name(study.name)
            return place if _may_hold(place, study) else place.with_name(study.fingerprint)
        if not _may_hold(self.out, study):
            raise RunError(
                f"{self.out} holds what this client did in another study; name another folder "
                "with --out."
            )
        return self.out

    def receive(self, model: TopicModel, notify: Callable[[Event], None]) -> None:
        """Write the model, and the topics of this client's own documents; tell that it did."""
        folder = self.out / "model"
        model.save_pretrained(folder)
        self.corpus = self._growing() if self._growing else self.corpus
        corpus = model.embedded(self.corpus, self._embedding_model)
        unknown = model.write_theta(corpus, self.out / "theta.parquet")
        if self._ledger is not None:
            self._ledger.kept(self.out, *(f"model/{n}" for n in UNEDITED), "theta.parquet")
        notify(ModelReceived(str(folder), len(self.corpus), unknown))
        self._ended = True

    def notify(self, event: Event) -> None:
        """Pass on what happened, but not that others go when all have the model."""
        if self._on_event is not None and not (self._ended and isinstance(event, Reconnecting)):
            self._on_event(event.plain())


def key_of(door: AnyDoor) -> bytes:
    """Return the public key of a door's masks; nothing where there are none."""
    return door.key if isinstance(door, MaskedDoor) else b""


def _may_hold(folder: Path, study: Study) -> bool:
    before = folder / "study.toml"
    return not before.exists() or Study.read(before).fingerprint == study.fingerprint
