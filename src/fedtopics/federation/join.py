"""Take part in a study between machines, as a member with documents, or as an observer."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from fedtopics.errors import FederationError, FedTopicsError
from fedtopics.federation.door import Door
from fedtopics.federation.participant import Participation
from fedtopics.federation.run_folder import MemberRun, has_run
from fedtopics.federation.study import Study, finished
from fedtopics.files import hold
from fedtopics.methods.core.events import Event, Joined
from fedtopics.methods.core.plan import WarmStart, fingerprint_of
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.clients import SecureClients
from fedtopics.protocol.exchange import Exchange, Patience
from fedtopics.protocol.link import Link
from fedtopics.protocol.member import Member
from fedtopics.protocol.record import Folder
from fedtopics.protocol.roster import Key
from fedtopics.protocol.values import dumps, loads

WEEK = 7 * 86_400.0  # seconds
NEAR = 1e-3  # by which the weights of models on two processors may differ, relative to the largest


def take_part(
    part: Participation, study: Study, key: Key, link: Link, timeout: float = WEEK
) -> TopicModel:
    """Run the program of a study as its member, until the model is on disk and all have it.

    Parameters
    ----------
    part : Participation
        With the documents, the policy and the folder.
    study : Study
        With certificates of all members.
    key : Key
        Of this member.
    link : Link
        To the server.
    timeout : float
        Seconds without any answer of the server after which this ends with a FederationError.
    """
    start = part.begun(study)
    door, state = part.consider(study)
    with ExitStack() as files:
        files.callback(part.close)
        files.callback(hold(part.out).close)
        run = MemberRun(
            state, study.identity(start), study.checkpoint_every, has_run(state), part.on_event
        )
        files.callback(run.close)
        run.describe(study, start)
        patience = Patience(timeout, run.event)
        clients = _secure(part, study, key, link, door, run, files, patience)
        run.clients = clients
        part.notify(Joined(study.fingerprint))
        model = finished(study, start, study.server_half(start).train(clients, run))
        model = _confirmed(clients, model)
        part.receive(model, run.event)
        clients.done()
        return model


def _secure(
    part: Participation, study: Study, key: Key, link: Link, door: Door | None, run: MemberRun,
    files: ExitStack, patience: Patience,
) -> SecureClients:  # fmt: skip
    """Return the clients of a study with secure aggregation."""
    roster = study.roster
    disk = Folder(Path(run.folder or ""))
    files.callback(disk.close)
    record, content, totals = disk.load()
    if totals and totals[-1].step == record.step:  # a crash came between the two
        record = record.after(totals[-1])
    member = Member(
        key.name, bytes.fromhex(study.fingerprint), roster.names, key.sign, roster.verify,
        os.urandom, disk, record, content,
    )  # fmt: skip
    run.before_checkpoint, run.after_checkpoint = member.save, disk.cut
    exchange = Exchange(member, link, patience, run.event)
    return SecureClients(
        exchange, list(study.clients), door, len(part.corpus), totals, *run.position(),
        study.vocabulary, run.event,
    )  # fmt: skip


def _confirmed(clients: SecureClients, model: TopicModel) -> TopicModel:
    """Make sure that all members have the same model; return it."""
    found = [model]

    def arrays() -> bytes:
        return dumps(dict(found[0].weights))

    def take(content: bytes) -> bytes:
        weights = loads(content)
        own = found[0].weights
        if not isinstance(weights, dict) or not _are_near(own, weights):
            raise FederationError(
                "The model of the first member is another one than this member's, by more than "
                "rounding; compare the versions of fedtopics and of its packages."
            )
        found[0] = found[0].with_weights(weights)
        return bytes.fromhex(fingerprint_of(found[0]))

    clients.confirm(bytes.fromhex(fingerprint_of(model)), arrays, take)
    return found[0]
