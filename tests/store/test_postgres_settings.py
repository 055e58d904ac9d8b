"""Databases as administrators leave them: defaults of transactions, encodings, several schemas on the search_path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from noonbell.core.records import Settlement
from noonbell.errors import StoreError, StoreUnavailableError
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ports import ScheduleChange, ScheduleFilter
from noonbell.store.postgres import PostgresStore
from noonbell.store.postgres.partitions import AHEAD, DAY_US, name_of
from noonbell.testing.storage_cases.base import ME, MINUTE, OWNER, SECOND, T0, claim, declaration, fail, new
from noonbell.testing.storage_cases.engines import LANE, schedule
from tests.patience import until
from tests.store.postgres_server import PostgresServer
from tests.store.test_postgres_rescue import somebody_waits


@asynccontextmanager
async def opened(dsn: str, *, pool_size: int = 1, read_only: bool = False) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(dsn, pool_size=pool_size, read_only=read_only)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


# --- isolation --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["repeatable read", "serializable"])
async def stricter(postgres: PostgresServer, request: pytest.FixtureRequest) -> str:
    """A database whose transactions keep their first snapshot, unless they say otherwise."""
    dsn = await postgres.new_database()
    name = dsn.rpartition("/")[2]
    await postgres.execute("postgres", f"ALTER DATABASE {name} SET default_transaction_isolation = '{request.param}'")
    return dsn


async def test_whoever_waited_for_a_lock_sees_what_was_committed_meanwhile(stricter: str) -> None:
    watching = await asyncpg.connect(stricter)
    async with opened(stricter, pool_size=6) as store:
        await store.schedules.declare(declaration(created=[new("a")]))
        async with store._session.claiming(ME) as db:
            asking = asyncio.create_task(store.runs.live(owner=ME))
            await until(lambda: somebody_waits(watching))
            await db.execute(
                "INSERT INTO runs_live (sid, kind, run_for, fence, owner, state, attempt, epoch, cause) "
                "VALUES (1, 'scheduled', 5, 1, $1, 'running', 1, 1, 'cron')",
                ME,
            )
        assert [live.run_for for live in await asking] == [5], "a claim whose answer was lost"
        batches = [[schedule(f"{part}-{n}") for n in range(3)] for part in range(5)]
        made = await asyncio.gather(*(store.schedules.apply(ScheduleChange(batch, T0, "me")) for batch in batches))
        assert sorted(sid for sids in made for sid in sids) == list(range(2, 17))
    await watching.close()


async def test_looks_and_ends_at_the_same_time_do_not_fail(stricter: str) -> None:
    async with opened(stricter, pool_size=4) as store:
        await store.schedules.declare(declaration(created=[new(f"task {i}") for i in range(40)]))

        async def work(owner: str) -> int:
            ended = 0
            for _ in range(10):
                starts = (await claim(store, T0 + MINUTE, limit=4, owner=owner)).starts
                ends = [Settlement(start, owner, "succeeded", T0 + MINUTE + SECOND) for start in starts]
                assert (await store.runs.settle(ends)).stale == []
                ended += len(ends)
            return ended

        assert sum(await asyncio.gather(*(work(f"instance-{i}") for i in range(4)))) == 40


# --- encodings --------------------------------------------------------------------------------------------------------

EVERY = "naïve 試験 … 🕛"


async def in_encoding(postgres: PostgresServer, encoding: str) -> str:
    name = f"in_{encoding.lower()}"
    await postgres.execute("postgres", f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    return postgres.dsn(name)


async def test_a_database_that_cannot_hold_every_text_is_refused_and_left_alone(postgres: PostgresServer) -> None:
    dsn = await in_encoding(postgres, "LATIN1")
    store = PostgresStore(dsn)
    told = "has the encoding LATIN1, which cannot hold every text; a ledger needs a database with UTF8"
    for use in (store.open, lambda: store.hold(OWNER, "me")):
        with pytest.raises(StoreError, match=told) as caught:
            await use()
        assert not isinstance(caught.value, StoreUnavailableError), "trying again will not help"
    assert await store.tables() == set()


async def test_a_database_without_an_encoding_keeps_every_text(postgres: PostgresServer) -> None:
    async with opened(await in_encoding(postgres, "SQL_ASCII")) as store:
        await store.schedules.declare(declaration(created=[new(EVERY)]))
        (start,) = (await claim(store, T0 + MINUTE)).starts
        await fail(store, start, T0 + MINUTE, None, EVERY)
        assert [attempt.error for attempt in await store.history.attempts(1, T0, T0 + MINUTE)] == [EVERY]
        assert [row["name"] for row in await schedule_rows(store)] == [EVERY]
        await store.schedules.apply(ScheduleChange([schedule(EVERY), schedule("another")], T0, "me"))
        listed = await store.schedules.find(ScheduleFilter(lane=LANE, name_contains="試"), 0, 10)
        assert [found.schedule_id for found in listed] == [EVERY]


# --- schemas ----------------------------------------------------------------------------------------------------------


async def days_of(dsn: str) -> set[str]:
    """The partitions of the ledger that an address leads to."""
    db = await asyncpg.connect(dsn)
    rows = await db.fetch(
        "SELECT c.relname, c.relnamespace::regnamespace::text = current_schema() FROM pg_inherits i "
        "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'runs'::regclass"
    )
    await db.close()
    assert all(row[1] for row in rows), "in its own schema"
    return {row[0] for row in rows}


async def test_ledgers_on_one_search_path_have_days_of_their_own(postgres: PostgresServer) -> None:
    theirs, ours = await postgres.new_ledger(), await postgres.new_ledger()
    both = f"{ours},{theirs.rpartition('=')[2]}"
    first = T0 // DAY_US
    async with opened(theirs) as other, opened(both) as store:
        await other._session.days.prepare(T0)
        await store.schedules.declare(declaration(created=[new("a")]))
        # the first run ends long after its day, for which there is a partition in the other ledger alone
        for now, ended_at in ((T0 + MINUTE, T0 + 5 * DAY_US), (T0 + 5 * DAY_US + MINUTE,) * 2):
            (start,) = (await claim(store, now)).starts
            assert (await store.runs.settle([Settlement(start, ME, "succeeded", ended_at)])).stale == []
        pruned = await store.prune_day(T0 + 5 * DAY_US)
        assert pruned is not None
        assert (pruned.day, pruned.runs) == (T0, 1)
        assert await days_of(both) == {"runs_default", *(name_of(first + 5 + day) for day in range(AHEAD + 1))}
        await store._session.days.prepare(T0)
        assert name_of(first) in await days_of(both)
        assert await days_of(theirs) == {"runs_default", *(name_of(first + day) for day in range(AHEAD + 1))}


async def test_a_ledger_behind_the_first_schema_is_looked_at_and_not_written_to(postgres: PostgresServer) -> None:
    theirs, empty = await postgres.new_ledger(), await postgres.new_schema()
    names = [dsn.rpartition("=")[2] for dsn in (theirs, empty)]
    both = f"{empty},{names[0]}"
    async with opened(theirs) as other:
        await other.schedules.declare(declaration(created=[new("a")]))
    told = f'leads to the ledger in schema "{names[0]}", and "{names[1]}" comes first on it, where tables are made'
    with pytest.raises(StoreError, match=told):
        await PostgresStore(both).open()
    assert await PostgresStore(empty).tables() == set()
    async with opened(both, read_only=True) as reader:
        assert [row["name"] for row in await schedule_rows(reader)] == ["a"]
