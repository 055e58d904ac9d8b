"""Stores of both kinds to build ledgers on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noonbell.ports import Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from tests.ledger.history import eventful


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    made: Ledger = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "ledger.db", threaded=False)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def file_store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "ledger.db", threaded=False)
    await made.open()
    yield made
    await made.close()


@pytest.fixture(scope="session")
def night_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an eventful night, made once."""
    path = tmp_path_factory.mktemp("night") / "ledger.db"

    async def build() -> None:
        store = SqliteStore(path, threaded=False)
        await store.open()
        await eventful(store)
        await store.close()

    asyncio.run(build())
    return path


@pytest.fixture
async def night(night_file: Path, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A copy of that night, to be tampered with."""
    made = SqliteStore(shutil.copy(night_file, tmp_path / "night.db"), threaded=False)
    await made.open()
    yield made
    await made.close()
