"""A year of history for looking at: runs that went well and badly, nights that were quiet, days when nothing was up.

It is lived through on a clock that only moves when it is told to, with the real engine on the real store, so that every
page shows what it would show after that year. Nothing here is drawn by hand.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from noonbell.actions.callback import Call
from noonbell.actions.registry import Actions
from noonbell.engine import Engine
from noonbell.engine.lane_jobs import LaneJobs
from noonbell.schedules import Schedules
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock

_DAY: Final = timedelta(days=1)
_WORK: Final = {"kind": "callback", "name": "work"}
# How often each of them fails, and how many seconds it takes as a rule.
_MANNERS: Final = {
    "invoices": (0.07, 3.2), "ring-the-bell": (0.01, 0.4), "backup": (0.03, 840.0), "warm-cache": (0.02, 1.1),
    "metrics": (0.004, 0.2), "digest": (0.05, 12.0),
}  # fmt: skip


async def live_through(path: Path, until: datetime) -> None:
    """Fill an empty database with the year before `until`."""
    clock = ManualClock((until - 371 * _DAY).replace(hour=4, minute=30))
    store = SqliteStore(path, threaded=False)
    chance = random.Random(12)

    async def work(call: Call) -> None:
        fails, seconds = _MANNERS[call.schedule_id]
        await clock.sleep(seconds * chance.lognormvariate(0, 0.35))
        if chance.random() < fails:
            raise ConnectionError("the other side closed the connection")

    async with Schedules(store, clock=clock, callbacks={"work": work}) as schedules:
        await store.open()
        engine = _engine(store, clock, work)
        quiet = await schedules.create_quiet_hours(
            "holidays",
            [{"dates": ["2025-12-25", "2025-12-26", "2026-01-01", "2026-04-13", "2026-08-24"], "from": "00:00",
              "to": "00:00", "timezone": "Europe/Kyiv"}],
            policy_id="holidays",
        )  # fmt: skip
        for fields in _schedules(quiet.policy_id):
            await schedules.create(**fields)
        engine.start()
        for day in range(371):
            if day in (96, 240):  # the machine is off for a while
                await _stopped(engine, clock)
                await clock.advance((2 if day == 96 else 4) * _DAY)
                engine = _engine(store, clock, work)
                engine.start()
            if day == 270:
                await schedules.pause("digest")
            if day == 284:
                await schedules.resume("digest")
            if day == 355:
                for fields in _busy():
                    await schedules.create(**fields)
            if clock.at + _DAY >= until:
                break
            engine.wake(0)
            await clock.advance(_DAY)
        await clock.advance(until - clock.at)
        await _stopped(engine, clock)
    await store.close()


async def _stopped(engine: Engine[LaneJobs], clock: ManualClock) -> None:
    """Stop it; what runs ends only if time goes on."""
    stopping = asyncio.ensure_future(engine.stop())
    while not stopping.done():
        await clock.advance(timedelta(minutes=1))
    await stopping


def _engine(store: SqliteStore, clock: ManualClock, work: Callable[[Call], Any]) -> Engine[LaneJobs]:
    actions = Actions(clock, callbacks={"work": work})
    owner = f"atlas-{4100 + clock.now() % 97}-{clock.now() % 65521:08x}"
    lane = LaneJobs(store, lane="default", owner=owner, preparer=actions.preparer)
    return Engine(store, clock, lane, longest_wait_us=_DAY // timedelta(microseconds=1))


def _schedules(quiet: str) -> list[dict[str, Any]]:
    retry = {"attempts": 3, "delay_seconds": 60}
    return [
        {"schedule_id": "ring-the-bell", "name": "Ring the bell", "type": "cron", "spec": "0 12 * * *",
         "timezone": "Europe/Kyiv", "tags": ["house"], "action": _WORK},
        {"schedule_id": "invoices", "name": "Send invoices", "type": "cron", "spec": "0 9 * * 1-5",
         "timezone": "Europe/Kyiv", "tags": ["billing"], "quiet_hours_policy_id": quiet, "action": _WORK},
        {"schedule_id": "backup", "name": "Back up the ledger", "type": "cron", "spec": "30 2 * * *",
         "timezone": "America/New_York", "tags": ["backup"], "retry": retry, "action": _WORK,
         "catch_up_policy": "run_once"},
        {"schedule_id": "digest", "name": "Weekly digest", "type": "cron", "spec": "0 8 * * 1",
         "timezone": "Europe/Berlin", "tags": ["mail"], "action": _WORK},
    ]  # fmt: skip


def _busy() -> list[dict[str, Any]]:
    return [
        {"schedule_id": "warm-cache", "name": "Warm the cache", "type": "interval", "spec": "900",
         "tags": ["web", "cache"], "action": _WORK},
        {"schedule_id": "metrics", "name": "Collect metrics", "type": "cron", "spec": "*/5 * * * *", "tags": ["web"],
         "action": _WORK},
    ]  # fmt: skip


def today() -> datetime:
    """The moment that a year is lived through to: now, at a whole minute."""
    return datetime.now(UTC).replace(second=0, microsecond=0)
