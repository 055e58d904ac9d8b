"""One window of quiet hours: on which days, from when to when, on whose clock.

A window is civil time. It begins on a day that its weekdays or its dates name, at `from_time`, and ends at `to_time`:
on the same day where that is later, on the next day where it is not. So 22:00 to 06:00 reaches across midnight and
belongs to the evening it begins on, and equal times mean the whole day, from that time to the same time tomorrow.
`valid_from` and `valid_to` (both included) bound the days on which it may begin.

On a day with a clock change it is still one stretch of real time, without a hole:

- A beginning or end that does not exist, because the clock leaps over it, means the moment of the leap.
- A beginning that comes twice means its first coming, an end that comes twice its last. (So a window that ends at the
  very time the clock is set back to lasts for the repeated hour: better quiet for too long than a rude awakening.)

A window that lies in a gap altogether is empty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, tzinfo
from typing import Final

from noonbell.cron import zone_of
from noonbell.cron.zones import DAY
from noonbell.errors import QuietHoursInvalidError
from noonbell.timing.civil_time import day_number, first_coming, last_coming

_FIRST_DAY: Final = day_number(date.min)
_LAST_DAY: Final = day_number(date.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Checked when it is made. A day counts where its weekday (0 is Sunday) or its date is named; either is enough."""

    from_time: time
    to_time: time
    zone: tzinfo
    weekdays: frozenset[int] = frozenset()
    dates: frozenset[date] = frozenset()
    valid_from: date | None = None
    valid_to: date | None = None

    def __post_init__(self) -> None:
        for name in ("from_time", "to_time"):
            _check_time(name, getattr(self, name))
        if not isinstance(self.zone, tzinfo):
            raise QuietHoursInvalidError("zone", self.zone, "must be a tzinfo, such as ZoneInfo('Europe/Kyiv')")
        for name in ("weekdays", "dates"):
            if not isinstance(getattr(self, name), frozenset):
                raise QuietHoursInvalidError(name, getattr(self, name), "must be a frozenset")
        for weekday in self.weekdays:
            _check_weekday(weekday)
        for name, days in (("dates", self.dates), ("valid_from", [self.valid_from]), ("valid_to", [self.valid_to])):
            for day in days:
                if day is not None or name == "dates":
                    _check_date(name, day)
        if not self.weekdays and not self.dates:
            raise QuietHoursInvalidError("weekdays", sorted(self.weekdays), "must name a day, where dates name none")
        if self.valid_from is not None and self.valid_to is not None and self.valid_to < self.valid_from:
            reason = f"must not be before valid_from, which is {self.valid_from}"
            raise QuietHoursInvalidError("valid_to", str(self.valid_to), reason)

    def spans_after(self, at: int) -> Iterator[tuple[int, int]]:
        """[begin, end) of each of its days that ends after `at`, in the order of days; UTC seconds, on and on."""
        zone = zone_of(self.zone)
        opens = _seconds(self.from_time)
        length = (_seconds(self.to_time) - opens - 1) % DAY + 1  # equal times: a whole day
        # The day whose window was the last to end on the wall is looked at too: where the clock will be set back, by a
        # day at most, that end is still to come.
        for day in self._days_from((at + zone.offset(at) - opens - length) // DAY):
            begin = first_coming(day * DAY + opens, zone)
            end = last_coming(day * DAY + opens + length, zone)
            if end > at and begin < end:
                yield begin, end

    def last_named_day(self) -> int | None:
        """The last day that is named by date rather than by weekday, in days since 1970."""
        named = [day for day in (self.valid_from, self.valid_to, max(self.dates, default=None)) if day is not None]
        return day_number(max(named)) if named else None

    def _days_from(self, day: int) -> Iterator[int]:
        """The days on which it begins, from `day` on."""
        day = max(day, _FIRST_DAY if self.valid_from is None else day_number(self.valid_from))
        last = _LAST_DAY if self.valid_to is None else day_number(self.valid_to)
        dates = sorted(map(day_number, self.dates))
        if not self.weekdays:
            yield from (named for named in dates[bisect_left(dates, day) :] if named <= last)
            return
        singled = frozenset(dates)
        while day <= last:
            if (day + 4) % 7 in self.weekdays or day in singled:  # 1970-01-01 was a Thursday
                yield day
            day += 1


def _seconds(of_day: time) -> int:
    return of_day.hour * 3600 + of_day.minute * 60 + of_day.second


def _check_time(name: str, value: object) -> None:
    if not isinstance(value, time) or value.tzinfo is not None or value.microsecond:
        raise QuietHoursInvalidError(name, value, "must be a time of day in whole seconds, without a zone of its own")


def _check_weekday(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 6:
        hint = "; Sunday is 0" if value == 7 else ""
        raise QuietHoursInvalidError("weekdays", value, f"must be a number from 0 (Sunday) to 6 (Saturday){hint}")


def _check_date(name: str, value: object) -> None:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise QuietHoursInvalidError(name, value, "must be a date without a time")
