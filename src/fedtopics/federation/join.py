"""Join a study between machines, as a member with documents or as an observer.

Look here for how a member starts, resumes, takes the server's state, and confirms the model.
"""

import os
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedtopics import waiting
from fedtopics.contract.events import Allowed, Event, Joined
from fedtopics.errors import FederationError, FedTopicsError, IdentityError
from fedtopics.federation.connection import link_to_server, listen_address
from fedtopics.federation.door import Door
from fedtopics.federation.finished_model import finished
from fedtopics.federation.participant import DONE, Participation
from fedtopics.federation.policy import Policy
from fedtopics.federation.program import program_of
from fedtopics.federation.progress import recording
from fedtopics.federation.relay import hosted
from fedtopics.federation.run_folder import MemberRun, has_run
from fedtopics.federation.serve import software_of
from fedtopics.federation.study import Study
from fedtopics.files import EVENTS, LineFile, hold, write_durably
from fedtopics.methods.core.plan import fingerprint_of
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.client_side import REFUSED, cause_of
from fedtopics.protocol.clients import SecureClients
from fedtopics.protocol.exchange import MemberSteps, Patience
from fedtopics.protocol.link import Link, NotYetError
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Ask, encode
from fedtopics.protocol.plain import PlainAsk, PlainClients
from fedtopics.protocol.plain_client import Remote, StateError
from fedtopics.protocol.record import Folder
from fedtopics.protocol.roster import Key
from fedtopics.protocol.values import dumps, loads
from fedtopics.text.corpus import Corpus
from fedtopics.transport.loopback import LoopbackLink

NEAR = 1e-3  # allowed difference of weights on two processors, relative to the largest


def join(
    part: Participation,
    study: Study,
    *,
    link: Link | None = None,
    dry_run: bool = False,
    host: bool = False,
    listen: str = "",
    timeout: float = waiting.MEMBER,
) -> TopicModel | None:
    """Train a study as its member until all have the model; a `dry_run` only checks the policy."""
    key = part.key
    check_key(study, key)
    if not (dry_run or host) and (model := part.finished(study)) is not None:
        with suppress(FedTopicsError):  # a relay that was restarted does not know that
            if study.is_secure:
                (link or link_to_server(study, key)).ask(encode(Ask(b"", 0, "done", b"")))
        return model
    if dry_run:
        part.review(study)
        part.notify(Allowed(part.exposed(study)))
        return None
    with ExitStack() as files:
        if host:
            part.review(study)
            server = hosted(
                study=study,
                key=key,
                address=listen_address(study, listen),
                folder=part.out,
                notify=part.notify,
            )
            return _train(part, study, LoopbackLink(files.enter_context(server), key.name), timeout)
        if link is None:
            link = link_to_server(study, key)
            part.require_server(study, partial(link.fetch, b""))
        try:
            part.review(study)
            return _train(part, study, link, timeout)
        except FederationError:  # the others know, or cannot be reached
            raise
        except Exception as error:
            _tell_cause(part, study, link, error)
            raise


def _tell_cause(part: Participation, study: Study, link: Link, error: Exception) -> None:
    """Tell the others why this member ends: the kind of error, or which setting refuses."""
    reason = cause_of(error)
    with suppress(FedTopicsError):  # without a server, only this member's own error is shown
        if not study.is_secure:
            left = PlainAsk(
                software=software_of(study, part.begun(study)),
                run=b"",
                step=0,
                phase="left",
                reason=reason,
            )
            link.ask(encode(left))
            return
        if reason == REFUSED:
            named = [name for name in Policy.model_fields if re.search(rf"\b{name}\b", str(error))]
            reason = f"{REFUSED} ({named[0]})" if named else REFUSED
        link.ask(encode(Ask(b"", 0, "refused", b"", reason)))


def check_key(study: Study, key: Key) -> None:
    roster = study.members
    if roster.members.get(key.name) != key.certificate:
        raise IdentityError(
            f"The study does not contain the certificate of this key ({key.name}), but those of "
            f"{', '.join(roster.names)}; give the key that belongs to one of them."
        )


def _train(part: Participation, study: Study, link: Link, timeout: float) -> TopicModel:
    """Run the program; if the server sends its state, restart from there."""
    start = part.begun(study)
    with ExitStack() as files:
        files.callback(part.close)
        state = part.state_folder(study)
        # Locked first, so that no other process of this member continues the same run.
        files.enter_context(hold(state))
        with recording(partial(_log, state)):  # also of a process that does not begin
            door = part.consider(study, state)
        while True:
            run = MemberRun(
                folder=state,
                study=study.identity(start),
                checkpoint_every=study.checkpoint_every,
                resume=has_run(state),
                on_event=part.on_event,
            )
            with closing(run), recording(run.event), ExitStack() as open_files:
                run.describe(study, start)
                make = _secure if study.is_secure else _plain
                clients = make(
                    part=part,
                    study=study,
                    link=link,
                    door=door,
                    run=run,
                    files=open_files,
                    patience=Patience(timeout, run.event, study.members.names),
                )
                run.clients = clients
                part.notify(Joined(study.fingerprint, str(part.out)))
                try:
                    model = finished(study, start, program_of(study, start).train(clients, run))
                except StateError as error:
                    run.install(error.content)
                    continue
                except NotYetError:
                    raise
                except FedTopicsError:
                    part.settle(study)  # if the study is started again, it is charged as a whole
                    raise
                if isinstance(clients, SecureClients):
                    model = _confirmed(clients, model)
                part.receive(model, run.event)
                part.finish(study)
                clients.done()
                write_durably(state / DONE, b"")
                return model


