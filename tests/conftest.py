"""What all tests share: rewritten asserts in the storage suite, and the server of the tests on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

# The suite lives in the package: pytest rewrites its asserts only if it is told to before the import.
pytest.register_assert_rewrite("noonbell.testing.storage_cases")

from tests.store.postgres_server import PostgresServer  # noqa: E402 - see above


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of this process, each in a database or schema of its own."""
    server = PostgresServer()
    yield server
    server.stop()
