"""The tutorials, typed from their first block to their last, in an empty folder each."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.pages import DOCS, TUTORIALS, Block, blocks
from tests.helpers.services import free_port
from tests.helpers.sites import REQUIRED, namespace, sites

LETTERS = DOCS / "tutorials/analyst.md"  # its first block is where the others begin
AIRLOCK = DOCS / "tutorials/airlock.md"  # its sites have no network
END = "END-OF-BLOCK"
SECONDS = 600  # a tutorial takes half a minute on an idle machine


def typed(block: Block) -> str:
    if block.title:
        return f"cat > {block.title} <<'{END}'\n{block.text}{END}"
    if block.kind == "python":
        return f"python - <<'{END}'\n{block.text}{END}"
    return block.text if block.kind == "sh" else ""


def script(page: Path, functions: str) -> str:
    """All of a page as one script, which says before each block which it is."""
    first = [typed(blocks(LETTERS)[0]), "python letters.py"] if page != LETTERS else []
    rest = (f"echo '=== {block.number}'\n{typed(block)}" for block in blocks(page))
    return "\n".join(["set -euo pipefail", functions, *first, *rest, "echo '=== end'"])


def type_all(page: Path, folder: Path, functions: str = "") -> str:
    """Type a page after functions of bash, with a port that is free; return what was printed."""
    bash = shutil.which("bash")
    assert bash
    environment = os.environ | {
        "COLUMNS": "100",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "no_proxy": "localhost,127.0.0.1",
    }
    output = folder.parent / f"{folder.name}.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [bash, "-c", script(page, functions).replace("7557", str(free_port()))],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | str = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = "still running"
        finally:
            with suppress(ProcessLookupError):  # servers and clients that were left behind
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    printed = output.read_text(encoding="utf-8")
    said = "".join(f"\n{log.name}:\n{log.read_text()[-2000:]}" for log in folder.glob("*.txt"))
    assert status == 0, f"{status} at block {printed.rpartition('=== ')[2]}{said}"
    return printed


def words(text: str) -> set[str]:
    """Words of an output; numbers and fingerprints differ from machine to machine."""
    return set(re.findall(r"\b[^\W\d_]{2,}\b", text))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_and_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    with sites() if page == AIRLOCK else nullcontext("") as functions:
        everything = type_all(page, tmp_path, functions)
    parts = re.split(r"^=== (\w+)\n", everything, flags=re.MULTILINE)
    printed = dict(zip(parts[1::2], parts[2::2], strict=True))
    for block in blocks(page, "text"):
        said = words(printed[str(block.number - 1)])
        assert words(block.text) <= said, (block, words(block.text) - said)


def test_a_site_reaches_no_port_of_this_machine() -> None:
    begin = namespace()
    if not begin:
        complain = pytest.fail if REQUIRED else pytest.skip
        complain("The kernel allows no network namespaces, so the airlock's sites had a network.")
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"import socket; socket.create_connection({server.getsockname()})"
        run = partial(subprocess.run, check=False, stderr=subprocess.PIPE)
        assert run([sys.executable, "-c", connect]).returncode == 0
        refused = run([*begin, sys.executable, "-c", connect])
    assert b"Network is unreachable" in refused.stderr


def test_what_is_shown_is_of_the_command_before() -> None:
    for page in TUTORIALS:
        for before, block in zip(blocks(page), blocks(page)[1:], strict=False):
            assert block.kind != "text" or before.kind in ("sh", "python"), block
