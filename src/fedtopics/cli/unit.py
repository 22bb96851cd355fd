"""A command as a systemd service, for machines that start it and start it again."""

from __future__ import annotations

import getpass
import re
import sys
from pathlib import Path
from string import Template

import click

from fedtopics.cli import app
from fedtopics.cli.options import FOLDER

# Compiled loops need memory that is written and executed, so that MemoryDenyWriteExecute is no
# part of it; they are kept in the cache.
UNIT = Template("""\
# Written by: fedtopics unit $name ...
[Unit]
Description=fedtopics $name in $place
Wants=network-online.target
After=network-online.target

[Service]
User=$user
WorkingDirectory=$place
ExecStart=$command
Environment=NUMBA_CACHE_DIR=%C/fedtopics-$name FEDTOPICS_CACHE=%C/fedtopics-$name
CacheDirectory=fedtopics-$name
Restart=on-failure
RestartSec=60
# Wrong input, and what a policy forbids, are for people to change.
RestartPreventExitStatus=2 3
SuccessExitStatus=143
UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictSUIDSGID=yes
CapabilityBoundingSet=
ReadWritePaths=$places

[Install]
WantedBy=multi-user.target
""")
SERVICES, GO_ON = ("server", "client", "peer"), "--go-on"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--user", help="Who it runs as.  [default: you]")
@click.option("--folder", type=FOLDER, help="Where it runs.  [default: here]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_context
def unit(
    ctx: click.Context, user: str | None, folder: Path | None, command: tuple[str, ...]
) -> None:
    """Print a systemd unit that runs COMMAND: server, client or peer, with its options.

    Paths in it are as seen from the folder. A server goes on with its run when it is started again;
    so do clients and peers anyway.
    """
    name, *arguments = command
    if name not in SERVICES:
        raise click.UsageError(f"{name!r} is no service; name one of {', '.join(SERVICES)}.")
    service = app.get_command(ctx, name)
    assert service is not None  # noqa: S101 - for mypy
    with service.make_context(
        name, [*arguments], parent=ctx
    ) as parsed:  # as typed: or it complains
        out: Path | None = parsed.params["out"]
    if name == "server":
        arguments = [word for word in arguments if word not in ("--resume", GO_ON)] + [GO_ON]
    place = Path(folder or "").absolute()
    outside = [] if out is None or (place / out).is_relative_to(place) else [out]
    click.echo(
        UNIT.substitute(
            name=name,
            user=user or getpass.getuser(),
            place=_literal(str(place)),
            places=" ".join(_word(str(each)) for each in [place, *outside]),
            command=" ".join(
                _word(word).replace("$", "$$")
                for word in (sys.executable, "-m", "fedtopics", name, *arguments)
            ),
        ),
        nl=False,
    )


def _literal(text: str) -> str:
    """Write a text where systemd takes a whole line; refuse one that is more than a line."""
    if not text.isprintable():
        raise click.UsageError("A path or an option has a character that does not print.")
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """Write a text as one word of a line."""
    escaped = _literal(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if re.search(r"[^\w@%+=:,./$-]", text) or not text else escaped
