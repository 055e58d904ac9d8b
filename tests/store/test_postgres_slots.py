"""The run in flight in the row of its schedule: an ordinary fire does without `runs_live`, and a spill changes nothing.

The storage suite and a random history run on a store that spills every claim at once, beside those of the other files
on one that spills when a verb asks for it. Then each of those verbs by itself, and what races with a settle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest

from noonbell.core.presence import Polls
from noonbell.core.records import AT_ONCE, OutboxMessage, Settlement, Start, StoredSchedule, Turn
from noonbell.core.turns import look
from noonbell.ports import Decide, LaneClaim, RunFilter, ScheduleChange, ScheduleFilter, Settled
from noonbell.schedules import changes
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore, claim_schedules, settling, slots
from noonbell.store.waking import wake_times
from noonbell.store.wrapping import with_verbs
from noonbell.testing.storage_cases.base import ME, MINUTE, SECOND, T0, ledger
from noonbell.testing.storage_cases.engines import LANE, A, B, claim, schedule
from tests.patience import until
from tests.schedules import test_differential
from tests.store import test_postgres
from tests.store.postgres_server import PostgresServer
from tests.store.test_postgres_rescue import somebody_waits

NOW = T0 + MINUTE
AT = NOW + SECOND
UNTOUCHED = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'runs_live changes'; END $$;
    CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON runs_live FOR EACH ROW EXECUTE FUNCTION refuse();
"""

Verb = Callable[[PostgresStore, list[Start]], Awaitable[Any]]


async def numbers(store: PostgresStore, owner: str = ME) -> dict[str, int]:
    """The number of an owner, as a settle is given it."""
    return {owner: await store._session.owners.know(owner)}


async def spilled(store: PostgresStore, sids: Sequence[int]) -> None:
    async with store._connections.writing() as db:
        await slots.spill(db, sids)


async def in_slots(db: asyncpg.Connection[asyncpg.Record]) -> list[int]:
    return [row[0] for row in await db.fetch("SELECT sid FROM schedule_state WHERE slot_owner IS NOT NULL ORDER BY 1")]


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn)
    yield connection
    connection.terminate()


# --- a store that spills at once --------------------------------------------------------------------------------------


