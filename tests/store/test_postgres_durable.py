"""Durable schedules on PostgreSQL: many at once, what statements cost, days that go, and a pooler between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from noonbell.core.presence import EngineRecord, EngineSign, Polls, engine_name
from noonbell.core.records import (
    AuditEvent,
    Delivery,
    Document,
    DurableSchedule,
    LifecycleEvent,
    OutboxMessage,
    ScheduleColumns,
    Settlement,
    Start,
    StoredSchedule,
    Turn,
)
from noonbell.core.turns import finish, look
from noonbell.errors import ScheduleExistsError, StoreUnavailableError
from noonbell.ledger import verify_store
from noonbell.ports import AuditFilter, LaneClaim, ScheduleChange, ScheduleFilter
from noonbell.schedules import changes
from noonbell.store.postgres import PostgresStore, auditing, outbox, pruning
from noonbell.testing.storage_cases.base import HOUR, ME, MINUTE, SECOND, T0, ledger
from tests.store.postgres_server import PostgresServer
from tests.store.test_postgres import listening
from tests.store.test_postgres_leases import somebody_waits
from tests.store.transaction_pooler import TransactionPooler

LANE = "default"
DAY = 24 * HOUR
CONTRADICTION = """
    INSERT INTO runs (run_for, sid, kind, outcome, delay_us, duration_us, owner, epoch)
    VALUES ($1, 2, 1, '0', 0, 0, 0, 1)
