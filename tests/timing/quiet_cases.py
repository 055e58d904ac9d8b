"""What the property tests of quiet hours draw from: windows whose edges lie near awkward clock changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from noonbell.timing import QuietHours, Window
from tests.timing.quiet_oracle import Told

# Zone, UTC day of a change, and the hours on the wall that it moves.
CHANGES = (
    ("America/New_York", "2024-03-10", (1, 2, 3)),
    ("America/New_York", "2024-11-03", (0, 1, 2)),
    ("Europe/Kyiv", "2026-10-25", (2, 3, 4)),
    ("Europe/Dublin", "2024-03-31", (0, 1, 2)),
    ("America/Havana", "2024-11-03", (23, 0, 1)),  # midnight comes twice
    ("America/Sao_Paulo", "2018-11-04", (23, 0, 1)),  # midnight is missing
    ("America/Sao_Paulo", "2018-02-18", (22, 23, 0)),  # the hour before midnight comes twice
    ("America/St_Johns", "2010-11-07", (22, 23, 0)),  # set back a minute after midnight
    ("Australia/Lord_Howe", "2024-04-06", (1, 2)),  # half an hour
    ("Antarctica/Troll", "2024-03-31", (0, 1, 2, 3)),  # two hours
    ("Pacific/Apia", "2011-12-30", (0, 12, 23)),  # a day is missing
    ("Pacific/Kwajalein", "1993-08-21", (0, 12, 23)),  # as is one here
    ("Pacific/Kwajalein", "1969-09-30", (0, 1, 12, 23)),  # where 23 hours came twice before
    ("Asia/Kathmandu", "2026-05-01", (0, 5, 23)),  # no change at all
)


@st.composite
def day_times(draw: st.DrawFn, hours: tuple[int, ...]) -> time:
    hour = draw(st.one_of(st.sampled_from(hours), st.integers(0, 23)))
    return time(hour, draw(st.one_of(st.sampled_from((0, 1, 30, 59)), st.integers(0, 59))))


@st.composite
def told_windows(draw: st.DrawFn, change: tuple[str, str, tuple[int, ...]]) -> Told:
    key, day_text, hours = change
    near = st.integers(-3, 3).map(lambda days: date.fromisoformat(day_text) + timedelta(days=days))
    weekdays = draw(st.frozensets(st.integers(0, 6)))
    dates = draw(st.frozensets(near, min_size=0 if weekdays else 1, max_size=3))
    bounds = sorted((draw(near), draw(near)))
    return Told(
        weekdays=weekdays,
        dates=dates,
        from_time=draw(day_times(hours)),
        to_time=draw(day_times(hours)),
        key=draw(st.sampled_from((key, key, key, "UTC", "Asia/Kolkata"))),
        valid_from=bounds[0] if draw(st.integers(0, 4)) == 0 else None,
        valid_to=bounds[1] if draw(st.integers(0, 4)) == 0 else None,
    )


def policy_of(told: list[Told]) -> QuietHours:
    return QuietHours([
        Window(
            weekdays=window.weekdays, dates=window.dates, from_time=window.from_time, to_time=window.to_time,
            zone=ZoneInfo(window.key), valid_from=window.valid_from, valid_to=window.valid_to,
        )
        for window in told
    ])  # fmt: skip


def instant(text: str, key: str | None = None) -> int:
    """Microseconds of an ISO text: with its offset, or at the first coming in a zone."""
    read = datetime.fromisoformat(text)
    if read.tzinfo is None:
        read = read.replace(tzinfo=UTC if key is None else ZoneInfo(key))
    return round(read.timestamp()) * 1_000_000


def shown(at: int, key: str) -> str:
    return datetime.fromtimestamp(at / 1_000_000, ZoneInfo(key)).isoformat()
