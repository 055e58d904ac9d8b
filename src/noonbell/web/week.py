"""A week of quiet hours as a grid: the quiet stretches of each day in minutes, in the local time of a zone. Pure.

The days are dates, beginning with that of `now`, so that single dates and clock changes are shown on their day. A day
of 23 or 25 hours is drawn with 24: the grid shows local time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Final

from noonbell.core.instants import instant, moment
from noonbell.timing import QuietHours

DAYS: Final = 7
DAY_MINUTES: Final = 1_440
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
# As people of most countries read a week.
ORDER: Final = (1, 2, 3, 4, 5, 6, 0)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class GridDay:
    """A day, and its quiet stretches as (from, to) in minutes of local time."""

    day: date
    stretches: tuple[tuple[int, int], ...]

    @property
    def minutes(self) -> int:
        return sum(to - begin for begin, to in self.stretches)


@dataclass(frozen=True, slots=True)
class Grid:
    zone: str
    days: tuple[GridDay, ...]
    quiet_now: bool

    @property
    def minutes(self) -> int:
        return sum(day.minutes for day in self.days)


def week_of(quiet: QuietHours, now: datetime) -> Grid:
    """Return seven days beginning with that of `now`, in the zone of the first window."""
    zone: tzinfo = quiet.windows[0].zone if quiet.windows else UTC
    first = now.astimezone(zone).date()
    days = tuple(_day(quiet, first + place * _DAY, zone) for place in range(DAYS))
    return Grid(str(zone), days, quiet.is_quiet(instant(now)))


def _day(quiet: QuietHours, day: date, zone: tzinfo) -> GridDay:
    begin = instant(datetime.combine(day, time(), zone).astimezone(UTC))
    end = instant(datetime.combine(day + _DAY, time(), zone).astimezone(UTC))
    found: list[tuple[int, int]] = []
    for start, stop in quiet.stretches(begin - 1, end - 1):
        shown_from = 0 if start <= begin else _minute(start, zone)
        shown_to = DAY_MINUTES if stop >= end else _minute(stop, zone)
        if shown_to > shown_from:
            found.append((shown_from, shown_to))
    return GridDay(day, tuple(found))


def _minute(at: int, zone: tzinfo) -> int:
    local = moment(at).astimezone(zone)
    return local.hour * 60 + local.minute


# --- windows in words -------------------------------------------------------------------------------------------------


def in_words(window: Mapping[str, Any]) -> str:
    """Return a window as text: 'Monday to Friday, 22:00 to 06:00 in Europe/Kyiv'."""
    days = _days(window.get("weekdays", []))
    dates = ", ".join(window.get("dates", []))
    on = " and on ".join(part for part in (days, dates) if part)
    times = "all day" if window["from"] == window["to"] == "00:00" else f"{window['from']} to {window['to']}"
    said = f"{on}, {times} in {window['timezone']}"
    if window.get("valid_from"):
        said += f", from {window['valid_from']}"
    if window.get("valid_to"):
        said += f", until {window['valid_to']}"
    return said


def _days(weekdays: Sequence[int]) -> str:
    """Return weekdays as text, with consecutive days from Monday on as a range."""
    places = [place for place, weekday in enumerate(ORDER) if weekday in weekdays]
    if len(places) == DAYS:
        return "every day"
    groups: list[list[int]] = []
    for place in places:
        if groups and groups[-1][-1] == place - 1:
            groups[-1].append(place)
        else:
            groups.append([place])
    names = [[WEEKDAYS[ORDER[place]] for place in group] for group in groups]
    return ", ".join(f"{group[0]} to {group[-1]}" if len(group) > 2 else ", ".join(group) for group in names)
