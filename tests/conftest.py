"""What all tests share: rewritten asserts in the storage suite, and the server of the tests on PostgreSQL."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

# The suite lives in the package: pytest rewrites its asserts only if it is told to before the import.
pytest.register_assert_rewrite("noonbell.testing.storage_cases")

from tests.store.postgres_server import PostgresServer  # noqa: E402 - see above

_servers: list[PostgresServer] = []


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of this process, each in a database or schema of its own."""
    server = PostgresServer()
    _servers.append(server)
    yield server
    _servers.remove(server)
    server.stop()


@pytest.fixture(autouse=True)
def _ledgers_are_taken_back() -> Iterator[None]:
    """Set up before every other fixture of a test, and so torn down after it: nobody uses them any more."""
    yield
    for server in _servers:
        server.take_back()


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end: the collector need not visit them over and over."""
    gc.collect()
    gc.freeze()
