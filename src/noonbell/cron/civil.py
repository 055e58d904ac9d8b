"""A cron expression on a clock without a zone: seconds and days counted from 1970-01-01 00:00 on the wall.

The matching times of a day are a sorted tuple, the matching days of a year a bit mask; every question is a look-up in
one or both. Tables are shared by all expressions that match the same minutes in the same way of writing.

Safe to use from several threads: the year that was looked at last is kept as one tuple, read once for each question.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Final

from noonbell.cron.cron_fields import mask_values
from noonbell.cron.days import EPOCH_ORDINAL, DayTable, Year, day_table
from noonbell.cron.zones import DAY

FIRST_CIVIL: Final = (date.min.toordinal() - EPOCH_ORDINAL) * DAY
_LAST_DAY: Final = date.max.toordinal() - EPOCH_ORDINAL


class Civil:
    """The civil seconds at which an expression matches."""

    __slots__ = ("_daily", "_table", "_year", "times")

    def __init__(self, times: tuple[int, ...], table: DayTable) -> None:
        self.times = times  # of a day, in seconds, ascending
        self._table = table
        self._daily = table.daily
        self._year: Year = (0, 0, 0, 0)

    @property
    def sparse(self) -> bool:
        """Return whether so few days match that walking them together gains nothing."""
        return self._table.sparse

    def on(self, day: int) -> bool:
        """Return whether the day matches."""
        if self._daily:
            return True
        first, _, mask, _ = self._year_of(day)
        return bool(mask >> day - first & 1)

    def at_or_after(self, civil: int) -> int:
        """The first match at or after a civil second; ValueError before the calendar, a second past it at its end."""
        times = self.times
        day, second = divmod(civil, DAY)
        if self._daily:
            index = bisect_left(times, second)
            if index < len(times):
                return civil - second + times[index]
            return civil - second + DAY + times[0]
        year = self._year
        if not year[0] <= day < year[1]:
            year = self._year_of(day)
        rest = year[2] >> day - year[0]
        if rest & 1:
            index = bisect_left(times, second)
            if index < len(times):
                return civil - second + times[index]
            rest ^= 1
        if rest:
            return (day + (rest & -rest).bit_length() - 1) * DAY + times[0]
        return self._day_after_year(year) * DAY + times[0]

    def at_or_before(self, civil: int) -> int:
        """The latest match at or before a civil second; ValueError where the calendar begins."""
        day, second = divmod(civil, DAY)
        if self.on(day):
            index = bisect_right(self.times, second)
            if index:
                return civil - second + self.times[index - 1]
        return self._day_before(day) * DAY + self.times[-1]

    def between(self, low: int, high: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """For each matching day in [low, high): its midnight, and its matching times that lie in there."""
        times = self.times
        day = low // DAY
        while (day := self._day_from(day)) * DAY < high:
            midnight = day * DAY
            if midnight < low or high < midnight + DAY:
                yield midnight, times[bisect_left(times, low - midnight) : bisect_left(times, high - midnight)]
            else:
                yield midnight, times
            day += 1

    def count(self, low: int, high: int) -> int:
        """Count the matches in [low, high)."""
        if low >= high:
            return 0
        low_day, low_second = divmod(low, DAY)
        high_day, high_second = divmod(high, DAY)
        total = self._count_days(low_day, high_day) * len(self.times)
        if low_second and self.on(low_day):
            total -= bisect_left(self.times, low_second)
        if high_second and self.on(high_day):
            total += bisect_left(self.times, high_second)
        return total

    def minimum_spacing(self) -> int:
        """The shortest distance between two neighbouring matches, in seconds."""
        times = self.times
        within = min((b - a for a, b in pairwise(times)), default=None)
        if within is not None and DAY - times[-1] + times[0] >= within:
            return within
        across = self._closest_days() * DAY - times[-1] + times[0]
        return across if within is None else min(across, within)

    def shape_key(self) -> tuple[int, ...]:
        """Equal for two exactly when they match the same days."""
        return self._table.shape_key()

    # --- days -----------------------------------------------------------------------------------------------------

    def _year_of(self, day: int) -> Year:
        year = self._year
        if not year[0] <= day < year[1]:
            year = self._year = self._table.year_of(day)
        return year

    def _day_from(self, day: int) -> int:
        """The first matching day at or after `day`; one past the calendar when there is none."""
        if self._daily or day > _LAST_DAY:
            return day
        year = self._year_of(day)
        rest = year[2] >> day - year[0]
        return day + (rest & -rest).bit_length() - 1 if rest else self._day_after_year(year)

    def _day_after_year(self, year: Year) -> int:
        """The first matching day after a year."""
        while year[1] <= _LAST_DAY:
            year = self._table.year_after(year)
            mask = year[2]
            if mask:
                self._year = year
                return year[0] + (mask & -mask).bit_length() - 1
        return _LAST_DAY + 1

    def _day_before(self, day: int) -> int:
        """The last matching day before `day`."""
        if self._daily:
            return day - 1
        while True:
            day -= 1
            first, _, mask, _ = self._year_of(day)
            seen = mask & (2 << day - first) - 1
            if seen:
                return first + seen.bit_length() - 1
            day = first

    def _count_days(self, low: int, high: int) -> int:
        """Matching days in [low, high)."""
        if self._daily:
            return high - low
        high = min(high, _LAST_DAY + 1)
        if low >= high:
            return 0
        total = 0
        year = self._year_of(low)
        while high > year[1]:
            total += (year[2] >> low - year[0]).bit_count()
            low = year[1]
            year = self._table.year_after(year)
        return total + (year[2] >> low - year[0] & (1 << high - low) - 1).bit_count()

    def _closest_days(self) -> int:
        """The fewest days from one matching day to the next. In 28 years every neighbourhood of two years occurs."""
        first = date(2001, 1, 1).toordinal() - EPOCH_ORDINAL
        day = self._day_from(first)
        closest = 1461  # one 29 February to the next
        while day - first < 29 * 366 and closest > 1:
            following = self._day_from(day + 1)
            closest = min(closest, following - day)
            day = following
        return closest


@lru_cache(maxsize=16_384)
def civil(masks: tuple[int, int, int, int, int], by_day: bool, by_weekday: bool) -> Civil:  # noqa: FBT001 - a cache key
    """The tables of these fields; expressions with the same fields share them."""
    minutes, hours, days, months, weekdays = masks
    table = day_table(days, months, weekdays, by_day=by_day, by_weekday=by_weekday)
    return Civil(_times_of_day(minutes, hours), table)


@lru_cache(maxsize=4096)
def _times_of_day(minutes: int, hours: int) -> tuple[int, ...]:
    at = [60 * minute for minute in mask_values(minutes)]
    return tuple(3600 * hour + second for hour in mask_values(hours) for second in at)
