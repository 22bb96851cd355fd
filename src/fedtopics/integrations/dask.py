"""Training with documents on the workers of a Dask cluster.

A client has one or more parts, such as files, and each part is on one worker. The replies of a
client's parts are added up on the workers, and thresholds apply to these sums; doors, policies and
ledgers are in this process. If a worker is lost, another one reads its parts again and repeats the
calls of the present round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from dask import config
from dask.sizeof import sizeof
from distributed import Client, LocalCluster
from distributed.client import ClosedClientError, FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from fedtopics import waiting
from fedtopics.contract.events import Languages, OnEvent
from fedtopics.contract.interfaces import Call
from fedtopics.contract.payload import RunningSum, mapped
from fedtopics.errors import FederationError, InputError, RunError, StudyError
from fedtopics.federation.data_sent import Rows
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.local import AtOnce
from fedtopics.federation.policy import Policy
from fedtopics.federation.program import client_of
from fedtopics.federation.simulation import Simulation, corpora_by_name, train
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import ClientData
from fedtopics.methods.core.client import ClientFacts
from fedtopics.methods.core.plan import ClientContext, Secret, WarmStart
from fedtopics.model.topic_model import TopicModel
from fedtopics.terminal.display import say
from fedtopics.text.checks import check_texts
from fedtopics.text.corpus import Corpus, corpus_fingerprint
from fedtopics.text.grouping import check_groups
from fedtopics.text.readers import files_of

TOGETHER = 8  # replies that are added up at a time
SMALLEST = 1000  # documents of a part, at least
MOST = 16  # parts of a corpus in memory, whatever the number of workers


@contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Client]:
    """Connect to a scheduler, or start processes on this machine for as long as the context."""
    if scheduler is None:
        with (
            config.set({"distributed.scheduler.work-stealing": False}),  # it would move documents
            LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            ) as local,
            Client(local) as cluster,
        ):
            yield cluster
        return
    try:
        client = Client(scheduler, timeout=waiting.DASK_SCHEDULER)
    except (OSError, ValueError, TypeError, AssertionError, ImportError):
        raise FederationError(
            f"No Dask scheduler answers at {scheduler}; start one with: dask scheduler"
        ) from None
    with client as cluster:
        yield cluster


@contextmanager
def lost_scheduler() -> Iterator[None]:
    """Explain what to do if the scheduler is lost."""
    try:
        yield
    except (FutureCancelledError, ClosedClientError, CommClosedError):
        raise FederationError(
            "Dask's scheduler is gone; start the cluster again, then the same command, with "
            "--resume if the run had begun."
        ) from None


def homes(cluster: Client, first: int) -> list[dict[str, Any]]:
    """Return where to compute: at each worker in turn, or at another one if it is lost."""
    workers = sorted(cluster.scheduler_info()["workers"])
    return [
        {"workers": [workers[(first + n) % len(workers)]], "allow_other_workers": True}
        for n in range(len(workers))
    ] or [{}]


class RemotePart:
    """A part of a client's documents on a worker, and the requests that it has executed."""

    def __init__(
        self, documents: Corpus, study: Study, name: str, policy: Policy, number: int | None
    ) -> None:
        self._made_of = documents, study, name, policy, number
        check_groups(documents, study.method.compared)
        model = study.clients[name].embedding_model
        site = ClientContext(
            name,
            study.embedded(documents, model),
            policy,
            embedding_model=model,
            secret=Secret.from_seed(study.seed, name if number is None else f"{name} {number}"),
            masked=study.is_secure,
            is_part=number is not None,
        )
        self.client = client_of(study, site)
        self.executed: set[int] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return RemotePart, self._made_of  # a copy elsewhere repeats the requests


@sizeof.register((Corpus, RemotePart))  # type: ignore[untyped-decorator]
def size_of(documents: Corpus | RemotePart) -> int:
    """Return their bytes, so that Dask computes where they are."""
    return (documents.client.corpus if isinstance(documents, RemotePart) else documents).text_bytes


