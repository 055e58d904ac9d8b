"""Definitions that a store on PostgreSQL keeps for its claims: an edit by any process is seen by the next claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from msgspec.structs import replace

from noonbell.core.presence import Polls
from noonbell.core.records import Edit, StoredSchedule, Turn
from noonbell.core.turns import look
from noonbell.errors import StoreUnavailableError
from noonbell.schedules import changes
from noonbell.store.postgres import PostgresStore
from noonbell.store.postgres.definition_cache import DefinitionCache
from noonbell.testing.storage_cases.base import MINUTE, T0
from tests.patience import patiently
from tests.store.test_postgres import listening
from tests.store.test_postgres_durable import LANE, schedule

DEFINITIONS = "FROM schedule_definitions d WHERE d.sid = ANY"


@pytest.fixture
async def other(dsn: str) -> AsyncIterator[PostgresStore]:
    """A store with connections and a memory of its own, as another process has it."""
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    yield store
    await store.close()


def renamed(stored: StoredSchedule) -> Edit:
    """Rename a schedule, and leave its times alone."""
    edit = changes.Change({}, T0 + MINUTE, {LANE: Polls(T0 + MINUTE)}, "me").reopen(stored)
    return replace(edit, columns=replace(edit.columns, name=f"{stored.columns.name}+"))


async def names(store: PostgresStore, minute: int) -> list[str]:
    """Claim what is due in that minute, and hand it back; return the names that the claim has seen."""
    seen: list[str] = []
    now = T0 + minute * MINUTE

    def take_turn(stored: StoredSchedule) -> Turn:
        seen.append(stored.columns.name)
        return look(stored, now)

    claimed = (await store.claim_by_policy(LANE, "instance", now, 100, take_turn)).claimed
    await store.hand_back(claimed.starts, "instance", now)
    return sorted(seen)


async def test_definitions_are_read_once(other: PostgresStore) -> None:
    await other.create_schedules([schedule("a"), schedule("b")], T0, "me")
    said = listening(other)
    read: list[int] = []
    for minute in (1, 2, 3):
        assert await names(other, minute) == ["a", "b"]
        read.append(sum(DEFINITIONS in sql for sql in said))
        said.clear()
    assert read == [1, 0, 0]


async def test_an_edit_by_another_process_is_seen_by_the_next_claim(store: PostgresStore, other: PostgresStore) -> None:
    await store.create_schedules([schedule("a"), schedule("b")], T0, "me")
    assert await names(store, 1) == ["a", "b"]
    await other.edit_schedules(["b"], renamed)
    assert await names(store, 2) == ["a", "b+"]
    await other.edit_schedules(["a", "b"], renamed)
    assert await names(store, 3) == ["a+", "b++"]
    assert await names(store, 4) == ["a+", "b++"]


async def test_an_edit_that_is_rolled_back_leaves_the_definition_as_it_is(
    store: PostgresStore, other: PostgresStore
) -> None:
    await store.create_schedules([schedule("a"), schedule("b")], T0, "me")
    assert await names(store, 1) == ["a", "b"]

    def failing(stored: StoredSchedule) -> Edit:
        if stored.columns.name == "b":
            raise RuntimeError("the edit ends here")
        return renamed(stored)

    with pytest.raises(RuntimeError, match="ends here"):
        await other.edit_schedules(["a", "b"], failing)
    assert await names(store, 2) == ["a", "b"]
    await other.edit_schedules(["a"], renamed)
    assert await names(store, 3) == ["a+", "b"]


async def test_an_update_by_hand_is_seen_too(dsn: str, store: PostgresStore) -> None:
    await store.create_schedules([schedule("a"), schedule("b")], T0, "me")
    assert await names(store, 1) == ["a", "b"]
    db = await asyncpg.connect(dsn)
    await db.execute("UPDATE schedule_definitions SET name = 'by hand' WHERE schedule_id = 'a'")
    await db.close()
    assert await names(store, 2) == ["b", "by hand"]


async def test_edits_and_claims_at_the_same_time(store: PostgresStore, other: PostgresStore) -> None:
    """Each claim sees the name of the latest edit that was committed before it, for each of them."""
    await store.create_schedules([schedule("a"), schedule("b"), schedule("c")], T0, "me")
    for minute in range(1, 12):
        _, seen = await asyncio.gather(other.edit_schedules(["b"], renamed), names(store, minute))
        assert set(seen) <= {"a", "c", "b" + "+" * (minute - 1), "b" + "+" * minute}
        assert "b" + "+" * minute in await names(store, minute + 1)


async def test_over_a_new_connection_everything_is_read_again(dsn: str) -> None:
    """It may lead to a database that was restored or failed over, whose revisions mean something else."""
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    await store.create_schedules([schedule("a")], T0, "me")
    assert await names(store, 1) == ["a"]
    db = await asyncpg.connect(dsn)
    await db.execute("UPDATE schedule_definitions SET name = 'restored'")
    await db.execute("UPDATE schedule_state SET rev = 1")
    assert await names(store, 2) == ["a"], "the same number, over the same connection"
    await db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND application_name = 'noonbell'"
    )
    await db.close()
    assert await patiently(lambda: names(store, 3), StoreUnavailableError) == ["restored"]
    await store.close()


def test_the_cache_is_bounded_and_begins_again_when_it_is_full_of_others() -> None:
    cache = DefinitionCache(most=3)
    for sid in range(10):
        assert cache.put(sid, 1, (f"row {sid}",)) == (f"row {sid}",)
        assert len(cache) <= 3
    assert cache.get(0, 1) is None
    assert [cache.get(sid, 1) is not None for sid in (6, 7, 8, 9)] == [True, True, True, False]
    assert cache.get(8, 2) is None
    cache.put(8, 2, ("edited",))
    assert (cache.get(8, 1), cache.get(8, 2)) == (None, ("edited",))
