"""A slow second opinion on cron: it walks real minutes and looks at the clock on the wall.

Nothing here imports or resembles `noonbell.cron`: a field is split and compared naively, civil time comes from
`datetime.fromtimestamp` alone, and every civil minute of a stretch is visited one after the other. It is meant to be
obviously right, so it does no arithmetic with offsets.

The two policies, each in its slow form:

- literal: an occurrence is an instant at which the clock on the wall shows second 0 of a minute that matches.
- once, where the hour field leaves an hour out: of the literal occurrences, those whose civil minute was shown before
  are left out; and where the clock leaps over civil minutes of which at least one matches, the first minute shown after
  the leap is an occurrence. Where every hour matches, the same as literal.

`Walk` visits a stretch once and answers for any number of expressions. A stretch is a matter of days; the oracle is not
made for years.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Literal

Policy = Literal["literal", "once"]

POLICIES: tuple[Policy, Policy] = ("literal", "once")

# The largest leaps in the zone data are a whole day each way; what was shown within this long before the stretch is
# remembered, so that a second coming at its beginning is recognised.
_LOOK_BACK = 3 * 86_400

_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_MINUTE = timedelta(minutes=1)


def field_values(text: str, position: int) -> set[int]:
    """The values of a field that is known to be valid."""
    low, high = _BOUNDS[position]
    if text == "*":
        return set(range(low, high + 1))
    values: set[int] = set()
    for element in text.split(","):
        ends = [int(end) for end in element.split("-")]
        values |= set(range(ends[0], ends[-1] + 1))
    return values


class Shape:
    """A valid expression, read naively."""

    def __init__(self, text: str) -> None:
        fields = text.split()
        self.text = text
        self.minutes, self.hours, self.days, self.months, self.weekdays = (
            field_values(field, position) for position, field in enumerate(fields)
        )
        self.hour_restricted = len(self.hours) < 24
        self.either_day = fields[2] != "*" and fields[4] != "*"
        self.texts = fields

    def shown(self, civil: datetime) -> bool:
        """Whether the minute on the wall matches; zone and seconds do not matter."""
        if civil.minute not in self.minutes or civil.hour not in self.hours:
            return False
        return self.day_shown(civil)

    def day_shown(self, civil: datetime) -> bool:
        if civil.month not in self.months:
            return False
        by_day = civil.day in self.days
        by_weekday = civil.isoweekday() % 7 in self.weekdays
        return (by_day or by_weekday) if self.either_day else (by_day and by_weekday)


@dataclass(frozen=True, slots=True)
class Tick:
    """The start of a civil minute: when it came, what the wall showed, if it did so before, and what was leapt over."""

    at: int
    civil: datetime
    repeated: bool
    lost: tuple[datetime, ...]


def _wall(at: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0)


def minute_starts(start: int, end: int, zone: tzinfo) -> Iterator[tuple[int, datetime]]:
    """Each instant in [start, end) at which the wall shows second 0, with what it shows."""
    at = start
    civil = _wall(at, zone)
    while at < end:
        if civil.second == 0:
            yield at, civil
        # A plain minute may be passed at one stride. Anything else (an offset with seconds, a clock change within
        # the minute) is walked second by second up to the next second 0.
        after = _wall(at + 60, zone)
        if civil.second == 0 and after - civil == _MINUTE:
            at, civil = at + 60, after
            continue
        at, civil = at + 1, _wall(at + 1, zone)
        while civil.second != 0:
            at, civil = at + 1, _wall(at + 1, zone)


class Walk:
    """All civil minutes that start in [start, end), visited once."""

    def __init__(self, start: int, end: int, zone: tzinfo) -> None:
        self.start, self.end, self.zone = start, end, zone
        self.ticks: list[Tick] = []
        seen: set[datetime] = set()
        before: datetime | None = None
        for at, civil in minute_starts(start - _LOOK_BACK, end, zone):
            if at >= start:
                lost = () if before is None or civil - before <= _MINUTE else tuple(_leapt_over(before, civil))
                self.ticks.append(Tick(at, civil, civil in seen, lost))
            seen.add(civil)
            before = civil

    def occurrences(self, shape: Shape, policy: Policy) -> list[int]:
        """The instants, ascending."""
        if policy == "literal" or not shape.hour_restricted:
            return [tick.at for tick in self.ticks if shape.shown(tick.civil)]
        found = []
        for tick in self.ticks:
            fresh = shape.shown(tick.civil) and not tick.repeated
            if fresh or (tick.lost and any(shape.shown(minute) for minute in tick.lost)):
                found.append(tick.at)
        return found


def _leapt_over(before: datetime, after: datetime) -> Iterator[datetime]:
    minute = before + _MINUTE
    while minute < after:
        yield minute
        minute += _MINUTE


def occurrences(text: str, start: int, end: int, zone: tzinfo, policy: Policy = "literal") -> list[int]:
    """The occurrences in [start, end), for one expression."""
    return Walk(start, end, zone).occurrences(Shape(text), policy)


def civil_days(shape: Shape, first: datetime, last: datetime) -> Iterator[datetime]:
    """The civil minutes from `first` to `last` (no zone) that match, day by day: for stretches of years."""
    day = first.replace(hour=0, minute=0, second=0, microsecond=0)
    while day <= last:
        if shape.day_shown(day):
            for hour in sorted(shape.hours):
                for minute in sorted(shape.minutes):
                    civil = day.replace(hour=hour, minute=minute)
                    if first <= civil <= last:
                        yield civil
        if (day.year, day.month, day.day) == (9999, 12, 31):
            return
        day += timedelta(days=1)
