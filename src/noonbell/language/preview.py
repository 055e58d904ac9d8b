"""`preview`: the meaning of a text, its next occurrences and its clock changes, as a form shows them before saving."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from noonbell.cron import CronExpression, DstPolicy
from noonbell.errors import CronCalculationError
from noonbell.language.parsing import parse
from noonbell.language.surprises import Surprise, dst_surprises
from noonbell.language.understood import Understood

_LOOK_AHEAD: Final = timedelta(days=366)
_CALENDAR_END: Final = datetime(9999, 12, 31, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Preview:
    """`fires` are the coming occurrences in the zone, `surprises` those of the year after `now`.

    An interval is counted from `now`, as if the schedule were created then.
    """

    understood: Understood
    fires: tuple[datetime, ...]
    surprises: tuple[Surprise, ...]


def preview(
    text: str, *, now: datetime, timezone: str | tzinfo = "UTC", count: int = 5, dst: DstPolicy = "literal"
) -> Preview:
    """Return the meaning of `text`, with its next `count` occurrences; raises as `parse` does."""
    understood = parse(text, now=now, timezone=timezone)
    named = understood.zone_named or isinstance(timezone, str)
    zone = ZoneInfo(understood.timezone) if named or not isinstance(timezone, tzinfo) else timezone
    fires = tuple(coming(understood, now.astimezone(zone), count, dst))
    expression = understood.expression
    return Preview(understood, fires, () if expression is None else coming_surprises(expression, now, zone, dst))


def coming(understood: Understood, after: datetime, count: int, dst: DstPolicy = "literal") -> list[datetime]:
    """The occurrences after `after`, in its zone; fewer than asked for where there are no more."""
    expression = understood.expression
    if expression is not None:
        return _of_cron(expression, after, count, dst)
    if understood.seconds is not None:
        return _of_interval(understood.seconds, after, count)
    at = understood.at
    return [at.astimezone(after.tzinfo)] if at is not None and at > after else []


def coming_surprises(
    expression: CronExpression, start: datetime, zone: tzinfo, dst: DstPolicy = "literal"
) -> tuple[Surprise, ...]:
    """Return the surprises of the year after `start`, or of what is left of the calendar."""
    since = start.astimezone(UTC)
    end = since + _LOOK_AHEAD if since < _CALENDAR_END - _LOOK_AHEAD else _CALENDAR_END
    return tuple(dst_surprises(expression, zone, since, end, dst=dst))


def _of_cron(expression: CronExpression, after: datetime, count: int, dst: DstPolicy) -> list[datetime]:
    found: list[datetime] = []
    try:
        while len(found) < count:
            after = expression.next(after, dst=dst)
            found.append(after)
    except CronCalculationError:  # the calendar ends
        pass
    return found


def _of_interval(seconds: int, after: datetime, count: int) -> list[datetime]:
    start = after.astimezone(UTC)
    left = max(0, (_CALENDAR_END - start) // timedelta(seconds=seconds))
    instants = (start + timedelta(seconds=seconds * number) for number in range(1, min(count, left) + 1))
    return [instant.astimezone(after.tzinfo) for instant in instants]
