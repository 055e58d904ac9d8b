"""A parsed cron expression and its arithmetic.

Everything works on whole seconds since 1970 and a Zone. Inside a segment of constant offset, civil time is UTC plus a
number, so the next match is: the next time of day today, or the first one on the next matching day. A search leaves
the segment only when the match lies beyond its end. No search walks minutes or days one by one.

The datetime methods convert at the edge and give results in the zone of their argument. No clock is read here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, NoReturn

from noonbell.cron.days import EPOCH_ORDINAL, DayTable, Year, day_table
from noonbell.cron.fields import FULL_MASKS, mask_values
from noonbell.cron.zones import DAY, EPOCH, FIRST_INSTANT, LARGEST_SHIFT, LAST_INSTANT, Segment, Zone, zone_of
from noonbell.errors import CronCalculationError, NaiveDatetimeError

DstPolicy = Literal["literal", "once"]

_FIRST_CIVIL: Final = (date.min.toordinal() - EPOCH_ORDINAL) * DAY
_EARLY: Final = FIRST_INSTANT + LARGEST_SHIFT
_LAST_DAY: Final = date.max.toordinal() - EPOCH_ORDINAL


_NOWHERE: Final = (None, 0, zone_of(UTC))


@lru_cache(maxsize=4096)
def _times_of_day(minutes: int, hours: int) -> tuple[int, ...]:
    """The matching seconds of a day, ascending."""
    at = [60 * minute for minute in mask_values(minutes)]
    return tuple(3600 * hour + second for hour in mask_values(hours) for second in at)


class CronExpression:
    """When a schedule fires. Immutable; equal to every expression that matches the same minutes.

    Made by `noonbell.cron.parse`. `text` is the expression as it was typed.
    """

    __slots__ = (
        "_daily",
        "_key",
        "_masks",
        "_table",
        "_times",
        "_walk",
        "_year",
        "day_restricted",
        "text",
        "weekday_restricted",
    )

    text: str
    day_restricted: bool
    weekday_restricted: bool
    _masks: tuple[int, int, int, int, int]
    _key: tuple[int, ...] | None
    _times: tuple[int, ...] | None
    _table: DayTable
    _daily: bool
    _year: Year
    _walk: tuple[datetime | None, int, Zone]

    def __init__(
        self, text: str, masks: tuple[int, int, int, int, int], *, day_restricted: bool, weekday_restricted: bool
    ) -> None:
        put = object.__setattr__
        put(self, "text", text)
        put(self, "_masks", masks)
        put(self, "day_restricted", day_restricted)
        put(self, "weekday_restricted", weekday_restricted)
        put(self, "_times", None)
        put(self, "_key", None)
        put(self, "_walk", _NOWHERE)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"CronExpression is immutable; cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"CronExpression is immutable; cannot delete {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.text, self._masks, self.day_restricted, self.weekday_restricted)

    def __repr__(self) -> str:
        return f"CronExpression({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CronExpression):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def minutes(self) -> frozenset[int]:
        return frozenset(mask_values(self._masks[0]))

    @property
    def hours(self) -> frozenset[int]:
        return frozenset(mask_values(self._masks[1]))

    @property
    def days(self) -> frozenset[int]:
        return frozenset(mask_values(self._masks[2]))

    @property
    def months(self) -> frozenset[int]:
        return frozenset(mask_values(self._masks[3]))

    @property
    def weekdays(self) -> frozenset[int]:
        return frozenset(mask_values(self._masks[4]))

    # --- on datetimes ---------------------------------------------------------------------------------------------

    def matches(self, at: datetime) -> bool:
        """Whether the civil minute that holds `at` matches."""
        instant, zone = _instant(at)
        return self.matches_epoch(instant, zone)

    def next(self, after: datetime, *, dst: DstPolicy = "literal") -> datetime:
        """The first occurrence strictly after `after`, in its zone."""
        last, instant, zone = self._walk
        if last is not after:  # whoever walks from one occurrence to the next hands back what they just got
            instant, zone = _instant(after)
        found = self.next_epoch(instant, zone, dst)
        try:
            result = datetime.fromtimestamp(found, zone.tzinfo)
        except (OverflowError, ValueError) as error:
            raise self._no_occurrence(after, "after") from error
        object.__setattr__(self, "_walk", (result, found, zone))
        return result

    def previous(self, at: datetime, *, dst: DstPolicy = "literal") -> datetime:
        """The latest occurrence at or before `at`, in its zone."""
        instant, zone = _instant(at)
        found = self.previous_epoch(instant, zone, dst)
        try:
            return datetime.fromtimestamp(found, zone.tzinfo)
        except (OverflowError, ValueError) as error:
            raise self._no_occurrence(at, "at or before") from error

    def between(self, start: datetime, end: datetime, *, dst: DstPolicy = "literal") -> Iterator[datetime]:
        """The occurrences from `start` (included) to `end` (excluded), one by one, in the zone of `start`."""
        zone = _instant(start)[1]
        fromtimestamp, tzinfo = datetime.fromtimestamp, zone.tzinfo
        occurrences = self.epochs_between(_ceiling(start), _ceiling(end), zone, dst)
        return (fromtimestamp(at, tzinfo) for at in occurrences)

    def count(self, start: datetime, end: datetime, *, dst: DstPolicy = "literal") -> int:
        """How many occurrences `between` would give, by arithmetic."""
        return self.count_epochs(_ceiling(start), _ceiling(end), _instant(start)[1], dst)

    def minimum_spacing(self) -> timedelta:
        """The shortest civil time between two neighbouring occurrences; clock changes do not count."""
        times = self._clock_times()
        within = min((b - a for a, b in pairwise(times)), default=None)
        if within is not None and DAY - times[-1] + times[0] >= within:
            return timedelta(seconds=within)
        across = self._closest_days() * DAY - times[-1] + times[0]
        return timedelta(seconds=across if within is None else min(across, within))

    # --- on integers: seconds since 1970, for the engine -------------------------------------------------------------

    def matches_epoch(self, at: int, zone: Zone) -> bool:
        """Whether the civil minute that holds the UTC second `at` matches."""
        day, second = divmod(at + zone.segment(at).offset, DAY)
        hour, rest = divmod(second, 3600)
        return bool(self._masks[1] >> hour & 1 and self._masks[0] >> rest // 60 & 1 and self._on(day))

    def next_epoch(self, after: int, zone: Zone, dst: DstPolicy = "literal") -> int:
        """The first occurrence strictly after the UTC second `after`."""
        once = dst != "literal" and self._once(dst)
        try:
            # one second before the calendar is allowed: it asks for the first occurrence there is
            segment = zone.segment(after if after != FIRST_INSTANT - 1 else FIRST_INSTANT)
            civil = (
                after + 1 + segment[2] if after >= _EARLY and not once else _search_from(segment, after + 1, once=once)
            )
            while True:
                start, end, offset, _, _, _ = segment
                found = self._at_or_after(civil)
                at = found - offset
                if at < end:
                    return at if at >= start else _first_minute(start, offset)
                # A change within reach may bring civil times back that have passed, so step to it; beyond that reach
                # nothing matches before `found`, in whatever offset.
                if end - after < LARGEST_SHIFT:
                    after = end
                else:
                    start, stop, offset, _, _, plain_from = zone.segment(at)
                    if plain_from <= at and start <= found - offset < stop:
                        return found - offset
                    after = max(end, at - LARGEST_SHIFT)
                segment = zone.segment(after)
                civil = _search_from(segment, after, once=once)
        except (OverflowError, ValueError) as error:
            raise self._no_occurrence(after, "after") from error

    def previous_epoch(self, at: int, zone: Zone, dst: DstPolicy = "literal") -> int:
        """The latest occurrence at or before the UTC second `at`."""
        once = dst != "literal" and self._once(dst)
        try:
            while True:
                start, _, offset, gap_from, fresh_from, _ = zone.segment(at)
                found = self._at_or_before(at + offset)
                lowest = start + offset
                if once:
                    lowest = gap_from if fresh_from == start else fresh_from + offset
                if found >= lowest:
                    result = found - offset if found >= start + offset else _first_minute(start, offset)
                    if result <= at:
                        return result
                at = start - 1 if at - start < LARGEST_SHIFT else min(start - 1, found - offset + LARGEST_SHIFT)
        except (OverflowError, ValueError) as error:
            raise self._no_occurrence(at, "at or before") from error

    def epochs_between(self, start: int, end: int, zone: Zone, dst: DstPolicy = "literal") -> Iterator[int]:
        """The occurrences in [start, end), one by one."""
        times = self._clock_times()
        last = max(start, FIRST_INSTANT) - 1
        while True:
            try:
                at = self.next_epoch(last, zone, dst)
            except CronCalculationError:
                return
            if at >= end:
                return
            yield at
            last = at
            if self._table.sparse:
                continue
            # the rest of this segment is plain: no clock change in it
            _, closed, offset, _, _, _ = zone.segment(at)
            last = min(closed, end) - 1
            low, high = at + offset + 1, last + offset + 1
            day = low // DAY
            while (day := self._day_from(day)) * DAY < high:
                midnight = day * DAY
                chosen = times
                if midnight < low or high < midnight + DAY:
                    chosen = times[bisect_left(times, low - midnight) : bisect_left(times, high - midnight)]
                midnight -= offset
                for second in chosen:
                    yield midnight + second
                day += 1

    def count_epochs(self, start: int, end: int, zone: Zone, dst: DstPolicy = "literal") -> int:
        """How many occurrences lie in [start, end)."""
        return sum(self._count_civil(low, high) + owed for low, high, owed in self._stretches(start, end, zone, dst))

    # --- civil arithmetic: seconds and days since 1970-01-01 00:00 on the local clock ---------------------------------

    def _stretches(self, start: int, end: int, zone: Zone, dst: DstPolicy) -> Iterator[tuple[int, int, bool]]:
        """(civil start, civil end, owed) for each segment that [start, end) touches.

        `owed` says that the policy `once` fires at the end of the gap before it for what the gap swallowed; a minute
        that matches anyway is not owed.
        """
        once = dst != "literal" and self._once(dst)
        at, end = max(start, FIRST_INSTANT), min(end, LAST_INSTANT + 1)
        while at < end:
            opened, closed, offset, gap_from, fresh_from, _ = zone.segment(at)
            low, high, owed = at + offset, min(end, closed) + offset, False
            if once:
                low = max(low, fresh_from + offset)
                if gap_from < opened + offset and self._count_civil(gap_from, opened + offset):
                    minute = _first_minute(opened, offset)
                    owed = at <= minute < end and not self.matches_epoch(minute, zone)
            yield low, high, owed
            at = closed

    def _clock_times(self) -> tuple[int, ...]:
        return self._times or self._prepare()

    def _prepare(self) -> tuple[int, ...]:
        """Work out the tables on first use, so that parsing stays cheap."""
        put = object.__setattr__
        minutes, hours, days, months, weekdays = self._masks
        by_day, by_weekday = self.day_restricted, self.weekday_restricted
        table = day_table(days, months, weekdays, by_day=by_day, by_weekday=by_weekday)
        put(self, "_table", table)
        put(self, "_daily", table.daily)
        put(self, "_year", (0, 0, 0, 0))
        times = _times_of_day(minutes, hours)
        put(self, "_times", times)
        return times

    def _year_of(self, day: int) -> Year:
        year = self._table.year_of(day)
        object.__setattr__(self, "_year", year)
        return year

    def _on(self, day: int) -> bool:
        if self._times is None:
            self._prepare()
        if self._daily:
            return True
        first, past, mask, _ = self._year
        if not first <= day < past:
            first, past, mask, _ = self._year_of(day)
        return bool(mask >> day - first & 1)

    def _day_from(self, day: int) -> int:
        """The first matching day at or after `day`; one past the calendar when there is none."""
        if self._daily or day > _LAST_DAY:
            return day
        first, past, mask, _ = self._year
        if not first <= day < past:
            first, past, mask, _ = self._year_of(day)
        rest = mask >> day - first
        return day + (rest & -rest).bit_length() - 1 if rest else self._day_in_later_year()

    def _day_in_later_year(self) -> int:
        """The first matching day after the year at hand."""
        year = self._year
        while year[1] <= _LAST_DAY:
            year = self._table.year_after(year)
            mask = year[2]
            if mask:
                object.__setattr__(self, "_year", year)
                return year[0] + (mask & -mask).bit_length() - 1
        return _LAST_DAY + 1

    def _at_or_after(self, civil: int) -> int:
        times = self._times
        if times is None:
            times = self._prepare()
        day, second = divmod(civil, DAY)
        if self._daily:
            index = bisect_left(times, second)
            if index < len(times):
                return civil - second + times[index]
            return civil - second + DAY + times[0]
        first, past, mask, _ = self._year
        if not first <= day < past:
            first, past, mask, _ = self._year_of(day)
        rest = mask >> day - first
        if rest & 1:
            index = bisect_left(times, second)
            if index < len(times):
                return civil - second + times[index]
            rest ^= 1
        if rest:
            return (day + (rest & -rest).bit_length() - 1) * DAY + times[0]
        return self._day_in_later_year() * DAY + times[0]

    def _at_or_before(self, civil: int) -> int:
        times = self._clock_times()
        day, second = divmod(civil, DAY)
        if self._on(day):
            index = bisect_right(times, second)
            if index:
                return civil - second + times[index - 1]
        return self._day_before(day) * DAY + times[-1]

    def _day_before(self, day: int) -> int:
        """The last matching day before `day`."""
        if self._daily:
            return day - 1
        while True:
            day -= 1
            first, past, mask, _ = self._year
            if not first <= day < past:
                first, past, mask, _ = self._year_of(day)
            seen = mask & (2 << day - first) - 1
            if seen:
                return first + seen.bit_length() - 1
            day = first

    def _count_civil(self, low: int, high: int) -> int:
        """Occurrences with civil second in [low, high)."""
        if low >= high:
            return 0
        times = self._clock_times()
        low_day, low_second = divmod(low, DAY)
        high_day, high_second = divmod(high, DAY)
        total = self._count_days(low_day, high_day) * len(times)
        if low_second and self._on(low_day):
            total -= bisect_left(times, low_second)
        if high_second and self._on(high_day):
            total += bisect_left(times, high_second)
        return total

    def _count_days(self, low: int, high: int) -> int:
        """Matching days in [low, high)."""
        if self._daily:
            return high - low
        total = 0
        high = min(high, _LAST_DAY + 1)
        if low >= high:
            return total
        year = self._year_of(low)
        while True:
            first, past, mask, _ = year
            part = mask >> low - first
            if high <= past:
                return total + (part & (1 << high - low) - 1).bit_count()
            total += part.bit_count()
            low = past
            year = self._table.year_after(year)

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

    def _once(self, dst: str) -> bool:
        """The policy `once` is for those who named an hour; 'every hour' means elapsed hours."""
        if dst != "once":
            raise ValueError(f"dst is {dst!r}; it must be 'literal' or 'once'")
        return self._masks[1] != FULL_MASKS["hour"]

    def _identity(self) -> tuple[int, ...]:
        key = self._key
        if key is None:
            self._clock_times()
            key = (*self._masks[:2], *self._table.shape_key())
            object.__setattr__(self, "_key", key)
        return key

    def _no_occurrence(self, at: int | datetime, where: str) -> CronCalculationError:
        if isinstance(at, datetime):
            shown = at.isoformat()
        else:
            try:
                shown = (EPOCH + timedelta(seconds=at)).isoformat()
            except OverflowError:
                shown = f"{at} s since 1970"
        cause = ValueError(f'"{self.text}" has no occurrence {where} {shown} within the years 1 to 9999')
        return CronCalculationError(self.text, shown, cause)


def _search_from(segment: Segment, at: int, *, once: bool) -> int:
    """The civil second from which matches in this segment count, seen from the UTC second `at`."""
    start, _, offset, gap_from, fresh_from, _ = segment
    civil = at + offset
    if once:
        if at < fresh_from:
            civil = fresh_from + offset
        elif at <= _first_minute(start, offset):  # what the gap before it swallowed is still ahead
            civil = min(civil, gap_from)
    return max(civil, _FIRST_CIVIL) if at < _EARLY else civil


def _first_minute(start: int, offset: int) -> int:
    """The first start of a civil minute in a segment: some old offsets have odd seconds."""
    return start + -(start + offset) % 60


def _instant(at: datetime) -> tuple[int, Zone]:
    try:
        since = at - EPOCH
    except TypeError:
        raise NaiveDatetimeError(at) from None
    return since.days * DAY + since.seconds, zone_of(at.tzinfo or UTC)


def _ceiling(at: datetime) -> int:
    instant = _instant(at)[0]
    return instant + 1 if at.microsecond else instant


def _rebuild(text: str, masks: tuple[int, int, int, int, int], by_day: bool, by_weekday: bool) -> CronExpression:  # noqa: FBT001 - pickle passes by position
    return CronExpression(text, masks, day_restricted=by_day, weekday_restricted=by_weekday)
