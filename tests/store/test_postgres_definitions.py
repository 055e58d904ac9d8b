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
from noonbell.ports import ScheduleChange
from noonbell.schedules import changes
from noonbell.store.postgres import PostgresStore
from noonbell.testing.storage_cases.base import ME, MINUTE, T0
from tests.store.test_postgres import listening
from tests.store.test_postgres_durable import LANE, schedule

DEFINITIONS = "FROM schedule_definitions d WHERE d.sid = ANY"
REVISIONS = "SELECT array_agg(revision ORDER BY sid) FROM schedule_state"


@pytest.fixture
async def other(dsn: str) -> AsyncIterator[PostgresStore]:
    """A store with connections and a cache of its own, as another process has it."""
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn)
    yield connection
    connection.terminate()


def renamed(stored: StoredSchedule) -> Edit:
    """Rename a schedule, and leave its times alone."""
    edit = changes.EditBuilder({}, T0 + MINUTE, {LANE: Polls(T0 + MINUTE)}, "me").reopen(stored)
    return replace(edit, columns=replace(edit.columns, name=f"{stored.columns.name}+"))


async def names(store: PostgresStore, minute: int) -> list[str]:
    """Claim what is due in that minute, and hand it back; return the names that the claim has seen."""
    seen: list[str] = []
    now = T0 + minute * MINUTE

    def decide(stored: StoredSchedule) -> Turn:
        seen.append(stored.columns.name)
        return look(stored, now)

    claimed = (await store.runs.claim(LANE, ME, now, 100, decide)).claimed
    await store.runs.hand_back(claimed.starts, ME, now)
    return sorted(seen)


async def test_definitions_are_read_once(other: PostgresStore) -> None:
    await other.schedules.apply(ScheduleChange([schedule("a"), schedule("b")], T0, "me"))
    said = listening(other)
    read: list[int] = []
    for minute in (1, 2, 3):
        assert await names(other, minute) == ["a", "b"]
        read.append(sum(DEFINITIONS in sql for sql in said))
        said.clear()
    assert read == [1, 0, 0]


async def test_an_edit_by_another_process_is_seen_by_the_next_claim(store: PostgresStore, other: PostgresStore) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a"), schedule("b")], T0, "me"))
    assert await names(store, 1) == ["a", "b"]
    await other.schedules.apply(ScheduleChange(edited=["b"], edit=renamed))
    assert await names(store, 2) == ["a", "b+"]
    await other.schedules.apply(ScheduleChange(edited=["a", "b"], edit=renamed))
    assert await names(store, 3) == ["a+", "b++"]
    assert await names(store, 4) == ["a+", "b++"]


async def test_an_edit_that_is_rolled_back_leaves_the_definition_as_it_is(
    store: PostgresStore, other: PostgresStore
) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a"), schedule("b")], T0, "me"))
    assert await names(store, 1) == ["a", "b"]

    def failing(stored: StoredSchedule) -> Edit:
        if stored.columns.name == "b":
            raise RuntimeError("the edit ends here")
        return renamed(stored)

    with pytest.raises(RuntimeError, match="ends here"):
        await other.schedules.apply(ScheduleChange(edited=["a", "b"], edit=failing))
    assert await names(store, 2) == ["a", "b"]
    await other.schedules.apply(ScheduleChange(edited=["a"], edit=renamed))
    assert await names(store, 3) == ["a+", "b"]


async def test_an_update_by_hand_is_seen_from_any_search_path(
    dsn: str, store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a"), schedule("b")], T0, "me"))
    assert await names(store, 1) == ["a", "b"]
    await db.execute("UPDATE schedule_definitions SET name = 'by hand' WHERE schedule_id = 'a'")
    assert await names(store, 2) == ["b", "by hand"]
    ledger = await db.fetchval("SELECT current_schema()")
    await db.execute("SET search_path = pg_catalog")
    await db.execute(f"UPDATE {ledger}.schedule_definitions SET name = 'again' WHERE sid = 1")  # noqa: S608 - a schema
    assert await names(store, 3) == ["again", "b"]


async def test_edits_and_claims_at_the_same_time(store: PostgresStore, other: PostgresStore) -> None:
    """Each claim sees the name of the latest edit that was committed before it, for each of them."""
    await store.schedules.apply(ScheduleChange([schedule("a"), schedule("b"), schedule("c")], T0, "me"))
    for minute in range(1, 12):
        _, seen = await asyncio.gather(
            other.schedules.apply(ScheduleChange(edited=["b"], edit=renamed)), names(store, minute)
        )
        assert set(seen) <= {"a", "c", "b" + "+" * (minute - 1), "b" + "+" * minute}
        assert "b" + "+" * minute in await names(store, minute + 1)


async def test_no_two_definitions_have_one_revision(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a"), schedule("b"), schedule("c")], T0, "me"))
    seen: list[int] = list(await db.fetchval(REVISIONS))
    for _ in range(3):
        await store.schedules.apply(ScheduleChange(edited=["a", "b"], edit=renamed))
        a, b, c = await db.fetchval(REVISIONS)
        assert c == seen[2]
        seen += [a, b]
    assert len(set(seen)) == len(seen) == 9


async def test_a_database_that_was_restored_and_edited_since_is_read_again(
    store: PostgresStore, other: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Another history has the same sids and epochs, but no revision that is known from this one."""
    await store.schedules.apply(ScheduleChange([schedule("a")], T0, "me"))
    backup = await db.fetchrow("SELECT epoch, revision FROM schedule_state")
    assert backup is not None
    await store.schedules.apply(ScheduleChange(edited=["a"], edit=renamed))
    assert await names(store, 2) == ["a+"]
    # restored from the backup, and edited otherwise by somebody else
    await db.execute("UPDATE schedule_definitions SET name = 'a'; DELETE FROM epochs WHERE epoch > 1")
    await db.execute("UPDATE schedule_state SET epoch = $1, revision = $2", *backup)
    await other.schedules.apply(
        ScheduleChange(edited=["a"], edit=lambda stored: replace_name(renamed(stored), "of another history"))
    )
    assert await db.fetchval("SELECT epoch FROM schedule_state") == 2, "as it was before"
    assert await names(store, 3) == ["of another history"]


def replace_name(edit: Edit, name: str) -> Edit:
    return replace(edit, columns=replace(edit.columns, name=name))
