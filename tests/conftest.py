"""What all tests share: rewritten asserts in the storage suite, the server of the tests on PostgreSQL, each store."""

from __future__ import annotations

import gc
import signal
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The suite lives in the package: pytest rewrites its asserts only if it is told to before the import.
pytest.register_assert_rewrite("noonbell.testing.storage_cases")

from noonbell.ports import Ledger  # noqa: E402 - see above
from noonbell.store.memory import MemoryStore  # noqa: E402 - see above
from noonbell.store.postgres import PostgresStore  # noqa: E402 - see above
from noonbell.store.sqlite import SqliteStore  # noqa: E402 - see above
from tests.effort import PROFILE  # noqa: E402 - see above
from tests.store.postgres_server import PostgresServer, keep_types  # noqa: E402 - see above

# Property tests have the same result on every run and machine: no random seed, no examples kept from an earlier
# run, and no limit on the time of an example. `HYPOTHESIS_PROFILE=thorough` tries all examples (tests/effort.py),
# `HYPOTHESIS_PROFILE=explore` looks for new cases instead.
_ANY_SPEED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
for _name in ("deterministic", "thorough"):
    settings.register_profile(_name, derandomize=True, database=None, **_ANY_SPEED)
settings.register_profile("explore", **_ANY_SPEED)
settings.load_profile(PROFILE)

# A shell starts a background job with SIGINT ignored. Its processes inherit that, and tests that interrupt them hang.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_servers: list[PostgresServer] = []


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of this process, each in a database or schema of its own."""
    server = PostgresServer()
    _servers.append(server)
    ask_for_types = keep_types([server.port])
    yield server
    ask_for_types()
    _servers.remove(server)
    server.stop()


@pytest.fixture(autouse=True)
def _ledgers_are_taken_back() -> Iterator[None]:
    """Set up before every other fixture of a test, and so torn down after it: nobody uses them any more."""
    yield
    for server in _servers:
        server.take_back()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    """An empty store of each kind, one after the other; open, and closed after the test."""
    made: MemoryStore | SqliteStore | PostgresStore = MemoryStore()
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "x.db")
    elif request.param == "postgres":
        made = PostgresStore(await request.getfixturevalue("postgres").new_ledger())
    await made.open()
    yield made
    await made.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of collected tests stay to the end: the collector need not visit them over and over."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
