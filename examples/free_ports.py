"""Print ports of this machine that are free now: python free_ports.py NUMBER."""

from __future__ import annotations

import socket
import sys

listening = [socket.create_server(("localhost", 0)) for _ in range(int(sys.argv[1]))]
print(*(server.getsockname()[1] for server in listening))
