"""Due moments by brute force: every minute of a day is looked at.

The trace checker must not share a fault with the engine, so it shares no arithmetic with it: this module reads the five
fields itself, asks the zone for the civil time of each minute, and compares. It is for expressions that are known to be
valid POSIX and for zones whose offset is a whole number of minutes, as all have had since 1972.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

MINUTE: Final = 60_000_000
_DAY_SECONDS: Final = 86_400
_DAY: Final = _DAY_SECONDS * 1_000_000
_FIRST: Final = date(1970, 1, 1)
_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
# Further back than this nothing is looked for: a leap day is the rarest thing an expression can ask for.
_LONGEST_SEARCH: Final = timedelta(days=8 * 366 + 1).days


def minute_start(at: int) -> int:
    """The start of the minute that holds the instant, in microseconds."""
    return at - at % MINUTE


def falls_due(cron: str, zone: tzinfo, after: int, upto: int) -> bool:
    """Return whether a matching minute starts after `after`, at or before `upto`."""
    if upto <= after:
        return False
    last = upto // _DAY
    first = max(after // _DAY, last - _LONGEST_SEARCH)
    for day in range(last, first - 1, -1):
        starts = _starts(cron, zone, day)
        if bisect_right(starts, upto) > bisect_right(starts, after):
            return True
    return False


def due_between(cron: str, zone: tzinfo, start: int, end: int) -> list[int]:
    """The due moments in [start, end), oldest first."""
    found: list[int] = []
    for day in range(start // _DAY, (end - 1) // _DAY + 1):
        starts = _starts(cron, zone, day)
        found.extend(starts[bisect_left(starts, start) : bisect_left(starts, end)])
    return found


@lru_cache(maxsize=65_536)
def _starts(cron: str, zone: tzinfo, day: int) -> tuple[int, ...]:
    minutes, hours, days, months, weekdays = _read(cron)
    # A civil day lies within a UTC day, the one before and the one after it: most days are out of the question.
    if not any((_FIRST + timedelta(days=day + near)).month in months for near in (-1, 0, 1)):
        return ()
    texts = cron.split()
    either = texts[2] != "*" and texts[4] != "*"

    def matches(civil: tuple[int, int, int, int, int]) -> bool:
        minute, hour, of_month, month, weekday = civil
        if minute not in minutes or hour not in hours or month not in months:
            return False
        if either:
            return of_month in days or weekday in weekdays
        return of_month in days and weekday in weekdays

    return tuple(day * _DAY + index * MINUTE for index, civil in enumerate(_civil(zone, day)) if matches(civil))


@lru_cache(maxsize=1_024)
def _civil(zone: tzinfo, day: int) -> tuple[tuple[int, int, int, int, int], ...]:
    """(minute, hour, day, month, weekday with Sunday 0) of each minute of a UTC day."""
    found = []
    for index in range(1440):
        at = datetime.fromtimestamp(day * _DAY_SECONDS + index * 60, zone)
        found.append((at.minute, at.hour, at.day, at.month, at.isoweekday() % 7))
    return tuple(found)


@lru_cache(maxsize=4_096)
def _read(cron: str) -> tuple[frozenset[int], ...]:
    return tuple(_field(text, low, high) for text, (low, high) in zip(cron.split(), _RANGES, strict=True))


def _field(text: str, low: int, high: int) -> frozenset[int]:
    if text == "*":
        return frozenset(range(low, high + 1))
    values: set[int] = set()
    for element in text.split(","):
        first, _, last = element.partition("-")
        values.update(range(int(first), int(last or first) + 1))
    return frozenset(values)
