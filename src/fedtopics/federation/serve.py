"""Serve a study with plain aggregation as its trusted server, which trains as well."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fedtopics.contract.events import Finished, OnEvent
from fedtopics.extras import VERSION
from fedtopics.federation.program import finished, program_of
from fedtopics.federation.relay import Listen
from fedtopics.federation.run_folder import MemberRun, has_run
from fedtopics.federation.study import Study
from fedtopics.files import hold
from fedtopics.methods.core.plan import WarmStart
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.plain import PlainClients
from fedtopics.protocol.plain_log import Log
from fedtopics.protocol.plain_rounds import Rounds, Rules
from fedtopics.protocol.plain_server import PlainServer

MODEL_PATIENCE = 120.0  # seconds to wait for the clients at the end


def software_of(study: Study, start: WarmStart | None) -> str:
    """Return the versions and the study, which all sides must have in common."""
    method = study.registration
    return f"fedtopics {VERSION}, {method.name} {method.version}, study {study.identity(start)}"


def lead(
    study: Study,
    folder: Path,
    listen: Listen,
    on_event: OnEvent | None = None,
    start: WarmStart | None = None,
    opened: Callable[[PlainServer], None] = lambda server: None,
) -> TopicModel:
    """Train a study as its trusted server, or resume it; `listen` serves the members meanwhile."""
    network = study.federation
    times = network.join_timeout, network.quorum_timeout, network.round_timeout
    program = program_of(study, start)
    identity = study.identity(start)
    with hold(folder):
        run = MemberRun(
            folder,
            identity,
            study.checkpoint_every,
            has_run(folder),
            on_event,
            network.round_interval,
        )
        position = run.position()
        with closing(run), closing(Log(folder / "log", position[0])) as log:
            run.describe(study, start)
            server = PlainServer(
                list(study.clients),
                software_of(study, start),
                log,
                network.largest_message << 20,
                run.state,
                run.event,
            )
            rules = Rules(study.quorum, *times, network.outliers or "clip")
            rounds = Rounds(server, rules, run.event)
            run.clients = clients = PlainClients(
                rounds, server.names, "", None, *position, run.event
            )
            run.after_checkpoint = log.cut
            with listen(server, run.event):
                opened(server)
                model = run.save(finished(study, start, program.train(clients, run)))
                missing = server.wait_until_done(MODEL_PATIENCE)
                run.event(Finished([name for name in server.names if name not in missing]))
            return model
