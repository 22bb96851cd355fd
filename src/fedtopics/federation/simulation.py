"""Run a study with all its clients in this process.

`train` is also the function `fedtopics.train`. Look here, too, for whose documents a simulation
takes, and for where it resumes.
"""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from fedtopics.contract.events import Documents, Embedding, Event, Finished, Languages, OnEvent
from fedtopics.errors import (
    DataError,
    InputError,
    RunError,
    StudyError,
    check_keys,
    of_client,
    refuse,
)
from fedtopics.escaping import check_client_name
from fedtopics.federation.data_sent import Rows, data_sent_in
from fedtopics.federation.door import Door, sums_at_once
from fedtopics.federation.engines import ENGINES
from fedtopics.federation.finished_model import finished
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import Policy
from fedtopics.federation.program import client_of, program_of
from fedtopics.federation.progress import recording
from fedtopics.federation.run_folder import RunFolder, has_run
from fedtopics.federation.study import Study
from fedtopics.files import hold, open_file, read_bytes
from fedtopics.methods.core.plan import ClientContext, Secret, WarmStart, Words
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.outliers import Robust
from fedtopics.text.checks import check_texts
from fedtopics.text.corpus import Corpus, corpus_fingerprint
from fedtopics.text.grouping import check_groups


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
    at_once: bool | None = None,
    engine: Any = None,
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
        Resume the run in `out`, with the same documents.
    policies : mapping of client name to Policy, optional
        By default the files that the study names, or else the default policy. Nothing is hidden in
        one process, so rules about sums and secure aggregation do not apply.
    on_event : function, optional
        Called with each event of the run.
    start : TopicModel, (beta, words) or WarmStart, optional
        A model or topics to start from, if the method supports it.
    vocabulary : {"agree", "keep"}
        With `start`. "keep": training continues with the model's words and round numbers, and
        clients share no words. "agree": the clients agree on a new vocabulary, and its topics are
        carried over word by word. See docs/how-to/continue-compare-merge.md.
    at_once : bool, optional
        Compute sums over all clients' minibatches at once, if the method supports it. This is
        faster, with equal results up to rounding, but a ledger would need single replies. So it is
        the default only without `out`. With False, results are bit for bit those of other engines.
    engine : distributed.Client, optional
        A Dask cluster whose workers hold the documents and compute; see docs/how-to/dask.md. With
        it, `corpora` may also have paths, which the workers read.

    Raises
    ------
    InputError
        If the documents, policies or the run's folder cannot be used, or the run to resume has
        another study or other documents.
    """
    has_rule = study.federation.outliers not in (None, "none")
    refuse(
        {
            "There is no folder of a run to resume; name it with out.": resume and out is None,
            "Ledgers in out need single replies, but at_once computes only sums; leave out one.": (
                bool(at_once) and out is not None
            ),
            "outliers needs single updates, but at_once has only sums; leave out one.": (
                bool(at_once) and has_rule
            ),
        },
        error=RunError,
    )
    if at_once is None:  # ledgers and rules for outliers need single replies
        at_once = out is None and not has_rule
    if engine is None:
        documents: Mapping[str, Any] = (
            study.corpora() if corpora is None else corpora_by_name(corpora)
        )
        simulate = Simulation
    elif not hasattr(engine, "scheduler_info"):
        raise StudyError(
            "engine must be the Client of a Dask cluster, from the package distributed."
        )
    else:
        documents, simulate = ENGINES.find("dask").prepared(engine, study, corpora)
    simulation = simulate(
        study=study.with_clients(documents),
        documents=documents,
        policies=policies_of(study, documents, policies),
        on_event=on_event,
        at_once=at_once,
    )
    return simulation.train(
        folder=None if out is None else Path(out).expanduser(),
        resume=resume,
        start=None if start is None else WarmStart.of(start, vocabulary),
    )


def policies_of(study: Study, clients: Collection[str], policies: Any = None) -> dict[str, Policy]:
    if study.clients.keys() - set(clients):
        check_keys(dict.fromkeys(clients), study.clients, "client of the study")
    policies = study.policies() if policies is None else policies
    check_keys(policies, {*clients, *study.clients}, "client")
    if wrong := [name for name, policy in policies.items() if not isinstance(policy, Policy)]:
        raise StudyError(f"The policy of client {wrong[0]!r} is not a Policy; give Policy(...).")
    return {name: policies.get(name, Policy()) for name in clients}


@dataclass(frozen=True)
class Simulation:
    study: Study
    documents: Mapping[str, Any]  # corpora, or what stands for them in another engine
    policies: Mapping[str, Policy]
    on_event: OnEvent | None
    at_once: bool

    def train(self, folder: Path | None, resume: bool, start: WarmStart | None) -> TopicModel:
        study = self.study
        self._check_policies()
        languages = [self._languages(name, corpus) for name, corpus in self.documents.items()]
        program = program_of(study, start)
        with ExitStack() as files:
            if folder is not None and (folder.exists() or not resume):  # else there is no run
                files.enter_context(hold(folder))
            run = RunFolder(
                folder=folder,
                study=study.identity(start),
                checkpoint_every=study.checkpoint_every,
                resume=resume,
                on_event=self.on_event,
            )
            files.callback(run.close)
            files.enter_context(recording(run.event))
            run.describe(study, start)
            for name, corpus in self.documents.items():
                if corpus.source:
                    self._notify(Documents.of(name, corpus))
            for event in filter(None, languages):
                self._notify(event)
            ledgers = {}
            for name in self.documents:
                ledgers[name] = Ledger(
                    method=study.registration.name,
                    study=study.fingerprint,
                    path=folder and client_folder(folder, name) / "ledger.jsonl",
                    begun=resume,
                )
                files.callback(ledgers[name].close)
            self._require_same_documents(run)
            rows = (
                [row.plain() for row in data_sent_in(study, start=start, is_simulation=True)]
                if folder
                else []
            )
            doors = {name: self._door(name, ledgers[name], folder, rows) for name in ledgers}
            clients = LocalClients(
                doors=doors,
                turns=max(door.turn for door in doors.values()),
                at_once=self._at_once(doors),
                robust=Robust(study.federation.outliers or "none", run.event),
                notify=run.event,
                hidden=study.is_secure,
            )
            model = run.save(finished(study, start, program.train(clients, run), seeded=True))
            run.event(Finished())
            return model

    def _check_policies(self) -> None:
        for name, corpus in self.documents.items():
            policy = self.policies[name]
            # Where documents may arrive, a client with too few of them skips rounds.
            policy.check_study(
                client=name,
                method=self.study.method.method_name,
                rounds=self.study.method.max_rounds,
                persons=(
                    policy.min_persons
                    if self.study.registration.takes_new_documents
                    else len(corpus)
                ),
            )

    def _require_same_documents(self, run: RunFolder) -> None:
        """Raise RunError if a resumed run began with other documents."""
        if run.folder is None:  # computing the digests takes time
            return
        digests = {
            name: getattr(corpus, "fingerprint", "") or corpus_fingerprint(corpus)
            for name, corpus in self.documents.items()
        }
        before = run.recall("documents") or digests
        if changed := sorted(name for name in digests if digests[name] != before.get(name)):
            raise RunError(
                f"The documents of client {changed[0]!r} are not those that the run in "
                f"{run.folder} began with; resume with those, or continue from the model "
                "with the new ones."
            )
        run.keep("documents", digests)

    def _at_once(self, doors: Mapping[str, Door]) -> Callable[..., Any] | None:
        return sums_at_once(doors) if self.at_once else None

    def _door(self, name: str, ledger: Ledger, folder: Path | None, rows: Rows) -> Door:
        embedding_model = self.study.clients[name].embedding_model
        policy = self.policies[name]
        with of_client(name, InputError):
            policy.check_persons(name, self.documents[name])
            check_groups(self.documents[name], self.study.method.compared)
            corpus = self.study.embedded(
                self.documents[name],
                embedding_model,
                on_progress=lambda done, of: self._notify(Embedding(done, of, name)),
            )
        ledger.write_start(name, b"", policy.model_dump(mode="json"), corpus, rows)
        site = ClientContext(
            name=name,
            corpus=corpus,
            policy=policy,
            folder=folder and client_folder(folder, name),
            notify=self._notify,
            embedding_model=embedding_model,
            secret=Secret.from_seed(self.study.seed, name),
            masked=self.study.is_secure,
        )
        return Door(name, client_of(self.study, site), policy, ledger)

    def _languages(self, name: str, corpus: Any) -> Languages | None:
        with of_client(name):
            shares, advice = check_texts(corpus, self.study.text)
        return Languages(name, shares, advice) if shares else None

    def _notify(self, event: Event) -> None:
        if self.on_event is not None:
            self.on_event(event.plain())


def by_client(clients: Any) -> Mapping[Any, Any]:
    """Return a mapping by client; the items of a list are client-1, client-2 and so on."""
    if isinstance(clients, (list, tuple)) and not any(isinstance(item, str) for item in clients):
        clients = {f"client-{number}": documents for number, documents in enumerate(clients, 1)}
    if not isinstance(clients, Mapping):
        raise DataError(
            "The documents are not those of several clients; give a mapping of client to "
            "documents, or a list of each client's documents. An estimator also takes a table and "
            "the name of its column of clients. For one corpus use fit."
        )
    return clients


def corpora_by_name(clients: Any, read: Callable[[Any], Corpus] = Corpus.of) -> dict[str, Corpus]:
    """Return clients' documents by name; `read` makes a corpus of each client's documents."""
    clients = by_client(clients)
    if not clients:
        raise DataError("There are no clients; give at least one with documents.")
    corpora = {}
    for name, documents in clients.items():
        check_client_name(name)
        with of_client(name, InputError):
            corpora[name] = read(documents)
    return corpora


def run_folder(
    wanted: Path, study: Study, corpora: Mapping[str, Corpus], start: WarmStart | None
) -> Path:
    """Return the first of wanted, wanted-2, ... without a run of another study or documents."""
    identity = study.with_clients(corpora).identity(start)
    digests = {name: corpus_fingerprint(corpus) for name, corpus in corpora.items()}
    return first_folder(wanted, lambda f: not has_run(f) or _is_of(f, identity, digests))


def first_folder(wanted: Path, fits: Callable[[Path], bool]) -> Path:
    """Return the first of wanted, wanted-2, wanted-3 and so on that fits."""
    others = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    return next(folder for folder in chain([wanted], others) if fits(folder))


def _is_of(folder: Path, identity: str, digests: Mapping[str, str]) -> bool:
    """Whether a run is of a study and documents; False if its files are damaged."""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        with open_file(folder / "events.jsonl", "r", encoding="utf-8") as file:
            study = json.loads(file.readline())["study"]
        documents = json.loads(read_bytes(folder / "documents.json"))
        return bool(study == identity and documents | digests == documents)
    return False


def client_folder(folder: Path, client: str) -> Path:
    return folder / "clients" / client
