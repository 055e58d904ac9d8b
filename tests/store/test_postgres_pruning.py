"""Days that go from PostgreSQL, step by step: large ones, torn histories, and what comes between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from noonbell.core.records import (
    AuditEvent,
    Delivery,
    DurableSchedule,
    Run,
    ScheduleColumns,
    Settlement,
    Start,
)
from noonbell.core.run_chain import RunKey
from noonbell.errors import StoreUnavailableError
from noonbell.ledger import verify_store
from noonbell.ports import Pruned, ScheduleChange
from noonbell.schedules import changes
from noonbell.store.postgres import PostgresStore, connection, history, pruning
from noonbell.store.postgres.connection import Connection
from noonbell.testing.storage_cases.base import HOUR, ME, MINUTE, SECOND, T0, ledger
from tests.patience import PATIENCE_SECONDS, patiently
from tests.store.test_postgres_durable import DAY, LANE, claim, message, partitions, schedule, two_days

MIDNIGHT = T0 + DAY
BEFORE_MIDNIGHT = MIDNIGHT - MINUTE


async def is_whole(store: PostgresStore) -> None:
    assert (await verify_store(store)).problems == []


async def end(store: PostgresStore, start: Start, at: int) -> None:
    assert (await store.runs.settle([Settlement(start, ME, "succeeded", at)])).stale == []


async def past(store: PostgresStore, sid: int = 1) -> list[int]:
    """What the runs in the history of a schedule are for, in minutes from midnight, newest first."""
    return [(run.run_for - MIDNIGHT) // MINUTE for run in await store.history.past_runs([sid], None, 100)]


# --- large days -------------------------------------------------------------------------------------------------------


async def test_a_day_may_take_longer_than_any_statement_of_another_verb(
    dsn: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_days(store)
    db = await asyncpg.connect(dsn)
    await db.execute(
        "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(2.5); RETURN NULL; END $$; "
        "CREATE TRIGGER dawdle AFTER INSERT ON pruned_days FOR EACH STATEMENT EXECUTE FUNCTION dawdle()"
    )
    await db.close()
    monkeypatch.setattr(connection, "_PATIENCE_SECONDS", 1.0)
    hasty = PostgresStore(dsn, statement_timeout=1.0)
    await patiently(hasty.open, StoreUnavailableError)
    assert await patiently(lambda: hasty.prune_day(MIDNIGHT), StoreUnavailableError) is not None
    await hasty.close()
    await is_whole(store)


async def beside_the_runs(store: PostgresStore) -> None:
    """Two days of runs, of which the first has attempts, audit events and a dead letter.

    One attempt is of a run that waits, and one of a schedule that has not fired since.
    """
    rare = schedule("rare", spec="0 1 1 1 *")
    await store.schedules.apply(ScheduleChange([*(schedule(name) for name in ("a", "b", "c")), rare], T0, "me"))
    for hour in (1, 9, 17):
        at = T0 + hour * HOUR
        starts = (await claim(store, at)).claimed.starts
        await store.runs.settle([Settlement(start, ME, "failed", at + SECOND, None, "no", b"J{}") for start in starts])
    (*others, last) = (await claim(store, T0 + 20 * HOUR)).claimed.starts
    at = T0 + 20 * HOUR + SECOND
    await store.runs.settle([Settlement(start, ME, "succeeded", at) for start in others])
    await store.runs.settle([Settlement(last, ME, "failed", at, MIDNIGHT + HOUR, "no")])
    await store.documents.write(
        audits=[AuditEvent(T0 + hour * HOUR, "schedule.skipped", "x", "engine", "{}") for hour in range(24)]
    )
    await store.outbox.post([message(others[0].sid)], at)
    (stream,) = (await store.outbox.claim(LANE, ME, at, 10)).streams
    await store.outbox.settle([Delivery(stream.sid, ME, at, None, stream.messages[0][0], None, "no")])
    starts = (await claim(store, MIDNIGHT + MINUTE)).claimed.starts
    await store.runs.settle([Settlement(start, ME, "succeeded", MIDNIGHT + MINUTE) for start in starts])


@pytest.mark.parametrize("portion", [1, 10, 10_000])
async def test_portions_take_what_one_transaction_takes(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr(pruning, "PORTION", portion)
    await beside_the_runs(store)
    assert await store.prune_day(MIDNIGHT) == Pruned(T0, runs=11, spans=12, attempts=9, audits=40, dead_letters=1)
    left = [
        (sid, attempt.run_for - T0) for sid in range(5) for attempt in await store.history.attempts(sid, T0, MIDNIGHT)
    ]
    assert left == [(3, 20 * HOUR), (4, HOUR)], "those of runs that stay"
    await is_whole(store)


async def test_what_went_in_portions_stays_gone_where_the_day_is_given_up(
    dsn: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PORTION", 10, raising=False)
    await beside_the_runs(store)
    before = await ledger(store)
    reader = await asyncpg.connect(dsn)
    async with reader.transaction():
        await reader.fetch("SELECT count(*) FROM runs")
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            await store.prune_day(MIDNIGHT)
    await reader.close()
    after = await ledger(store)
    assert len(after["attempts"]) == 2
    assert after["runs"] == before["runs"]
    await is_whole(store)
    assert await store.prune_day(MIDNIGHT) == Pruned(T0, runs=11, spans=12, attempts=0, audits=0, dead_letters=0)
    await is_whole(store)


async def test_a_statement_does_not_outlive_who_gave_it_up(dsn: str, store: PostgresStore) -> None:
    await two_days(store)
    db = await asyncpg.connect(dsn)
    await db.execute(
        "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$; "
        "CREATE TRIGGER hang AFTER INSERT ON pruned_days FOR EACH STATEMENT EXECUTE FUNCTION hang()"
    )
    hanging = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    task = asyncio.create_task(store.prune_day(MIDNIGHT))
    await until(lambda: db.fetchval(hanging), 1)
    task.cancel()
    await asyncio.wait([task])
    await until(lambda: db.fetchval(hanging), 0)
    await db.execute("DROP TRIGGER hang ON pruned_days")
    await db.close()
    assert await store.prune_day(MIDNIGHT) is not None


async def until(ask: Callable[[], Awaitable[Any]], answer: object) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await ask() != answer:  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0.01)


# --- torn histories ---------------------------------------------------------------------------------------------------


def overlapping(name: str) -> DurableSchedule:
    """A schedule of every minute, created just before midnight, whose runs may overlap."""
    definition = '{"action":{"kind":"callback","name":"work"},"overlap":"allow"}'
    columns = ScheduleColumns(name, "cron", "* * * * *", "UTC", None, "run_once", None, definition)
    return changes.created(name, columns, BEFORE_MIDNIGHT - 5 * MINUTE, enabled=True, managed_by="api", lane=LANE)


async def across_midnight(store: PostgresStore, count: int = 1, *, late: int = 1) -> list[Start]:
    """Schedules with a span and runs before midnight; of the last `late` runs of the day nothing is heard yet.

    Those after midnight have ended. Returns what runs on, by schedule.
    """
    await store.schedules.apply(
        ScheduleChange([overlapping(f"o{i}") for i in range(count)], BEFORE_MIDNIGHT - 5 * MINUTE, "me")
    )
    running: list[Start] = []
    for minute in (-2, -1, 0, 1):
        now = MIDNIGHT + minute * MINUTE
        for start in (await claim(store, now)).claimed.starts:
            if minute < 0 and start.run_for >= MIDNIGHT - late * MINUTE:
                running.append(start)
            else:
                await end(store, start, now + SECOND)
    return sorted(running, key=lambda start: (start.sid, start.run_for))


async def torn(store: PostgresStore, count: int = 1) -> None:
    """Schedules whose last run before midnight ended after the first ones of the next day, and before another."""
    for start in await across_midnight(store, count):
        await end(store, start, MIDNIGHT + MINUTE + 2 * SECOND)
    for start in (await claim(store, MIDNIGHT + 2 * MINUTE)).claimed.starts:
        await end(store, start, MIDNIGHT + 2 * MINUTE + SECOND)


async def test_no_schedule_is_locked_while_the_day_goes(
    dsn: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "A_DAY", pruning.A_DAY.replace("lock_timeout = 2000", "lock_timeout = 0"))
    await torn(store)
    assert await past(store) == [2, -1, 1, 0, -2]
    reader, other = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'runs'::regclass"
    async with reader.transaction():
        await reader.fetch("SELECT count(*) FROM runs")
        task = asyncio.create_task(store.prune_day(MIDNIGHT))
        await until(lambda: other.fetchval(waiting), 1)
        await other.execute("SELECT 1 FROM schedule_state FOR UPDATE NOWAIT")
    pruned = await task
    await reader.close()
    await other.close()
    assert pruned is not None
    assert pruned.runs == 2
    assert await past(store) == [2, 1, 0]
    assert "runs_20240101" not in await partitions(dsn)
    await is_whole(store)


async def test_runs_end_while_a_history_is_read(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the day that goes, and then one that names it."""
    (early, last) = await across_midnight(store, late=2)
    await end(store, early, MIDNIGHT + MINUTE + 2 * SECOND)
    read = history.around

    async def around(db: Connection, sid: int, *more: Any) -> list[list[Run]]:
        parts = await read(db, sid, *more)
        await end(store, last, MIDNIGHT + MINUTE + 3 * SECOND)
        for start in (await claim(store, MIDNIGHT + 2 * MINUTE)).claimed.starts:
            await end(store, start, MIDNIGHT + 2 * MINUTE + SECOND)
        return parts

    monkeypatch.setattr(history, "around", around)
    pruned = await store.prune_day(MIDNIGHT)
    assert pruned is not None
    assert pruned.runs == 2
    assert await past(store) == [2, 1, 0]
    await is_whole(store)


