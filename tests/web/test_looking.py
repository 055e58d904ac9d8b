"""What pages are made from: wake-ups, the next hour, a year of verdicts, the latest occurrences, times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell.core.instants import instant, moment
from noonbell.ports import ScheduleFilter, WakeFilter
from noonbell.schedules import Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from noonbell.web import next_hour, year
from noonbell.web import page_times as times

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
ACTION = {"kind": "callback", "name": "work"}
HOUR = 3_600_000_000


async def soon(store: Any, wakes: list[tuple[int, int]]) -> list[Any]:
    found = {one.sid: one for one in await store.schedules.find(ScheduleFilter(sids=[sid for _, sid in wakes]))}
    return [found[sid] for _, sid in wakes]


async def test_what_wakes_next_is_the_same_on_every_store(each_store: Any) -> None:
    schedules = Schedules(each_store, clock=ManualClock(START))
    now = instant(START)
    for name, minutes, team in (("late", 50, "a"), ("soon", 10, "a"), ("other", 20, "b"), ("far", 90, "a")):
        await schedules.create(schedule_id=name, type="interval", spec=f"{minutes}m", action=ACTION, team=team)
    await schedules.create(schedule_id="off", type="interval", spec="5m", action=ACTION, enabled=False)

    async def found(after: tuple[int, int], upto: int, limit: int, team: str | None) -> list[str]:
        wakes = await each_store.schedules.wakes(WakeFilter(upto, team=team), after, limit)
        assert wakes == sorted(wakes)
        return [one.schedule_id for one in await soon(each_store, wakes)]

    assert await found((now, -1), now + HOUR, 10, None) == ["soon", "other", "late"]
    assert await found((now, -1), now + HOUR, 10, "a") == ["soon", "late"]
    assert await found((now, -1), now + HOUR, 1, "a") == ["soon"]
    ((at, sid),) = await each_store.schedules.wakes(WakeFilter(now + HOUR // 6, team="a"), (now, -1), 10)
    assert await found((at, sid), now + HOUR, 10, "a") == ["late"], "the wake-up before it is not included"
    assert await found((at, sid - 1), now + HOUR, 10, "a") == ["soon", "late"]
    lane = await each_store.schedules.wakes(WakeFilter(now + HOUR, "default", "a"), (now, -1), 10)
    assert [one.schedule_id for one in await soon(each_store, lane)] == ["soon", "late"]
    assert await each_store.schedules.wakes(WakeFilter(now + HOUR, "other"), (now, -1), 10) == []
    sids = [sid for _, sid in await each_store.schedules.wakes(WakeFilter(now + 2 * HOUR), (now, -1), 10)]
    everything = ScheduleFilter(sids=[*sids, sids[0], 10**9], deleted=None)
    assert [one.sid for one in await each_store.schedules.find(everything)] == sorted(sids)
    assert await each_store.schedules.find(ScheduleFilter(sids=[])) == []
    runs = await schedules.trigger("late")
    assert runs
    for wanted in (WakeFilter(now, live=True), WakeFilter(now, "default", "a", live=True)):
        assert [sid for _, sid in await each_store.schedules.wakes(wanted, (-1, -1), 10)] == [sids[2]]
    assert await each_store.schedules.wakes(WakeFilter(now, team="b", live=True), (-1, -1), 10) == []


async def test_the_next_hour_minute_by_minute() -> None:
    clock = ManualClock(START)
    async with Schedules(MemoryStore(), clock=clock) as schedules:
        window = {"from": "12:00", "to": "12:30", "timezone": "UTC", "weekdays": [0, 1, 2, 3, 4, 5, 6]}
        policy = await schedules.create_quiet_hours("noon", [window])
        await schedules.create(schedule_id="quarter", type="cron", spec="0,15,30,45 * * * *", action=ACTION)
        await schedules.create(schedule_id="often", type="interval", spec="10", action=ACTION)
        await schedules.create(
            schedule_id="quiet",
            type="cron",
            spec="10,40 * * * *",
            action=ACTION,
            quiet_hours_policy_id=policy.policy_id,
        )
        store: Any = schedules._store
        now = instant(START)
        hour = next_hour.next_hour(
            await soon(store, await store.schedules.wakes(WakeFilter(now + HOUR), (now, -1), 10)), now
        )
    assert (hour.schedules, hour.whole) == (3, True)
    assert sum(hour.counts) == 360 + 4 + 1
    assert [minute for minute, count in enumerate(hour.quiet) if count] == [9]
    assert hour.counts[14] == 7, "the quarter and six of the others"
    assert hour.peak[1] == 7
    assert [fire.schedule_id for fire in hour.fires] == ["often", "quiet", "quarter"]
    assert [fire.quiet for fire in hour.fires] == [False, True, False]


def test_a_year_of_verdicts_and_the_latest_occurrences() -> None:
    clock = ManualClock(START - timedelta(hours=22, minutes=59, seconds=30))  # half a minute before it is due
    loop = clock.new_event_loop()

    async def pass_noon(days: int) -> None:
        for _ in range(days):
            await clock.jump(timedelta(hours=23, minutes=59))  # the hours between are slept through
            await clock.advance(timedelta(minutes=1))

    async def main() -> tuple[year.Year, list[Any], list[Any]]:
        store = MemoryStore()

        async def work(call: Any) -> None:
            if call.scheduled_for.day == 4:
                raise RuntimeError("no")

        schedules = Schedules(store, clock=clock, callbacks={"work": work}, longest_wait=timedelta(hours=6))
        await schedules.open()
        await schedules.create(schedule_id="one", type="cron", spec="0 13 * * *", action=ACTION)
        await schedules.start()
        await pass_noon(4)
        await schedules.stop()
        await clock.jump(timedelta(days=1, hours=12))
        await schedules.start()
        await clock.jump(timedelta(hours=11, minutes=59))
        await clock.advance(timedelta(minutes=1))
        await pass_noon(1)
        now = moment(clock.now())
        history = await store.history.find("one")
        assert history is not None
        drawn = await year.year_of(store, history.sid, "UTC", now, START)
        some = (await schedules.detail("one", occurrences=3)).occurrences
        every = (await schedules.detail("one", occurrences=100)).occurrences
        await schedules.stop()
        return drawn, [some.next_cursor is not None, *some.items], [every.next_cursor is not None, *every.items]

    drawn, some, every = loop.run_until_complete(main())
    loop.close()
    looks = {cell.day.date.isoformat(): cell.day.look for cell in drawn.cells}
    assert looks["2026-03-02"] == "ok"
    assert looks["2026-03-04"] == "bad"
    assert looks["2026-03-06"] == "miss"
    assert looks["2026-03-07"] == looks["2026-03-08"] == "ok"
    assert looks["2026-03-01"] == "none"
    assert 52 * 7 < len(drawn.cells) <= 53 * 7
    assert drawn.totals["succeeded"] == 5
    assert not drawn.unread
    assert some[0] is True
    assert [one.scheduled_for.day for one in some[1:]] == [8, 7, 6]
    assert every[0] is False
    assert [one.verdict for one in every[1:]] == ["fired", "fired", "missed", *["fired"] * 4]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 ms"), (0.0124, "12 ms"), (1.5, "1.50 s"), (12.34, "12.3 s"), (61, "1 min 1 s"), (3600, "1 h"),
     (90_061, "1 d 1 h"), (-2, "-2.00 s")],
)  # fmt: skip
def test_durations(seconds: float, said: str) -> None:
    assert times.lasted(seconds) == said
    assert times.lasted(timedelta(seconds=seconds)) == said


def test_distances_and_zones() -> None:
    assert times.ago(START + timedelta(minutes=4, seconds=30), START) == "in 4 min"
    assert times.ago(START - timedelta(days=3), START) == "3 d ago"
    assert times.ago(START, START) == "now"
    assert times.clock(START, "Europe/Kyiv", seconds=False) == "14:00"
    assert times.clock(START, "Mars/Base") == "12:00:00", "a zone that has gone does not hide the page"
    assert times.place("America/Argentina/Buenos_Aires") == "Buenos Aires"
    assert times.iso(START) == "2026-03-02T12:00:00.000Z"
