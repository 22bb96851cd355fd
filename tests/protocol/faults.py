"""Faults of a simulated world: of members, their disks, the relay and the network."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING

from tests.protocol.disks import Disk
from tests.protocol.host import RELAY

if TYPE_CHECKING:
    from tests.protocol.world import World


def happen(world: World, kind: str, name: str) -> None:
    if kind in ("kill", "power", "late", "powers"):
        _crashes(world, kind, name)
    elif kind in ("older", "wipe"):
        _another_disk(world, kind, name)
    elif kind in ("clone", "clone rng"):
        _clone(world, kind, name)
    elif kind == "relay disk":
        world.touched.add(RELAY)
        world.host.stop()
        world.host.file = world.host.before = b""
    elif kind in ("relay", "relay power"):
        world.host.stop(kind == "relay power")
    else:
        _network(world, kind, name)


def _crashes(world: World, kind: str, name: str) -> None:
    r = world.r
    if kind == "late":
        world.crash(name, r.random() < 0.5, down=8.0)
        world.quiet = max(world.quiet, world.now + 8.0)
    elif kind == "powers":
        for member_name in r.sample(world.names, r.randint(2, len(world.names))):
            world.crash(member_name, power=True)
        if r.random() < 0.3:
            world.host.stop(power=True)
    else:
        world.crash(name, power=kind == "power")


def _another_disk(world: World, kind: str, name: str) -> None:
    """Give a member a copy of its disk from before, with or without newer documents."""
    world.touched.add(name)
    world.crash(name, power=False)
    if kind == "wipe":
        world.disks[name] = Disk(world.point)
        return
    world.documents[name] += world.r.randint(0, 1)
    world.disks[name] = copy.copy(world.r.choice(world.snapshots[name][-6:]))


def _clone(world: World, kind: str, name: str) -> None:
    """Let two processes of a member run, and end one of them later."""
    r = world.r
    if not world.running(name):
        return
    world.touched.add(name)
    world.clone(world.running(name)[0])
    if kind == "clone rng":
        seed = r.randrange(2**32)
        for p in world.running(name):
            p.member._random = random.Random(seed).randbytes  # noqa: S311

    def end() -> None:
        running = world.running(name)
        if len(running) < 2:
            return
        said = [p for p in running if p.has_said_stop]  # an operator removes it
        world.processes.remove((said or running)[0] if world.operator else r.choice(running))
        rest = world.running(name)[0]
        world.disks[name] = rest.disk
        world.documents[name] = rest.documents

    world.after(8.0 if world.operator else r.uniform(0.2, 8), end)
    world.quiet = max(world.quiet, world.now + 8.1)


def _network(world: World, kind: str, name: str) -> None:
    if kind == "loss":
        world.loss = 0.3
        world.copies = 0.3
        world.delay = 0.5
        down = 6.0
    else:
        down = world.r.uniform(1, 8)
        pair = {(RELAY, name), (name, RELAY)}
        if kind == "half":
            pair = {world.r.choice(sorted(pair))}
        world.cut |= pair

    def end() -> None:
        if kind == "loss":
            world.loss = 0.0
            world.copies = 0.0
            world.delay = 0.05
        else:
            world.cut -= pair

    world.after(down, end)
    world.quiet = max(world.quiet, world.now + down)
