"""A resident process that answers messages, for engines that start a process with each message.

To load torch, to read the documents and to repeat a round's earlier calls takes longer than most
answers. The engine's process asks the resident one, and starts it if need be; if it was killed, the
next one goes on from the journal of `message_client`.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from fedtopics.errors import FederationError
from fedtopics.files import write_durably

IDLE = 300.0  # seconds without a message, after which it ends
LOOK = 0.05  # seconds between two attempts to reach it
_NOTE = "resident_process.json"


def ask(folder: Path, message: bytes, command: Sequence[str]) -> bytes:
    """Ask the resident process of a folder, which has its port and a key for this user alone.

    If there is none, `command` starts it, which has to call `answer_messages`. A `FederationError`
    if it ends without an answer.
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


def answer_messages(
    folder: Path, answer: Callable[[bytes], bytes], close: Callable[[], None], idle: float = IDLE
) -> None:
    """Be the resident process: answer until nobody asks for `idle` seconds, then `close`."""
    key = secrets.token_bytes(32)
    note = folder / _NOTE

    def end() -> None:
        note.unlink(missing_ok=True)
        close()
        os._exit(0)

    with Listener(("127.0.0.1", 0), authkey=key) as listener:
        content = {"port": listener.address[1], "process": os.getpid(), "key": key.hex()}
        write_durably(note, json.dumps(content).encode(), private=True)
        while True:
            timer = threading.Timer(idle, end)
            timer.daemon = True
            timer.start()
            # Else who asked is gone.
            with suppress(AuthenticationError, EOFError, OSError), listener.accept() as connection:
                timer.cancel()
                connection.send_bytes(answer(connection.recv_bytes()))
            timer.cancel()


def _connect(folder: Path) -> Connection | None:
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        os.kill(note["process"], 0)  # or another one may have its port by now
        return Client(("127.0.0.1", note["port"]), authkey=bytes.fromhex(note["key"]))
    except (OSError, EOFError, AuthenticationError, ValueError, KeyError):
        return None
