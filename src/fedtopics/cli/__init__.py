"""The command line. One message an error, no traceback; exit codes in `errors.py`."""

from __future__ import annotations

import os
import sys

import click

from fedtopics import __version__
from fedtopics.cli import (
    evaluate,
    federation,
    flare,
    flda,
    flower,
    local,
    models,
    pki,
    report,
    reproduce,
    sweep,
)
from fedtopics.errors import FedTopicsError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedtopics")
def app() -> None:
    """Find the topics in text that may not be pooled."""


_COMMANDS = (
    local.demo, local.run, report.report, local.topics, local.transform, evaluate.evaluate,
    local.ledger, models.continue_, models.compare, sweep.sweep,
    flare.group, flda.group, flower.group, reproduce.group, pki.group,
    federation.server, federation.client, federation.doctor,
)  # fmt: skip
for _command in _COMMANDS:
    app.add_command(_command)


def main() -> None:
    """Run the command line; turn every error into one line and an exit code."""
    try:
        code = app(standalone_mode=False) or 0
    except FedTopicsError as error:
        code = _complain(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = error.exit_code
    except click.ClickException as error:
        code = _complain(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        code = _complain(
            "Interrupted; type it again to go on, with --resume for run, continue and server.", 130
        )
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        code = _complain(f"{error.strerror or type(error).__name__}{where}.", 1)
    except Exception as error:
        if os.environ.get("FEDTOPICS_DEBUG"):
            raise
        code = _complain(
            f"A defect of fedtopics: {type(error).__name__}. Set FEDTOPICS_DEBUG=1 to see where, "
            "and please report it.",
            70,
        )
    sys.exit(code)


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"fedtopics: {message}\n")
    return code