class SpillingStore(test_postgres.MortalStore):
    """Keeps every live run in `runs_live`."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._plain = self.runs
        self.runs = with_verbs(self._plain, {"claim": self._claim})

    async def _claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any) -> LaneClaim:
        claim = await self._plain.claim(lane, owner, now, limit, decide, **narrowed)
        await spilled(self, [start.sid for start in claim.claimed.starts])
        return claim


class TestSpillingStore(test_postgres.TestPostgresStore):
    store_class = SpillingStore


async def test_a_random_history_is_the_same_where_every_claim_spills(postgres: PostgresServer) -> None:
    seen: set[str] = set()
    for seed in (5, 9):
        dsns = [await postgres.new_ledger() for _ in range(2)]
        stores = (MemoryStore(), PostgresStore(dsns[0], pool_size=1), SpillingStore(dsns[1]))
        history = test_differential.History(seed, limits=(100,))
        for store in stores:
            await store.open()
        for _ in range(140):
            await history.step(stores)
        for store in stores:
            await store.close()
        seen |= history.seen
    assert seen >= {"claim", "settle", "edit", "delete", "hand_back", "take_over", "ask", "cause retry"}


# --- what is in a slot ------------------------------------------------------------------------------------------------


async def test_an_ordinary_fire_never_writes_to_runs_live(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(300)], T0, "suite"))
    await db.execute(UNTOUCHED)
    for minute in (1, 2):
        now = T0 + minute * MINUTE
        starts = await claim(store, A, now, 300)
        assert await in_slots(db) == [start.sid for start in sorted(starts, key=lambda start: start.sid)]
        assert len(starts) == len(await store.runs.live(owner=A)) == 300
        note = [OutboxMessage(1, LANE, "m", "inbox", "{}", now)]
        ends = [
            Settlement(start, A, "failed" if start.sid % 3 == 0 else "succeeded", now + SECOND, detail=detail)
            for start in starts
            for detail in [b"J{}" if start.sid % 5 == 0 else None]
        ]
        ends[0].messages = note
        starts[1].waited_us = 7
        assert await store.runs.settle(ends) == Settled([], {})
    assert await db.fetchval("SELECT count(*) FROM runs") == 600
    assert await db.fetchval("SELECT count(*) FROM attempts") == 2 * (100 + 60 - 20)
    assert await db.fetchval("SELECT count(*) FROM runs WHERE extra = '1,7,0'") == 2
    assert await in_slots(db) == []


async def test_a_second_run_of_a_schedule_is_beside_the_slot(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a", overlap="allow")], T0, "suite"))
    (first,) = await claim(store, A, NOW)
    (second,) = await claim(store, A, NOW + MINUTE)
    assert await in_slots(db) == [1]
    assert [row[0] for row in await db.fetch("SELECT run_for FROM runs_live")] == [second.run_for]
    assert [live.run_for for live in await store.runs.live(1)] == [first.run_for, second.run_for]
    assert await store.runs.live(owner=A) == await store.runs.live(1)
    ends = [Settlement(start, A, "succeeded", NOW + MINUTE + SECOND) for start in (second, first)]
    assert await store.runs.settle(ends) == Settled([], {})
    assert await store.runs.live(1) == []
    (third,) = await claim(store, A, NOW + 2 * MINUTE)
    assert (await in_slots(db), third.run_for) == ([1], NOW + 2 * MINUTE)
    history = await store.history.past_runs([1], None, 10)
    assert [run.run_for for run in history] == [first.run_for, second.run_for], "in the order of their ends"


# --- verbs that change a live run -------------------------------------------------------------------------------------


def ends(starts: Sequence[Start], owner: str = A, **more: Any) -> list[Settlement]:
    return [Settlement(start, owner, more.get("outcome", "succeeded"), AT, more.get("wake_at")) for start in starts]


async def _retried(store: PostgresStore, starts: list[Start]) -> Any:
    settled = await store.runs.settle(ends(starts[:2], outcome="failed", wake_at=AT + MINUTE) + ends(starts[2:]))
    return settled, await claim(store, B, AT + MINUTE, 10)


async def _stale(store: PostgresStore, starts: list[Start]) -> Any:
    return (
        await store.runs.settle(ends(starts[:1], B)),
        await store.runs.settle(ends(starts)),
        await store.runs.settle(ends(starts)),
    )


async def _cleared(store: PostgresStore, starts: list[Start]) -> Any:
    await store.runs.settle(ends(starts[:1], outcome="failed", wake_at=AT + MINUTE))
    asked = await store.runs.ask("s0", AT, "me", queue=True)
    (again,) = [start for start in await claim(store, B, AT, 10) if start.run_for == asked]
    (waiting,) = [live for live in await store.runs.live(1) if live.state == "waiting"]
    clearing = Settlement(again, B, "succeeded", AT + SECOND, cleared=waiting)
    return await store.runs.settle([clearing])


async def _handed_back(store: PostgresStore, starts: list[Start]) -> Any:
    await store.runs.hand_back(starts[1:], A, AT)
    return await claim(store, B, AT, 10), await store.runs.settle(ends(starts))


async def _rescued(store: PostgresStore, starts: list[Start]) -> Any:
    async with store._connections.writing() as db:
        found = await claim_schedules.take_over(db, LANE, AT, None)
    return found, await claim(store, B, AT, 10), await store.runs.settle(ends(starts))


async def _stopped(store: PostgresStore, starts: list[Start]) -> Any:
    return await store.engines.rescue(LANE, A, AT, stopped=True), await store.runs.settle(ends(starts))


async def _edited(store: PostgresStore, starts: list[Start]) -> Any:
    change = changes.EditBuilder({}, AT, {LANE: Polls(T0)}, "me")
    await store.schedules.apply(ScheduleChange(edited=["s0", "s1"], edit=change.reopen))
    return await store.runs.settle(ends(starts))


async def _deleted(store: PostgresStore, starts: list[Start]) -> Any:
    await store.schedules.apply(
        ScheduleChange(edited=["s0", "s2"], edit=lambda stored: changes.deleted(stored, AT, "me"))
    )
    return await store.runs.settle(ends(starts))


async def _asked(store: PostgresStore, starts: list[Start]) -> Any:
    refused = await store.runs.ask("s0", AT, "me"), await store.runs.ask("s1", AT, "me", queue=True)
    return refused, await claim(store, B, AT, 10), await store.runs.settle(ends(starts)), await claim(store, B, AT, 10)


async def _come_again(store: PostgresStore, starts: list[Start]) -> Any:
    during = await claim(store, B, NOW + 2 * MINUTE, 10)
    return (
        during,
        await store.runs.settle(ends(starts)),
        wake_times(await store.schedules.find(ScheduleFilter(sids=[1, 2, 3]))),
    )


async def _contradicted(store: PostgresStore, starts: list[Start]) -> Any:
    async with store._connections.writing() as db:
        await db.execute(
            "INSERT INTO runs (run_for, sid, kind, outcome, delay_us, duration_us, owner, epoch) "
            "VALUES ($1, 2, 1, '0', 0, 0, 0, 1)",
            starts[1].run_for,
        )
    return await store.runs.settle(ends(starts))


@pytest.mark.parametrize(
    "verb",
    [
        _retried, _stale, _cleared, _handed_back, _rescued, _stopped, _edited, _deleted, _asked, _come_again,
        _contradicted,
    ],
)  # fmt: skip
async def test_a_verb_does_the_same_whether_the_run_is_in_its_slot_or_not(postgres: PostgresServer, verb: Verb) -> None:
    told = []
    for before in (False, True):
        dsn = await postgres.new_ledger()
        store = PostgresStore(dsn, pool_size=2)
        await store.open()
        await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(3)], T0, "suite"))
        starts = sorted(await claim(store, A, NOW, 3), key=lambda start: start.sid)
        assert len(starts) == 3
        if before:
            await spilled(store, [1, 2, 3])
        found = [await verb(store, starts)]
        found += [
            await ledger(store),
            await store.schedules.find(ScheduleFilter(schedule_ids=["s0", "s1", "s2"])),
            await store.backlog(AT),
        ]
        found += [await store.runs.live(owner=A), await store.runs.live(owner=B)]
        told.append(found)
        await store.close()
    for in_slot, outside in zip(*told, strict=True):
        assert in_slot == outside


# --- races ------------------------------------------------------------------------------------------------------------


async def test_what_comes_behind_a_run_while_its_settle_waits_is_told(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The snapshot of the settle is older than the run that was asked for: it has to look again."""
    await store.schedules.apply(ScheduleChange([schedule("s0")], T0, "suite"))
    starts = await claim(store, A, NOW)
    async with store._connections.writing() as asking:
        await asking.execute("SELECT 1 FROM schedule_state WHERE sid = 1 FOR UPDATE")
        waiting = asyncio.create_task(store.runs.settle(ends(starts)))
        await until(lambda: somebody_waits(db))
        await asking.execute(
            "INSERT INTO runs_live (sid, kind, run_for, fence, state, attempt, wake_at, epoch, cause) "
            "VALUES (1, 'manual', 5, 1, 'queued', 0, 0, 1, 'manual')"
        )
        await slots.touch(asking, 1)
    assert await waiting == Settled([], {1: AT_ONCE})
    assert [live.kind for live in await store.runs.live(1)] == ["manual"]


