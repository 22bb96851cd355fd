"""Build the image by docker; where that is not there, do its steps in a clean folder instead.

Either way the demo is run by what was built, and its size is printed; more than 1.5 GB fail. The
folder has no base image, for which 130 MB are counted.

    python deploy/build.py
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy/Dockerfile"
MOST = 1500  # megabytes
BASE = 130  # megabytes
DEMO = ["demo", "--clients", "2", "--topics", "5", "--rounds", "3"]


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile, and what stands behind each."""
    lines = "".join(line for line in text.splitlines(True) if not line.startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            kind, _, rest = line.partition(" ")
            yield kind, rest.strip()


def first_stage(text: str) -> list[tuple[str, str]]:
    """Return the instructions of the stage that builds."""
    kinds = list(instructions(text))
    ends = [number for number, (kind, _) in enumerate(kinds) if kind == "FROM"]
    return kinds[1 : ends[1]]


def by_docker() -> int:
    """Build the image, run the demo in it, as its user; return its megabytes."""
    run = ["docker", "build", "--quiet", "-f", str(DOCKERFILE), "-t", "fedtopics", str(ROOT)]
    subprocess.run(run, check=True)  # noqa: S603
    subprocess.run(["docker", "run", "--rm", "fedtopics", *DEMO], check=True)  # noqa: S603, S607
    size = ["docker", "image", "inspect", "-f", "{{.Size}}", "fedtopics"]
    return int(subprocess.check_output(size)) // 10**6  # noqa: S603


def in_folder(folder: Path, given: Mapping[str, str]) -> int:
    """Do the steps of the first stage in a folder, run the demo; return its megabytes."""
    place = folder / "src"
    arguments = dict[str, str]()
    place.mkdir()
    for kind, rest in first_stage(DOCKERFILE.read_text()):
        if kind == "ARG":
            name, _, default = rest.partition("=")
            arguments[name] = given.get(name, default)
        elif kind == "COPY":
            *sources, target = rest.split()
            for source in sources:
                to = place / target / (source if target.endswith("/") else "")
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, to)
        elif kind == "RUN":
            command = re.sub(
                "/opt/", f"{folder}/opt/", re.sub("^python ", f"{sys.executable} ", rest)
            )
            environment = os.environ | arguments
            print("+", shlex.join(shlex.split(command)), flush=True)
            subprocess.run(["sh", "-ec", command], cwd=place, env=environment, check=True)  # noqa: S603, S607
    made = folder / "opt/fedtopics"
    empty = folder / "data"
    empty.mkdir()
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(empty), "OMP_NUM_THREADS": "1"}
    subprocess.run([str(made / "bin/fedtopics"), *DEMO], cwd=empty, env=bare, check=True)  # noqa: S603
    size = sum(file.lstat().st_size for file in made.rglob("*") if not file.is_dir())
    return BASE + size // 10**6


def main() -> None:
    """Build, run, weigh."""
    docker = shutil.which("docker")
    there = docker and subprocess.run([docker, "info"], capture_output=True).returncode == 0  # noqa: S603
    if there:
        size = by_docker()
    else:
        print("There is no docker here: the image's steps are done in a clean folder.")
        with tempfile.TemporaryDirectory() as name:
            size = in_folder(Path(name), os.environ)
    print(f"The image has {size:,} MB.")
    if size > MOST:
        sys.exit(f"The image has {size:,} MB, more than {MOST:,}.")


if __name__ == "__main__":
    main()
