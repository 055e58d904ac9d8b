"""A declared face reads and writes its own rows only: a durable schedule in the same store is left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from noonbell import Scheduler
from noonbell.core.records import StoredSchedule, Turn
from noonbell.ports import Ledger, ScheduleChange, ScheduleFilter
from noonbell.schedules import changes
from noonbell.schedules.fields import read_fields
from noonbell.testing import ManualClock

NOON = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


async def test_a_durable_schedule_of_the_same_owner_is_neither_removed_nor_run(each_store: Ledger) -> None:
    clock = ManualClock(NOON)
    given = {"name": "report", "type": "cron", "spec": "* * * * *", "action": {"kind": "callback", "name": "report"}}
    columns = read_fields(given, None).columns
    durable = changes.created(
        "durable", columns, clock.now(), enabled=True, managed_by="scheduler:default", lane="default"
    )
    await each_store.schedules.apply(ScheduleChange([durable], clock.now(), "test"))
    (before,) = await each_store.schedules.find(ScheduleFilter(), 0, 10)

    ran: list[str] = []
    scheduler = Scheduler(each_store, clock=clock, time_zone="UTC")
    await scheduler.initialize([("other", "0 0 * * *", lambda: ran.append("other"), timedelta(minutes=5))])
    (after,) = await each_store.schedules.find(ScheduleFilter(), 0, 10)
    assert after == before
    claimed, _ = await each_store.runs.claim("scheduler:default", "me", clock.now() + 3_600_000_000, 10, _refuse)
    assert (claimed.looked, claimed.next_wake_at is not None) == (0, True)
    await scheduler.stop()


def _refuse(stored: StoredSchedule) -> Turn:
    raise AssertionError(f"{stored} is not a declared task")
