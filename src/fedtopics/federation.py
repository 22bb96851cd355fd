"""Run a study between machines: the server's part and a client's part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics import __version__
from fedtopics.arrivals import Follow
from fedtopics.corpus import Corpus
from fedtopics.doctor import why_not
from fedtopics.embeddings import check_embeddings
from fedtopics.encoders import sentence_encoder
from fedtopics.engines.grpc.client import Client, look
from fedtopics.engines.grpc.clients import GrpcClients, Rules
from fedtopics.engines.grpc.connection import (
    channel_credentials,
    check_loopback,
    join_address,
    server_credentials,
    speaks_tls,
    split_address,
)
from fedtopics.engines.grpc.handshake import Proposal
from fedtopics.engines.grpc.server import Server
from fedtopics.errors import FederationError, FedTopicsError, PolicyError, RunError, StudyError
from fedtopics.lines import cut_half_line
from fedtopics.methods import CLIENT_HALVES, VERSIONS, what_leaves
from fedtopics.methods.start import Start, Words
from fedtopics.pki import Identity
from fedtopics.privacy import Door, Ledger, Policy
from fedtopics.runs import RunFolder
from fedtopics.study import Study
from fedtopics.topics import TopicModel
from fedtopics.workplace import Workplace

HAND_OUT = 120.0  # seconds for the clients to take the model
OnEvent = Callable[[dict[str, Any]], None]


def serve(
    study: Study,
    identity: Identity | None,
    listen: str,
    out: Path,
    *,
    resume: bool = False,
    on_event: OnEvent | None = None,
    on_listen: Callable[[Server], None] | None = None,
    start: Any = None,
    vocabulary: Words = "agree",
) -> TopicModel:
    """Run a study as its server; return the model, which the clients get as well.

    Parameters
    ----------
    study : Study
        Names the clients; what it says of their documents is not used.
    identity : Identity or None
        The server's; None speaks without TLS, on this machine alone.
    listen : str
        HOST:PORT; port 0 takes a free one.
    out : path
        The run's folder.
    resume : bool
        Go on with the run in `out`.
    on_event : function, optional
        Called with each event of the run.
    on_listen : function, optional
        Called once with the server, for a display of who is there.
    start, vocabulary
        A model to begin with, and whether with its own words; as of `simulation.train`. Clients
        see it as any exchange: where words are kept, `size` comes instead of `vocabulary`.

    Raises
    ------
    FederationError
        If the address cannot be listened on, or too few clients are left.
    StudyError, RunError
        If the study or the run's folder cannot be used.
    FedTopicsError
        If the run's folder cannot be written.
    """
    if not study.clients:
        raise StudyError("The study names no clients; add a table [clients.NAME] for each.")
    if identity is None:
        check_loopback(listen)
    proposal = Proposal(
        __version__, study.method.name, VERSIONS[study.method.name], study.agreed, study.fingerprint
    )
    credentials = None if identity is None else server_credentials(identity)
    host, port = split_address(listen)
    largest = study.federation.largest_message << 20
    server = Server(proposal, study.clients, join_address(host, port), credentials, largest)
    pause = study.federation.pause
    begun = None if start is None else Start.of(start, vocabulary)
    half = study.server_half(begun)
    run = RunFolder(out, study.identity(begun), study.checkpoint_every, resume, on_event, pause)
    reason, again = "", False
    try:
        (out / "study.toml").write_text(study.to_toml(), encoding="utf-8")
        run.event("study", **study.described)
        if begun is not None and begun.model is not None and not resume:
            run.event("continued", **begun.origin)
        port = server.start()
        run.event("listening", address=join_address(host, port), clients=list(study.clients))
        if on_listen is not None:
            on_listen(server)
        model = half.train(GrpcClients(server, _rules(study), run.event), run)
        model = model if begun is None else begun.noted(model)
        model.save_pretrained(out / "model")
        received = server.hand_out(_files(out / "model"), HAND_OUT)
        run.event("finished", received=received)
        return model
    except FedTopicsError as error:
        again = isinstance(error, FederationError)  # too few clients
        reason = "Too few clients are left; its operator may go on" if again else str(error)
        raise
    except OSError as error:
        reason, again = "Its disk failed; the run goes on when that is mended.", True
        raise FedTopicsError(
            f"The run in {out} cannot be written: {error.strerror}. Make room or mend the disk, "
            "then go on with --resume."
        ) from None
    finally:
        server.stop(reason, again)
        run.close()


def _rules(study: Study) -> Rules:
    federation = study.federation
    return Rules(study.min_clients, federation.deadline, federation.gather, federation.wait)


def _files(folder: Path) -> dict[str, Any]:
    return {
        path.name: np.frombuffer(path.read_bytes(), np.uint8) for path in sorted(folder.iterdir())
    }


class Participation:
    """A client's part in a study.

    Parameters
    ----------
    address : str
        HOST:PORT of the server.
    identity : folder of an identity, or None
        None speaks without TLS, on this machine alone.
    corpus : Corpus
    policy : Policy
    out : path
        Folder for the ledger, the model and the documents' topics.
    name : str
        Name of the client; with an identity, that of its certificate.
    on_event : function, optional
        Called with a map of what happens; "offer" has what the study asks for.
    dry_run : bool
        Look at the offer, do not join.
    embedding_model : str, optional
        Where this client has the study's model of embeddings, or that of those in `corpus`.
    grown : Follow, optional
        Of documents that become more during the study.
    """

    def __init__(
        self,
        address: str,
        identity: Path | None,
        corpus: Corpus,
        policy: Policy,
        out: Path,
        name: str = "",
        on_event: OnEvent | None = None,
        dry_run: bool = False,
        embedding_model: str | None = None,
        grown: Follow | None = None,
    ) -> None:
        if identity is None:
            check_loopback(address)
            credentials = None
        else:
            known = Identity.load(identity, "client")
            name, credentials = known.name, channel_credentials(known)
        self.name = name
        self.corpus = corpus
        self.policy = policy
        self.out = out
        self._address = join_address(*split_address(address))
        self._identity = identity
        self._credentials = credentials
        self._on_event = on_event
        self._dry_run = dry_run
        self._workplace = Workplace(grown, out, self._arrived, embedding_model)
        self._ledger: Ledger | None = None
        if out.exists() and not out.is_dir():
            raise RunError(f"{out} is a file; name a folder with --out.")

    def run(self) -> None:
        """Take part until the model is here; see `Client.run` for what it raises."""
        who = (self._address, self._credentials, self.name, (__version__, VERSIONS))
        try:
            if self._dry_run:
                self._consider(look(*who))
                self._event("allowed")
            else:
                Client(*who, self, self._event).run()
        finally:
            if self._ledger is not None:
                with suppress(OSError):  # on a full disk; the reply has not left either
                    self._ledger.close()

    def consider(self, proposal: Proposal) -> Door:
        """Say what the study asks for, hold it against the policy, and join or raise."""
        study = self._consider(proposal)
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "study.toml").write_text(study.to_toml(), encoding="utf-8")
        ledger = self.out / "ledger.jsonl"
        if ledger.exists():
            cut_half_line(ledger)
        self._ledger = Ledger(study.method.name, study.fingerprint, ledger)
        own_model = self._workplace.embedding_model
        self.corpus = study.embedded(self.corpus, own_model, self._tell_embedding)
        half = study.client_half(self.name, self.corpus, self.policy, self._workplace)
        return Door(self.name, half, self.policy, self._ledger)

    def _consider(self, proposal: Proposal) -> Study:
        study = Study.of_agreed(proposal.study)
        if study.fingerprint != proposal.fingerprint:
            raise FederationError(
                f"The server calls its study {proposal.fingerprint}, what it sent is "
                f"{study.fingerprint}; ask its operator, and use one version of fedtopics."
            )
        schedule = CLIENT_HALVES[study.method.name].schedule(study.method)
        self._event(
            "offer",
            study=study,
            leaves={
                function: {"often": often, "what": what_leaves(study.method.name, function)}
                for function, often in schedule.items()
            },
        )
        self.policy.check_method(self.name, study.method.name)
        if study.method.max_rounds > self.policy.max_rounds:
            raise PolicyError(
                f"The study asks for {study.method.max_rounds:,} rounds, the policy allows "
                f"{self.policy.max_rounds:,}; nothing has left."
            )
        grows = self._workplace.grown is not None
        if len(self.corpus) < self.policy.min_documents and not grows:
            raise PolicyError(
                f"The policy wants sums over at least {self.policy.min_documents:,} documents, "
                f"{self.name} has {len(self.corpus):,}; nothing has left."
            )
        needed = study.method.needed_embedding
        if needed is not None:
            check_embeddings(self.corpus, needed, self._workplace.embedding_model)
            if self.corpus.embeddings is None:
                sentence_encoder(self._workplace.embedding_model or needed.model)
        self._check_out(study)
        return study

    def _tell_embedding(self, done: int, documents: int) -> None:
        self._event("embedding", done=done, documents=documents)

    def _arrived(self, event: dict[str, Any]) -> None:
        self._event(event.pop("event"), **event)

    def _check_out(self, study: Study) -> None:
        """Refuse a folder with the ledger and the model of another study."""
        before = self.out / "study.toml"
        if before.exists() and Study.read(before).fingerprint != study.fingerprint:
            raise RunError(
                f"{self.out} holds what this client did in another study; name another folder "
                "with --out."
            )

    def receive(self, files: Mapping[str, Any]) -> None:
        """Write the model, and the topics of this client's own documents."""
        folder = self.out / "model"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            if Path(name).name != name or name in ("", "..") or not isinstance(content, np.ndarray):
                raise RunError("The server sent a model with a file that has no place in it.")
            (folder / name).write_bytes(content.tobytes())
        model = TopicModel.from_pretrained(folder)
        self.corpus = self._workplace.grown() if self._workplace.grown else self.corpus
        corpus = model.embedded(self.corpus, self._workplace.embedding_model)
        unknown = model.write_theta(corpus, self.out / "theta.parquet")
        self._event("model", folder=str(folder), documents=len(self.corpus), unknown=unknown)

    def diagnose(self) -> str:
        """Say why there is no connection; raise if certificates do not fit or have ended."""
        if self._identity is not None:
            Identity.load(self._identity)
            return why_not(self._address, self._identity)
        if speaks_tls(self._address):
            raise FederationError(
                f"The server {self._address} speaks TLS; leave out --insecure and give --identity."
            )
        return ""

    def _event(self, kind: str, **fields: Any) -> None:
        if self._on_event is not None:
            self._on_event({"event": kind, **fields})
