"""A process that stays between two messages, for engines that begin a process with each.

To load torch, to read the documents and to work a round's earlier calls again takes longer than
most answers. Who begins a process asks the one that stays, or begins that too; if it was killed,
the next one goes on from the journal of `answering`.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from fedtopics.errors import FederationError

STAY = 300.0  # seconds without a message
LOOK = 0.05
_NOTE = "standby.json"


def ask(folder: Path, message: bytes, command: Sequence[str]) -> bytes:
    """Ask the process that stays for this folder; begin it if there is none.

    Parameters
    ----------
    folder : path
        Where it notes its port and the key that only this user can read.
    message : bytes
    command : sequence of str
        What begins it; it has to call `stay`.

    Raises
    ------
    FederationError
        If it ends without an answer.
    """
    connection = _connect(folder)
    if connection is None:
        folder.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
        while (connection := _connect(folder)) is None:
            if process.poll() is not None:
                raise FederationError("The process of this client's half did not start.")
            time.sleep(LOOK)
    try:
        with connection:
            connection.send_bytes(message)
            return connection.recv_bytes()
    except (EOFError, OSError):
        raise FederationError("The process of this client's half was ended.") from None


def stay(
    folder: Path, answer: Callable[[bytes], bytes], leave: Callable[[], None], seconds: float = STAY
) -> None:
    """Answer until nobody asks for so long.

    Parameters
    ----------
    folder : path
    answer : function
    leave : function
        Called before the process ends.
    seconds : float
    """
    key = secrets.token_bytes(32)
    note = folder / _NOTE

    def end() -> None:
        note.unlink(missing_ok=True)
        leave()
        os._exit(0)

    with Listener(("127.0.0.1", 0), authkey=key) as listener:
        _write(note, {"port": listener.address[1], "process": os.getpid(), "key": key.hex()})
        while True:
            idle = threading.Timer(seconds, end)
            idle.daemon = True
            idle.start()
            try:
                with listener.accept() as connection:
                    idle.cancel()
                    connection.send_bytes(answer(connection.recv_bytes()))
            except (AuthenticationError, EOFError, OSError):
                pass  # who asked is gone
            finally:
                idle.cancel()


def _connect(folder: Path) -> Connection | None:
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        os.kill(note["process"], 0)  # or another one may have its port by now
        return Client(("127.0.0.1", note["port"]), authkey=bytes.fromhex(note["key"]))
    except (OSError, EOFError, AuthenticationError, ValueError, KeyError):
        return None


def _write(path: Path, content: dict[str, int | str]) -> None:
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file)
    part.replace(path)
