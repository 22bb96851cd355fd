"""Run a study with all its clients in this process.

The three scenarios of the gFedNTM paper are three calls: a client alone is a study with one
client, the centralised one pools the corpora first, the federated one names all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedtopics.engines.local import LocalClients
from fedtopics.errors import DataError, InputError
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import Policy
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study
from fedtopics.methods.site import Workplace
from fedtopics.methods.warm_start import Start, Words
from fedtopics.model.topic_model import TopicModel
from fedtopics.pki.names import check_client_name
from fedtopics.text.corpus import Corpus

OnEvent = Callable[[dict[str, Any]], None]


def train(
    study: Study,
    corpora: Mapping[str, Any] | None = None,
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
    corpora : mapping of client name to whatever `Corpus.of` takes, optional
        By default the files that the study names.
    out : path, optional
        The run's folder: study, events, checkpoints, each client's ledger, the model.
    resume : bool
        Go on with the run in `out`.
    policies : mapping of client name to Policy, optional
        By default the files that the study names, or else the default policy.
    on_event : function, optional
        Called with each event of the run.
    start : TopicModel, (beta, words) or Start, optional
        A model or topics to begin with, if the method can.
    vocabulary : {"agree", "keep"}
        Of a model to begin with. "keep": it is trained further as it is, with its own words; no
        words leave the clients, and its rounds count on. "agree": the clients agree on words anew,
        and its topics are carried over word by word. See docs/models-live-on.md.

    Returns
    -------
    TopicModel
    """
    documents = study.corpora() if corpora is None else corpora
    if not documents:
        raise DataError("There are no clients; give at least one with documents.")
    rules = policies if policies is not None else study.policies()
    for name in documents:
        check_client_name(name)
    study = study.with_clients(documents)
    corpora = {name: _corpus(name, data) for name, data in documents.items()}
    asked = study.method.name, study.method.max_rounds
    for name, corpus in corpora.items():
        rules.get(name, Policy()).check_study(name, *asked, len(corpus))
    begun = None if start is None else Start.of(start, vocabulary)
    folder = None if out is None else Path(out)
    half = study.server_half(begun)
    run = RunFolder(folder, study.identity(begun), study.checkpoint_every, resume, on_event)
    run.event("study", **study.described)
    if begun is not None and begun.model is not None and not resume:
        run.event("continued", **begun.origin)
    if folder is not None:
        (folder / "study.toml").write_text(study.to_toml(), encoding="utf-8")
    ledgers = {
        name: Ledger(study.method.name, study.fingerprint, ledger_path(folder, name))
        for name in documents
    }
    workplaces = {
        name: Workplace(
            folder=None if folder is None else client_folder(folder, name),
            tell=on_event or (lambda _: None),
            embedding_model=study.clients[name].embedding_model,
        )
        for name in documents
    }
    try:
        doors = {
            name: _door(
                study, name, corpus, rules.get(name, Policy()), ledgers[name], workplaces[name]
            )
            for name, corpus in corpora.items()
        }
        model = half.train(LocalClients(doors), run)
        model = model if begun is None else begun.noted(model)
        model = run.save(model)
        run.event("finished")
        return model
    finally:
        run.close()
        for ledger in ledgers.values():
            ledger.close()


def ledger_path(folder: Path | None, client: str) -> Path | None:
    """Where a client's ledger is in a simulation's run folder."""
    return None if folder is None else client_folder(folder, client) / "ledger.jsonl"


def client_folder(folder: Path, client: str) -> Path:
    """Where a client keeps what is its own in a simulation's run folder."""
    return folder / "clients" / client


def _corpus(name: str, data: Any) -> Corpus:
    try:
        return Corpus.of(data)
    except InputError as error:
        raise type(error)(f"Client {name!r}: {error}") from None


def _door(
    study: Study,
    name: str,
    corpus: Corpus,
    policy: Policy,
    ledger: Ledger,
    workplace: Workplace,
) -> Door:
    def tell(done: int, documents: int) -> None:
        workplace.tell({"event": "embedding", "client": name, "done": done, "documents": documents})

    try:
        corpus = study.embedded(corpus, workplace.embedding_model, tell)
    except InputError as error:
        raise type(error)(f"Client {name!r}: {error}") from None
    return Door(name, study.client_half(name, corpus, policy, workplace), policy, ledger)
