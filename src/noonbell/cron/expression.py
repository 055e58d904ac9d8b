"""A parsed cron expression and its arithmetic.

Everything works on whole seconds since 1970 and a Zone. Inside a segment of constant offset, civil time is UTC plus a
number, and `Civil` answers for the wall clock: the next time of day today, or the first one on the next matching day. A
search leaves the segment only when the match lies beyond its end. No search walks minutes or days one by one.

The datetime methods convert at the edge and give results in the zone of their argument. No clock is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NoReturn

from noonbell.cron.civil import FIRST_CIVIL, Civil, civil
from noonbell.cron.cron_fields import FULL_MASKS, mask_values
from noonbell.cron.zones import DAY, EPOCH, FIRST_INSTANT, LARGEST_SHIFT, LAST_INSTANT, Segment, Zone, zone_of
from noonbell.errors import CronCalculationError, NaiveDatetimeError

DstPolicy = Literal["literal", "once"]

_EARLY: Final = FIRST_INSTANT + LARGEST_SHIFT


_NOWHERE: Final = (None, 0, zone_of(UTC))


class CronExpression:
    """When a schedule fires. Immutable; equal to every expression that matches the same minutes.

    Made by `noonbell.cron.parse`. `text` is the expression as it was typed.
    """

    __slots__ = ("_civil", "_key", "_masks", "_walk", "day_restricted", "text", "weekday_restricted")

    text: str
    day_restricted: bool
    weekday_restricted: bool
    _masks: tuple[int, int, int, int, int]
    _key: tuple[int, ...] | None
    _civil: Civil | None
    _walk: tuple[datetime | None, int, Zone]

    def __init__(
        self, text: str, masks: tuple[int, int, int, int, int], *, day_restricted: bool, weekday_restricted: bool
    ) -> None:
        put = object.__setattr__
        put(self, "text", text)
        put(self, "_masks", masks)
        put(self, "day_restricted", day_restricted)
        put(self, "weekday_restricted", weekday_restricted)
        put(self, "_civil", None)
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
        """Return whether the civil minute that holds `at` matches."""
        instant, zone = _instant(at)
        return self.matches_epoch(instant, zone)

    def next(self, after: datetime, *, dst: DstPolicy = "literal") -> datetime:
        """The first occurrence strictly after `after`, in its zone."""
        last, instant, zone = self._walk
        if last is not after:  # a caller that walks from one occurrence to the next passes the result of the last call
            instant, zone = _instant(after)
        try:
            found = self.next_epoch(instant, zone, dst)
        except CronCalculationError as error:
            raise self._no_occurrence(after, "after") from error.__cause__
        try:
            result = datetime.fromtimestamp(found, zone.tzinfo)
        except (OverflowError, ValueError) as error:
            raise self._no_occurrence(after, "after") from error
        object.__setattr__(self, "_walk", (result, found, zone))
        return result

    def previous(self, at: datetime, *, dst: DstPolicy = "literal") -> datetime:
        """The latest occurrence at or before `at`, in its zone."""
        instant, zone = _instant(at)
        try:
            found = self.previous_epoch(instant, zone, dst)
        except CronCalculationError as error:
            raise self._no_occurrence(at, "at or before") from error.__cause__
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
        """Count the occurrences that `between` would give, by arithmetic."""
        return self.count_epochs(_ceiling(start), _ceiling(end), _instant(start)[1], dst)

    def minimum_spacing(self) -> timedelta:
        """The shortest civil time between two neighbouring occurrences; clock changes do not count."""
        return timedelta(seconds=self._tables.minimum_spacing())

    # --- on integers: seconds since 1970, for the engine -------------------------------------------------------------

    def matches_epoch(self, at: int, zone: Zone) -> bool:
        """Return whether the civil minute that holds the UTC second `at` matches."""
        day, second = divmod(at + zone.segment(at).offset, DAY)
        hour, rest = divmod(second, 3600)
        return bool(self._masks[1] >> hour & 1 and self._masks[0] >> rest // 60 & 1 and self._tables.on(day))

    def next_epoch(self, after: int, zone: Zone, dst: DstPolicy = "literal") -> int:
        """The first occurrence strictly after the UTC second `after`."""
        once = dst != "literal" and self._once(dst)
        tables, asked = self._civil or self._tables, after
        try:
            # one second before the calendar is allowed: it asks for the first occurrence there is
            segment = zone.segment(after if after != FIRST_INSTANT - 1 else FIRST_INSTANT)
            wall = (
                after + 1 + segment[2] if after >= _EARLY and not once else _search_from(segment, after + 1, once=once)
            )
            while True:
                start, end, offset, _, _, _ = segment
                found = tables.at_or_after(wall)
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
                wall = _search_from(segment, after, once=once)
        except (OverflowError, ValueError) as error:
            raise self._no_occurrence(asked, "after") from error

    def previous_epoch(self, at: int, zone: Zone, dst: DstPolicy = "literal") -> int:
        """The latest occurrence at or before the UTC second `at`."""
        once = dst != "literal" and self._once(dst)
        tables, asked = self._tables, at
        try:
            while True:
                start, _, offset, gap_from, fresh_from, _ = zone.segment(at)
                found = tables.at_or_before(at + offset)
                lowest = start + offset
                if once:
                    lowest = gap_from if fresh_from == start else fresh_from + offset
                if found >= lowest:
                    result = found - offset if found >= start + offset else _first_minute(start, offset)
                    if result <= at:
                        return result
                at = start - 1 if at - start < LARGEST_SHIFT else min(start - 1, found - offset + LARGEST_SHIFT)
        except (OverflowError, ValueError) as error:
            raise self._no_occurrence(asked, "at or before") from error

    def epochs_between(self, start: int, end: int, zone: Zone, dst: DstPolicy = "literal") -> Iterator[int]:
        """The occurrences in [start, end), one by one."""
        tables = self._tables
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
            if tables.sparse:
                continue
            # the rest of this segment is plain: no clock change in it
            _, closed, offset, _, _, _ = zone.segment(at)
            last = min(closed, end) - 1
            for midnight, chosen in tables.between(at + offset + 1, last + offset + 1):
                base = midnight - offset
                for second in chosen:
                    yield base + second

    def count_epochs(self, start: int, end: int, zone: Zone, dst: DstPolicy = "literal") -> int:
        """Count the occurrences in [start, end)."""
        return sum(self._tables.count(low, high) + owed for low, high, owed in self._stretches(start, end, zone, dst))

    # --- inside ---------------------------------------------------------------------------------------------------

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
                if gap_from < opened + offset and self._tables.count(gap_from, opened + offset):
                    minute = _first_minute(opened, offset)
                    owed = at <= minute < end and not self.matches_epoch(minute, zone)
            yield low, high, owed
            at = closed

    @property
    def _tables(self) -> Civil:
        """Worked out on first use, so that parsing stays cheap."""
        tables = self._civil
        if tables is None:
            tables = civil(self._masks, self.day_restricted, self.weekday_restricted)
            object.__setattr__(self, "_civil", tables)
        return tables

    def _once(self, dst: str) -> bool:
        """Return whether the policy `once` applies. It is for named hours; 'every hour' means elapsed hours."""
        if dst != "once":
            raise ValueError(f"dst is {dst!r}; it must be 'literal' or 'once'")
        return self._masks[1] != FULL_MASKS["hour"]

    def _identity(self) -> tuple[int, ...]:
        key = self._key
        if key is None:
            key = (*self._masks[:2], *self._tables.shape_key())
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
    wall = at + offset
    if once:
        if at < fresh_from:
            wall = fresh_from + offset
        elif at <= _first_minute(start, offset):  # what the gap before it swallowed is still ahead
            wall = min(wall, gap_from)
    return max(wall, FIRST_CIVIL) if at < _EARLY else wall


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
