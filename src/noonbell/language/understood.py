"""`Understood`, the result of `parse`, and the words for intervals and instants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypedDict
from zoneinfo import ZoneInfo

from noonbell.cron import CronExpression
from noonbell.cron import parse as parse_cron
from noonbell.language.describe import MONTHS

ScheduleKind = Literal["cron", "interval", "one_shot"]

_UNITS: Final = (("week", 604_800), ("day", 86_400), ("hour", 3600), ("minute", 60))
_WEEKDAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


class ScheduleFields(TypedDict):
    """The fields that say when, as `Schedules.create` takes them."""

    type: ScheduleKind
    spec: str
    timezone: str


@dataclass(frozen=True, slots=True)
class Understood:
    """A schedule that was read from a text.

    `kind` and `spec` are what a schedule is created with: POSIX fields, seconds, or an ISO 8601 time with its offset.
    `timezone` is the zone named in the text, else the one that was given. `description` says in words what was
    understood and can be read again; `notes` list what was decided where the text left it open. `language` says whether
    the text was English or a cron expression.
    """

    text: str
    kind: ScheduleKind
    spec: str
    timezone: str
    zone_named: bool
    description: str
    notes: tuple[str, ...] = ()
    language: Literal["english", "cron"] = "english"

    @property
    def expression(self) -> CronExpression | None:
        return parse_cron(self.spec) if self.kind == "cron" else None

    @property
    def seconds(self) -> int | None:
        return int(self.spec) if self.kind == "interval" else None

    @property
    def at(self) -> datetime | None:
        """The instant of a one-shot, in its zone."""
        return (
            datetime.fromisoformat(self.spec).astimezone(ZoneInfo(self.timezone)) if self.kind == "one_shot" else None
        )

    @property
    def fields(self) -> ScheduleFields:
        """Return the arguments for `Schedules.create`."""
        return {"type": self.kind, "spec": self.spec, "timezone": self.timezone}


def describe_interval(seconds: int) -> str:
    """Return an interval in English. The second part distinguishes it from clock times, as in 'every 15 minutes'."""
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds % size == 0), ("second", 1))
    count = seconds // size
    return f"Every {unit if count == 1 else f'{count} {unit}s'}, counted from the last run"


def describe_instant(at: datetime) -> str:
    """A single instant in English, by the clock of its own zone."""
    clock = f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
    day = f"{_WEEKDAYS[at.weekday()]} {at.day} {MONTHS[at.month - 1]} {at.year:04}"
    return f"Once, at {clock} on {day}" + (" (the second time)" if at.fold else "")
