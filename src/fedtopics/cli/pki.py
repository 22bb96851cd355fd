"""Commands for certificates. Each says which file goes to whom, and which stays where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedtopics.cli import options
from fedtopics.cli.display import print_json, say
from fedtopics.cli.options import FOLDER

pki_folder = options.with_default(
    "--pki", "folder", type=FOLDER, default="pki", help="The authority's folder."
)
days = options.with_default(
    "--days", type=click.IntRange(0, 3652), default=365, help="How long the certificate is valid."
)

peer = click.option(
    "--peer", is_flag=True, help="Others connect to it, in a study without a server."
)


@click.group("pki")
def group() -> None:
    """Make and show the certificates by which server and clients know each other.

    Who runs the server has the authority: `create` once, then `issue` for each client. A client
    that wants a key of its own, which never travels, makes it with `request`; then `sign`.
    """


@group.command()
@click.argument("folder", metavar="[DIR]", type=FOLDER, default="pki")
@click.option(
    "--server",
    "servers",
    metavar="HOST",
    multiple=True,
    help="DNS name or IP address by which clients reach the server; once for each.",
)
@days
@click.option("--renew", is_flag=True, help="Only a new certificate for the server there.")
@click.option("--peers", is_flag=True, help="No server's identity: the study is without one.")
def create(folder: Path, servers: tuple[str, ...], days: int, renew: bool, peers: bool) -> None:
    """Make an authority in DIR (default: pki), and the identity of the server."""
    from fedtopics import pki
    from fedtopics.pki.files import read_certificate
    from fedtopics.pki.identity import hosts_of

    if peers and (servers or renew):
        raise click.UsageError("--peers goes without --server and --renew: there is no server.")
    if peers:
        pki.create_authority(folder)
        _say_how_to_go_on(f"The authority is in {folder}.", folder, " --peer")
        return
    make = pki.renew_server if renew else pki.create
    target = make(folder, servers, days)
    certificate = target / "server.crt"
    hosts = ", ".join(hosts_of(read_certificate(certificate)))
    until = f"for {hosts}, until {_last_day(certificate)}"
    if renew:
        say(
            f"The server has a new certificate, {until}.\n\n"
            f"{target}/server.crt goes to the machine that runs the server, to replace the one "
            "beside its server.key; restart the server then. It is not secret."
        )
        return
    _say_how_to_go_on(
        f"The authority is in {folder}, the identity of the server in {target}, {until}.\n\n"
        f"{target} goes to the machine that runs the server, over a safe way: it holds a private "
        "key.",
        folder,
    )


def _say_how_to_go_on(made: str, folder: Path, option: str = "") -> None:
    from fedtopics import pki

    option += pki.pki_option(folder)
    say(
        f"{made}\n\n"
        f"{folder}/ca.key stays with you and goes to nobody: who has it can make identities. Keep "
        "it offline between signings.\n\n"
        f"For each client, make its identity:  fedtopics pki issue NAME{option}\n"
        "Or let it make its own key, which then never travels:  fedtopics pki request NAME\n"
        f"and sign what it sends you:  fedtopics pki sign request.csr{option}"
    )


@group.command()
@click.argument("name")
@pki_folder
@days
@click.option("--renew", is_flag=True, help="A new certificate for the key it has.")
@peer
def issue(name: str, folder: Path, days: int, renew: bool, peer: bool) -> None:
    """Make the identity of the client NAME, its private key included."""
    from fedtopics import pki

    target = pki.issue(folder, name, days, renew=renew, peer=peer)
    until = _last_day(target / "client.crt")
    if renew:
        say(
            f'Client "{name}" has a new certificate, until {until}.\n\n'
            f'{target}/client.crt goes to the organisation "{name}", to replace the one beside '
            "its client.key. It is not secret."
        )
        return
    say(
        f'The identity of client "{name}" is in {target}, until {until}.\n\n'
        f'{target} goes to the organisation "{name}", over a safe way: it holds a private key. '
        "Delete client.key here when it has arrived; renewing does not need it.\n"
        f"{folder}/ca.key stays with you and goes to nobody."
    )


@group.command()
@click.argument("name")
@click.option("--out", type=FOLDER, help="Folder of the identity.  [default: NAME]")
def request(name: str, out: Path | None) -> None:
    """Make a key for the client NAME where it is, and a request to certify it."""
    from fedtopics import pki

    path = pki.request(out or Path(name), name)
    folder = path.parent
    say(
        f'Client "{name}" has its key, and a request for a certificate, in {folder}.\n\n'
        f"{folder}/client.key stays here and goes to nobody.\n"
        f"{path} goes to who runs the server. It is not secret.\n\n"
        "When they call to compare it, the SHA-256 fingerprint of your key is\n"
        f"{pki.Request.load(path).fingerprint}\n\n"
        f"ca.crt and client.crt come back: put both into {folder}, then compare the fingerprint "
        f"of their authority too, with:  fedtopics pki show {folder}"
    )


@group.command()
@click.argument("request_path", metavar="REQUEST", type=FOLDER)
@pki_folder
@days
@peer
def sign(request_path: Path, folder: Path, days: int, peer: bool) -> None:
    """Certify a client's own key: REQUEST is the request.csr that it sent.

    The same request again renews the certificate.
    """
    from fedtopics import pki
    from fedtopics.pki.files import certificate_fingerprint, read_certificate

    target = pki.sign(folder, request_path, days, peer=peer)
    request = pki.Request.load(request_path)
    until = _last_day(target / "client.crt")
    authority = certificate_fingerprint(read_certificate(target / "ca.crt"))
    say(
        f'The certificate of client "{request.name}" is in {target}, until '
        f"{until}.\n\n"
        f'Before you send it, call the organisation "{request.name}" and compare these SHA-256 '
        "fingerprints. Its key, which fedtopics pki request printed there:\n"
        f"{request.fingerprint}\n"
        "Your authority, which fedtopics pki show will print there:\n"
        f"{authority}\n"
        f"If its key differs, delete {target} and send nothing.\n\n"
        f'{target}/ca.crt and {target}/client.crt go to the organisation "{request.name}", which '
        "puts them beside its client.key. They are not secret.\n"
        f"{folder}/ca.key stays with you and goes to nobody."
    )


@group.command()
@click.argument("folder", type=FOLDER)
@options.as_json
def show(folder: Path, as_json: bool) -> None:
    """Say whose identity a folder is, until when, and its fingerprints.

    FOLDER is an identity folder, or the file of a request.
    """
    described = _describe(folder)
    if as_json:
        print_json(described)
        return
    say(f"name         {described['name']}\nrole         {described['role']}")
    if described["hosts"]:
        say(f"hosts        {', '.join(described['hosts'])}")
    if described["valid_until"]:
        say(f"valid until  {described['valid_until']}")
    for what, digest in described["sha256"].items():
        say(f"SHA-256 of the {what.replace('_', ' ')}\n  {digest}")
    if described["problem"]:
        say(described["problem"])


def _describe(folder: Path) -> dict[str, Any]:
    """Say what is known of an identity, ended or not, or of a request."""
    from fedtopics import pki

    request = pki.Request.load(folder) if folder.is_file() else pki.Request.waiting(folder)
    if request is not None:
        return {
            "name": request.name,
            "role": "client",
            "hosts": [],
            "valid_until": None,
            "problem": "It has no certificate yet.",
            "sha256": {"public_key": request.fingerprint},
        }
    identity = pki.Identity.load(folder, check_validity=False)
    return {
        "name": identity.name,
        "role": identity.role,
        "hosts": list(identity.hosts),
        "valid_until": f"{identity.not_after:%Y-%m-%d %H:%M} UTC",
        "problem": identity.problem,
        "sha256": identity.fingerprints,
    }


def _last_day(certificate: Path) -> str:
    from fedtopics.pki.files import read_certificate

    return f"{read_certificate(certificate).not_valid_after_utc:%Y-%m-%d}"
