"""Fedtopics as an app of Flower: what the two files of `fedtopics flower init` make of a study.

The ServerApp runs where the SuperLink is, a ClientApp where a SuperNode is. Flower starts a
new process with each message, so a resident process of ours answers beside it; the client's half
keeps a journal as well, since that process may be killed.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtopics.engines.resident_process import IDLE, answer_messages, ask
from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.extras import VERSION
from fedtopics.integrations.flower_carrier import GridCarrier, answer, failure, unwrapped

# A ClientApp begins with each message: what needs torch is imported where it is used. So is Flower,
# an extra.
if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    from fedtopics.federation.client_data import ClientData
    from fedtopics.federation.study import Study

PARTITION = "partition-id"  # what Flower's simulation gives a SuperNode
FAILED = "its settings or its documents cannot be used; its own log says more"


def server_app(study: str | Path) -> ServerApp:
    """Make the server's half: train with the SuperNodes, write the run's folder.

    `study` is the study's file. Run configuration of the app: `out`, the run's folder on the
    SuperLink's machine (by default runs/NAME in its working folder), and `resume`, to go on with
    the run in there.
    """
    from flwr.serverapp import ServerApp

    def work(grid: Grid, context: Context) -> None:
        from fedtopics.cli.display import say
        from fedtopics.cli.members import ServerNews
        from fedtopics.cli.report import show_run
        from fedtopics.federation.server import lead
        from fedtopics.federation.study import Study

        plan = Study.read(study)
        out = _run_folder(plan, context)
        resume = bool(context.run_config.get("resume"))
        try:
            with ServerNews() as news:
                model = lead(plan, GridCarrier(grid), out, resume=resume, on_event=news)
        except FedTopicsError as error:
            say(f"fedtopics: {error}")
            raise
        show_run(model, out)

    app = ServerApp()
    app.main()(work)
    return app


def client_app(study: str | Path) -> ClientApp:
    """Make the client's half: answer with documents that stay where the SuperNode is.

    Of the study's file its name counts, and in Flower's simulation its clients: there SuperNodes
    have no configuration, and are the clients in the order of their names. Elsewhere the
    SuperNode's node configuration says where documents are: the keys of a [clients.NAME] table of a
    study, with `name`; `out`, the folder that gets a folder for each study, with ledger and model
    (by default runs/NAME); and `stay`, the seconds that a process stays for the next message, 0 for
    none.

    What goes wrong is said in the SuperNode's log; the server learns that it failed, not why.
    """
    from flwr.clientapp import ClientApp

    def reply(message: Message, context: Context) -> Message:
        content = _or_nothing(lambda: _reply(study, context, unwrapped(message)))
        return answer(message, content) if content else failure(message, FAILED)

    app = ClientApp()
    app.query()(reply)
    return app


def _or_nothing(work: Callable[[], bytes]) -> bytes:
    """Return an answer; of a failure nothing but a sentence in this machine's log."""
    try:
        return work()
    except (FedTopicsError, OSError) as error:
        print(f"fedtopics: {error}", flush=True)
    except Exception as error:
        # Flower would send its text to the server, and that could quote a document.
        print(f"fedtopics: a defect, {type(error).__name__}", flush=True)
    return b""


def _reply(study: str | Path, context: Context, message: bytes) -> bytes:
    run = Path("flower", str(context.run_id))
    if PARTITION in context.node_config and "name" not in context.node_config:
        # Whichever process is free has the message: the journal alone knows what came before.
        name, data, out = _simulated(study, context)
    else:
        name, out, seconds = _node_settings(context.node_config)
        out /= _folder_name(study)
        if seconds > 0:
            settings = json.dumps([dict(context.node_config), str(out), str(out / run)])
            return ask(out / run, message, [sys.executable, "-m", __spec__.name, settings])
        data = client_data(context.node_config)
    with closing(_Client(name, data, out, out / run)) as client:
        return client.answer(message)


