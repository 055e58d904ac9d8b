"""Builds real ledgers: declares, claims and settles through a store's own verbs, with the engine's own decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from noonbell.core.instants import instant
from noonbell.core.records import (
    ChangedSchedule,
    Declaration,
    LifecycleEvent,
    LiveRun,
    NewSchedule,
    RemovedSchedule,
    Settlement,
    Start,
    StoredSchedule,
    Turn,
)
from noonbell.core.terms import declared_terms
from noonbell.core.turns import look
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ports import Hold, Ledger
from noonbell.testing.storage_cases.base import record_step
from noonbell.timing import CronTiming, cron_timing, rules_hash

OWNER = "scheduler:default"
SECOND = 1_000_000
POLICIES = '{"dst":"literal"}'


def us(text: str) -> int:
    """An ISO-8601 time as an instant; UTC unless it says otherwise."""
    return instant(datetime.fromisoformat(text if text[-6:-5] in "+-" else f"{text}+00:00"))


class History:
    """One scheduler's life on one store."""

    def __init__(self, store: Ledger, zone: str = "UTC", *, owner: str = OWNER, holds: bool = False) -> None:
        self.store = store
        self.zone_name = zone
        self.owner = owner
        self.instance = "one"
        self._holds = holds  # whether its name is held while it is up, as a real one's is
        self._hold: Hold | None = None
        self.timings: dict[int, CronTiming] = {}

    def timing(self, spec: str) -> CronTiming:
        return cron_timing(spec, ZoneInfo(self.zone_name))

    # --- the scheduler's own life -------------------------------------------------------------------------------------

    async def start(self, at: str, tasks: Mapping[str, str], *, instance: str = "one", crashed: bool = False) -> None:
        """An initialize: tasks that are new are created, changed ones changed, absent ones removed, orphans revived."""
        now = us(at)
        self.let_go()
        if self._holds:
            self._hold = await self.store.hold(self.owner, instance)
        events = [LifecycleEvent(self.owner, now, instance, "init-ok")]
        if crashed:
            events.insert(0, LifecycleEvent(self.owner, now, self.instance, "crash"))
        self.instance = instance
        rows = await schedule_rows(self.store, self.owner)
        stored = {row["name"]: row for row in rows if row["removed_at"] is None}
        zone_hash = rules_hash(ZoneInfo(self.zone_name))
        declaration = Declaration(self.owner, now, [], [], [], [], [], events)
        for name, row in stored.items():
            if name not in tasks:
                declaration.removed.append(RemovedSchedule(row["sid"], row["cursor_at"]))
                continue
            live = await self.store.runs.live(row["sid"])
            alive = [run for run in live if run.state == "running"]
            declaration.revived.extend(self._orphan(run, now) for run in alive if run.kind == "scheduled")
            declaration.interrupted.extend(run for run in alive if run.kind == "manual")
            timing, changed = self.timing(tasks[name]), row["spec"] != tasks[name]
            self.timings[row["sid"]] = timing
            declaration.changed.append(
                ChangedSchedule(
                    row["sid"], tasks[name], self.zone_name, zone_hash, POLICIES, 60 * SECOND, row["epoch"] + changed,
                    row["cursor_at"], timing.following(row["cursor_at"]), changed,
                )
            )  # fmt: skip
        fresh = [name for name in tasks if name not in stored]
        for name in fresh:
            timing = self.timing(tasks[name])
            cursor = timing.minute_start(now) - 1
            declaration.created.append(
                NewSchedule(
                    f"{self.owner}-{name}-{now}", name, "cron", tasks[name], self.zone_name, zone_hash, POLICIES,
                    60 * SECOND, cursor, timing.following(cursor),
                )
            )  # fmt: skip
        sids = await self.store.schedules.declare(declaration)
        self.timings.update(zip(sids, (self.timing(tasks[name]) for name in fresh), strict=True))

    @staticmethod
    def _orphan(run: LiveRun, now: int) -> LiveRun:
        return LiveRun(
            run.sid, run.kind, run.run_for, run.fence + 1, None, "queued", run.attempt, now, run.started_at,
            run.attempt_at, run.crashes + 1, run.epoch, "orphan",
        )  # fmt: skip

    def let_go(self) -> None:
        if self._hold is not None:
            self._hold.release()

    async def stop(self, at: str, ended: str | None = None) -> None:
        self.let_go()
        await record_step(self.store, LifecycleEvent(self.owner, us(at), self.instance, "stop-start"))
        await record_step(self.store, LifecycleEvent(self.owner, us(ended or at), self.instance, "stop-end"))

    async def park(self, at: str, name: str) -> None:
        """Leave a task dormant: it is stored, and not scheduled."""
        (row,) = [
            row
            for row in await schedule_rows(self.store, self.owner)
            if row["name"] == name and row["removed_at"] is None
        ]
        await self.store.schedules.declare(Declaration(self.owner, us(at), [], [], [], [], [], [], [row["sid"]]))

    # --- runs ---------------------------------------------------------------------------------------------------------

    async def claim(self, at: str | int) -> list[Start]:
        now = us(at) if isinstance(at, str) else at

        def decide(stored: StoredSchedule) -> Turn:
            return look(stored, now, terms=declared_terms(self.timings[stored.sid], "preempt"))

        return (await self.store.runs.claim(self.owner, self.instance, now, 1000, decide)).claimed.starts

    async def claim_beside(self, at: str) -> list[Start]:
        """Claim what is due as if nothing executed: the fault that `verify` is to find."""

        def decide(stored: StoredSchedule) -> Turn:
            terms = declared_terms(self.timings[stored.sid], "preempt")
            return look(replace(stored, lives=[]), us(at), terms=terms)

        return (await self.store.runs.claim(self.owner, self.instance, us(at), 1000, decide)).claimed.starts

    async def settle(
        self, starts: list[Start], at: str | int, error: str | None = None, retry: str | None = None
    ) -> None:
        ended = us(at) if isinstance(at, str) else at
        wake_at = None if retry is None else us(retry)
        outcome: Any = "succeeded" if error is None else "failed"
        settled = await self.store.runs.settle(
            [Settlement(start, self.instance, outcome, ended, wake_at, error) for start in starts]
        )
        assert settled.stale == []

    async def run(self, at: str, seconds: float = 2) -> list[Start]:
        """Claim what is due and let it succeed."""
        starts = await self.claim(at)
        assert starts, f"nothing is due at {at}"
        await self.settle(starts, us(at) + int(seconds * SECOND))
        return starts

    async def run_each(self, start: str, end: str, step: timedelta, late: Callable[[int], int] = lambda _: 0) -> None:
        """Look at every step and let succeed what is due."""
        at, stop = us(start), us(end)
        while at <= stop:
            now = at + late(at)
            starts = await self.claim(now)
            if starts:
                await self.settle(starts, now + SECOND)
            at += step // timedelta(microseconds=1)


