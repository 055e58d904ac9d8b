"""The memory store says what is right; the others have to agree, row by row, after every step of random histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from noonbell.core.records import (
    ChangedSchedule,
    Declaration,
    LifecycleEvent,
    LiveRun,
    NewSchedule,
    Outcome,
    RemovedSchedule,
    Settlement,
    Start,
    StoredSchedule,
    Turn,
)
from noonbell.core.terms import declared_terms
from noonbell.core.turns import look
from noonbell.errors import StoreError
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ports import Claimed, Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.storage_cases.base import HOUR, MINUTE, SECOND, T0, ledger, record_step
from noonbell.timing import cron_timing
from tests.store.postgres_server import PostgresServer

CRONS = ("* * * * *", "* * * * *", "0 * * * *", "0 * * * *", "5,20,21 * * * *", "30 1 * * *", "0 0 29 2 *")
OWNERS = ("scheduler:one", "scheduler:two")
INSTANCES = ("i1", "i2", "i3")
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "failed", "failed", "abandoned")


class History:
    """Draws the next step from what the stores hold. Both get the same; neither is asked twice.

    The results of every step are compared, and all tables after each `compare_every` steps.
    """

    def __init__(self, seed: int, limits: tuple[int, ...] = (1, 2, 3, 100), compare_every: int = 1) -> None:
        self.random = random.Random(seed)
        self.limits = limits
        self.compare_every = compare_every
        self.steps = 0
        self.now = T0
        self.starts: list[tuple[Start, str]] = []  # also the settled and the stale ones
        self.names = 0
        self.seen: set[str] = set()

    async def step(self, stores: tuple[Ledger, ...]) -> None:
        forward = (0, 1, SECOND, 20 * SECOND, 20 * SECOND, MINUTE, MINUTE, 5 * MINUTE, HOUR)
        self.now += self.random.choice(forward if self.random.random() < 0.95 else (-SECOND, -MINUTE, -2 * HOUR))
        steps = (
            self.claim, self.claim, self.claim, self.claim, self.settle, self.settle, self.declare, self.hand_back,
            self.trigger, self.record, self.reopen,
        )  # fmt: skip
        step = self.random.choice(steps)
        call = await step(stores[0])
        self.seen.add(step.__name__)
        results = [await _outcome(call, store) for store in stores]
        assert results[0] == results[1], (step.__name__, self.now)
        self.steps += 1
        if self.steps % self.compare_every == 0:
            await self.compare(stores, step.__name__)
        if isinstance(results[0], Claimed):
            self.seen.update(f"cause {start.cause}" for start in results[0].starts)
            self.seen.update("preempted" for start in results[0].starts if start.preempted is not None)
            self.seen.update("quarantined" for _ in results[0].quarantined)
            self.seen.update({"full"} if results[0].full else ())

    async def compare(self, stores: tuple[Ledger, ...], last: str) -> None:
        """All tables of both stores hold the same; `last` names the step before."""
        dumps = [await ledger(store) for store in stores]
        for table, rows in dumps[0].items():
            assert rows == dumps[1][table], (last, table)
        for managed_by in OWNERS:
            declared = [await store.schedules.read_declared(managed_by) for store in stores]
            assert declared[0] == declared[1]
        for instance in INSTANCES:
            assert await stores[0].runs.live(owner=instance) == await stores[1].runs.live(owner=instance)

    async def claim(self, store: Ledger) -> Callable[[Ledger], Any]:
        managed_by, owner = self.random.choice(OWNERS), self.random.choice(INSTANCES)
        limit, now = self.random.choice(self.limits), self.now
        specs = {row["sid"]: row["spec"] for row in await schedule_rows(store)}
        bad = {sid for sid in specs if self.random.random() < 0.05}
        error = ValueError("bad")

        def decide(stored: StoredSchedule) -> Turn:
            if stored.sid in bad:
                raise error
            return look(stored, now, terms=declared_terms(cron_timing(specs[stored.sid], UTC), "preempt"))

        async def call(store: Ledger) -> Claimed:
            claimed, _ = await store.runs.claim(managed_by, owner, now, limit, decide)
            if isinstance(store, MemoryStore):
                self.starts.extend((start, owner) for start in claimed.starts)
            return claimed

        return call

    async def settle(self, store: Ledger) -> Callable[[Ledger], Any]:
        batch: dict[int, Settlement] = {}  # a schedule ends one run at a time
        running = {
            (i, live.sid, live.run_for, live.fence) for i in INSTANCES for live in await store.runs.live(owner=i)
        }
        alive = [pair for pair in self.starts if (pair[1], pair[0].sid, pair[0].run_for, pair[0].fence) in running]
        chosen = [pair for pair in alive if self.random.random() < 0.6]
        for start, owner in (*chosen, *self.random.sample(self.starts, min(len(self.starts), 2))):
            fence = start.fence + (self.random.random() < 0.1)
            who = owner if self.random.random() < 0.9 else self.random.choice(INSTANCES)
            outcome = self.random.choice(OUTCOMES)
            wake_at = self.now + self.random.choice((SECOND, 30 * SECOND, HOUR)) if outcome == "failed" else None
            error = None if outcome == "succeeded" else self.random.choice((None, "boom", 'tricky "\n☃'))
            again = replace(start, fence=fence, following=start.following if self.random.random() < 0.95 else None)
            if start.kind == "manual":
                wake_at = None
            batch[start.sid] = Settlement(again, who, outcome, self.now, wake_at, error)
        return lambda store: store.runs.settle(list(batch.values()))

    async def hand_back(self, store: Ledger) -> Callable[[Ledger], Any]:
        some = {start.sid: (start, owner) for start, owner in self.random.sample(self.starts, min(len(self.starts), 3))}
        owner = self.random.choice(INSTANCES)
        now, starts = self.now, [start for start, _ in some.values()]
        return lambda store: store.runs.hand_back(starts, owner, now)

    async def trigger(self, store: Ledger) -> Callable[[Ledger], Any]:
        sid, owner, now = self.random.randint(0, self.names + 1), self.random.choice(INSTANCES), self.now

        async def call(store: Ledger) -> Start | None:
            start = await store.runs.trigger(sid, owner, now)
            if start is not None and isinstance(store, MemoryStore):
                self.starts.append((start, owner))
            return start

        return call

    async def record(self, store: Ledger) -> Callable[[Ledger], Any]:
        event = LifecycleEvent(self.random.choice(OWNERS), self.now, "i1", "stop-start", "asked")
        return lambda store: record_step(store, event)

    async def reopen(self, store: Ledger) -> Callable[[Ledger], Any]:
        killed = self.random.random() < 0.5

        async def call(store: Ledger) -> None:
            if killed:
                store.kill()
            else:
                await store.close()
            await store.open()

        return call

    async def declare(self, store: Ledger) -> Callable[[Ledger], Any]:
        managed_by, now, draw = self.random.choice(OWNERS), self.now, self.random.random
        changed, removed = [], []
        revived: list[LiveRun] = []
        interrupted: list[LiveRun] = []
        for row in await schedule_rows(store, managed_by):
            sid, cursor_at = row["sid"], row["cursor_at"]
            if row["removed_at"] is not None:
                continue
            if draw() < 0.08:
                removed.append(RemovedSchedule(sid, cursor_at))
                continue
            for live in await store.runs.live(sid):
                if draw() < 0.3 and live.state != "waiting":
                    if live.kind == "manual":
                        interrupted.append(live)
                    else:
                        again = replace(live, state="queued", owner=None, fence=live.fence + 1, wake_at=now)
                        revived.append(replace(again, crashes=live.crashes + 1, cause="orphan"))
            if draw() < 0.3:
                edit = draw() < 0.5
                cron = self.random.choice(CRONS) if edit else row["spec"]
                following = cron_timing(cron, UTC).following(cursor_at)
                changed.append(
                    ChangedSchedule(
                        sid, cron, "UTC", "z2", "{}", 7, row["epoch"] + edit, cursor_at,
                        self.random.choice((following, cursor_at, None)), edit,
                    )
                )  # fmt: skip
        created = [self._new(now) for _ in range(self.random.choice((0, 1, 4)))]
        if created and draw() < 0.1:
            created.append(
                replace(created[0], schedule_id="twin") if draw() < 0.5 else replace(created[0], name="twin")
            )
        events = [LifecycleEvent(managed_by, now, "i2", name) for name in ("crash", "init-ok")]
        whole = Declaration(managed_by, now, created, changed, removed, revived, interrupted, events)
        return lambda store: store.schedules.declare(whole)

    def _new(self, now: int) -> NewSchedule:
        self.names += 1
        cron = self.random.choice(CRONS)
        following = cron_timing(cron, UTC).following(now)
        next_run_at = self.random.choice((following, following, now, None))
        name = f"task {self.names}"
        return NewSchedule(f"id {self.names}", name, "cron", cron, "UTC", "z1", "{}", MINUTE, now, next_run_at)


async def _outcome(call: Callable[[Ledger], Any], store: Ledger) -> object:
    try:
        return await call(store)
    except StoreError:
        return StoreError


EVERYTHING = {
    "claim", "settle", "declare", "hand_back", "trigger", "record", "reopen", "full", "preempted", "quarantined",
    "cause cron", "cause retry", "cause orphan",
}  # fmt: skip


# All tables are read after every fifth step: a row that differs stays, and differs then too.
COMPARE_EVERY = pytest.mark.parametrize("compare_every", [5, pytest.param(1, marks=pytest.mark.exhaustive)])


@COMPARE_EVERY
@pytest.mark.parametrize("block", range(3))
async def test_sqlite_agrees_with_the_specification(tmp_path: Path, block: int, compare_every: int) -> None:
    seen: set[str] = set()
    for seed in range(block * 4, block * 4 + 4):
        memory, sqlite = MemoryStore(), SqliteStore(tmp_path / f"{seed}.db", threaded=False)
        history = History(seed, compare_every=compare_every)
        for store in (memory, sqlite):
            await store.open()
        for _ in range(150):
            await history.step((memory, sqlite))
        await sqlite.close()
        seen |= history.seen
    assert seen >= EVERYTHING, "a history that never gets there proves nothing"


@COMPARE_EVERY
async def test_postgres_agrees_with_the_specification(postgres: PostgresServer, compare_every: int) -> None:
    seen: set[str] = set()
    for seed in (8, 21):
        memory, stored = MemoryStore(), PostgresStore(await postgres.new_ledger(), pool_size=1)
        # no limit that cuts between schedules of one instant: which of those come first is the index's choice there
        history = History(seed, limits=(100,), compare_every=compare_every)
        for store in (memory, stored):
            await store.open()
        for _ in range(60):
            await history.step((memory, stored))
        await stored.close()
        seen |= history.seen
    assert seen >= EVERYTHING - {"full"}, "a history that never gets there proves nothing"
