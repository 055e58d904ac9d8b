"""Which days of a year an expression matches, as one integer per year.

Bit n is day n of the year (0 is 1 January). Only fourteen years differ in shape (leap or not, times the weekday
of 1 January), so an expression works out at most fourteen such masks, whatever the calendar range.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from typing import Final

from noonbell.cron.cron_fields import FULL_MASKS

_LENGTHS: Final = ((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
_OFFSETS: Final = tuple(tuple(sum(lengths[:i]) for i in range(12)) for lengths in _LENGTHS)
_WEEKS: Final = sum(1 << 7 * week for week in range(54))
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_LONGEST: Final = max(_LENGTHS)


# One civil year: its first day and the day after its last, counted from 1970-01-01, the mask of the days that match,
# and its number. A plain tuple: the search makes one for each year it passes.
Year = tuple[int, int, int, int]


class DayTable:
    """The matching days of one combination of day, month and weekday fields."""

    __slots__ = ("_days", "_masks", "_months", "_weekdays", "daily", "sparse")

    def __init__(self, days: int, months: int, weekdays: int, *, by_day: bool, by_weekday: bool) -> None:
        # POSIX: with both restricted either may match; a '*' beside a restricted one adds nothing
        self._days = days if by_day or not by_weekday else 0
        self._weekdays = weekdays if by_weekday or not by_day else 0
        self._months = months
        self._masks: list[int | None] = [None] * 14
        self.daily = months == FULL_MASKS["month"] and (
            self._days == FULL_MASKS["day"] or self._weekdays == FULL_MASKS["weekday"]
        )
        self.sparse = self.mask(7).bit_count() < 30

    def year_of(self, day: int) -> Year:
        """The year that holds `day`; ValueError outside the years 1 to 9999."""
        number = date.fromordinal(day + EPOCH_ORDINAL).year
        leap = number % 4 == 0 and (number % 100 != 0 or number % 400 == 0)
        first = date(number, 1, 1).toordinal() - EPOCH_ORDINAL
        return first, first + 365 + leap, self.mask((first + 4) % 7 + 7 * leap), number

    def year_after(self, year: Year) -> Year:
        """The year that follows."""
        first, number = year[1], year[3] + 1
        leap = number % 4 == 0 and (number % 100 != 0 or number % 400 == 0)
        shape = (first + 4) % 7 + 7 * leap
        mask = self._masks[shape]
        return first, first + 365 + leap, self.mask(shape) if mask is None else mask, number

    def mask(self, shape: int) -> int:
        """The mask of a year by its shape: the weekday of 1 January (Sunday is 0), plus 7 in a leap year."""
        found = self._masks[shape]
        if found is None:
            found = self._masks[shape] = self._build(*divmod(shape, 7))
        return found

    def _build(self, leap: int, first_weekday: int) -> int:
        in_weekdays = (self._weekdays * _WEEKS) >> first_weekday
        mask = 0
        for month, (offset, length) in enumerate(zip(_OFFSETS[leap], _LENGTHS[leap], strict=True), start=1):
            if self._months >> month & 1:
                whole = (1 << length) - 1
                mask |= ((self._days >> 1 | in_weekdays >> offset) & whole) << offset
        return mask

    def shape_key(self) -> tuple[int, ...]:
        """Equal for two tables exactly when they match the same days: a leap year has every date."""
        return tuple(self.mask(7 + weekday) for weekday in range(7))


def can_match(days: int, months: int) -> bool:
    """Return whether some month of `months` has one of `days` at all."""
    return any(months >> month & 1 and days & (2 << length) - 1 for month, length in enumerate(_LONGEST, start=1))


@lru_cache(maxsize=4096)
def day_table(days: int, months: int, weekdays: int, *, by_day: bool, by_weekday: bool) -> DayTable:
    """The table of these fields; expressions with the same day fields share one."""
    return DayTable(days, months, weekdays, by_day=by_day, by_weekday=by_weekday)