async def test_a_settle_sees_an_edit_that_it_waited_for(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    await store.schedules.apply(ScheduleChange([schedule("s0"), schedule("s1")], T0, "suite"))
    starts = await claim(store, A, NOW, 2)
    async with store._connections.writing() as editing:
        await editing.execute("UPDATE schedule_state SET epoch = 2, last_ended_for = 77 WHERE sid = 2")
        waiting = asyncio.create_task(store.runs.settle(ends(starts)))
        await until(lambda: somebody_waits(db))
    assert await waiting == Settled([], {2: NOW}), "another epoch: at once, which is its cursor"
    runs = {run.sid: run for sid in (1, 2) for run in await store.history.past_runs([sid], None, 1)}
    assert (runs[2].epoch, runs[2].prev_for) == (1, 77)


async def test_a_run_that_was_spilled_while_its_settle_waits_ends_from_there(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    await store.schedules.apply(ScheduleChange([schedule("s0"), schedule("s1")], T0, "suite"))
    starts = await claim(store, A, NOW, 2)
    async with store._connections.writing() as other:
        await slots.spill(other, [2])
        waiting = asyncio.create_task(store.runs.settle(ends(starts)))
        await until(lambda: somebody_waits(db))
    assert await waiting == Settled([], {})
    assert await db.fetchval("SELECT count(*) FROM live_runs") == 0
    assert await db.fetchval("SELECT count(*) FROM runs") == 2


async def test_settles_spills_and_hand_backs_at_once_lose_and_double_nothing(dsn: str) -> None:
    """Batches overlap in every order: nobody waits in a circle, and each run ends once or is queued once."""
    store = PostgresStore(dsn, pool_size=8)
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(120)], T0, "suite"))
    starts = await claim(store, A, NOW, 120)
    stale: list[int] = []

    async def settle(part: list[Start]) -> None:
        stale.extend(one.start.sid for one in (await store.runs.settle(ends(part))).stale)

    async def hand_back(part: list[Start]) -> None:
        await store.runs.hand_back(part, A, AT)

    async def spill(part: list[Start]) -> None:
        await spilled(store, [start.sid for start in part])

    work: list[Awaitable[None]] = []
    for place in range(8):
        work += [settle(starts[place::8]), spill(starts[place::5][::-1]), settle(starts[place * 9 : place * 9 + 40])]
        work += [hand_back(starts[place::11][::-1])]
    await asyncio.gather(*work)
    lives = {sid: live for sid in range(1, 121) for live in await store.runs.live(sid)}
    ended = [run[0] for run in await store.read("runs", None, 1000)]
    assert {(live.state, live.fence, live.owner) for live in lives.values()} <= {("queued", 1, None)}
    assert sorted([*ended, *lives]) == list(range(1, 121))
    assert set(lives) <= set(stale)
    await store.close()


