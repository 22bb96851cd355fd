"""The command line. One message an error, no traceback; exit codes in `errors.py`."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from contextlib import suppress
from importlib import import_module

import click

from fedtopics.errors import FedTopicsError, nearest
from fedtopics.extras import VERSION
from fedtopics.harmless import for_encoding, visible

NO_MEMORY = "There is too little memory for this; end other programs, or give fewer documents."
INTERRUPTED = "Interrupted. The same command resumes; run and continue need --resume."

# Where each command is, in the order of the help. A module is loaded when its command is called.
COMMANDS = {
    "demo": "fedtopics.cli.local:demo",
    "run": "fedtopics.cli.local:run",
    "report": "fedtopics.cli.records:report",
    "topics": "fedtopics.cli.local:topics",
    "transform": "fedtopics.cli.models:transform",
    "evaluate": "fedtopics.cli.models:evaluate",
    "ledger": "fedtopics.cli.records:ledger",
    "audit": "fedtopics.cli.privacy:audit",
    "budget": "fedtopics.cli.privacy:budget",
    "verify": "fedtopics.cli.records:verify",
    "dpia": "fedtopics.cli.records:dpia",
    "continue": "fedtopics.cli.models:continue_",
    "compare": "fedtopics.cli.models:compare",
    "merge": "fedtopics.cli.models:merge",
    "terms": "fedtopics.cli.models:terms",
    "sweep": "fedtopics.cli.local:sweep",
    "key": "fedtopics.cli.key:group",
    "check": "fedtopics.cli.federation:check",
    "serve": "fedtopics.cli.federation:serve",
    "join": "fedtopics.cli.federation:join",
    "status": "fedtopics.cli.records:show_status",
    "flda": "fedtopics.cli.flda:group",
    "flare": "fedtopics.integrations.flare_command:group",
    "flower": "fedtopics.integrations.flower_command:group",
}


class Commands(click.Group):
    """The commands of `COMMANDS`, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            ctx.fail(f"There is no command {cmd_name!r}; {nearest(cmd_name, COMMANDS)}")
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="fedtopics")
def app() -> None:
    """Find the topics in text that may not be pooled."""


class TerminatedError(BaseException):
    """The system, or a service manager, asks the process to end: as Ctrl-C, with another code."""


def main(command: click.Command = app) -> None:
    """Run the command line; turn every error into one line and an exit code."""
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda m, *_: _complain(str(m), 0)  # type: ignore[assignment]
            code = _ran(command)
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code)


def _terminated(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what is open is being closed
    raise TerminatedError


def _ran(command: click.Command) -> int:
    try:
        return int(command(standalone_mode=False) or 0)
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
        return _complain(f"{error.strerror or type(error).__name__}{where}.", 1)
    except Exception as error:
        if os.environ.get("FEDTOPICS_DEBUG"):
            raise
        if "can't allocate memory" in str(error):  # torch's, which is a RuntimeError
            return _complain(NO_MEMORY, 1)
        defect = f"A defect of fedtopics: {type(error).__name__}."
        return _complain(f"{defect} Set FEDTOPICS_DEBUG=1 to see where, and please report it.", 70)


def _complain(message: str, code: int) -> int:
    with suppress(OSError):  # its disk may be the full one
        sys.stderr.write(for_encoding(f"fedtopics: {visible(message)}\n", sys.stderr.encoding))
    return code