async def test_the_last_run_that_ended_may_be_one_that_goes(store: PostgresStore) -> None:
    (start,) = await across_midnight(store)
    await end(store, start, MIDNIGHT + MINUTE + 2 * SECOND)
    assert await past(store) == [-1, 1, 0, -2]
    assert await store.prune_day(MIDNIGHT) is not None
    assert await past(store) == [1, 0]
    await is_whole(store)


async def test_the_run_before_may_have_stayed_of_an_earlier_day(store: PostgresStore) -> None:
    await store.schedules.apply(ScheduleChange([schedule("rare", spec="1 0 1 1 *")], T0, "me"))
    for at in (T0 + MINUTE, MIDNIGHT + HOUR, MIDNIGHT + DAY + HOUR):
        if at > MIDNIGHT:
            assert await store.runs.ask("rare", at, "me") is not None
        for start in (await claim(store, at)).claimed.starts:
            await end(store, start, at + SECOND)
    assert [run.kind for run in await store.history.past_runs([1], None, 9)] == ["manual", "manual", "scheduled"]
    while await store.prune_day(MIDNIGHT + DAY) is not None:
        await is_whole(store)
    assert [run.kind for run in await store.history.past_runs([1], None, 9)] == ["manual", "scheduled"]


async def test_a_run_that_ends_before_the_last_step_leads_back_to_the_one_before(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await across_midnight(store, 2)
    await end(store, first, MIDNIGHT + MINUTE + 2 * SECOND)
    steps: list[Any] = []
    last_step = pruning.prune_day

    async def prune_day(db: Connection, before: int) -> Any:
        if not steps:
            await end(store, second, MIDNIGHT + MINUTE + 3 * SECOND)
        steps.append(await last_step(db, before))
        return steps[-1]

    monkeypatch.setattr(pruning, "prune_day", prune_day)
    pruned = await store.prune_day(MIDNIGHT)
    assert steps[0] == {2: [RunKey(BEFORE_MIDNIGHT, "scheduled")]}
    assert len(steps) == 2
    assert pruned is not None
    assert (pruned.day, pruned.runs) == (T0, 4)
    assert [await past(store, sid) for sid in (1, 2)] == [[1, 0], [1, 0]]
    await is_whole(store)


async def test_runs_that_keep_ending_put_it_off(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await torn(store)

    async def prune_day(db: Connection, before: int) -> pruning.Torn:
        return {1: []}

    monkeypatch.setattr(pruning, "prune_day", prune_day)
    with pytest.raises(StoreUnavailableError, match="keep ending"):
        await store.prune_day(MIDNIGHT)
    await is_whole(store)


async def test_after_each_step_the_ledger_is_whole(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await torn(store, 3)
    looked: list[list[tuple[list[int], int]]] = []
    last_step = pruning._prune_one

    async def prune_one(*given: Any) -> Pruned:
        if len(looked) == 2:
            raise StoreUnavailableError("gone")
        looked.append(
            [(await past(store, sid), len(await store.history.spans(sid, T0, MIDNIGHT))) for sid in (1, 2, 3)]
        )
        await is_whole(store)
        return await last_step(*given)

    whole, closed = ([2, -1, 1, 0, -2], 1), ([2, 1, 0], 0)
    monkeypatch.setattr(pruning, "_prune_one", prune_one)
    with pytest.raises(StoreUnavailableError, match="gone"):
        await store.prune_day(MIDNIGHT)
    assert looked == [[whole, whole, whole], [closed, whole, whole]]
    await is_whole(store)
    monkeypatch.undo()
    pruned = await store.prune_day(MIDNIGHT)
    assert pruned is not None
    assert pruned.runs == 2, "what the first one has left"
    assert [await past(store, sid) for sid in (1, 2, 3)] == [[2, 1, 0]] * 3
    await is_whole(store)


@pytest.mark.parametrize(
    "damage", ["UPDATE runs SET prev_for = run_for WHERE run_for = $1", "DELETE FROM runs WHERE run_for = $1"]
)
async def test_a_damaged_history_does_not_hold_up_the_day(dsn: str, store: PostgresStore, damage: str) -> None:
    """It leads in a circle, or ends before it comes to the run that goes."""
    await torn(store)
    db = await asyncpg.connect(dsn)
    await db.execute(damage, MIDNIGHT + 2 * MINUTE)
    await db.close()
    pruned = await store.prune_day(MIDNIGHT)
    assert pruned is not None
    assert pruned.runs == 2
    assert await store.prune_day(MIDNIGHT) is None