async def test_a_settle_by_somebody_else_leaves_the_slot_alone(store: PostgresStore) -> None:
    await store.schedules.apply(ScheduleChange([schedule("s0")], T0, "suite"))
    starts = await claim(store, A, NOW)
    async with store._connections.writing() as db:
        found = await settling.settle(db, ends(starts, B), await numbers(store, B))
    assert [one.owner for one in found.stale] == [B]
    assert [(live.owner, live.state) for live in await store.runs.live(1)] == [(A, "running")]


# --- batches whose columns differ -------------------------------------------------------------------------------------


@pytest.mark.parametrize("differing", [0, 1, 2, 3, 6])
async def test_each_row_of_a_batch_gets_its_own_values(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record], differing: int
) -> None:
    """However many columns differ, NULL among them: those are written by place, or by a join."""
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(50)], T0, "me"))
    names = ["next_run_at", "last_run_for", "anchor_at", "backlog_left", "backlog_until", "cursor_at"]
    columns: dict[str, list[int | None]] = {name: [7] * 50 for name in names}
    rows: list[tuple[int | None, ...]] = []
    decided: list[StoredSchedule] = []

    def decide(stored: StoredSchedule) -> Turn:
        turn = look(stored, NOW)
        i = len(decided)
        decided.append(stored)
        for name in names[:differing]:
            columns[name][i] = None if i % 5 == 1 and name != "cursor_at" else -1000 * i + len(name)
        for name in names:
            setattr(turn, name, columns[name][i])
        rows.append((stored.sid, *(columns[name][i] for name in names)))
        return turn

    await store.runs.claim(LANE, ME, NOW, 100, decide)
    found = await db.fetch(f"SELECT sid, {', '.join(names)} FROM schedule_state ORDER BY sid")  # noqa: S608 - fixed names
    assert [tuple(row) for row in found] == sorted(rows)
    assert await in_slots(db) == [row[0] for row in sorted(rows)]


