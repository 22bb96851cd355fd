"""A line with delay between two network namespaces, without the kernel's netem.

Two TUN devices, one in each namespace, and a process that hands each packet over after a while.

    python benchmarks/delay.py SECONDS SERVER_NAMESPACE CLIENT_NAMESPACE   # the relay alone
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from typing import cast

IP = "/usr/sbin/ip"
TUN = "/dev/net/tun"
SET_INTERFACE, LAYER_3_BARE = 0x400454CA, 0x1001
MTU = 9000


class Delay:
    """Two namespaces and the relay between them, in a with statement.

    Parameters
    ----------
    seconds : float
        There and back.

    Attributes
    ----------
    at_server, at_client : list of str
        What begins a command that runs on either side.
    """

    SERVER, CLIENT = "198.51.100.1", "198.51.100.2"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        tag = f"ftd{os.getpid() % 100_000}"
        self._names = (f"{tag}s", f"{tag}c")
        self.at_server, self.at_client = ([IP, "netns", "exec", name] for name in self._names)

    def __enter__(self) -> Delay:
        if os.geteuid() or not os.access(TUN, os.W_OK) or not os.path.exists(IP):  # noqa: PTH110
            raise PermissionError("delay needs root, the command ip and /dev/net/tun")
        for name in self._names:
            subprocess.run([IP, "netns", "add", name], check=True)
            subprocess.run([IP, "-n", name, "link", "set", "lo", "up"], check=True)
        self._relay = subprocess.Popen(
            [sys.executable, __file__, str(self._seconds), *self._names],
            stdout=subprocess.PIPE,
        )
        cast("object", self._relay.stdout.readline() if self._relay.stdout else None)
        return self

    def __exit__(self, *_: object) -> None:
        self._relay.kill()
        self._relay.wait()
        for name in self._names:
            subprocess.run([IP, "netns", "del", name], check=False)


def open_tun(name: str, namespace: str, address: str) -> int:
    """Make a TUN device in a namespace; return its file descriptor."""
    descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, SET_INTERFACE, struct.pack("16sH22x", name.encode(), LAYER_3_BARE))
    subprocess.run([IP, "link", "set", name, "netns", namespace], check=True)
    subprocess.run([IP, "-n", namespace, "addr", "add", f"{address}/24", "dev", name], check=True)
    up = ["mtu", str(MTU), "txqueuelen", "5000", "up"]
    subprocess.run([IP, "-n", namespace, "link", "set", name, *up], check=True)
    return descriptor


def relay(one_way: float, first: int, second: int) -> None:
    """Hand every packet over, in order, once its time has come."""
    other = {first: second, second: first}
    waiting: list[tuple[float, int, int, bytes]] = []
    number = count()
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select(list(other), [], [], pause)
        for descriptor in readable:
            with suppress(BlockingIOError):
                for _ in range(64):
                    packet = os.read(descriptor, MTU + 100)
                    due = time.monotonic() + one_way
                    heapq.heappush(waiting, (due, next(number), other[descriptor], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, descriptor, packet = heapq.heappop(waiting)
            with suppress(OSError):  # a full queue drops, as networks do
                os.write(descriptor, packet)


def main() -> None:
    seconds, server, client = sys.argv[1:]
    first = open_tun("delayed0", server, Delay.SERVER)
    second = open_tun("delayed1", client, Delay.CLIENT)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    relay(float(seconds) / 2, first, second)


if __name__ == "__main__":
    main()
