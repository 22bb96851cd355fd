"""A million frames and more against who reads them; nothing but a refusal may come of any.

In three parts, of blocks whose number is the seed of all that is drawn in them: frames against the
decoder; messages of the right shape with any values against the nodes of a server, a client and a
peer, in one process; frames against a real port, while an honest study runs beside them to its
total. A finding is an exception that is no refusal, a frame that takes over a second, or memory
that stays. What was played is kept in ``runs/fuzz`` until the sources change; the table is in
``benchmarks/results/fuzz.md``.

    python benchmarks/fuzz.py [--frames 1000000]
"""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.engines.carried import unbundled
from fedtopics.engines.messages import Replicated, read_bytes
from fedtopics.engines.states import read as read_state
from fedtopics.engines.values import loads
from fedtopics.errors import FederationError
from fedtopics.files import RowFile
from fuzz_frames import damaged, grown, said
from fuzz_nodes import Stage, port_of_a_study
from quick import parser_of, results_of

HERE = Path(__file__).resolve().parent
BLOCK = 10_000  # frames
ON_PORT = 500  # frames of a block on a real port
LARGEST = 1 << 24  # bytes of a message, as a study may say
SLOWEST = 1.0  # seconds of a frame
ROOM = 64.0  # megabytes by which a block may raise the peak
PARTS = {
    "decoder": "frames, real ones damaged and drawn ones, against the decoder",
    "node": "messages of the right shape with any values, against a server's, a client's, a peer's",
    "port": "frames against a real port, beside an honest study",
}


@dataclass
class Block:
    """What came of a block's frames."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    findings: list[str] = field(default_factory=list)

    def play(self, what: str, work: Callable[..., str], *given: Any) -> None:
        """Do something with a frame; anything but a refusal is a finding."""
        begun = time.perf_counter()
        try:
            self.outcomes[work(*given)] += 1
        except FederationError:
            self.outcomes["refused"] += 1
        except Exception as error:
            self.findings.append(f"seed {self.seed}, {what}: {error!r}")
        seconds = time.perf_counter() - begun
        if seconds > SLOWEST:
            self.findings.append(f"seed {self.seed}, {what}: {seconds:.1f} s")
        self.slowest = max(self.slowest, seconds)


def decode(raw: bytes) -> str:
    """Read a frame as all readers do that it can come to."""
    message = read_bytes(raw, LARGEST)
    if isinstance(message, Replicated):
        message.read()
    return "read"


def decode_pieces(raw: bytes, kind: int) -> str:
    """Read bytes as what is within frames: a bundle of them, plain data, a state."""
    if kind == 0:
        unbundled(raw, LARGEST)
    else:
        try:
            read_state(loads(raw, LARGEST))
        except ValueError:
            return "no state"
    return "read"


def decoder(block: Block, frames: int) -> None:
    rng = np.random.default_rng(block.seed)
    for place in range(frames):
        raw = grown(rng) if place % 3 == 0 else damaged(rng)
        block.play(f"frame {place}", decode, raw)
        if place % 10 == 0:
            block.play(f"pieces of {place}", decode_pieces, raw, place % 20)


def node(block: Block, frames: int) -> None:
    rng = np.random.default_rng([block.seed, 1])
    stage = Stage()
    for place in range(frames):
        link, message = stage.draw(rng, said(rng))
        what = f"{stage.name} of message {place}, a {message.kind}"
        block.play(what, stage.take, link, message)
        stage.next()


def port(block: Block, frames: int) -> None:
    rng = np.random.default_rng([block.seed, 2])

    def drawn() -> Iterator[list[bytes]]:
        left = frames
        while left > 0:
            number = min(left, int(rng.integers(1, 12)))
            left -= number
            yield [rng.bytes(40) if rng.random() < 0.2 else raw_frame(rng) for _ in range(number)]

    try:
        block.outcomes["connections"] += port_of_a_study(drawn())
    except Exception as error:
        block.findings.append(f"seed {block.seed}, the study beside them: {error!r}")


def raw_frame(rng: np.random.Generator) -> bytes:
    """Return a frame as a stream carries it: without what says its length."""
    return (grown(rng) if rng.random() < 0.3 else damaged(rng))[8:]


PLAYS = {"decoder": decoder, "node": node, "port": port}


def played(part: str, seed: int, frames: int) -> dict[str, Any]:
    """Play a block; return its row."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    block, begun = Block(seed), time.monotonic()
    PLAYS[part](block, frames)
    grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    if grew > ROOM and seed > 0:  # the first one loads what all use
        block.findings.append(f"seed {seed}: {grew:.0f} MB more")
    return {
        "frames": frames, "outcomes": dict(block.outcomes), "slowest": block.slowest,
        "megabytes": grew, "seconds": time.monotonic() - begun, "findings": block.findings[:20],
    }  # fmt: skip


def sources() -> str:
    """Return a digest of what a frame can come to."""
    paths = [*(HERE.parent / "src/fedtopics/engines").rglob("*.py"), *HERE.glob("fuzz*.py")]
    content = b"".join(path.read_bytes() for path in sorted(paths))
    return hashlib.sha256(content).hexdigest()[:16]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="of the decoder")
    given = parser.parse_args()
    total = 2 * BLOCK if given.quick else given.frames
    sizes = {
        "decoder": (total, BLOCK),
        "node": (total // 2, BLOCK),
        "port": (total // 100, ON_PORT),
    }
    folder = results_of("fuzz", given.quick)
    kept = RowFile((folder if given.quick else HERE.parent / "runs" / "fuzz") / "blocks.jsonl")
    lines: list[str] = []
    wrong, version = 0, sources()
    for part, (frames, size) in sizes.items():
        rows: list[dict[str, Any]] = []
        for seed in range(max(1, frames // size)):
            name = {"part": part, "seed": seed, "sources": version}
            found = kept.find(name)
            row = found or kept.keep(name | played(part, seed, min(size, frames)))
            rows.append(row)
            wrong += len(row["findings"])
            for finding in row["findings"]:
                sys.stdout.write(f"{part}: {finding}\n")
        lines.append(line(part, rows))
        sys.stdout.write(lines[-1] + "\n")
        sys.stdout.flush()
    head = (
        "Frames against who reads them, on one machine. All that is drawn in a block follows from "
        "its number, from 0 on, which is its seed. A finding is an exception that is no refusal, "
        f"a frame of over {SLOWEST:g} s, memory that grows by {ROOM:g} MB in a block, or a study "
        f"beside them that does not come to its total. Command: `make fuzz`. Findings: "
        f"{wrong or 'none'}."
    )
    columns = "| what | frames | blocks | read | refused | slowest, ms | most memory, MB | s |"
    table = [head, "", columns, "| --- |" + " ---: |" * 7, *lines]
    (folder / "fuzz.md").write_text("\n".join(table) + "\n", encoding="utf-8")
    sys.exit(bool(wrong))


def line(part: str, rows: list[dict[str, Any]]) -> str:
    """Write a part's row of the table."""
    outcomes: Counter[str] = Counter()
    for row in rows:
        outcomes.update(row["outcomes"])
    refused = outcomes.pop("refused", 0)
    slowest = "" if part == "port" else f"{1000 * max(row['slowest'] for row in rows):.1f}"
    cells = (
        PARTS[part], f"{sum(row['frames'] for row in rows):,}", str(len(rows)),
        "" if part == "port" else f"{outcomes.total():,}", "" if part == "port" else f"{refused:,}",
        slowest, f"{max(row['megabytes'] for row in rows):.0f}",
        f"{sum(row['seconds'] for row in rows):.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