def main(settings: str) -> None:
    """Be the resident process: answer a run's messages with one client's documents.

    `settings` is JSON: the node configuration, the client's folder for the study, and that for the
    run.
    """
    config, out, folder = json.loads(settings)
    name, _, seconds = _node_settings(config)
    clients: list[_Client] = []

    def answer_one(message: bytes) -> bytes:
        if not clients:
            clients.append(_Client(name, client_data(config), Path(out), Path(folder)))
        return clients[0].answer(message)

    def close() -> None:
        for client in clients:
            client.close()

    answer_messages(
        Path(folder), lambda message: _or_nothing(lambda: answer_one(message)), close, seconds
    )


class _Client:
    """A client's half over its documents; its folder has the state for a later process."""

    def __init__(self, name: str, data: ClientData, out: Path, folder: Path) -> None:
        from fedtopics.engines.message_client import MessageClient
        from fedtopics.federation.participant import Participation
        from fedtopics.methods.registry import versions as method_versions

        part = Participation.of(name, data, out, _log(name, out))
        versions = VERSION, method_versions()
        self.answer = MessageClient(name, part, versions, part.notify, folder / "journal").answer
        self.close = part.close


def _log(name: str, out: Path) -> Callable[[dict[str, Any]], None]:
    """Return what writes a SuperNode's log: the offer once, though each process looks at it."""
    from fedtopics.cli.members import ClientNews

    news, offers = ClientNews(name), list[dict[str, Any]]()

    def write(event: dict[str, Any]) -> None:
        from fedtopics.cli.report import write_beside

        kind = event["event"]
        if kind == "offer":
            offers[:] = [event]
            return
        if kind in ("joined", "declined") and offers:
            news(offers[0])
        if kind in ("declined", "refused"):
            print(f"fedtopics: {event['reason']}", flush=True)
        news(event)
        if kind == "model":
            write_beside(out)

    return write


def _node_settings(config: Mapping[str, Any]) -> tuple[str, Path, float]:
    """Read the client's name, its folder, and how long its process stays."""
    from fedtopics.pki.names import check_client_name

    name, seconds = config.get("name"), config.get("stay", IDLE)
    if not isinstance(name, str) or not isinstance(seconds, (int, float)):
        raise StudyError(
            "The SuperNode's node configuration needs the client's name in the study, as in "
            'name = "north"; and stay, if it is there, is a number of seconds.'
        )
    check_client_name(name)
    return name, Path(str(config.get("out", f"runs/{name}"))).absolute(), seconds


def client_data(config: Mapping[str, Any]) -> ClientData:
    """Read where documents are from a node configuration; a `StudyError` if it cannot be used."""
    from pydantic import ValidationError

    from fedtopics.federation.client_data import ClientData
    from fedtopics.federation.study_file import explain

    other = ("name", "out", "stay")  # of `_node_settings`
    settings = {key.replace("-", "_"): value for key, value in config.items() if key not in other}
    try:
        return ClientData(**settings)
    except ValidationError as error:
        raise StudyError(f"The node configuration cannot be used: {explain(error)}") from None


def _simulated(study: str | Path, context: Context) -> tuple[str, ClientData, Path]:
    from fedtopics.federation.study import Study

    plan = Study.read(study)
    names, number = sorted(plan.clients), int(str(context.node_config[PARTITION]))
    if number >= len(names):
        raise StudyError(
            f"The study has {len(names)} clients, Flower simulates more SuperNodes; say "
            f'--federation-config "num-supernodes={len(names)}".'
        )
    name = names[number]
    return name, plan.clients[name], _run_folder(plan, context) / "clients" / name


def _run_folder(plan: Study, context: Context) -> Path:
    return Path(str(context.run_config.get("out") or f"runs/{plan.name}")).absolute()


def _folder_name(study: str | Path) -> str:
    """Make the name of a folder of the study's, which the server chose."""
    name = str(tomllib.loads(Path(study).read_text(encoding="utf-8")).get("name", "study"))
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:64].strip("-") or "study"


if __name__ == "__main__":
    main(sys.argv[1])
