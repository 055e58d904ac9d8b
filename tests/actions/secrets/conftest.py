"""Stores for the tests of secrets: memory, SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from noonbell.ports import Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from tests.store.postgres_server import PostgresServer


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    made: Any
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "app.db")
    else:
        server = cast("PostgresServer", request.getfixturevalue("postgres"))
        made = PostgresStore(await server.new_ledger(), pool_size=4)
    await made.open()
    yield made
    await made.close()
