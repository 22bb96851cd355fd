"""One turn of a member or of the relay, where people carry files between them.

A process reads the files that have arrived, computes, writes its own file, and ends. It can be
started at any time: what it has sent, it sends again, byte for byte.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from fedtopics import waiting
from fedtopics.contract.events import Event, Finished, WaitsFor
from fedtopics.errors import StudyError
from fedtopics.federation.connection import require_server_key
from fedtopics.federation.join import join
from fedtopics.federation.participant import Participation
from fedtopics.federation.relay import relay_of
from fedtopics.federation.study import Study
from fedtopics.files import hold
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.link import NotYetError
from fedtopics.protocol.roster import Key
from fedtopics.transport.folders import Exchange, FolderLink, Notify, relay_turn


def exchange_of(study: Study, inbox: Path, outbox: Path, notify: Notify) -> Exchange:
    """Return the files of a study in two folders; StudyError if it cannot be run by files."""
    if not study.is_secure:
        raise StudyError(
            "The study has plain aggregation, whose rounds do not wait for people; set aggregation "
            '= "secure" to exchange files.'
        )
    return Exchange(
        inbox=inbox,
        outbox=outbox,
        study=study.fingerprint,
        roster=study.members,
        largest=study.federation.largest_message << 20,
        notify=notify,
    )


def take_turn(part: Participation, study: Study, exchange: Exchange) -> TopicModel | None:
    """Take a member's turn; NotYetError if the others have to act before there is a model."""
    place = part.state_folder(study) / "exchange"
    with hold(place):
        host = (
            partial(relay_turn, exchange, relay_of(study, part.out), part.key)
            if study.members.server == part.key.certificate
            else None
        )
        return join(part, study, link=FolderLink(exchange, part.key, place / "sent", host))


def relay_by_folders(
    study: Study,
    key: Key,
    exchange: Exchange,
    folder: Path,
    notify: Callable[[Event], None],
    turns: float = 1,
) -> None:
    """Take turns of a relay until all members have the model; NotYetError after the last turn."""
    require_server_key(study, key)
    with hold(folder):
        service = relay_of(study, folder)
        shown: Mapping[str, str] = {}
        while True:
            relay_turn(exchange, service, key)
            turns -= 1
            awaited = service.waiting()[1]
            if not awaited and service.relay.done.issuperset(service.names):
                notify(Finished(service.names))
                return
            if turns <= 0:
                raise NotYetError(awaited)
            if awaited != shown:
                shown = awaited
                notify(WaitsFor(awaited, 0.0, None))
            time.sleep(waiting.NEXT_TURN)
