"""Machines that are too small, and people who interrupt: one sentence, and files that are whole."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from fedtopics import cli
from tests.helpers.command_line import STUDY, Typed, one_line


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the system refuse to write more to a file, as it does when a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 200, 2500])
def test_without_room_the_run_ends_and_goes_on_later(size: int, folder: Path, typed: Typed) -> None:
    short = STUDY.replace("gfedntm", "lda").replace("= 12", "= 6")
    (folder / "study.toml").write_text(f"checkpoint_every = 2\n{short}")
    run = ("train", "study.toml", "--out", "run")
    with files_of_at_most(size):
        code, _, said = typed(*run)
    assert code == 1
    assert said.startswith("error: File too large")
    assert not list(folder.rglob("*.tmp"))
    for path in (folder / "run").rglob("*.jsonl"):
        assert all(json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines())
    again = ["--resume"] if (folder / "run/events.jsonl").exists() else []
    code, _, said = typed(*run, *again)
    if code == 2:  # what failed before training is simply tried again
        assert "no run in" in said
        code = typed(*run)[0]
    assert code == 0
    assert (folder / "run/model/config.json").exists()


@pytest.mark.skipif(not Path("/proc/sys").exists(), reason="no file system that nobody writes to")
@pytest.mark.usefixtures("folder")
def test_a_folder_that_nobody_can_write_to(typed: Typed) -> None:
    for place in ("/proc/fedtopics", "north.csv/run"):
        code, _, said = typed("train", "study.toml", "--out", place)
        assert code in (1, 2)
        assert place.partition("/run")[0] in said


def test_too_little_memory(folder: Path) -> None:
    """By `ulimit -v`, once all is loaded: a network that does not fit."""
    (folder / "study.toml").write_text(
        STUDY.replace("[method]", "[method]\nhidden = [20000, 20000]")
    )
    code = (
        "import resource, sys\n"
        "import fedtopics, fedtopics.federation.simulation, fedtopics.methods.gfedntm.method\n"
        "from fedtopics.cli import main\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), resource.RLIM_INFINITY))\n"
        "sys.argv = ['fedtopics', 'train', 'study.toml', '--out', 'run']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, one_line(done.stderr)) == (1, f"error: {cli.NO_MEMORY}\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_one_line(number: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored
    closed = []

    @click.command()
    def waiting() -> None:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            closed.append(True)

    with pytest.raises(SystemExit) as ended:
        sys.argv[1:], rest = [], sys.argv[1:]
        try:
            cli.main(waiting)
        finally:
            sys.argv[1:] = rest
            signal.signal(signal.SIGINT, interrupted)
    assert ended.value.code == code
    assert closed == [True]
    assert one_line(capsys.readouterr().err).strip() == f"error: {cli.INTERRUPTED}"
    assert signal.getsignal(signal.SIGTERM) is before