async def eventful(store: Ledger, *, holds: bool = False) -> History:
    """An hour and a half with everything in it.

    `sync` runs each minute up to 00:30, then the scheduler is down until 01:10; a run fails and its retry gives way;
    a crash leaves an orphan, which starts again; `hourly` becomes half-hourly, `gone` is removed; at the end a retry
    waits.
    """
    history = History(store, "Europe/Kyiv", holds=holds)
    await history.start("2026-11-15T00:00:30", {"sync": "* * * * *", "hourly": "0 * * * *", "gone": "0,30 * * * *"})
    await history.run_each("2026-11-15T00:00:30", "2026-11-15T00:30:40", timedelta(minutes=1))
    await history.stop("2026-11-15T00:31:00")
    tasks = {"sync": "* * * * *", "hourly": "0,30 * * * *"}
    await history.start("2026-11-15T01:10:20", tasks, instance="two")
    starts = await history.claim("2026-11-15T01:10:21")
    await history.settle(starts, "2026-11-15T01:13:10", "ValueError: no", "2026-11-15T01:14:10")
    await history.claim("2026-11-15T01:13:11")
    await history.start("2026-11-15T01:20:20", tasks, instance="three", crashed=True)
    await history.settle(await history.claim("2026-11-15T01:20:21"), "2026-11-15T01:20:30")
    starts = await history.claim("2026-11-15T01:21:00")
    await history.settle(starts, "2026-11-15T01:21:02", "OSError: x", "2026-11-15T01:25:00")
    return history
