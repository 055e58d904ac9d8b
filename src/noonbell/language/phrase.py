"""The parts of a phrase, before their meaning is decided: one slot for each thing that can be said.

Each part remembers its place in the text, so that a refusal can point at it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import NamedTuple

from noonbell.language.words import DayPart, Unit


class Place(NamedTuple):
    """A stretch of the text: characters from `start` up to `end`."""

    start: int
    end: int

    def to(self, other: Place) -> Place:
        return Place(min(self.start, other.start), max(self.end, other.end))


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day as it was said. `half` is 0 (am), 12 (pm) or None; `plain`: it could be either half of the day."""

    hour: int
    minute: int
    second: int
    half: int | None
    plain: bool
    place: Place


@dataclass(frozen=True, slots=True)
class EveryUnits:
    """Every `count` units."""

    count: int
    unit: Unit
    place: Place
    is_quarter: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """`count` times in each unit."""

    count: int
    unit: Unit
    place: Place


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the day."""

    first: Clock
    last: Clock
    place: Place


@dataclass(frozen=True, slots=True)
class Values:
    """Minutes of an hour, hours, days of a month, weekdays or months. `repeats`: it was said that they come again."""

    values: frozenset[int]
    place: Place
    repeats: bool = True


@dataclass(frozen=True, slots=True)
class DateSaid:
    """A day and its month, perhaps with a year."""

    day: int
    month: int
    year: int | None
    place: Place


@dataclass(frozen=True, slots=True)
class Moment:
    """A day, an instant, a distance in time or a coming weekday: it comes once, and one of the five is set."""

    place: Place
    day: date | None = None
    instant: datetime | None = None  # naive where no offset was written
    seconds: int | None = None  # from now
    days: int | None = None  # from today
    keeps_time: bool = False  # of days: the time of day stays unless one is said
    weekday: int | None = None
    not_today: bool = False  # of a weekday: a week from now where it is that weekday today


@dataclass(slots=True)
class Phrase:
    """All that was said. A slot that is None or empty was not mentioned."""

    text: str
    recurrence: EveryUnits | None = None  # in seconds, minutes or hours
    cycle: EveryUnits | None = None  # in days, weeks or months
    share: Share | None = None
    times: list[Clock] = field(default_factory=list)
    minutes: Values | None = None
    hours: Values | None = None
    window: Window | None = None
    anchor: Clock | None = None
    weekdays: Values | None = None
    days: Values | None = None
    months: Values | None = None
    either: bool = False  # a day of the month *or* a weekday is enough
    dates: list[DateSaid] = field(default_factory=list)
    yearly: Place | None = None  # 'every year'
    moment: Moment | None = None
    once: Place | None = None
    second_time: bool = False
    counted: Place | None = None  # 'counted from the last run': an interval is meant
    day_part: tuple[DayPart, Place] | None = None
    zone: tuple[str, Place] | None = None

    def slots(self) -> dict[str, object]:
        """Return what has been said up to now, slot by slot."""
        found = {name: getattr(self, name) for name in self.__slots__ if name != "text"}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}

    def says_when(self) -> bool:
        """Return whether anything was said but a zone."""
        return any(value for name, value in self.slots().items() if name != "zone")
