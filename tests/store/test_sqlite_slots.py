"""The slot of a schedule on SQLite: an ordinary fire uses nothing else, and no verb can be seen to depend on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from noonbell.core.records import AT_ONCE, Edit, Epoch, OutboxMessage, Settlement, Start, StoredSchedule
from noonbell.core.turns import close, drop
from noonbell.ports import AuditFilter, ScheduleChange, ScheduleFilter
from noonbell.store.sqlite import SqliteStore, paging, slots
from noonbell.store.waking import wake_times
from noonbell.testing.storage_cases.base import MINUTE, SECOND, T0, declaration, ledger
from noonbell.testing.storage_cases.engines import LANE, A, B, claim, schedule
from tests.store.spilling import SpillingStore, filled

NOW = T0 + MINUTE


def inside(store: SqliteStore) -> apsw.Connection:
    db = store._connection._db
    assert db is not None
    return db


async def opened(store: SqliteStore, count: int = 1, **definition: Any) -> SqliteStore:
    """The store, open, with schedules of every minute; their sids count from 1."""
    await store.open()
    await store.schedules.apply(
        ScheduleChange([schedule(f"s{i}", **definition) for i in range(1, count + 1)], T0, "suite")
    )
    return store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


# --- an ordinary fire -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 10, 300], ids=["one", "few", "many"])
@pytest.mark.parametrize(("outcome", "error"), [("succeeded", None), ("failed", "ValueError: no")])
async def test_an_ordinary_fire_never_writes_live_runs(path: Path, count: int, outcome: Any, error: str | None) -> None:
    store = await opened(SqliteStore(path, threaded=False), count)
    for verb in ("INSERT", "UPDATE", "DELETE"):
        inside(store).execute(
            f"CREATE TEMP TRIGGER no_{verb} BEFORE {verb} ON main.runs_live "
            "BEGIN SELECT raise(ABORT, 'an ordinary fire needs no row here'); END"
        )
    for minute in range(1, 4):
        now = T0 + minute * MINUTE
        starts = await claim(store, A, now, 1000)
        assert len(starts) == len(filled(inside(store))) == len(await store.runs.live(owner=A)) == count
        ends = [Settlement(start, A, outcome, now + start.sid, None, error) for start in starts]
        assert await store.runs.settle(ends) == ([], {})
        assert filled(inside(store)) == []
    assert len((await ledger(store))["runs"]) == 3 * count
    await store.close()


async def test_a_full_slot_is_the_live_run_that_it_stands_for(path: Path) -> None:
    store = await opened(SqliteStore(path, threaded=False))
    (start,) = await claim(store, A, NOW + SECOND)
    (live,) = await store.runs.live(1)
    assert (live.kind, live.run_for, live.fence, live.owner, live.state) == ("scheduled", NOW, 1, A, "running")
    assert (live.attempt, live.wake_at, live.crashes, live.epoch, live.cause) == (1, None, 0, 1, "cron")
    assert live.started_at == live.attempt_at == start.started_at == NOW + SECOND
    slots.spill(inside(store), [1])
    assert filled(inside(store)) == []
    assert await store.runs.live(1) == [live]
    await store.close()


async def test_runs_beside_each_other_are_live_once_each(path: Path) -> None:
    store = await opened(SqliteStore(path, threaded=False), overlap="allow")
    for minute in (1, 2, 3):
        await claim(store, A, T0 + minute * MINUTE)
    lives = await store.runs.live(1)
    assert [(live.run_for - T0) // MINUTE for live in lives] == [1, 2, 3]
    assert lives == await store.runs.live(owner=A)
    await store.close()


# --- every verb, with the run in the slot and spilled -----------------------------------------------------------------

Verb = Callable[[SqliteStore, Start], Awaitable[Any]]


def _end(of: dict[str, Any] | None = None, **parts: Any) -> Verb:
    async def verb(store: SqliteStore, start: Start) -> Any:
        end = Settlement(replace(start, **(of or {})), A, "failed", NOW + 7, error="no")
        return await store.runs.settle([replace(end, **parts)])

    return verb


async def _edit_then_end(store: SqliteStore, start: Start) -> Any:
    def edit(stored: StoredSchedule) -> Edit:
        turn = close(stored, NOW + 5)
        turn.next_run_at = NOW + MINUTE
        epoch = Epoch(stored.sid, stored.epoch + 1, turn.cursor_at, None, "* * * * *", "UTC", "z1", "{}", enabled=True)
        return Edit(turn.cursor_at, turn, stored.columns, epoch)

    await store.schedules.apply(ScheduleChange(edited=["s1"], edit=edit))
    return await store.runs.live(1), await _end()(store, start)


async def _delete(store: SqliteStore, start: Start) -> Any:
    def edit(stored: StoredSchedule) -> Edit:
        turn = drop(stored, NOW + 5)
        return Edit(turn.cursor_at, turn, stored.columns, None)

    await store.schedules.apply(ScheduleChange(edited=["s1"], edit=edit))
    return await _end()(store, start)


async def _come_again(store: SqliteStore, start: Start) -> Any:
    during = await claim(store, A, NOW + MINUTE)
    return during, await _end(ended_at=NOW + MINUTE + 1)(store, start), await claim(store, A, NOW + MINUTE + 2)


async def _ask_behind(store: SqliteStore, start: Start) -> Any:
    asked = await store.runs.ask("s1", NOW + 1, "suite"), await store.runs.ask("s1", NOW + 2, "suite", queue=True)
    waiting = await claim(store, A, NOW + 3), wake_times(await store.schedules.find(ScheduleFilter(sids=[1])))
    return (
        asked,
        waiting,
        await _end()(store, start),
        wake_times(await store.schedules.find(ScheduleFilter(sids=[1]))),
        await claim(store, A, NOW + 8),
    )


async def _hand_back(store: SqliteStore, start: Start) -> Any:
    await store.runs.hand_back([start], B, AT_ONCE)
    before = await store.runs.live(1)
    await store.runs.hand_back([start], A, AT_ONCE)
    return before, await claim(store, B, NOW + 1)


async def _retry(store: SqliteStore, start: Start) -> Any:
    woken = await _end(wake_at=NOW + 9)(store, start)
    (again,) = await claim(store, A, NOW + 9)
    return (
        woken,
        await store.runs.settle([Settlement(again, A, "succeeded", NOW + 11)]),
        await store.history.attempts(1, T0, NOW),
    )


async def _take_over(store: SqliteStore, start: Start) -> Any:
    freed = await store.engines.rescue(LANE, B, NOW + 5), await claim(store, B, NOW + 6)
    return freed, await _end()(store, start)


async def _stop(store: SqliteStore, _: Start) -> Any:
    return await store.engines.rescue(LANE, A, NOW + 5, stopped=True), await claim(store, B, NOW + 6)


async def _clear(store: SqliteStore, start: Start) -> Any:
    """Another run of the schedule waits for a retry that this end makes needless."""
    run_for = await store.runs.ask("s1", NOW + 1, "suite", queue=True)
    inside(store).execute("UPDATE runs_live SET state = 'waiting' WHERE kind = 'manual' AND run_for = ?", (run_for,))
    (waiting,) = [live for live in await store.runs.live(1) if live.kind == "manual"]
    return await _end(outcome="succeeded", cleared=waiting)(store, start), await store.history.past_runs([1], None, 9)


async def _contradict(store: SqliteStore, start: Start) -> Any:
    """The run is on record already; while it is live, the record stays."""
    inside(store).execute(
        "INSERT INTO runs (run_for, sid, kind, outcome, attempts, started_at, ended_at, owner, epoch) "
        "VALUES (?, 1, 1, 0, 1, ?, ?, 1, 1)",
        (start.run_for, NOW, NOW + 1),
    )
    inside(store).execute("UPDATE schedule_state SET cursor_at = cursor_at + 1 WHERE sid = 1")
    pruned = await store.prune_day(T0 + 9000 * MINUTE)
    return pruned, await _end()(store, start), await store.prune_day(T0 + 9000 * MINUTE)


async def _revive(store: SqliteStore, _: Start) -> Any:
    (live,) = await store.runs.live(1)
    revived = replace(live, state="queued", owner=None, wake_at=0, fence=2, cause="orphan")
    await store.schedules.declare(declaration(at=NOW + 4, revived=[revived]))
    return await store.runs.live(1), await claim(store, B, NOW + 5)


async def _interrupt(store: SqliteStore, start: Start) -> Any:
    await store.schedules.declare(declaration(at=NOW + 4, interrupted=await store.runs.live(1)))
    return await store.history.find("s1"), await _end()(store, start)


VERBS: dict[str, Verb] = {
    "success": _end(outcome="succeeded", error=None),
    "failure": _end(),
    "abandoned": _end(outcome="abandoned"),
    "detail": _end(outcome="succeeded", error=None, detail=b"\x81\xa1x\x01"),
    "wait": _end(outcome="succeeded", error=None, of={"waited_us": 5, "started_at": NOW + 5}),
    "message": _end(messages=[OutboxMessage(1, LANE, "m", "inbox", "{}", NOW)]),
    "last": _end(of={"following": None}),
    "another owner": _end(owner=B),
    "another fence": _end(of={"fence": 2}),
    "another occurrence": _end(of={"run_for": NOW + 1}),
    "another kind": _end(of={"kind": "manual"}),
    "edit": _edit_then_end,
    "delete": _delete,
    "due during the run": _come_again,
    "asked for": _ask_behind,
    "hand back": _hand_back,
    "retry": _retry,
    "rescue": _take_over,
    "stop": _stop,
    "cleared": _clear,
    "on record": _contradict,
    "revived": _revive,
    "interrupted": _interrupt,
}


@pytest.mark.parametrize("overlap", ["coalesce", "skip", "allow"])
@pytest.mark.parametrize("verb", VERBS)
async def test_no_verb_depends_on_where_the_run_is(tmp_path: Path, verb: str, overlap: str) -> None:
    stores = (SqliteStore(tmp_path / "a.db", threaded=False), SpillingStore(tmp_path / "b.db", threaded=False))
    found = []
    for store in stores:
        await opened(store, 2, overlap=overlap)
        start, neighbour = await claim(store, A, NOW, 2)
        assert filled(inside(store)) == ([] if isinstance(store, SpillingStore) else [1, 2])
        result = await VERBS[verb](store, start)
        counted = await store.backlog(NOW), await store.runs.live(owner=A), await store.runs.live(owner=B)
        told = await store.audit.page(AuditFilter(), 0, 99), await store.outbox.claim(LANE, A, NOW + MINUTE, 9)
        await store.runs.settle([Settlement(neighbour, A, "succeeded", NOW + 20)])
        found.append(
            (
                result,
                counted,
                told,
                await ledger(store),
                await store.schedules.find(ScheduleFilter(schedule_ids=["s1", "s2"])),
            )
        )
        await store.close()
    assert found[0] == found[1]


# --- plans ------------------------------------------------------------------------------------------------------------


def plan(db: apsw.Connection, sql: str, bindings: Any) -> list[str]:
    return [detail for *_, detail in db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]


BY_KEY = {"SEARCH runs_live USING PRIMARY KEY", "SEARCH schedule_state USING INTEGER PRIMARY KEY"}


@pytest.mark.parametrize(
    ("sql", "bindings"),
    [
        ("SELECT * FROM live_runs WHERE sid = ? ORDER BY kind, run_for", (1,)),
        ("SELECT l.* FROM json_each(?) b CROSS JOIN live_runs l ON l.sid = b.value", ("[1]",)),
        ("SELECT 1 FROM runs r WHERE EXISTS (SELECT 1 FROM live_runs l WHERE l.sid = r.sid)", ()),
        paging.statement("live", (1, "scheduled", 1), 9),
    ],
    ids=["one", "batch", "correlated", "page"],
)
async def test_the_view_of_live_runs_is_two_look_ups_by_key(path: Path, sql: str, bindings: tuple[Any, ...]) -> None:
    store = await opened(SqliteStore(path, threaded=False))
    steps = [step for step in plan(inside(store), sql, bindings) if "runs_live" in step or "schedule_state" in step]
    assert {step.partition(" (")[0] for step in steps} == BY_KEY
    await store.close()


async def test_no_index_names_the_slot(path: Path) -> None:
    store = await opened(SqliteStore(path, threaded=False))
    made = [row[0] for row in inside(store).execute("SELECT sql FROM sqlite_schema WHERE type = 'index'")]
    assert [sql for sql in made if sql is not None and "slot_" in sql] == []
    await store.close()


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "beside waiting runs"])
async def test_a_fire_reads_no_table_whole(path: Path, behind: bool) -> None:
    store = await opened(SqliteStore(path, threaded=False), 300)
    if behind:
        assert await store.runs.ask("s7", T0, "suite") is not None
    statements: list[tuple[str, Any]] = []

    def note(_: object, sql: str, bindings: Any) -> bool:
        statements.append((sql, bindings))
        return True

    inside(store).exec_trace = note
    for minute in (1, 2):
        starts = await claim(store, A, T0 + minute * MINUTE, 1000)
        assert len(starts) >= 299
        await store.runs.settle([Settlement(start, A, "succeeded", start.started_at + 1) for start in starts])
        await claim(store, A, T0 + minute * MINUTE + 1)
    inside(store).exec_trace = None
    # what was handed in, and the few wake-ups that a look considers
    batches = (
        "SCAN b",
        "SCAN json_each",
        "SCAN jsonb_each",
        "SCAN (subquery",
        "SCAN CONSTANT ROW",
        "SCAN temp.settling",
    )
    steps = [
        (step, sql)
        for sql, bindings in statements
        if sql.lstrip().startswith(("SELECT", "INSERT", "UPDATE", "DELETE")) and "LIMIT 64" not in sql
        for step in plan(inside(store), sql, bindings)
    ]
    assert steps
    assert [(step, sql) for step, sql in steps if step.startswith("SCAN") and not step.startswith(batches)] == []
    await store.close()


async def test_a_poll_at_which_nothing_is_due_needs_no_lock(path: Path) -> None:
    store = await opened(SqliteStore(path, threaded=False, busy_timeout_ms=0), 2)
    writer = apsw.Connection(str(path))
    writer.execute("BEGIN IMMEDIATE")
    found = await store.runs.claim(LANE, A, T0, 10, lambda stored: pytest.fail(f"{stored} is not due"))
    assert (found.claimed.looked, found.claimed.next_wake_at, found.stored) == (0, T0 + MINUTE, {})
    writer.close()
    await store.close()
