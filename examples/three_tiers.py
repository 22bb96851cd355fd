"""Three tiers: documents on devices, under clients, under a server: python three_tiers.py.

A client has no documents here. What the server's program asks it, it asks its devices, and what
they reply it adds up and passes on: sums of sums are the sums of all. So the server knows two
clients, a client its devices, and the topics are those of a study of all devices. It is for methods
of which clients send sums (NMF, LDA); in the F-LDA paper devices send a client their documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedtopics import Corpus, Policy, Study, TopicModel, train
from fedtopics.contract.interfaces import Call
from fedtopics.contract.payload import CountsByWord, RunningSum
from fedtopics.datasets import synthetic_lda
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.local import LocalClients
from fedtopics.federation.program import client_of, program_of
from fedtopics.federation.run_folder import RunFolder
from fedtopics.methods.core.plan import ClientContext, Secret


class Devices:
    """The devices of a client, in place of its door; each has a door of its own."""

    def __init__(self, doors: Mapping[str, Door]) -> None:
        self._doors = doors

    def call(self, call: Call) -> dict[str, Any]:
        """Ask each device; return what their replies add up to."""
        total = RunningSum()
        for name in sorted(self._doors):
            total.add(self._doors[name].call(call))
        return {name: as_of_one(value) for name, value in total.total().items()}

    def repeat(self, call: Call) -> None:
        """Let each device execute a function of which nothing leaves."""
        for door in self._doors.values():
            door.repeat(call)


def as_of_one(value: Any) -> Any:
    """Return counts by word as those of one client, which has a word or has it not."""
    if isinstance(value, CountsByWord):
        documents, occurrences, *whether = value.values.T
        columns = documents, occurrences, *(np.minimum(column, 1) for column in whether)
        return CountsByWord(value.names, np.column_stack(columns))
    return value


def door_of(device: str, documents: Corpus, study: Study) -> Door:
    """Return a device's door: its own part of the method, its own policy, its own ledger."""
    policy = Policy(min_persons=10)
    site = ClientContext(device, documents, policy, secret=Secret.from_seed(study.seed, device))
    ledger = Ledger(study.method.method_name, study.fingerprint)
    return Door(device, client_of(study, site), policy, ledger)


def train_in_tiers(study: Study, clients: Mapping[str, Mapping[str, Corpus]]) -> TopicModel:
    """Train a study whose clients are sums of devices: documents by device, by client."""
    study = study.with_clients(clients)
    tiers = {
        client: Devices({name: door_of(name, docs, study) for name, docs in devices.items()})
        for client, devices in clients.items()
    }
    run = RunFolder(None, study.identity(None), 0, False, None)
    return program_of(study).train(LocalClients(tiers), run)


def main() -> None:
    """Train in two tiers and in three, and compare."""
    drawn = synthetic_lda(5, 400, 8, shared_topics=3, n_documents=200, n_validation=1)
    devices = {name: documents.corpus() for name, documents in drawn.training.items()}
    first = list(devices)[:2]
    second = list(devices)[2:]
    clients = {
        "north": {name: devices[name] for name in first},
        "south": {name: devices[name] for name in second},
    }
    limits = {"min_clients_per_word": 1}  # a client here is many devices there
    study = Study.make(method={"name": "nmf", "n_components": 5}, vocabulary=limits)
    tiers = train_in_tiers(study, clients)
    flat = train(study, devices, policies=dict.fromkeys(devices, Policy(min_persons=10)))
    apart = float(np.abs(tiers.beta - flat.beta).max() / flat.beta.max())
    for number, words in enumerate(tiers.topics(6)):
        print(f"{number}  {' '.join(words)}")
    same = "the same" if tiers.topics() == flat.topics() else "others"
    print(f"two tiers and three: words of topics are {same}, weights {apart:.0e} apart")


if __name__ == "__main__":
    main()