"""


def schedule(name: str, *, kind: str = "callback", lane: str = LANE, spec: str = "* * * * *") -> DurableSchedule:
    definition = f'{{"action":{{"kind":"{kind}","name":"work"}}}}'
    columns = ScheduleColumns(name, "cron", spec, "UTC", None, "run_once", None, definition)
    return changes.created(name, columns, T0, enabled=True, managed_by="api", lane=lane)


def message(sid: int, text: str = "{}") -> OutboxMessage:
    return OutboxMessage(sid, LANE, text, "inbox", text, T0)


async def claim(store: PostgresStore, now: int, *, limit: int = 1000, owner: str = ME) -> LaneClaim:
    def take_turn(stored: StoredSchedule) -> Turn:
        turn = look(stored, now)
        finish(turn, stored, now, owner, lambda stored, start: message(stored.sid, str(start.run_for)))
        return turn

    return await store.runs.claim(LANE, owner, now, limit, take_turn)


# --- many at once -----------------------------------------------------------------------------------------------------


async def test_two_claimers_on_one_lane_never_both_start_a_run(dsn: str) -> None:
    stores = [PostgresStore(dsn, pool_size=2) for _ in range(2)]
    for store in stores:
        await store.open()
    await stores[0].schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(60)], T0, "me"))
    started: list[list[Start]] = [[], []]

    async def work(number: int) -> None:
        for minute in range(1, 6):
            now = T0 + minute * MINUTE
            for _ in range(12):
                got = (await claim(stores[number], now, limit=7, owner=f"i{number}")).claimed.starts
                started[number] += got
                retried = [start for start in got if start.sid % 5 == 0 and start.attempt == 1]
                ends = [
                    Settlement(start, f"i{number}", "failed", now, now, "no")
                    if start in retried
                    else Settlement(start, f"i{number}", "succeeded", now)
                    for start in got
                ]
                assert (await stores[number].runs.settle(ends)).stale == []

    await asyncio.gather(work(0), work(1))
    everything = [(start.sid, start.run_for, start.fence) for part in started for start in part]
    assert len(everything) == len(set(everything))
    assert all(started), "both took part"
    assert {sid for sid, _, _ in everything} == set(range(1, 61))
    assert (await verify_store(stores[0])).problems == []
    for store in stores:
        await store.close()


async def test_creations_at_the_same_time_get_their_own_numbers_and_names(store: PostgresStore) -> None:
    batches = [[schedule(f"{part}-{n}") for n in range(20)] for part in range(4)]
    made = await asyncio.gather(*(store.schedules.apply(ScheduleChange(batch, T0, "me")) for batch in batches))
    assert sorted(sid for sids in made for sid in sids) == list(range(1, 81))
    twins = [schedule("a"), schedule("b")]
    twins[1].columns.name = "a"
    outcomes = await asyncio.gather(
        *(store.schedules.apply(ScheduleChange([twin], T0, "me")) for twin in twins), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)] == [ScheduleExistsError]


async def test_an_edit_waits_for_a_claim_and_sees_what_it_did(store: PostgresStore) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a")], T0, "me"))
    looking, go_on = asyncio.Event(), asyncio.Event()
    seen: list[StoredSchedule] = []

    async def slow_claim() -> None:
        async with store._connections.writing() as db:
            await db.execute("UPDATE schedule_state SET last_run_for = 7 WHERE sid = 1")
            looking.set()
            await go_on.wait()

    def edit(stored: StoredSchedule) -> None:
        seen.append(stored)

    claiming = asyncio.create_task(slow_claim())
    await looking.wait()
    editing = asyncio.create_task(store.schedules.apply(ScheduleChange(edited=["a"], edit=edit)))
    assert (await claim(store, T0 + MINUTE)).claimed.looked == 0, "a claim passes over what is locked"
    assert not editing.done()
    go_on.set()
    await asyncio.gather(claiming, editing)
    assert [stored.last_run_for for stored in seen] == [7]


async def test_a_message_that_comes_while_the_last_one_is_settled_keeps_its_stream(
    dsn: str, store: PostgresStore
) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a")], T0, "me"))
    async with store._connections.writing() as db:
        await outbox.append(db, [message(1, "first")], [T0])
    (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
    ((number, _),) = stream.messages
    async with store._connections.writing() as db:
        await outbox.append(db, [message(1, "second")], [T0])
        settling = asyncio.create_task(store.outbox.settle([Delivery(1, ME, T0, number)]))
        await somebody_waits(dsn)
        assert not settling.done()
    await settling
    (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
    assert [body.message_id for _, body in stream.messages] == ["second"]


async def test_a_message_that_comes_after_the_stream_went_begins_a_new_one(dsn: str, store: PostgresStore) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a")], T0, "me"))
    async with store._connections.writing() as db:
        await outbox.append(db, [message(1, "first")], [T0])
    (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
    appending: asyncio.Task[None]
    async with store._connections.writing() as db:
        await outbox.settle(db, [Delivery(1, ME, T0, stream.messages[0][0])])
        appending = asyncio.create_task(append(store, message(1, "second")))
        await somebody_waits(dsn)
        assert not appending.done()
    await appending
    (stream,) = (await store.outbox.claim(LANE, ME, T0, 10)).streams
    assert [body.message_id for _, body in stream.messages] == ["second"]


async def append(store: PostgresStore, one: OutboxMessage) -> None:
    async with store._connections.writing() as db:
        await outbox.append(db, [one], [T0])


async def test_audit_events_are_numbered_in_the_order_of_their_commits(dsn: str, store: PostgresStore) -> None:
    first = AuditEvent(T0, "first", "x", "me", "{}")
    telling: asyncio.Task[list[Document]]
    async with store._connections.writing() as db:
        await auditing.append(db, [first])
        telling = asyncio.create_task(store.documents.write(audits=[AuditEvent(T0, "second", "x", "me", "{}")]))
        await somebody_waits(dsn)
        assert await store.audit.page(AuditFilter(), 0, 10) == [], "a reader sees none before the one that comes first"
    await telling
    assert [event.event for _, event in await store.audit.page(AuditFilter(), 0, 10)] == ["first", "second"]


async def test_an_engine_whose_lease_was_lost_writes_nothing(dsn: str, store: PostgresStore) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a"), schedule("b")], T0, "me"))
    hold = await store.hold(engine_name(ME), "process 7")
    engine = EngineRecord(ME, LANE, "h", 7, "1", "-", T0, T0)
    await store.engines.join(engine)
    (start,) = (await claim(store, T0 + MINUTE, limit=1)).claimed.starts
    db = await asyncpg.connect(dsn)
    await db.execute("UPDATE instances SET token = 'of another'")
    before = await ledger(store)
    verbs: list[Callable[[], Any]] = [
        lambda: claim(store, T0 + MINUTE),
        lambda: store.runs.settle([Settlement(start, ME, "succeeded", T0 + MINUTE)]),
        lambda: store.runs.hand_back([start], ME, T0 + MINUTE),
        lambda: store.runs.trigger(2, ME, T0 + MINUTE),
        lambda: store.engines.rescue(LANE, ME, T0 + MINUTE),
        lambda: store.engines.rescue(LANE, ME, T0 + MINUTE, stopped=True),
        lambda: store.outbox.claim(LANE, ME, T0 + MINUTE, 10),
        lambda: store.outbox.settle([Delivery(1, ME, T0 + MINUTE, 1)]),
        lambda: store.engines.join(engine),
        lambda: store.engines.beat(EngineSign(ME, T0 + MINUTE, T0, "up"), lambda: T0 + MINUTE),
        lambda: store.engines.leave(ME, LifecycleEvent("lane:default", T0 + MINUTE, ME, "stop-end")),
    ]
    for verb in verbs:
        with pytest.raises(StoreUnavailableError, match=f'the lease was lost on "engine:{ME}"; nothing was written'):
            await verb()
    assert await ledger(store) == before
    await store.schedules.apply(
        ScheduleChange(edited=["a"], edit=lambda stored: changes.deleted(stored, T0 + MINUTE, "me"))
    )
    assert len(await store.schedules.find(ScheduleFilter(), 0, 10)) == 1, "who edits needs no engine"
    await db.close()
    hold.release()


# --- rows that contradict the ledger ----------------------------------------------------------------------------------


async def test_a_turn_that_the_ledger_contradicts_is_put_off_alone(dsn: str, store: PostgresStore) -> None:
    await store.schedules.apply(ScheduleChange([schedule(name, kind="message") for name in ("a", "b", "c")], T0, "me"))
    db = await asyncpg.connect(dsn)
    await db.execute(CONTRADICTION, T0 + MINUTE)
    await db.close()
    claimed = (await claim(store, T0 + MINUTE)).claimed
    assert [sid for sid, _ in claimed.quarantined] == [2]
    assert [row[0] for row in await store.read("runs", None, 10)] == [1, 2, 3]
    assert (await claim(store, T0 + MINUTE)).claimed.looked == 0
    streams = (await store.outbox.claim(LANE, ME, T0 + MINUTE, 10)).streams
    assert [stream.sid for stream in streams] == [1, 3]


async def test_an_end_that_the_ledger_contradicts_is_given_up_alone(dsn: str, store: PostgresStore) -> None:
    await store.schedules.apply(ScheduleChange([schedule(name) for name in ("a", "b", "c")], T0, "me"))
    starts = (await claim(store, T0 + MINUTE)).claimed.starts
    db = await asyncpg.connect(dsn)
    await db.execute(CONTRADICTION, T0 + MINUTE)
    await db.close()
    ends = [Settlement(start, ME, "succeeded", T0 + MINUTE + SECOND) for start in starts]
    assert (await store.runs.settle(ends)).stale == [ends[1]]
    assert await store.runs.live(owner=ME) == []
    stored = await store.schedules.find(ScheduleFilter(schedule_ids=["a", "b", "c"]))
    assert [one.next_run_at for one in stored] == [T0 + 2 * MINUTE, T0 + MINUTE, T0 + 2 * MINUTE]


# --- statements -------------------------------------------------------------------------------------------------------


async def test_the_number_of_statements_hardly_depends_on_the_batch(postgres: PostgresServer) -> None:
    counts = []
    for size in (2, 300):
        store = PostgresStore(await postgres.new_ledger(), pool_size=1)
        await store.open()
        said = listening(store)
        steps: list[int] = []
        heard: list[str] = []

        def step(said: list[str] = said, steps: list[int] = steps, heard: list[str] = heard) -> None:
            steps.append(len(said))
            heard.extend(said)
            said.clear()

        many = [schedule(f"s{i}") for i in range(size)] + [schedule(f"m{i}", kind="message") for i in range(size)]
        await store.schedules.apply(ScheduleChange(many, T0, "me"))
        step()
        await claim(store, T0 + MINUTE, limit=1)  # makes the partitions of its days
        said.clear()
        starts = (await claim(store, T0 + 5 * MINUTE, limit=1000)).claimed.starts
        step()
        at = T0 + 5 * MINUTE + SECOND
        await store.runs.settle([Settlement(start, ME, "failed", at, at, "no", b"J{}") for start in starts])
        step()
        again = (await claim(store, at, limit=1000)).claimed.starts
        step()
        await store.runs.settle(
            [Settlement(start, ME, "succeeded", at, messages=[message(start.sid)]) for start in again]
        )
        step()
        streams = (await store.outbox.claim(LANE, ME, at, 1000)).streams
        step()
        await store.outbox.settle([Delivery(one.sid, ME, at, None, one.messages[0][0], None, "no") for one in streams])
        step()
        await store.outbox.resolve(
            [letter.number for letter in await store.outbox.dead_letters(None, 0, 1000)], redeliver_at=at
        )
        step()
        reopened = changes.EditBuilder({}, at + SECOND, {"default": Polls(T0)}, "me")
        await store.schedules.apply(ScheduleChange(edited=[one.schedule_id for one in many], edit=reopened.reopen))
        step()
        await store.prune_day(T0 + 9 * DAY)
        step()
        assert not any("typeinfo" in sql for sql in heard), "the driver knows every type that is used"
        assert (len(starts), len(again), len(streams)) == (size - 1, size - 1, 2 * size - 1)
        counts.append(steps)
        await store.close()
    # many that are alike go in a statement of their own, for each table that they are written to
    assert all(few <= many <= few + 2 for few, many in zip(*counts, strict=True)), counts
    assert max(counts[1]) <= 22, counts


async def test_a_lane_finds_what_is_due_by_its_own_index(dsn: str) -> None:
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule(f"other {i}", lane="other") for i in range(3000)], T0, "me"))
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(5)], T0, "me"))
    await store.runs.ask("s0", T0, "me")
    said = listening(store)
    await claim(store, T0 + MINUTE, limit=6)
    (due,) = [sql for sql in said if "SKIP LOCKED" in sql and "FROM runs_live" not in sql]
    (woken,) = [sql for sql in said if "SKIP LOCKED" in sql and "FROM runs_live" in sql]
    (following,) = [sql for sql in said if "EXISTS" in sql and "SKIP LOCKED" not in sql and "next_run_at >" in sql]
    db = await asyncpg.connect(dsn)
    async with db.transaction():
        for setting in store._connections._begin_write.split("; ")[1:]:
            await db.execute(setting)
        for sql, more in ((due, (5,)), (woken, (5,)), (following, ())):
            plan = "\n".join(row[0] for row in await db.fetch(f"EXPLAIN {sql}", T0 + MINUTE, LANE, *more))
            assert "Seq Scan" not in plan
            assert "Sort" not in plan, "the index gives the order, so the limit ends the scan"
            if "next_run_at" in sql and sql != woken:
                assert "idx_schedules_next_run on schedule_state" in plan
                assert "Index Cond: ((lane_no = " in plan, "those of other lanes are not looked at"
    await db.close()
    await store.close()


# --- days that go -----------------------------------------------------------------------------------------------------


async def partitions(dsn: str) -> list[str]:
    db = await asyncpg.connect(dsn)
    rows = await db.fetch(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'runs'::regclass ORDER BY 1"
    )
    await db.close()
    return [row[0].rpartition(".")[2] for row in rows]


async def two_days(store: PostgresStore) -> None:
    """Five schedules of every minute that were up for the first minutes of two days, and one that fired once."""
    rare = schedule("rare", kind="message", spec="1 0 1 1 *")
    await store.schedules.apply(
        ScheduleChange([*(schedule(f"m{i}", kind="message") for i in range(5)), rare], T0, "me")
    )
    for at in (1, 2, 3, 24 * 60 + 1, 24 * 60 + 2):
        await claim(store, T0 + at * MINUTE)


@pytest.mark.parametrize("most_moved", [0, 1000], ids=["deleted", "dropped"])
async def test_a_day_goes_with_its_partition(
    dsn: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, most_moved: int
) -> None:
    monkeypatch.setattr(pruning, "MOST_MOVED", most_moved)
    await two_days(store)
    before = await verify_store(store)
    assert "runs_20240101" in await partitions(dsn)
    pruned = await store.prune_day(T0 + DAY)
    assert pruned is not None
    assert (pruned.day, pruned.runs) == (T0, 15)
    assert ("runs_20240101" in await partitions(dsn)) == (most_moved == 0)
    left = [row[:2] for row in await store.read("runs", None, 1000)]
    assert left[0] == (6, T0 + MINUTE), "the run that its schedule looks back at stays"
    assert len(left) == 11
    assert await store.prune_day(T0 + DAY) is None
    after = await verify_store(store)
    assert (before.problems, after.problems) == ([], [])


async def test_pruning_gives_up_where_a_reader_holds_the_runs(dsn: str, store: PostgresStore) -> None:
    await two_days(store)
    before = await ledger(store)
    reader = await asyncpg.connect(dsn)
    async with reader.transaction():
        await reader.fetch("SELECT count(*) FROM runs")
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            await store.prune_day(T0 + DAY)
    await reader.close()
    assert await ledger(store) == before
    assert await store.prune_day(T0 + DAY) is not None


# --- behind a transaction pooler --------------------------------------------------------------------------------------


async def test_durable_schedules_work_behind_a_transaction_pooler(postgres: PostgresServer) -> None:
    direct = PostgresStore(await postgres.new_database())
    await direct.open()
    database = str(direct).rpartition("/")[2].rstrip("')")
    async with TransactionPooler(postgres.port, size=2) as pooler:
        store = PostgresStore(postgres.dsn(database, pooler.port), pool_size=3, lease_ttl=60.0)
        await store.open()
        hold = await store.hold(engine_name(ME), "me")
        await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(20)], T0, "me"))
        await store.schedules.apply(ScheduleChange([schedule(f"m{i}", kind="message") for i in range(20)], T0, "me"))

        async def work() -> None:
            for minute in range(1, 6):
                now = T0 + minute * MINUTE
                starts = (await claim(store, now, limit=20)).claimed.starts
                assert (
                    await store.runs.settle([Settlement(start, ME, "succeeded", now) for start in starts])
                ).stale == []

        async def deliver() -> None:
            for _ in range(10):
                for stream in (await store.outbox.claim(LANE, ME, T0 + HOUR, 5)).streams:
                    await store.outbox.settle([Delivery(stream.sid, ME, T0 + HOUR, stream.messages[-1][0])])

        async def edit() -> None:
            for minute in range(1, 6):
                change = changes.EditBuilder(
                    {"payload": {"n": minute}}, T0 + minute * MINUTE, {"default": Polls(T0)}, "me"
                )
                await store.schedules.apply(ScheduleChange(edited=["s1", "m1"], edit=change))

        await asyncio.gather(work(), work(), deliver(), edit())
        assert await ledger(store) == await ledger(direct)
        assert pooler.handovers > 10, "transactions of one client went over different connections"
        hold.release()
        await store.close()
    assert (await verify_store(direct)).problems == []
    assert len((await ledger(direct))["runs"]) >= 40
    await direct.close()
