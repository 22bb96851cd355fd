"""Sites without a connection: each runs its commands in a network namespace without an interface.

The imports of a command take ten times as long as a step. So a process per site has done them, and
a copy of it runs each command, with the folder, the files and the arguments of its caller.
"""

import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

REQUIRED = os.environ.get("FEDTOPICS_NAMESPACES") == "required"
NAMES = ("north", "south", "west", "server")
LONGEST = 1 << 16  # bytes of a command
SHELL = """
fedtopics() {{  # at the site that the command names, or else at north
  local site=north word
  for word; do case $word in south | west | server) site=$word ;; esac; done
  {python} -I {script} {folder}/$site fedtopics "$@"
}}
"""


def namespace() -> list[str]:
    """Return how a command begins that runs without a network; nothing if the kernel refuses."""
    words = ["unshare", "--map-root-user", "--net"]
    refused = subprocess.run(["/bin/sh", "-c", f"{' '.join(words)} true"], check=False).returncode
    return [] if refused else words


@contextmanager
def sites() -> Iterator[str]:
    """Run the sites; yield a function of bash that runs `fedtopics` at one of them."""
    words = [*namespace(), sys.executable, "-m", __name__]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for name in NAMES:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"{folder}/{name}")
            listener.listen()
            process = subprocess.Popen(words, env=one_thread, stdin=listener)
            stack.enter_context(process)
            stack.callback(process.kill)
        yield SHELL.format(python=sys.executable, script=__file__, folder=folder)


def serve() -> None:
    """Run each command that arrives at the socket in place of stdin, in a copy of this process."""
    # What a step imports, and the model that recognises languages.
    import pandas  # noqa: F401
    import sklearn.feature_extraction.text  # noqa: F401

    import fedtopics.federation.by_folders
    import fedtopics.federation.simulation
    import fedtopics.methods.nmf.method
    import fedtopics.report  # noqa: F401
    from fedtopics.cli import federation, main  # noqa: F401
    from fedtopics.text.languages import find_likely

    find_likely("a text")
    gc.freeze()  # or each copy would copy the pages of all objects
    listener = socket.socket(fileno=0)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            message, files, *_ = socket.recv_fds(connection, LONGEST, 3)
            for number, file in enumerate(files):
                os.dup2(file, number)
            folder, *sys.argv = json.loads(message)
            os.chdir(folder)
            try:
                main()
            except SystemExit as end:
                sys.stdout.flush()
                connection.sendall(bytes([int(end.code or 0)]))
            os._exit(0)
        connection.close()


def call(address: str, words: list[str]) -> int:
    """Run a command at a site; return its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        message = json.dumps([str(Path.cwd()), *words]).encode()
        socket.send_fds(connection, [message], [0, 1, 2])
        return connection.recv(1)[0]


if __name__ == "__main__":
    sys.exit(call(sys.argv[1], sys.argv[2:]) if sys.argv[1:] else serve())
