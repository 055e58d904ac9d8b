"""A store on PostgreSQL with tables of its own, for one test; files that need another kind have theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noonbell.store.postgres import PostgresStore
from tests.store.postgres_server import PostgresServer


@pytest.fixture
async def dsn(postgres: PostgresServer) -> str:
    return await postgres.new_ledger()


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(dsn, pool_size=4)
    await made.open()
    yield made
    await made.close()