def _log(state: Path, event: Event) -> None:
    """Add an event to those of a run that an earlier process began."""
    if has_run(state):
        with closing(LineFile(state / EVENTS)) as log:
            log.write({"event": event.kind, "time": time.time(), "seconds": 0.0} | event.plain())


def _plain(
    part: Participation,
    study: Study,
    link: Link,
    door: Door | None,
    run: MemberRun,
    files: ExitStack,
    patience: Patience,
) -> PlainClients:
    step, turn = run.position()
    return PlainClients(
        source=Remote(
            link=link,
            software=software_of(study, part.begun(study)),
            least=part.policy.min_clients_in_sum,
            folder=run.place,
            patience=patience,
        ),
        names=list(study.clients),
        own=part.name,
        door=door,
        step=step,
        turn=turn,
        notify=run.event,
    )


def _secure(
    part: Participation,
    study: Study,
    link: Link,
    door: Door | None,
    run: MemberRun,
    files: ExitStack,
    patience: Patience,
) -> SecureClients:
    roster = study.members
    disk = Folder(run.place)
    files.callback(disk.close)
    record, content, totals = disk.load()
    member = Member(
        name=part.name,
        study=bytes.fromhex(study.fingerprint),
        names=roster.names,
        sign=part.key.sign,
        verify=roster.verify,
        random=os.urandom,
        disk=disk,
        record=record,
        content=content,
    )
    run.before_checkpoint = member.save

    def cut() -> None:
        # A checkpoint that failed at first is written in the replay: later totals are needed.
        if run.clients.step == member.record.step:
            disk.cut()

    run.after_checkpoint = cut
    step, turn = run.position()
    # With differential privacy, the exact count would reveal whether a document is there.
    has_noise = study.differential_privacy is not None
    return SecureClients(
        exchange=MemberSteps(
            member, link, patience, None if part.gate is None else part.gate.waits
        ),
        names=list(study.clients),
        door=door,
        sizes=None if door is None or has_noise else partial(numbers_of, study, part, door),
        totals=totals,
        step=step,
        turn=turn,
        limits=study.vocabulary,
        identity=software_of(study, part.begun(study)),
        notify=run.event,
    )


def numbers_of(study: Study, part: Participation, door: Door) -> tuple[int, int, int]:
    """Return the numbers of documents, of persons with text, and of words to be marked."""
    corpus = cast("Corpus", part.training)
    with_text = np.flatnonzero(~corpus.is_empty | (corpus.embeddings is not None))
    start = part.begun(study)
    agrees = study.method.agrees_first and (start is None or start.continued is None)
    words = door.count_words(study.vocabulary.most_proposed(len(study.clients))) if agrees else 0
    return len(corpus), corpus.n_persons(with_text), words


def _confirmed(clients: SecureClients, model: TopicModel) -> TopicModel:
    """Return the first member's model, so that all have the same, if it is near this one."""
    if clients.have_all(bytes.fromhex(fingerprint_of(model))):
        return model
    own_stages: dict[str, Any] = {"": model.weights, **model.shared}
    content = clients.first_arrays(
        lambda: dumps(
            {
                stage: {name: np.asarray(array) for name, array in weights.items()}
                for stage, weights in own_stages.items()
            }
        )
    )
    stages = loads(content)
    if not _are_near(own_stages, stages):
        raise FederationError(
            "The model of the first member differs from this member's by more than rounding; "
            "compare the versions of fedtopics and of its packages."
        )
    shared = {
        stage: {name: _as(own_stages[stage][name], array) for name, array in weights.items()}
        for stage, weights in stages.items()
    }
    adopted = replace(model, weights=shared.pop(""), shared=shared)
    clients.require_all(bytes.fromhex(fingerprint_of(adopted)))
    return adopted


def _as(own: Any, array: NDArray[Any]) -> Any:
    return array if isinstance(own, np.ndarray) else own.new_tensor(array)


def _are_near(own: Mapping[str, Any], other: Any) -> bool:
    """Whether two models' arrays differ only by rounding on different processors."""
    if isinstance(own, Mapping):
        return (
            isinstance(other, Mapping)
            and own.keys() == other.keys()
            and all(_are_near(own[name], other[name]) for name in own)
        )
    mine = np.asarray(own)
    if not isinstance(other, np.ndarray) or mine.shape != other.shape or mine.dtype != other.dtype:
        return False
    return (
        bool((np.abs(mine - other) <= NEAR * np.abs(mine).max(initial=0.0)).all())
        if mine.dtype.kind == "f"
        else np.array_equal(mine, other)
    )
