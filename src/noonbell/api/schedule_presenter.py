"""Conversion of schedules between the API and the library.

`text` says in English when a schedule fires; it becomes `type`, `spec` and, if it names a zone, `timezone`. Schedules
that a program has declared (`Scheduler`, `periodic`) can be read and not changed: they follow the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from noonbell.access import Caller
from noonbell.actions.http.credentials import shown
from noonbell.api.models.schedules import ScheduleResponse
from noonbell.api.problems import ProblemError
from noonbell.core.instants import moment
from noonbell.core.records import DECLARED_OWNERS
from noonbell.cron import parse
from noonbell.errors import CronError, NoonbellError, ScheduleInvalidError
from noonbell.language import describe, describe_instant, describe_interval
from noonbell.language import parse as read_english
from noonbell.schedules import Schedule
from noonbell.schedules.declared_tasks import declared_record
from noonbell.timing import parse_one_shot


class Meant(NamedTuple):
    """The interpretation of a text, and notes about it."""

    fields: dict[str, Any]
    description: str
    notes: tuple[str, ...] = ()


def fields_of(given: Mapping[str, Any], now: int) -> tuple[dict[str, Any], str | None]:
    """Return the fields of a new schedule, and the interpretation of its text."""
    fields = dict(given)
    if "text" not in fields:
        return fields, None
    text = fields.pop("text")
    for field in ("type", "spec"):
        if field in fields:
            raise ScheduleInvalidError("text", text, f"and {field} exclude each other; send one of them")
    meant = read_text(text, now, fields.get("timezone"))
    return {**fields, **meant.fields}, " ".join([meant.description + ".", *meant.notes])


def read_text(text: str, now: int, timezone: str | None) -> Meant:
    """Return type, spec and zone of an English text, or of an expression in any dialect of cron."""
    here = "UTC" if timezone is None else timezone
    try:
        ZoneInfo(here)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        reason = "must be the name of an IANA zone, such as Europe/Kyiv"
        raise ScheduleInvalidError("timezone", here, reason) from error
    try:
        found = read_english(text, now=moment(now), timezone=here)
    except CronError as error:
        raise ScheduleInvalidError("text", text, f"is not a cron expression: {error}") from error
    if timezone is not None and found.zone_named and found.timezone != timezone:
        raise ScheduleInvalidError("timezone", timezone, f"is another zone than the text names: {found.timezone}")
    return Meant(dict(found.fields), found.description, found.notes)


def schedule_response(schedule: Schedule, understood: str | None = None) -> ScheduleResponse:
    response = ScheduleResponse.model_validate(schedule)
    response.description = described(schedule.type, schedule.spec, schedule.timezone)
    response.editable = not schedule.managed_by.startswith(DECLARED_OWNERS)
    response.lane = schedule.lane or None  # a declared task is on no lane that others share
    if understood is not None:
        response.understood = understood
    return response


def for_caller(response: ScheduleResponse, caller: Caller) -> ScheduleResponse:
    """Return the schedule as this caller may see it: without literal credentials for a key that may only read."""
    if not caller.may("write"):
        response.action = shown(response.action)
    return response


def described(kind: str, spec: str, timezone: str) -> str | None:
    """Return the spec in English; None if it cannot be described."""
    try:
        if kind == "cron":
            return describe(parse(spec))
        if kind == "interval":
            return describe_interval(int(spec))
        zone = ZoneInfo(timezone)
        return describe_instant(moment(parse_one_shot(spec, zone), zone))
    except (NoonbellError, ValueError, OverflowError):
        return None


def declared_response(row: Mapping[str, Any]) -> ScheduleResponse:
    """Render the row of a task that a program has declared, as a schedule."""
    return schedule_response(declared_record(row))


def not_editable(managed_by: str) -> ProblemError:
    kind, _, name = managed_by.partition(":")
    detail = f'This is declared by the {kind} "{name}"; change it in the program that declares it'
    return ProblemError(409, detail, kind="schedule-declared", field="managed_by", value=managed_by)
