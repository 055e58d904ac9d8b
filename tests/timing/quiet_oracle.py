"""A slow second opinion on quiet hours: it walks real minutes and watches the clock on the wall.

A window of a day opens at the first minute that shows its beginning or later. It closes at the last minute that shows
its end; where no minute shows it, at the first minute after the last that was earlier. Nothing here imports the package
or knows about offsets. Windows are in whole minutes here, and the zones' offsets too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE = 60
PAD = 3 * 86_400  # walked on each side, so that windows that reach into the stretch are seen whole


@dataclass(frozen=True)
class Told:
    """A window as the oracle reads it."""

    weekdays: frozenset[int]
    dates: frozenset[date]
    from_time: time
    to_time: time
    key: str
    valid_from: date | None
    valid_to: date | None

    def begins_on(self, day: date) -> bool:
        if self.valid_from is not None and day < self.valid_from:
            return False
        if self.valid_to is not None and day > self.valid_to:
            return False
        return day in self.dates or (day.weekday() + 1) % 7 in self.weekdays


@lru_cache(maxsize=64)
def walls(key: str, start: int, end: int) -> tuple[datetime, ...]:
    """What the wall shows at each real minute of [start, end)."""
    zone = ZoneInfo(key)
    return tuple(datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0) for at in range(start, end, MINUTE))


@lru_cache(maxsize=64)
def highs(key: str, start: int, end: int) -> tuple[list[datetime], list[int]]:
    """The minutes that show what no minute before them reached, with their places: a first one later than x is here."""
    found: dict[datetime, int] = {}
    highest = datetime(1, 1, 1)  # noqa: DTZ001 - civil time without a zone
    for index, wall in enumerate(walls(key, start, end)):
        if wall > highest:
            found[wall] = index
            highest = wall
    return list(found), list(found.values())


@lru_cache(maxsize=64)
def lows(key: str, start: int, end: int) -> tuple[list[datetime], list[int]]:
    """The minutes that show what no minute after them falls back to: a last one earlier than x is here."""
    found: dict[datetime, int] = {}
    shown = walls(key, start, end)
    lowest = datetime(9999, 12, 31)  # noqa: DTZ001 - civil time without a zone
    for index in reversed(range(len(shown))):
        if shown[index] < lowest:
            found[shown[index]] = index
            lowest = shown[index]
    return list(found)[::-1], list(found.values())[::-1]


def quiet_minutes(windows: list[Told], start: int, end: int) -> list[bool]:
    """For each real minute of [start, end): whether some window holds it."""
    low, high = start - PAD, end + PAD
    held: set[int] = set()
    for window in windows:
        day = walls(window.key, low, high)[0].date() - timedelta(days=1)
        for _ in range((high - low) // 86_400 + 3):
            if window.begins_on(day):
                held |= set(_held_on(window, day, low, high))
            day += timedelta(days=1)
    first = (start - low) // MINUTE
    return [index in held for index in range(first, first + (end - start) // MINUTE)]


def _held_on(window: Told, day: date, low: int, high: int) -> range:
    opens = datetime.combine(day, window.from_time)
    closes = datetime.combine(day, window.to_time)
    if closes <= opens:
        closes += timedelta(days=1)
    shown, places = highs(window.key, low, high)
    later = bisect_left(shown, opens)
    begin = places[later] if later < len(places) else (high - low) // MINUTE
    shown, places = lows(window.key, low, high)
    earlier = bisect_right(shown, closes) - 1
    if earlier < 0:
        return range(0)
    return range(begin, places[earlier] + (shown[earlier] < closes))


def runs(flags: list[bool], start: int) -> list[tuple[int, int]]:
    """[from, to) of each run of True, in seconds."""
    found = []
    opened: int | None = None
    for index, flag in enumerate([*flags, False]):
        if flag and opened is None:
            opened = index
        elif not flag and opened is not None:
            found.append((start + opened * MINUTE, start + index * MINUTE))
            opened = None
    return found


def midnight(day: str) -> int:
    """The second at which a UTC day begins."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())
