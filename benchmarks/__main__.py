"""The benchmarks, as ``python -m benchmarks NAME [--quick] [--data DIR]``; ``list`` names them."""

import ast
import hashlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from benchmarks.common import forked

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build" / "quick"
AT_ONCE = 2
LONGEST = 300.0  # seconds of a quick run: one that hangs has failed
FIRST = ("same-bits", "faults", "secure-rounds")  # the longest
COMMON = {"__init__", "__main__", "common", "worker"}
IMPORTED = ["torch._dynamo", "sentence_transformers", "matplotlib.pyplot"]  # by many
EXPERIMENTS = {
    "gfedntm-figure3": ["--model", "lda"],
    "gfedntm-amwmd": ["--network", "prodlda"],
    "flda": [],
    "flda-thresholds": [],
    "fstc": ["--only", "table2"],
}


def benchmarks() -> dict[str, tuple[str, str]]:
    """Return each benchmark's module and the first line of its docstring, by name."""
    by_name = {}
    for path in sorted([*HERE.glob("*.py"), *HERE.glob("attacks/*.py")]):
        tree = ast.parse(path.read_text("utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if "main" in names and path.parent / path.stem not in {HERE / name for name in COMMON}:
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            line = (ast.get_docstring(tree) or "").splitlines()[0]
            by_name[parts[-1].replace("_", "-")] = ".".join(parts), line
    return by_name


def commands() -> dict[str, list[str]]:
    """Return all quick runs by name, the longest first."""
    by_name = {name: ["-m", "benchmarks", name, "--quick"] for name in benchmarks()}
    for name, options in EXPERIMENTS.items():
        out = [] if name == "flda-thresholds" else ["--out", str(BUILD / name)]
        words = ["-m", "experiments", name, *options, *out, "--quick"]
        by_name[f"experiment {name}"] = words
    return dict(sorted(by_name.items(), key=lambda item: item[0] not in FIRST))


def sources() -> str:
    """Return a digest of what quick runs depend on."""
    paths = [
        path
        for folder in ("src", "benchmarks", "experiments", "tests/helpers")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".j2", ".css", ".js", ".toml"}
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def run_all() -> int:
    """Do every quick run that has not gone well with these sources; return how many failed."""
    BUILD.mkdir(parents=True, exist_ok=True)
    done = BUILD / "gone-well.txt"
    state = sources()
    gone_well = done.read_text("utf-8").splitlines() if done.exists() else []
    todo = {n: words for n, words in commands().items() if f"{state} {n}" not in gone_well}
    begun = time.monotonic()

    def run(name: str) -> bool:
        started = time.monotonic()
        log = BUILD / f"{name.replace(' ', '-')}.log"
        log.unlink(missing_ok=True)
        process = forked(ROOT, log, todo[name], IMPORTED)
        process.join(LONGEST)
        if process.exitcode is None:
            process.kill()
        seconds = f"{time.monotonic() - started:6.1f} s  {name}"
        if process.exitcode != 0:
            last = (log.read_text("utf-8").splitlines() or ["nothing printed"])[-1]
            print(f"{seconds} FAILED: {last} ({log.relative_to(ROOT)})", flush=True)
            return False
        print(seconds, flush=True)
        with done.open("a", encoding="utf-8") as file:
            file.write(f"{state} {name}\n")
        return True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = list(pool.map(run, todo)).count(False)
    ran = f"{len(todo) - failed} of {len(todo)} ran"
    print(f"{time.monotonic() - begun:6.1f} s  {ran}; {len(commands()) - len(todo)} had before")
    return failed


def main() -> None:
    by_name = benchmarks()
    (name, *rest) = sys.argv[1:] or ["list"]
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # others, on cores in use, wait for each other
    os.environ["HF_HUB_OFFLINE"] = "1"
    if name in ("list", "-h", "--help"):
        width = max(map(len, by_name))
        print("\n".join(f"{name:{width}}  {line}" for name, (_, line) in by_name.items()))
    elif name == "all" and rest == ["--quick"]:
        sys.exit(run_all() > 0)
    elif name == "all":
        sys.exit("All benchmarks would take days; say: python -m benchmarks all --quick")
    elif name in by_name:
        sys.argv = [f"python -m benchmarks {name}", *rest]
        sys.exit(import_module(by_name[name][0]).main())
    else:
        near = get_close_matches(name, [*by_name, "all", "list"])
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        sys.exit(f"There is no benchmark {name!r}; {meant}python -m benchmarks list names all.")


if __name__ == "__main__":
    main()
