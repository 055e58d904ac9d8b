"""Stretches of constant UTC offset, found in any tzinfo.

A zone is cut into segments: spans of UTC time in which its offset stays the same. Inside a segment civil time and UTC
differ by a constant, so cron arithmetic is plain integer arithmetic there; a clock change is nothing but the step from
one segment to the next. A civil minute that does not exist lies in no segment, one that comes twice lies in two.

`datetime.tzinfo` does not list its transitions, so they are found by asking for the offset once a day and bisecting
where it differs. That is exact as long as no zone changes its offset and changes it back within a day; the shortest
such stretch in the zone data is just under four days, and a test checks every zone. Segments are worked out a year at
a time, on demand, and kept.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

DAY: Final = 86_400
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
FIRST_INSTANT: Final = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // SECOND
LAST_INSTANT: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - EPOCH) // SECOND

# No two offsets of a zone differ by more: they lie within a day of UTC each way.
LARGEST_SHIFT: Final = 2 * DAY

# From here on a ZoneInfo follows its closing rule alone: explicit transitions in the zone data end before it. A rule
# depends on nothing but where the year's days fall, so years of one shape share their segments.
_RULED_FROM_YEAR: Final = 2200


class Segment(NamedTuple):
    """UTC seconds [start, end) with one offset.

    `gap_from` is the civil second where the missing hour before this segment began, or start + offset where nothing is
    missing. `fresh_from` is the first UTC second whose civil time has not been seen in an earlier segment. From
    `plain_from` on, the last change lies further back than any shift reaches.
    """

    start: int
    end: int
    offset: int
    gap_from: int
    fresh_from: int
    plain_from: int


class Zone:
    """The segments of one tzinfo. Get it from `zone_of`."""

    __slots__ = ("_by_shape", "_ruled", "_years", "recent", "tzinfo")

    def __init__(self, zone: tzinfo) -> None:
        self.tzinfo = zone
        self.recent = Segment(0, 0, 0, 0, 0, 0)  # the one asked for last: most questions are about it again
        self._years: dict[int, tuple[Segment, ...]] = {}
        self._by_shape: dict[tuple[bool, bool, bool, int], list[tuple[int, int]]] = {}
        self._ruled = isinstance(zone, ZoneInfo)

    def segment(self, at: int) -> Segment:
        """The segment that holds the UTC second `at`. Segments may be cut at the turn of a UTC year."""
        recent = self.recent
        if recent.start <= at < recent.end:
            return recent
        year = (at + 62_167_219_200) // 31_556_952  # mean Gregorian years since year 0: right, or one off
        for guess in (year, year + 1, year - 1):
            for segment in self._years.get(guess) or self._segments(guess):
                if segment.start <= at < segment.end:
                    self.recent = segment
                    return segment
        raise OverflowError("the instant lies outside the years 1 to 9999")

    def offset(self, at: int) -> int:
        """Return the seconds to add to UTC for civil time at the UTC second `at`."""
        return self.segment(at).offset

    def transitions(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(instant, offset before, offset after) of each change of offset in [start, end)."""
        found = []
        before = self.segment(start)
        while before.end < end:
            after = self.segment(before.end)
            if after.offset != before.offset:
                found.append((after.start, before.offset, after.offset))
            before = after
        return found

    # --- finding them ---------------------------------------------------------------------------------------------

    def _segments(self, year: int) -> tuple[Segment, ...]:
        year = min(max(year, 1), 9999)
        start, end = _year_start(year), min(_year_start(year + 1), LAST_INSTANT + 1)
        changes = self._changes_of(year, start, end)
        segments = []
        offset = self._probe(start - LARGEST_SHIFT)
        opened, gap_from, fresh_from, plain_from = start, start + offset, start, start
        for change, after in changes:
            if change > start:
                segments.append(Segment(opened, change, offset, gap_from, fresh_from, plain_from))
            opened = max(change, start)
            gap_from = change + min(offset, after) if change >= start else start + after
            fresh_from = max(change + max(0, offset - after), opened)
            plain_from = change + LARGEST_SHIFT
            offset = after
        segments.append(Segment(opened, end, offset, gap_from, fresh_from, plain_from))
        result = tuple(segments)
        self._years[year] = result
        return result

    def _changes_of(self, year: int, start: int, end: int) -> list[tuple[int, int]]:
        """(instant, new offset), from a little before the year so that an overlap reaching into it is known."""
        if not self._ruled or not _RULED_FROM_YEAR <= year < 9999:
            return self._find_changes(start - LARGEST_SHIFT, end)
        shape = (_is_leap(year - 1), _is_leap(year), _is_leap(year + 1), start // DAY % 7)
        relative = self._by_shape.get(shape)
        if relative is None:
            relative = [(at - start, offset) for at, offset in self._find_changes(start - LARGEST_SHIFT, end)]
            self._by_shape[shape] = relative
        return [(at + start, offset) for at, offset in relative]

    def _find_changes(self, start: int, end: int) -> list[tuple[int, int]]:
        changes = []
        low, offset = start, self._probe(start)
        while low < end - 1:
            high = min(low + DAY, end - 1)
            while self._probe(high) != offset:
                left, right = low, high
                while right - left > 1:
                    middle = (left + right) // 2
                    if self._probe(middle) == offset:
                        left = middle
                    else:
                        right = middle
                low, offset = right, self._probe(right)
                changes.append((right, offset))
            low = high
        return changes

    def _probe(self, at: int) -> int:
        try:
            found = datetime.fromtimestamp(at, self.tzinfo).utcoffset()
        except (OverflowError, ValueError):  # the civil date falls outside the years 1 to 9999
            inside = min(max(at, FIRST_INSTANT + LARGEST_SHIFT), LAST_INSTANT - LARGEST_SHIFT)
            found = datetime.fromtimestamp(inside, self.tzinfo).utcoffset()
        if found is None:
            raise ValueError(f"{self.tzinfo!r} does not give its UTC offset")
        return found // SECOND


class _FixedZone(Zone):
    """A zone that never changes: one segment for all time."""

    __slots__ = ()

    def __init__(self, zone: tzinfo, offset: int) -> None:
        super().__init__(zone)
        first, past = FIRST_INSTANT, LAST_INSTANT + 1
        self.recent = Segment(first, past, offset, first + offset, first, first)

    def segment(self, at: int) -> Segment:
        if not FIRST_INSTANT <= at <= LAST_INSTANT:
            raise OverflowError("the instant lies outside the years 1 to 9999")
        return self.recent


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _year_start(year: int) -> int:
    past = year - 1
    return (past * 365 + past // 4 - past // 100 + past // 400 - 719_162) * DAY


def _build(zone: tzinfo) -> Zone:
    if isinstance(zone, timezone):
        return _FixedZone(zone, zone.utcoffset(None) // SECOND)
    if isinstance(zone, ZoneInfo) and zone.key in ("UTC", "Etc/UTC"):
        return _FixedZone(zone, 0)
    return Zone(zone)


_cached = lru_cache(maxsize=1024)(_build)


def zone_of(zone: tzinfo) -> Zone:
    """The segments of a zone; worked out once for each tzinfo object."""
    try:
        return _cached(zone)
    except TypeError:  # an unhashable tzinfo: right, only slower
        return _build(zone)
