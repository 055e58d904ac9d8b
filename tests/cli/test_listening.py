"""The socket on which `serve` listens."""

from __future__ import annotations

import socket
from pathlib import Path

from noonbell.server.serving import _bound
from tests.api.conftest import settings_for


def test_no_answer_is_held_back_until_its_first_part_is_acknowledged(tmp_path: Path) -> None:
    with _bound(settings_for(tmp_path)) as sock:
        sock.listen()
        with socket.create_connection(sock.getsockname()):
            connection, _ = sock.accept()
            with connection:
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