@dataclass(frozen=True)
class RemoteRequest:
    """A function that the parts of a client execute."""

    number: int
    function: str
    payload: Mapping[str, Any]
    attempt: int


def answer_requests(part: RemotePart, *requests: RemoteRequest) -> Any:
    """Execute those requests that the part has not executed; return the reply to the last."""
    reply = None
    for request in requests:
        if request.number not in part.executed or request is requests[-1]:
            part.client.attempt = request.attempt
            reply = part.client.execute(request.function, mapped(aligned, request.payload))
            part.executed.add(request.number)
    return reply


def aligned(value: Any) -> Any:
    """Copy an array at an odd address: numpy multiplies it without BLAS, to other last bits."""
    return np.require(value, requirements="A") if isinstance(value, np.ndarray) else value


def add_up(*replies: dict[str, Any]) -> dict[str, Any]:
    total = RunningSum()
    for reply in replies:
        total.add(reply)
    return total.total()


class RemoteClient(ClientFacts):
    """A client whose parts are on workers, as its `Door` sees it."""

    def __init__(self, cluster: Client, study: Study, policy: Policy, parts: Any, places: Any):
        kind = study.registration.client
        self.method = study.method.method_name
        self.attempt = 1
        self.allowed = frozenset(kind.in_study(study.method))
        self._functions = kind.functions()
        self._remembers = kind.remembers
        self._policy = policy
        self._parts = parts
        self._cluster = cluster
        self._submit = partial(cluster.submit, pure=False)
        self._places = places
        self._numbers = count()
        self._turn = 0
        self._effects: list[Any] = []  # requests whose effects later ones need
        self._round: list[Any] = []  # requests of this round
        self._begun: Any = None

    def begin(self, call: Call) -> None:
        """Let the workers compute the reply to a call, which `execute` then returns."""
        if call.position.turn != self._turn and not self._remembers:
            self._round = []
        self._turn = call.position.turn
        self.attempt = call.position.attempt
        self._begun = self._ask(call.function, dict(call.payload))

    def execute(self, name: str, payload: Mapping[str, Any]) -> Any:
        if name not in self.allowed:
            return self._tell(name, dict(payload))
        reply = self._begun or self._ask(name, dict(payload))
        self._begun = None
        total = result(self._cluster, reply)
        if "least" in total and len(self._parts) > 1:  # a limit, which does not add up
            total = total | {
                "least": self._policy.min_persons,
                "least_clients": self._policy.min_clients_per_group,
                "counts_first": min(total["counts_first"], 1),
            }
        if "clients" in total:  # of a group: its parts are one client
            total = total | {"clients": np.minimum(total["clients"], 1)}
        return total

    def _tell(self, name: str, payload: dict[str, Any]) -> None:
        if name == "adopt" and len(self._parts) > 1:
            whole = {"whole": self._sum("frequencies", {"words": payload["words"]})}
            self._effects.append(self._request("hold", whole))
        # All requests of a client that remembers are repeated, in their order.
        (self._round if self._remembers else self._effects).append(self._request(name, payload))

    def _ask(self, name: str, payload: dict[str, Any]) -> Any:
        if len(self._parts) > 1:
            if name == "vocabulary":
                payload = payload | {"counted_words": self._sum("counted_words", {})}
                return self._sum("proposed", payload, self._parts[:1])
            if self._functions[name].has_groups and not payload.get("groups"):
                groups: dict[str, Any] = {"least": self._policy.min_persons, "clients": 1}
                counted = self._sum(name, payload | {"groups": groups})
                payload = payload | {"groups": groups | {"counted": counted}}
        return self._sum(name, payload)

    def _request(self, name: str, payload: dict[str, Any]) -> Any:
        return self._submit(RemoteRequest, next(self._numbers), name, payload, self.attempt)

    def _sum(self, name: str, payload: dict[str, Any], parts: Sequence[Any] | None = None) -> Any:
        """Let parts execute a function; add up their replies, always in the same order."""
        request = self._request(name, payload)
        before = [*self._effects, *self._round]
        replies = [
            self._submit(answer_requests, part, *before, request, **home)
            for part, home in zip(parts or self._parts, cycle(self._places))
        ]
        self._round.append(request)
        while len(replies) > 1:
            groups = [replies[i : i + TOGETHER] for i in range(0, len(replies), TOGETHER)]
            replies = [self._submit(add_up, *group) for group in groups]
        return replies[0]


