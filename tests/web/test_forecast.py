"""The forecast: minute by minute what the schedules themselves say, and an honest estimate where there is too much."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from noonbell.core.instants import instant, moment
from noonbell.ports import Sample
from noonbell.schedules import Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from noonbell.web import forecast_load as forecast
from noonbell.web.forecast_load import MINUTE, WEEK, Forecast, look_ahead
from noonbell.web.pages.forecast import heat_map, short

NOW = datetime(2026, 11, 16, 10, 30, 15, tzinfo=UTC)
ACTION = {"kind": "callback", "name": "none"}


async def sampled(*fields: dict[str, Any], size: int = 1_000) -> tuple[Sample, Schedules]:
    store = MemoryStore()
    schedules = Schedules(store, clock=ManualClock(NOW))
    await schedules.open()
    night = {"weekdays": [0, 1, 2, 3, 4, 5, 6], "from": "20:00", "to": "08:00", "timezone": "UTC"}
    await schedules.create_quiet_hours("nights", [night], policy_id="nights")
    for number, one in enumerate(fields):
        await schedules.create(**{"name": f"s{number}", "schedule_id": f"s{number}", "action": ACTION, **one})
    return await store.schedules.sample(size), schedules


async def test_it_says_what_the_schedules_say() -> None:
    kinds: list[dict[str, Any]] = [
        {"type": "cron", "spec": "*/7 9-17 * * 1-5", "timezone": "America/New_York"},
        {"type": "cron", "spec": "0 9 * * *", "timezone": "Europe/Kyiv"},
        {"type": "cron", "spec": "0 9 * * *", "timezone": "Europe/Kyiv"},
        {"type": "interval", "spec": "1000"},
        {"type": "one_shot", "spec": "2026-11-20T09:00:00Z"},
        {"type": "cron", "spec": "15 * * * *", "quiet_hours_policy_id": "nights"},
        {"type": "cron", "spec": "30 12 * * *", "end_at": datetime(2026, 11, 18, tzinfo=UTC)},
    ]
    sample, schedules = await sampled(*kinds)
    found = await look_ahead(sample, "default", instant(NOW))
    expected: Counter[int] = Counter()
    end = moment(found.begins) + timedelta(days=7)
    for number in range(len(kinds)):
        for one in await schedules.preview(f"s{number}", 1_000):
            if one.scheduled_for < end and not one.quiet:
                expected[(instant(one.scheduled_for) - found.begins) // MINUTE] += 1
    assert {minute: count for minute, count in enumerate(found.counts) if count} == dict(expected)
    assert found.whole
    assert found.schedules == found.looked_at == len(kinds)
    assert found.total == sum(expected.values())


async def test_the_busiest_minutes_are_named() -> None:
    at_nine = {"type": "cron", "spec": "0 9 * * *"}
    sample, _ = await sampled(*[at_nine] * 6, {"type": "cron", "spec": "0 * * * *"})
    found = await look_ahead(sample, "default", instant(NOW))
    busiest = found.busiest[0]
    assert moment(found.begins + busiest.minute * MINUTE) == datetime(2026, 11, 17, 9, tzinfo=UTC)
    assert (busiest.starts, busiest.days, busiest.schedules) == (7, 7, 7)
    assert ("s0", "s0") in busiest.names
    assert len(busiest.names) == 4
    assert len(found.busiest) == 1  # the same minute of other days is told with it, and half as busy ones are not


async def test_what_starts_all_the_time_is_counted_without_being_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "STARTS", 0)
    sample, _ = await sampled(
        {"type": "interval", "spec": "10"}, {"type": "cron", "spec": "* * * * *", "quiet_hours_policy_id": "nights"}
    )
    found = await look_ahead(sample, "default", instant(NOW))
    assert found.whole
    noon, night = 90, 12 * 60
    assert found.counts[noon] == pytest.approx(7, abs=0.01)
    assert found.counts[night] == pytest.approx(6, abs=0.01)


async def test_beyond_its_bound_it_estimates_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, _ = await sampled({"type": "cron", "spec": "*/2 * * * *"})
    monkeypatch.setattr(forecast, "STARTS", 100)
    found = await look_ahead(sample, "default", instant(NOW))
    assert not found.whole
    assert found.total == pytest.approx(WEEK / 2, rel=0.01)


async def test_a_sample_stands_for_all() -> None:
    sample, _ = await sampled(*[{"type": "cron", "spec": "0 9 * * *"}] * 10)
    found = await look_ahead(Sample(sample.schedules, 1_000), "default", instant(NOW))
    assert not found.whole
    assert found.schedules == 1_000
    assert found.looked_at == 10
    assert found.total == pytest.approx(7_000)
    assert (await look_ahead(sample, "another team", instant(NOW))).total == 0


@pytest.mark.parametrize("zone", ["UTC", "Europe/Kyiv", "Asia/Kathmandu", "America/St_Johns"])
def test_the_hours_of_the_map_hold_every_minute_once(zone: str) -> None:
    found = Forecast(instant(datetime(2026, 10, 22, 10, 34, tzinfo=UTC)), [1.0] * WEEK)  # over a change of the clock
    cells = [cell for row in heat_map(found, zone) for cell in row.cells if cell is not None]
    assert sum(cell.total for cell in cells) == WEEK
    assert {cell.step for cell in cells} == {5}


def test_the_map_goes_by_the_clock_of_its_zone() -> None:
    found = Forecast(instant(datetime(2026, 11, 16, 10, 34, tzinfo=UTC)))
    found.counts[60] = 3.0  # 11:34 UTC
    row = heat_map(found, "Asia/Kathmandu")[0]  # 5:45 ahead
    assert row.day == date(2026, 11, 16)
    assert [hour for hour, cell in enumerate(row.cells) if cell is not None and cell.peak] == [17]
    assert row.cells[15] is None


@pytest.mark.parametrize(
    ("starts", "text"), [(0.3, "0.3"), (7, "7"), (950, "950"), (1_234, "1.2k"), (35_400, "35k")]
)  # fmt: skip
def test_counts_are_short(starts: float, text: str) -> None:
    assert short(starts) == text
