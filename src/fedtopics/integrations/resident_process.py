"""A resident process that answers messages, for engines that start a process with each message."""

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

from fedtopics import waiting
from fedtopics.errors import FederationError
from fedtopics.files import make_folder, read_text, write_durably

_NOTE = "resident_process.json"


def ask(folder: Path, message: bytes, command: Sequence[str]) -> bytes:
    """Ask the resident process of a folder, or start it; `command` must call `answer_messages`."""
    if (connection := _connect(folder)) is None:
        make_folder(folder)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
        while (connection := _connect(folder)) is None:
            if process.poll() is not None:
                raise FederationError("The process of this client did not start; see its log.")
            time.sleep(waiting.RESIDENT_REACHED)
    try:
        with connection:
            connection.send_bytes(message)
            return connection.recv_bytes()
    except (EOFError, OSError):
        raise FederationError("The process of this client was ended.") from None


def end(folder: Path) -> None:
    """End the resident process of a folder, if there is one, after its last answer."""
    if (connection := _connect(folder)) is not None:
        with suppress(EOFError, OSError), connection:
            connection.send_bytes(b"")
            connection.recv_bytes()


def answer_messages(
    folder: Path,
    answer: Callable[[bytes], bytes],
    idle: Callable[[], float] = lambda: waiting.RESIDENT_IDLE,
) -> None:
    """Answer messages until none comes for `idle` seconds, or an empty one."""
    key = secrets.token_bytes(32)
    note = folder / _NOTE

    def leave() -> None:
        note.unlink(missing_ok=True)
        os._exit(0)

    with Listener(("127.0.0.1", 0), authkey=key) as listener:
        content = {"port": listener.address[1], "process": os.getpid(), "key": key.hex()}
        write_durably(note, json.dumps(content).encode())
        while True:
            timer = threading.Timer(idle(), leave)
            timer.daemon = True
            timer.start()
            # An error means that the caller is gone.
            with suppress(AuthenticationError, EOFError, OSError), listener.accept() as connection:
                timer.cancel()
                if not (message := connection.recv_bytes()):
                    leave()
                connection.send_bytes(answer(message))
            timer.cancel()


def _connect(folder: Path) -> Connection | None:
    try:
        note = json.loads(read_text(folder / _NOTE))
        os.kill(note["process"], 0)  # is it alive? Another process may have its port by now
        return Client(("127.0.0.1", note["port"]), authkey=bytes.fromhex(note["key"]))
    except (OSError, EOFError, AuthenticationError, ValueError, KeyError):
        return None