def result(cluster: Client, future: Any, client: str = "") -> Any:
    """Wait for a result as long as there are workers; errors about documents name the client."""
    while True:
        try:
            return future.result(timeout=waiting.CHECK_DASK_WORKERS)
        except InputError as error:
            raise type(error)(f"Client {client!r}: {error}" if client else str(error)) from None
        except KilledWorker:
            raise FederationError(
                "Workers ended again and again at the same documents, perhaps for lack of memory; "
                "divide the documents into more files, or start workers with more memory."
            ) from None
        except TimeoutError:
            if future.done():  # the error is the task's
                raise FederationError("A worker waited too long for its files.") from None
            if not cluster.scheduler_info()["workers"]:
                raise FederationError(
                    "Dask's cluster has no worker left; start the cluster again, then the same "
                    "command with --resume."
                ) from None


@dataclass(frozen=True)
class RemoteDocuments:
    """A client's documents on workers, described as `Corpus` describes its own."""

    parts: Sequence[Any]
    n_documents: int
    n_empty: int
    text_bytes: int
    first_words: list[int]
    source: str
    fingerprint: str
    whose: ClassVar[str] = "each a person of its own"
    unit: ClassVar[str] = "documents"

    def __len__(self) -> int:
        return self.n_documents

    def n_persons(self) -> int:
        return self.n_documents

    @classmethod
    def of(cls, cluster: Client, files: Sequence[Any]) -> RemoteDocuments:
        """Describe files; those with few documents become one part with the next ones."""
        facts = [cluster.submit(described, file, pure=False) for file in files]
        descriptions = [result(cluster, future) for future in facts]
        groups: list[list[int]] = []
        for number in range(len(files)):
            if not groups or sum(len(descriptions[n]) for n in groups[-1]) >= SMALLEST:
                groups.append([])
            groups[-1].append(number)
        if len(groups) > 1 and sum(len(descriptions[n]) for n in groups[-1]) < SMALLEST:
            groups[-2] += groups.pop()
        parts = [
            cluster.submit(Corpus.pool, [files[n] for n in group], pure=False)
            if len(group) > 1
            else files[group[0]]
            for group in groups
        ]
        first = descriptions[0]
        return cls(
            parts=parts,
            n_documents=sum(map(len, descriptions)),
            n_empty=sum(description.n_empty for description in descriptions),
            text_bytes=sum(description.text_bytes for description in descriptions),
            first_words=first.first_words,
            source=first.source + (f" and {len(files) - 1} more parts" if len(files) > 1 else ""),
            fingerprint=" ".join(description.fingerprint for description in descriptions),
        )


def described(corpus: Corpus) -> RemoteDocuments:
    return RemoteDocuments(
        parts=(),
        n_documents=len(corpus),
        n_empty=corpus.n_empty,
        text_bytes=corpus.text_bytes,
        first_words=corpus.first_words,
        source=corpus.source,
        fingerprint=corpus_fingerprint(corpus),
    )


