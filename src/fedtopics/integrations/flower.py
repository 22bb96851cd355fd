"""A study as an app of Flower, called by the two files of `fedtopics init flower`.

For each message, Flower starts a process that passes it on to a resident process with the client's
program. If the resident process is killed, the next one resumes from the last checkpoint.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtopics import waiting
from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.escaping import file_name
from fedtopics.files import read_toml
from fedtopics.integrations.flower_carrier import GridCarrier, answer, unwrapped
from fedtopics.integrations.resident_process import answer_messages, ask, end

# A ClientApp starts with each message: modules that need torch are imported where they are used. So
# is Flower, an extra.
if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    from fedtopics.federation.study import Study
    from fedtopics.integrations.carrier import CarriedLink
    from fedtopics.protocol.roster import Key

PARTITION = "partition-id"  # what Flower's simulation gives a SuperNode
FAILED = "its settings or its documents cannot be used; see its own log"


def server_app(study: str | Path) -> ServerApp:
    """Make the ServerApp of a study's file; its run configuration has `out`, the run's folder."""
    from flwr.serverapp import ServerApp

    def work(grid: Grid, context: Context) -> None:
        from fedtopics.federation.study import Study
        from fedtopics.integrations.carrier import lead_carried
        from fedtopics.terminal.display import say
        from fedtopics.terminal.run_display import RunDisplay
        from fedtopics.terminal.run_report import show_run

        plan = Study.read(study)
        out = _run_folder(plan, context)

        try:
            with RunDisplay() as news:
                model = lead_carried(plan, out, GridCarrier(grid), news)
        except FedTopicsError as error:
            say(f"fedtopics: {error}")
            raise
        if model is not None:
            show_run(model, out)

    app = ServerApp()
    app.main()(work)
    return app


def client_app(study: str | Path) -> ClientApp:
    """Make the ClientApp, which takes part with documents that stay at the SuperNode.

    Its node configuration has `name`, the keys of a study's [clients.NAME] table, `key` (by default
    NAME next to the study's file), `out` (runs/NAME), `stay` in seconds, and `insecure_seed` for
    tests. In a simulation, SuperNodes are the study's clients in order. The server learns no reason
    of a failure.
    """
    from flwr.clientapp import ClientApp

    def reply(message: Message, context: Context) -> Message:
        content = b""
        with suppress(Exception), _logged_failures():
            config = context.node_config
            request = unwrapped(message)
            node = (
                _simulated(study, context)
                if PARTITION in config and "name" not in config
                else _node(config, study)
            )
            content = node.ask(str(context.run_id), request)
        return answer(message, content, FAILED)

    app = ClientApp()
    app.query()(reply)
    return app


@contextmanager
def _logged_failures() -> Iterator[None]:
    """Log failures on this machine, only the type of a defect, and raise."""
    try:
        yield
    except (FedTopicsError, OSError) as error:
        from fedtopics.terminal.display import say

        say(f"fedtopics: {error}")
        raise
    except Exception as error:  # its text could quote a document
        print(f"fedtopics: a defect, {type(error).__name__}", flush=True)
        raise


@dataclass(frozen=True)
class _Node:
    """The client of a SuperNode."""

    name: str
    out: Path  # the folder for the study
    settings: Mapping[str, Any]  # `SiteSettings`, which the resident process checks
    key: str  # its folder
    study: str  # its file
    stay: float = waiting.RESIDENT_IDLE

    def ask(self, run: str, message: bytes) -> bytes:
        """Ask the resident process of a Flower run; it ends those of other runs."""
        folder = self.out / "flower" / run
        return ask(
            folder,
            message,
            command=[
                sys.executable,
                "-m",
                __spec__.name,
                json.dumps(vars(self), default=str),
                str(folder),
            ],
        )

    def take_part(self, key: Key, study: Study, link: CarriedLink) -> None:
        """Take part in a study; log the reason of a failure on this machine, and raise."""
        from fedtopics.federation.study_tables import explained
        from fedtopics.integrations.carrier import SiteSettings, join_carried

        with _logged_failures():
            with explained("The node configuration", SiteSettings):
                settings = SiteSettings(
                    **{name.replace("-", "_"): value for name, value in self.settings.items()}
                )
            join_carried(study, self.out, link, _log(self.name, self.out), key, settings)


def resident_main(content: str, folder: str) -> None:
    """Be the resident process for one client, a `_Node` as JSON; end those of earlier runs."""
    from fedtopics.federation.study import Study
    from fedtopics.integrations.carrier import CarriedLink
    from fedtopics.protocol.roster import Key

    settings = json.loads(content)
    node = _Node(**settings | {"out": Path(settings["out"])})
    # An earlier process may have read other settings, and two cannot write one ledger.
    for note in Path(folder).parent.glob("*"):
        if note != Path(folder):
            end(note)
    with _logged_failures():
        key = Key.load(node.key)
        study = Study.read(node.study)
    client = CarriedLink(key, study.fingerprint, partial(node.take_part, key, study))
    answer_messages(
        Path(folder),
        client.answer,
        idle=lambda: waiting.RESIDENT_ENDS if client.ended else node.stay,
    )


def _log(name: str, out: Path) -> Callable[[dict[str, Any]], None]:
    """Return the writer of a SuperNode's log: it shows the proposal once, not for each process."""
    from fedtopics.terminal.run_display import MEMBER_SENTENCES, RunDisplay

    news = RunDisplay(MEMBER_SENTENCES, name)
    offers = list[dict[str, Any]]()

    def write(event: dict[str, Any]) -> None:
        from fedtopics.terminal.run_report import write_run_report

        kind = event["event"]
        if kind == "offer":
            offers[:] = [event]
            return
        if kind == "joined" and offers:
            news(offers[0])
        news(event)
        if kind == "model":
            write_run_report(out)

    return write


