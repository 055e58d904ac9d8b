"""Ports for servers that cannot choose one themselves."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

# Below the range from which a system takes the ports of outgoing connections: a server that is stopped for a while
# finds its port free again.
_PORTS: Final = range(12_000, 32_000)


def free_port() -> int:
    """A port that no process listens at now. Another may take it before the caller does: be ready to ask again."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
