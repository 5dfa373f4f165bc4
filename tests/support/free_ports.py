"""Ports for servers that tests start as processes of their own."""

from __future__ import annotations

import random
import socket

# Below the ports of outgoing connections on Linux: another test would take the port before its server has started.
FIRST, END = 10_000, 32_768


def free_port() -> int:
    """Return a port of loopback that nobody uses."""
    ports = random.SystemRandom()
    while True:
        port = ports.randrange(FIRST, END)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
