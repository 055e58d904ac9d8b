"""The server that the tests of PostgreSQL share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of this process, each in a database or schema of its own."""
    server = PostgresServer()
    yield server
    server.stop()
