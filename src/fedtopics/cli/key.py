"""Commands for members' keys."""

from functools import partial
from pathlib import Path

import click

from fedtopics.cli import options
from fedtopics.cli.options import FOLDER
from fedtopics.terminal.display import print_json, say


@click.group("key")
def key_group() -> None:
    """Create or show a member's key."""


@key_group.command("create")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.with_default(
    "--out", type=FOLDER, default=".", metavar="DIR", help="Folder for NAME and NAME.pem."
)
@click.option(
    "--passphrase",
    "encrypts",
    is_flag=True,
    help="Encrypt the private key. The passphrase is asked for, or read from the file that "
    "FEDTOPICS_PASSPHRASE_FILE names.",
)
def create_command(names: tuple[str, ...], out: Path, encrypts: bool) -> None:
    """Make the key of the member NAME, on the machine where it is used.

    The folder NAME gets the private key, which stays there. NAME.pem is the certificate for the
    other members; it is not secret. Use several names only for demonstrations: a person who makes
    all keys can read everything.
    """
    from fedtopics.escaping import check_client_name
    from fedtopics.protocol import roster

    for name in names:
        check_client_name(name)
    ask_twice = partial(click.prompt, hide_input=True, confirmation_prompt=True, prompt_suffix="")
    for name in names:
        secret = roster.passphrase_for(f"the key of {name}", ask_twice) if encrypts else b""
        key = roster.Key.create(out / name, name, secret)
        say(
            f"{out / name} contains the private key of {name!r}. Keep it on this machine; give it "
            f"to nobody.\n{out / name}.pem is the certificate of {name!r}. Send it to the other "
            "members and to the operator of the server; it is not secret. In the study, put\n"
            f'  certificate = "{name}.pem"\n'
            "into the member's table [clients.NAME], or into [server] if this is the server.\n"
            "SHA-256 fingerprint of the certificate, to compare by telephone:\n"
            f"  {roster.shown(key.certificate)}\n"
        )
    if len(names) > 1:
        say(
            "All these keys were made on this machine, so its owner can act as each of these "
            "members and read everything. Use them for demonstrations only; in a real study each "
            "member makes its own key."
        )


@key_group.command()
@click.argument("path", metavar="FOLDER_OR_PEM", type=FOLDER)
@options.as_json
def show(path: Path, as_json: bool) -> None:
    """Show the name, last valid day and fingerprint of a key or a certificate."""
    from fedtopics.protocol import roster

    content = roster.Key.load(path).certificate if path.is_dir() else roster.read_pem(path)
    name = roster.name_of(content, str(path))
    until = f"{roster.read_certificate(content, str(path)).not_valid_after_utc:%Y-%m-%d}"
    if as_json:
        print_json(
            {
                "name": name,
                "path": str(path),
                "valid_until": until,
                "sha256": roster.certificate_fingerprint(content),
            }
        )
    else:
        say(
            f"name         {name}\npath         {path}\nvalid until  {until}\n"
            "SHA-256 fingerprint of the certificate, to compare by telephone:\n"
            f"  {roster.shown(content)}"
        )
        if path.is_dir():
            say(f"\nKeep {path} here. Send {name}.pem, which is next to it, to the other members.")
