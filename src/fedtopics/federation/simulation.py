"""Run a study with all its clients in this process.

The three scenarios of the gFedNTM paper are three calls: a client alone is a study with one
client, the centralised one pools the corpora first, the federated one names all clients.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.engines.local import LocalClients
from fedtopics.errors import DataError, InputError, RunError
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import Policy
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study
from fedtopics.methods.events import Embedding, Event, Finished, OnEvent
from fedtopics.methods.plan import Site
from fedtopics.methods.warm_start import WarmStart, Words
from fedtopics.model.topic_model import TopicModel
from fedtopics.pki.names import check_client_name
from fedtopics.text.corpus import Corpus


def train(
    study: Study,
    corpora: Any = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    policies: Mapping[str, Policy] | None = None,
    on_event: OnEvent | None = None,
    start: Any = None,
    vocabulary: Words = "agree",
) -> TopicModel:
    """Train a study's topic model on clients that are all in this process.

    Parameters
    ----------
    study : Study
    corpora : mapping of client name to whatever `Corpus.of` takes, or list of these, optional
        By default the files that the study names; see `corpora_by_name`.
    out : path, optional
        The run's folder: study, events, checkpoints, each client's ledger, the model.
    resume : bool
        Go on with the run in `out`, on the documents that it began with.
    policies : mapping of client name to Policy, optional
        By default the files that the study names, or else the default policy.
    on_event : function, optional
        Called with each event of the run.
    start : TopicModel, (beta, words) or WarmStart, optional
        A model or topics to begin with, if the method can.
    vocabulary : {"agree", "keep"}
        Of a model to begin with. "keep": it is trained further as it is, with its own words; no
        words leave the clients, and its rounds count on. "agree": the clients agree on words anew,
        and its topics are carried over word by word. See docs/models-live-on.md.

    Returns
    -------
    TopicModel

    Raises
    ------
    InputError
        If the documents, the policies or the run's folder cannot be used, or the run to resume is
        of another study or of other documents.
    """
    if resume and out is None:
        raise RunError("There is no folder of a run to resume; name it with out.")
    documents = study.corpora() if corpora is None else corpora_by_name(corpora)
    rules = policies if policies is not None else study.policies()
    study = study.with_clients(documents)
    asked = study.method.method_name, study.method.max_rounds
    for name, corpus in documents.items():
        rules.get(name, Policy()).check_study(name, *asked, len(corpus))
    begun = None if start is None else WarmStart.of(start, vocabulary)
    folder = None if out is None else Path(out)
    half = study.server_half(begun)
    run = RunFolder(folder, study.identity(begun), study.checkpoint_every, resume, on_event)
    with ExitStack() as files:
        files.callback(run.close)
        run.describe(study, begun)
        ledgers = {name: _ledger(study, name, folder) for name in documents}
        for ledger in ledgers.values():
            files.callback(ledger.close)
        if folder is not None:
            _check_documents(run, documents)
        doors = {}
        for name, corpus in documents.items():
            policy = rules.get(name, Policy())
            doors[name] = _door(study, name, corpus, policy, ledgers[name], folder, on_event)
        model = half.train(LocalClients(doors), run)
        model = run.save(model if begun is None else begun.credited(model))
        run.event(Finished())
        return model


def corpora_by_name(clients: Any) -> dict[str, Corpus]:
    """Return the documents of several clients by their names.

    Parameters
    ----------
    clients : mapping of client name to whatever `Corpus.of` takes, or list of these
        In a list they are named client-1, client-2 and so on.

    Raises
    ------
    DataError
        If there are no clients, or one has no documents or such as cannot be read.
    StudyError
        If a name cannot be one.
    """
    if isinstance(clients, (list, tuple)) and not any(isinstance(each, str) for each in clients):
        clients = {f"client-{number}": each for number, each in enumerate(clients, 1)}
    if not isinstance(clients, Mapping):
        raise DataError(
            "Documents of several clients are a mapping of client name to documents, or a list "
            "with the documents of each; those of one corpus are for fit."
        )
    if not clients:
        raise DataError("There are no clients; give at least one with documents.")
    corpora = {}
    for name, documents in clients.items():
        check_client_name(name)
        try:
            corpora[name] = Corpus.of(documents)
        except InputError as error:
            raise type(error)(f"Client {name!r}: {error}") from None
    return corpora


def _check_documents(run: RunFolder, corpora: Mapping[str, Corpus]) -> None:
    """Refuse to resume a run on other documents than it began with."""
    digests = {name: _digest(corpus) for name, corpus in corpora.items()}
    before = run.recall("documents") or digests
    changed = sorted(name for name in digests if digests[name] != before.get(name))
    if changed:
        raise RunError(
            f"The documents of client {changed[0]!r} are not those that the run in {run.folder} "
            "began with; resume with those, or train the model further on the new ones."
        )
    run.keep("documents", digests)


def _digest(corpus: Corpus) -> str:
    """Digest what a method sees of a corpus."""
    digest = hashlib.sha256()
    texts: Iterable[Any] = () if corpus.raw is None else corpus.texts()
    for batch in chain(corpus.batches(), texts):
        digest.update("".join(json.dumps(document) for document in batch).encode())
    if corpus.embeddings is not None:
        digest.update(np.ascontiguousarray(corpus.embeddings).tobytes())
    if corpus.rounds is not None:
        digest.update(str(corpus.rounds.to_pylist()).encode())
    return digest.hexdigest()


def client_folder(folder: Path, client: str) -> Path:
    """Where a client keeps its files in a simulation's run folder."""
    return folder / "clients" / client


def _ledger(study: Study, client: str, folder: Path | None) -> Ledger:
    path = None if folder is None else client_folder(folder, client) / "ledger.jsonl"
    return Ledger(study.method.method_name, study.fingerprint, path)


def _door(
    study: Study,
    name: str,
    corpus: Corpus,
    policy: Policy,
    ledger: Ledger,
    folder: Path | None,
    on_event: OnEvent | None,
) -> Door:
    def notify(event: Event) -> None:
        if on_event is not None:
            on_event(event.plain())

    def on_progress(done: int, documents: int) -> None:
        notify(Embedding(done, documents, name))

    embedding_model = study.clients[name].embedding_model
    try:
        corpus = study.embedded(corpus, embedding_model, on_progress)
    except InputError as error:
        raise type(error)(f"Client {name!r}: {error}") from None
    place = None if folder is None else client_folder(folder, name)
    site = Site(name, corpus, policy, place, notify, embedding_model)
    return Door(name, study.client_half(site), policy, ledger)
