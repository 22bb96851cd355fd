"""A client's part in a study, whichever engine brings the calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.engines.handshake import Proposal
from fedtopics.errors import FederationError, RunError
from fedtopics.federation.client_data import ClientData
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.files import write_durably
from fedtopics.methods.events import Embedding, Event, ModelReceived, Offer, OnEvent
from fedtopics.methods.plan import Site
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.arrivals import Follow
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import check_embeddings
from fedtopics.text.encoders import sentence_encoder


class Participation:
    """A client's part in a study."""

    def __init__(
        self,
        name: str,
        corpus: Corpus,
        policy: Policy,
        out: Path | None,  # for ledger, model and the documents' topics; None: runs/CLIENT/STUDY
        on_event: OnEvent | None = None,
        embedding_model: str | None = None,  # where this client has the study's, or of `corpus`
        growing: Follow | None = None,  # documents that become more during the study
    ) -> None:
        self.name = name
        self.corpus = corpus
        self.policy = policy
        self.out = out or Path("runs") / name
        self._usual_place = out is None
        self._on_event = on_event
        self._growing = growing
        self._embedding_model = embedding_model
        self._ledger: Ledger | None = None
        if out is not None and out.exists() and not out.is_dir():
            raise RunError(f"{out} is a file; name a folder with --out.")

    @classmethod
    def of(
        cls, name: str, data: ClientData, out: Path, on_event: OnEvent | None = None
    ) -> Participation:
        """Read the documents and the policy that a study's table [clients.NAME] names, or raise."""
        policy = Policy() if data.policy is None else Policy.read(data.policy)
        corpus = data.read(name)
        return cls(name, corpus, policy, out, on_event, data.embedding_model)

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            with suppress(OSError):  # on a full disk; the reply has not left either
                self._ledger.close()

    def consider(self, proposal: Proposal) -> Door:
        """Say what the study asks for, hold it against the policy, and join or raise."""
        study = self.look(proposal)
        self.out = self._place(study)
        self.out.mkdir(parents=True, exist_ok=True)
        write_durably(self.out / "study.toml", study.to_toml().encode())
        path = self.out / "ledger.jsonl"
        self._ledger = Ledger(study.registration.name, study.fingerprint, path)
        model = self._embedding_model
        self.corpus = study.embedded(self.corpus, model, lambda *n: self.notify(Embedding(*n)))
        site = Site(
            self.name, self.corpus, self.policy, self.out, self.notify, model, self._growing
        )
        return Door(self.name, study.client_half(site), self.policy, self._ledger)

    def look(self, proposal: Proposal) -> Study:
        """Say what the study asks for, and hold it against the policy; nothing leaves."""
        study = Study.of_agreed(proposal.study)
        if study.fingerprint != proposal.fingerprint:
            raise FederationError(
                f"The server calls its study {proposal.fingerprint}, what it sent is "
                f"{study.fingerprint}; ask its operator, and use one version of fedtopics."
            )
        exchanges = study.registration.exchanges(study.method)
        leaves = {each.function: {"often": each.often, "what": each.leaves} for each in exchanges}
        self.notify(Offer(study, leaves))
        grows = self._growing is not None
        documents = self.policy.min_documents if grows else len(self.corpus)
        method, needed = study.method, study.method.needed_embedding
        rounds = method.max_rounds
        self.policy.check_study(self.name, method.method_name, rounds, documents, study.text)
        if needed is not None:
            check_embeddings(self.corpus, needed, self._embedding_model)
            if self.corpus.embeddings is None:
                sentence_encoder(self._embedding_model or needed.model)
        return study

    def _place(self, study: Study) -> Path:
        """Return the folder of this study; refuse one with the ledger and model of another."""
        if self._usual_place:
            # The server chose the name: it may not lead out of the client's folder.
            name = re.sub(r"[^\w.-]+", "-", study.name).strip(".-")[:60] or "study"
            place = Path("runs") / self.name / name
            return place if _may_hold(place, study) else place.with_name(study.fingerprint)
        if not _may_hold(self.out, study):
            raise RunError(
                f"{self.out} holds what this client did in another study; name another folder "
                "with --out."
            )
        return self.out

    def receive(self, files: Mapping[str, Any]) -> None:
        """Write the model, and the topics of this client's own documents."""
        folder = self.out / "model"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            if Path(name).name != name or name in ("", "..") or not isinstance(content, np.ndarray):
                raise RunError("The server sent a model with a file that has no place in it.")
            write_durably(folder / name, content.tobytes())
        model = TopicModel.from_pretrained(folder)
        self.corpus = self._growing() if self._growing else self.corpus
        corpus = model.embedded(self.corpus, self._embedding_model)
        unknown = model.write_theta(corpus, self.out / "theta.parquet")
        self.notify(ModelReceived(str(folder), len(self.corpus), unknown))

    def diagnose(self) -> str:
        """Say why the server cannot be reached, if it is known."""
        return ""

    def notify(self, event: Event) -> None:
        """Pass on what happened."""
        if self._on_event is not None:
            self._on_event(event.plain())


def _may_hold(folder: Path, study: Study) -> bool:
    before = folder / "study.toml"
    return not before.exists() or Study.read(before).fingerprint == study.fingerprint