async def test_each_end_of_a_batch_gets_its_own_values(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    """In any order of the ends; what follows is unknown of some, and the wake-ups of all have been taken away."""
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(50)], T0, "me"))
    starts = await claim(store, ME, NOW, limit=100)
    await db.execute("UPDATE schedule_state SET next_run_at = NULL")
    ends: list[Settlement] = []
    for i, start in enumerate(starts):
        start.following = None if i % 7 == 3 else NOW + i * SECOND
        start.waited_us = i % 3
        outcome: Any = "failed" if i % 4 == 1 else "succeeded"
        ends.append(Settlement(start, ME, outcome, AT + i, error="no" if outcome == "failed" else None))
    settled = await store.runs.settle(ends[25:] + ends[:25])
    following = {start.sid: start.following for start in starts}
    assert settled == Settled([], {sid: at for sid, at in following.items() if at is not None})
    state = await db.fetch("SELECT sid, next_run_at, last_success_at, last_failure_at FROM schedule_state ORDER BY sid")
    for end, row in zip(sorted(ends, key=lambda end: end.start.sid), state, strict=True):
        succeeded = end.outcome == "succeeded"
        at = (end.ended_at, None) if succeeded else (None, end.ended_at)
        assert tuple(row) == (end.start.sid, following[end.start.sid], *at)
        (run,) = await store.history.runs(RunFilter(end.start.sid, NOW, NOW))
        expected = (end.start.run_for, end.outcome, end.ended_at, end.start.waited_us, ME)
        assert (run.run_for, run.outcome, run.ended_at, run.waited_us, run.owner) == expected


async def test_two_ends_of_one_schedule_in_one_batch(store: PostgresStore) -> None:
    await store.schedules.apply(ScheduleChange([schedule("s0")], T0, "me"))
    (start,) = await claim(store, ME, NOW)
    end = Settlement(start, ME, "succeeded", AT)
    again = Settlement(start, ME, "succeeded", AT + 1)
    assert (await store.runs.settle([end, again])).stale == [again]
    assert [run.ended_at for run in await store.history.runs(RunFilter(start.sid, NOW, NOW))] == [AT]


# --- plain ends, in one message with their COMMIT ---------------------------------------------------------------------


@pytest.fixture
async def alone(dsn: str) -> AsyncIterator[PostgresStore]:
    """A store with one connection, whose statements can be listened to."""
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    yield store
    await store.close()


async def settled_with(store: PostgresStore, minute: int, *, meanwhile: str = "") -> tuple[Settled, list[str]]:
    """Fire two schedules, and settle both; return what that brings, and the last words of its statements."""
    now = T0 + minute * MINUTE
    starts = await claim(store, A, now, 10)
    if meanwhile:
        async with store._connections.writing() as db:
            await db.execute(meanwhile)
    said = test_postgres.listening(store)
    ends = [Settlement(start, A, "succeeded", now + SECOND) for start in starts]
    settled = await store.runs.settle(ends)
    return settled, [statement.split()[-1] for statement in said]


async def test_plain_ends_are_one_message(alone: PostgresStore) -> None:
    await alone.schedules.apply(ScheduleChange([schedule("s0"), schedule("s1")], T0, "suite"))
    await settled_with(alone, 1)
    settled, said = await settled_with(alone, 2)
    assert settled == Settled([], {})
    assert [word == "COMMIT" for word in said] == [True]


async def test_what_wakes_otherwise_is_undone_recorded_again_and_reported(
    alone: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The next batches are recorded in the longer way at once, and later ones in the short way again."""
    await alone.schedules.apply(ScheduleChange([schedule("s0"), schedule("s1")], T0, "suite"))
    taken = "UPDATE schedule_state SET next_run_at = NULL WHERE sid = 1"
    settled, said = await settled_with(alone, 1, meanwhile=taken)
    assert settled == Settled([], {1: T0 + 2 * MINUTE})
    assert said.count("ROLLBACK") == 1
    assert await db.fetchval("SELECT count(*) FROM runs") == 2
    assert await db.fetchval("SELECT sum(ended_runs) FROM schedule_state") == 2
    messages = [len((await settled_with(alone, minute))[1]) for minute in range(2, 20)]
    assert messages == [3] * 16 + [1, 1], "the beginning, the statement, and the COMMIT"


async def test_a_stale_end_among_plain_ones_changes_nothing(
    alone: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    await alone.schedules.apply(ScheduleChange([schedule("s0"), schedule("s1")], T0, "suite"))
    spilled_one = "UPDATE schedule_state SET slot_owner = 0 WHERE sid = 2"
    settled, _ = await settled_with(alone, 1, meanwhile=spilled_one)
    assert [end.start.sid for end in settled.stale] == [2]
    assert [row[0] for row in await db.fetch("SELECT sid FROM runs")] == [1]
    assert await in_slots(db) == [2]
