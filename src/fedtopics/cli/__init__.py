"""The command line: one message per error, no traceback, exit codes as in `errors.py`."""

import errno
import os
import signal
import sys
import warnings
from contextlib import suppress
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

import click

from fedtopics.errors import DataError, FedTopicsError, nearest_names
from fedtopics.escaping import for_encoding, visible
from fedtopics.versions import VERSION

NO_MEMORY = "There is not enough memory; end other programs, or use fewer documents."
OF_EXTRAS = {"flda": "install it with: pip install 'fedtopics[flda]'"}
SERVICES = "Train with other machines"  # the section of commands that may run as services
LONGEST_VALUE = 40  # characters of a value that is shown, which may be a text by mistake
LINE = 200  # characters of a description, which are not cut
INTERRUPTED = "Interrupted; to resume the run, repeat the command, and add --resume if it is train."


class Commands(click.Group):
    """A group whose commands are loaded when they are called, so that help is fast."""

    def __init__(self, sections: dict[str, dict[str, str | click.Command]], **how: Any) -> None:
        super().__init__(**how)
        self._sections = sections
        self._places = {name: at for section in sections.values() for name, at in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            hint = OF_EXTRAS.get(cmd_name) or nearest_names(cmd_name, self._places)
            ctx.fail(f"There is no command {cmd_name!r}; {hint}")
        place = self._places[cmd_name]
        return place if isinstance(place, click.Command) else resolve_name(place)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section, with full descriptions in one column."""
        width = max(map(len, self._places))
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), command.get_short_help_str(LINE))
                        for name in names
                        if (command := self.get_command(ctx, name))
                    ]
                )


def _group(description: str, **commands: str) -> Commands:
    places = {name.replace("_", "-"): f"fedtopics.{place}" for name, place in commands.items()}
    return Commands({"Commands": {**places}}, help=description)


INIT = _group(
    "Write a first study, policy or settings file.",
    study="cli.init:study",
    policy="cli.init:policy",
    flower="cli.flower:init",
    flare_site="cli.flare:allow_command",
)
MODELS = _group(
    "Compare models, or merge them.", compare="cli.models:compare_command", merge="cli.models:merge"
)
AUDIT = _group(
    "Check what a client has shared, and what others can learn from it.",
    log="cli.run_commands:log",
    verify="cli.run_commands:verify_command",
    egress="cli.approve:egress",
    open="cli.approve:open_command",
    delete="cli.run_commands:delete",
    attack="cli.privacy:attack",
    budget="cli.privacy:budget",
    forget="cli.privacy:forget",
    dpia="cli.run_commands:dpia",
    dossier="cli.privacy:dossier",
)
SECTIONS: dict[str, dict[str, str | click.Command]] = {
    "Begin": {
        "demo": "fedtopics.cli.local:demo",
        "init": INIT,
        "check": "fedtopics.cli.federation:check_command",
    },
    "Train on this machine": {
        "train": "fedtopics.cli.local:train_command",
        "sweep": "fedtopics.cli.local:sweep_command",
    },
    SERVICES: {
        "key": "fedtopics.cli.key:key_group",
        "serve": "fedtopics.cli.federation:serve",
        "join": "fedtopics.cli.federation:join_command",
        "step": "fedtopics.cli.federation:step",
        "approve": "fedtopics.cli.approve:approve",
        "status": "fedtopics.cli.run_commands:show_status",
    },
    "Use a model": {
        "topics": "fedtopics.cli.models:topics",
        "transform": "fedtopics.cli.models:transform",
        "evaluate": "fedtopics.cli.models:evaluate_command",
        "models": MODELS,
        "report": "fedtopics.cli.run_commands:report",
    },
    "Account for shared data": {"audit": AUDIT},
}
if find_spec("tomotopy"):  # which the extra "flda" installs
    SECTIONS["Use a model"]["flda"] = "fedtopics.cli.flda:flda_group"


@click.group(
    cls=Commands, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(VERSION, prog_name="fedtopics")
def app() -> None:
    """Find the topics in text that may not be pooled."""


class TerminatedError(BaseException):
    """A service manager ends the process: handled like Ctrl-C, but with another exit code."""


def main(command: click.Command = app) -> None:
    """Run the command line; turn every error into one line and an exit code."""
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda m, *_: _complain(str(m), 0, "warning")  # type: ignore[assignment]
            code = _ran(command)
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code)


def _terminated(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # files are being closed already
    raise TerminatedError


def _ran(command: click.Command) -> int:
    try:
        return int(command(standalone_mode=False) or 0)
    except DataError as error:
        # Standard error may be a log, and that of a service the system's journal.
        is_shown = sys.stderr.isatty() and not {*sys.argv[1:2]} & SECTIONS[SERVICES].keys()
        return _complain(str(error), error.exit_code, value=error.value if is_shown else "")
    except FedTopicsError as error:
        return _complain(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code)
    except TerminatedError:
        return _complain(INTERRUPTED, 128 + signal.SIGTERM)
    except (KeyboardInterrupt, click.exceptions.Abort):
        return _complain(INTERRUPTED, 128 + signal.SIGINT)
    except MemoryError:
        return _complain(NO_MEMORY, 1)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _complain(f"{error.strerror or type(error).__name__}{where}{_remedy(error)}.", 1)
    except Exception as error:
        if os.environ.get("FEDTOPICS_DEBUG"):
            raise
        if "can't allocate memory" in str(error):  # torch raises a RuntimeError
            return _complain(NO_MEMORY, 1)
        return _complain(
            f"A defect of fedtopics: {type(error).__name__}. Set FEDTOPICS_DEBUG=1 to see where, "
            "and please report it.",
            70,
        )


def _remedy(error: OSError) -> str:
    return (
        "; free some disk space, then start the same command again, which resumes a run"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        else ""
    )


def _complain(message: str, code: int, kind: str = "error", value: str = "") -> int:
    """Print a problem, its remedy, which follows the last semicolon of a message, and a value."""
    problem, _, remedy = visible(message).rpartition("; ")
    lines = f"{kind}: {problem}.\nhint: {remedy}\n" if problem else f"{kind}: {remedy}\n"
    lines += f"value: {visible(value[:LONGEST_VALUE])}\n" if value else ""
    with suppress(OSError):  # the full disk may be that of standard error
        sys.stderr.write(for_encoding(lines, sys.stderr.encoding))
    return code