def prepared(
    cluster: Client, study: Study, corpora: Any
) -> tuple[dict[str, RemoteDocuments], Callable[..., DaskSimulation]]:
    """Let workers read the documents: each file, or a share of a corpus in memory, is a part."""
    in_one_place = study.registration.client.remembers or not study.method.adds_up

    def files(name: str, source: Any) -> list[Any]:
        if isinstance(source, Corpus):
            number = 1 if in_one_place else max(1, min(MOST, len(source) // SMALLEST))
            parts: list[Any] = [
                (source.take(part), None) for part in np.array_split(np.arange(len(source)), number)
            ]
        else:
            paths = [source.data] if in_one_place or source.data is None else files_of(source.data)
            parts = [(source, path) for path in paths]
        places = homes(cluster, list(sources).index(name))
        return [
            cluster.submit(
                read_documents, name, documents, path, (*study.method.by,), pure=False, **home
            )
            for (documents, path), home in zip(parts, cycle(places))
        ]

    if corpora is None and not study.clients:
        study.corpora()  # which explains what is missing
    sources = study.clients if corpora is None else corpora_by_name(corpora, path_or_corpus)
    if any(getattr(of, "persons", getattr(of, "person", None)) for of in sources.values()):
        raise StudyError("A column of persons needs the local engine; leave out the engine.")
    with lost_scheduler():
        remote = {
            name: RemoteDocuments.of(cluster, files(name, source))
            for name, source in sources.items()
        }
    for name, source in sources.items():
        if isinstance(source, Corpus):  # the fingerprint of the whole, whatever its parts
            remote[name] = replace(remote[name], fingerprint=corpus_fingerprint(source))
    return remote, partial(DaskSimulation, cluster=cluster)


@dataclass(frozen=True)
class DaskEngine:
    """Trains a study on the workers of a cluster; without `scheduler`, on new ones here."""

    scheduler: str | None = None
    workers: int | None = None
    prepared = staticmethod(prepared)

    def train(
        self, study: Study, folder: Path, resume: bool, on_event: OnEvent, **start: Any
    ) -> Path:
        with connected(self.scheduler, self.workers) as cluster:
            say(f"Dask's dashboard: {cluster.dashboard_link}")
            train(study, out=folder, resume=resume, on_event=on_event, engine=cluster, **start)
        return folder


def path_or_corpus(documents: Any) -> Any:
    return (
        ClientData(data=documents) if isinstance(documents, (str, Path)) else Corpus.of(documents)
    )


def read_documents(
    name: str, documents: Corpus | ClientData, path: Path | None = None, by: Iterable[str] = ()
) -> Corpus:
    return (
        documents
        if isinstance(documents, Corpus)
        else documents.model_copy(update={"data": path}).read(name, by)
    )


@dataclass(frozen=True)
class DaskSimulation(Simulation):
    """A simulation whose documents are on the workers of `cluster`."""

    cluster: Client

    def train(self, folder: Path | None, resume: bool, start: WarmStart | None) -> TopicModel:
        if self.study.differential_privacy is not None:
            raise StudyError("Differential privacy needs the local engine; leave out the engine.")
        if resume and self.study.registration.client.remembers:
            raise RunError(
                f"Clients of {self.study.method.method_name} keep states that Dask's workers do "
                "not store; start a new run, or use the local engine."
            )
        with lost_scheduler():
            return super().train(folder, resume, start)

    def _languages(self, name: str, corpus: Any) -> Languages | None:
        shares, advice = result(
            self.cluster,
            self.cluster.submit(check_texts, corpus.parts[0], self.study.text, pure=False),
            name,
        )
        return Languages(name, shares, advice) if shares else None

    def _door(self, name: str, ledger: Ledger, folder: Path | None, rows: Rows) -> Door:
        policy = self.policies[name]
        documents = self.documents[name]
        parts: Any = documents.parts
        if self.study.is_secure and not policy.counts_of_all and len(parts) > 1:
            # Its groups are counted apart from those of other clients, so in one place.
            parts = [self.cluster.submit(Corpus.pool, parts, pure=False)]
        numbers = range(len(parts)) if len(parts) > 1 else [None]
        places = homes(self.cluster, list(self.documents).index(name))
        parts = [
            self.cluster.submit(
                RemotePart, part, self.study, name, policy, number, pure=False, **home
            )
            for part, number, home in zip(parts, numbers, cycle(places))
        ]
        ledger.write_start(name, b"", policy.model_dump(mode="json"), documents, rows)
        client: Any = RemoteClient(self.cluster, self.study, policy, parts, places)
        return Door(name, client, policy, ledger)

    def _at_once(self, doors: Mapping[str, Door]) -> AtOnce:
        """Return a function that lets all workers begin to compute their replies."""

        def begin(names: Sequence[str], call: Call) -> None:
            for name in names:
                cast("RemoteClient", doors[name]._client).begin(call)

        return begin