def _node(config: Mapping[str, Any], study: str | Path) -> _Node:
    from fedtopics.escaping import check_client_name

    settings = dict(config)
    name = settings.pop("name", None)
    seconds = settings.pop("stay", waiting.RESIDENT_IDLE)
    if not isinstance(name, str) or not isinstance(seconds, (int, float)):
        raise StudyError(
            "The SuperNode's node configuration needs the client's name in the study, as in "
            'name = "north"; if given, stay must be a number of seconds.'
        )
    check_client_name(name)
    folder = file_name(str(read_toml(Path(study)).get("name", "study")))  # the server chose it
    return _Node(
        name=name,
        out=Path(str(config.get("out", f"runs/{name}"))).absolute() / folder,
        settings=settings,
        key=str(config.get("key", Path(study).parent / name)),
        study=str(study),
        stay=seconds,
    )


def _simulated(study: str | Path, context: Context) -> _Node:
    from fedtopics.federation.study import Study

    plan = Study.read(study)
    names = sorted(plan.clients)
    number = int(str(context.node_config[PARTITION]))
    if number >= len(names):
        raise StudyError(
            f"The study has {len(names)} clients, but Flower simulates more SuperNodes; use "
            f'--federation-config "num-supernodes={len(names)}".'
        )
    name = names[number]
    return _Node(
        name=name,
        out=_run_folder(plan, context) / "clients" / name,
        settings={
            **plan.clients[name].model_dump(
                mode="json", exclude_none=True, exclude={"certificate"}
            ),
            "insecure_seed": True,
        },
        key=str(Path(str(context.run_config.get("keys") or Path(study).parent)) / name),
        study=str(study),
    )


def _run_folder(plan: Study, context: Context) -> Path:
    return Path(str(context.run_config.get("out") or f"runs/{file_name(plan.name)}")).absolute()


if __name__ == "__main__":
    resident_main(content=sys.argv[1], folder=sys.argv[2])
