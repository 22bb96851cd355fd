"""Serve a study with plain aggregation as its trusted server, which trains as well (lead)."""

from contextlib import closing
from pathlib import Path

from fedtopics import waiting
from fedtopics.contract.events import Finished, OnEvent
from fedtopics.federation.finished_model import finished
from fedtopics.federation.program import program_of
from fedtopics.federation.progress import recording
from fedtopics.federation.relay import Listen
from fedtopics.federation.run_folder import MemberRun, has_run
from fedtopics.federation.study import Study
from fedtopics.files import hold
from fedtopics.methods.core.plan import WarmStart
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.plain import PlainClients
from fedtopics.protocol.plain_log import Log
from fedtopics.protocol.plain_rounds import Rounds
from fedtopics.protocol.plain_server import PlainServer
from fedtopics.versions import WIRE


def software_of(study: Study, start: WarmStart | None) -> str:
    """Return the numbers of formats and the study, which all sides must have in common."""
    return (
        f"wire {WIRE}, {study.registration.name} {study.registration.version}, "
        f"study {study.identity(start)}"
    )


def lead(
    study: Study,
    folder: Path,
    listen: Listen,
    on_event: OnEvent | None = None,
    start: WarmStart | None = None,
) -> TopicModel:
    """Train a study as its trusted server, or resume it; `listen` serves the members meanwhile."""
    network = study.federation
    program = program_of(study, start)
    with hold(folder):
        run = MemberRun(
            folder=folder,
            study=study.identity(start),
            checkpoint_every=study.checkpoint_every,
            resume=has_run(folder),
            on_event=on_event,
            pause=network.round_interval,
        )
        step, turn = run.position()
        with closing(run), recording(run.event):
            log = Log(folder / "log", step)
            run.describe(study, start)
            server = PlainServer(
                names=list(study.clients),
                software=software_of(study, start),
                log=log,
                largest=network.largest_message << 20,
                state=run.state,
                notify=run.event,
            )
            run.clients = PlainClients(
                source=Rounds(server, network, study.quorum, run.event),
                names=server.names,
                own="",
                door=None,
                step=step,
                turn=turn,
                notify=run.event,
            )
            # The log may be cut, because a client that needs older entries gets `run.state`.
            run.after_checkpoint = log.cut
            with listen(server, run.event):
                model = run.save(finished(study, start, program.train(run.clients, run)))
                missing = server.wait_until_done(waiting.MODEL_FETCHED)
                run.event(Finished([name for name in server.names if name not in missing]))
            return model
