"""Where a bound cuts, the page says so; and what is counted, is counted with jitter."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from noonbell.core.instants import instant, moment
from noonbell.core.records import Span
from noonbell.web import forecast_load as forecast
from noonbell.web import next_hour, year
from noonbell.web.forecast_load import MINUTE, WEEK, look_ahead
from noonbell.web.pages import overview
from tests.web.conftest import Browser, Parsed
from tests.web.test_forecast import NOW, sampled
from tests.web.test_pages import make

DAY = timedelta(days=1)


class Spans:
    """A ledger with a skipped occurrence every six hours, and nothing else."""

    def __init__(self, days: int) -> None:
        begin = instant(NOW - days * DAY)
        every = 6 * 60 * MINUTE
        self.kept = [
            Span(1, at, at, 1, "skipped", "quiet hours", 0) for at in range(begin, instant(NOW), every)
        ]  # fmt: skip
        self.asked = 0

    async def snapshot(self, read: Any) -> Any:
        return await read(self)

    @property
    def history(self) -> Self:
        return self

    async def spans(
        self, sid: int, from_at: int, to_at: int, limit: int | None = None, *, newest_first: bool = False
    ) -> list[Span]:
        assert newest_first
        self.asked += 1
        return [one for one in reversed(self.kept) if one.to_at >= from_at and one.from_at <= to_at][:limit]

    async def past_runs(self, *_: Any) -> list[Any]:
        return []

    async def read(self, *_: Any, **__: Any) -> list[Any]:
        return []


async def drawn(store: Any) -> year.Year:
    return await year.year_of(store, 1, "UTC", NOW, NOW - 300 * DAY)


async def test_a_calendar_with_few_spans_is_whole_and_costs_one_look() -> None:
    store = Spans(100)
    found = await drawn(store)
    assert found.bounds == []
    assert found.totals["skipped"] == len(store.kept)
    assert store.asked == 1


async def test_of_many_spans_the_latest_are_drawn_and_it_is_said_from_when_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(year, "MOST_SPANS", 100)
    found = await drawn(Spans(200))
    assert found.spans_since is not None
    assert found.spans_since == NOW - 25 * DAY, "of the latest hundred, four a day, the first"
    (told,) = found.bounds
    assert f"{found.spans_since:%d %b %Y}" in told
    looks = {cell.day.date: cell.day.look for cell in found.cells}
    assert looks[(NOW - DAY).date()] == "skip", "the latest are there"
    assert looks[(NOW - 150 * DAY).date()] == "out", "the others are not taken for empty days"
    assert found.totals["skipped"] == 100


async def test_the_page_of_a_schedule_tells_its_bounds(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    await make(browser, "one")

    async def cut(*_: Any) -> tuple[list[Span], int]:
        return [], instant(datetime(2026, 3, 4, tzinfo=UTC))

    assert "Not read here" not in await browser.read("/schedules/one")
    monkeypatch.setattr(year, "_latest_spans", cut)
    assert "before 04 Mar 2026 00:00 UTC" in Parsed(await browser.read("/schedules/one")).text


async def test_the_overview_says_that_there_are_more_monitors(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await browser.service.monitors.create(name=f"m{number}", type="interval", spec="60")
    assert "Monitors down 0 of 3" in Parsed(await browser.read("/")).text
    monkeypatch.setattr(overview, "_MOST_MONITORS", 2)
    assert "Monitors down 0+ of the first 2; there are more" in Parsed(await browser.read("/")).text


# --- jitter -----------------------------------------------------------------------------------------------------------


JITTERED: list[dict[str, Any]] = [
    {"type": "cron", "spec": "0 9 * * *", "jitter_seconds": 1800},
    {"type": "cron", "spec": "0 9 * * *", "jitter_seconds": 1800},
    {"type": "interval", "spec": "7200", "jitter_seconds": 3600},
    {"type": "cron", "spec": "30 * * * *", "jitter_seconds": 600, "quiet_hours_policy_id": "nights"},
]


async def test_the_forecast_counts_starts_where_jitter_puts_them() -> None:
    sample, schedules = await sampled(*JITTERED)
    found = await look_ahead(sample, "default", instant(NOW))
    expected: Counter[int] = Counter()
    for number in range(len(JITTERED)):
        for one in await schedules.preview(f"s{number}", 1_000):
            minute = (instant(one.starts_at) - found.begins) // MINUTE
            if minute < WEEK and not one.quiet:
                expected[minute] += 1
    assert {minute: count for minute, count in enumerate(found.counts) if count} == dict(expected)
    assert found.whole
    assert any(minute % (24 * 60) != (9 * 60 - 630) % (24 * 60) for minute in expected), "they are spread"
    busiest = found.busiest[0]
    assert busiest.schedules == busiest.starts


async def test_where_jitter_is_too_much_to_visit_it_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "STARTS", 8)
    sample, _ = await sampled(*JITTERED[:2])
    found = await look_ahead(sample, "default", instant(NOW))
    assert not found.whole
    assert found.total == pytest.approx(14)


async def test_the_coming_hour_shows_when_things_really_start() -> None:
    sample, schedules = await sampled({"type": "cron", "spec": "45 * * * *", "jitter_seconds": 600})
    (one, *_) = await schedules.preview("s0", 1)
    assert one.starts_at != one.scheduled_for
    hour = next_hour.next_hour(sample.schedules, instant(NOW))
    assert [fire.at for fire in hour.fires] == [one.starts_at]
    assert sum(hour.counts) == 1
    late = next_hour.next_hour(sample.schedules, instant(one.scheduled_for) + 1)
    assert late.fires[0].at == one.starts_at, "its nominal time has passed, its start has not"
    assert moment(instant(NOW)) == NOW
