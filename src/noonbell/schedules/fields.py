"""The fields of a durable schedule as people write them, checked and brought into the form that is stored.

Every complaint is a ScheduleInvalidError: it names the field, the value and what would be right. Nothing is read or
written here. What is left out has its default when a schedule is created, and stays as it is when one is updated.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypedDict, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from noonbell.actions.registry import check_action, check_payload
from noonbell.core.instants import EPOCH, MICROSECOND, moment
from noonbell.core.records import Definition, Retrying, ScheduleColumns
from noonbell.core.terms import CatchUp, Overlap
from noonbell.core.turns import definition_of, timing_of
from noonbell.cron import DstPolicy, parse, translate
from noonbell.errors import (
    IntervalInvalidError,
    InvalidCronExpressionError,
    LanguageError,
    NoonbellError,
    RetryPolicyInvalidError,
    ScheduleInvalidError,
)
from noonbell.language.time_phrases import ACCEPTED, read_time
from noonbell.schedules.payload import written_payload
from noonbell.timing import RetryPolicy, parse_interval, parse_one_shot
from noonbell.timing.retry import MOST_ATTEMPTS
from noonbell.timing.timing_protocol import SECOND, Timing
from noonbell.timing.zone_names import near_zones

ScheduleType = Literal["cron", "interval", "one_shot"]

LARGEST_CAP: Final = 1_000
LONGEST_JITTER_SECONDS: Final = 86_400
_LONGEST_TEXT: Final = 500
_MOST_TAGS: Final = 100
_OF_CHANNELS: Final = "channel:"  # the signing keys of channels go by such ids, beside those of schedules
_PAGES: Final = frozenset({"new"})  # in an address it means a thing that is yet to be created
_NO_LETTERS: Final = frozenset({"Cn", "Co"})  # unassigned, or of private use
_ISO: Final = re.compile(r"\s*\d{4}-")
_encode = msgspec.json.Encoder().encode


class Changes(TypedDict, total=False):
    """The fields that a user may write and change. `start_at` and `end_at` are aware datetimes, ISO 8601 or English.

    The spec of an interval may be a timedelta or a text with units ("15m"), that of a one-shot an aware datetime.
    """

    name: str
    type: ScheduleType
    spec: str | int | timedelta | datetime
    timezone: str
    enabled: bool
    catch_up_policy: CatchUp
    catch_up_cap: int
    overlap: Overlap
    retry: Mapping[str, Any]
    retry_vs_new: Literal["finish", "preempt"]
    dst: DstPolicy
    start_at: datetime | str | None
    end_at: datetime | str | None
    jitter_seconds: float
    at_most_once: bool
    quiet_hours_policy_id: str | None
    payload: Any
    tags: Sequence[str]
    action: Mapping[str, Any]


class Fields(Changes, total=False):
    """The fields that a user may write of a new schedule; without an id it gets one. It stays with its team."""

    schedule_id: str
    team: str


KNOWN: Final = tuple(Fields.__annotations__)
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "type": get_args(ScheduleType),
    "catch_up_policy": get_args(CatchUp),
    "overlap": get_args(Overlap),
    "retry_vs_new": ("finish", "preempt"),
    "dst": ("literal", "once"),
}
_RETRY: Final = ("attempts", "delay_seconds", "strategy", "max_delay_seconds", "jitter")


class Written(NamedTuple):
    """Fields in the form that is stored. `understood` is the POSIX expression where another dialect was typed."""

    columns: ScheduleColumns
    understood: str | None


def read_fields(
    fields: Mapping[str, Any], before: ScheduleColumns | None, *, default_name: str = "", now: int | None = None
) -> Written:
    """Check the fields, over those of `before` where a schedule is updated.

    With `now`, bounds may be times in English, such as "tomorrow at 9" or "1 march 2027".
    """
    for key, value in fields.items():
        if key not in KNOWN:
            near = get_close_matches(key, KNOWN, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(KNOWN)}"
            raise ScheduleInvalidError(str(key), value, f"is not a field of a schedule; {hint}")
    for key, choices in _CHOICES.items():
        if key in fields and fields[key] not in choices:
            raise ScheduleInvalidError(key, fields[key], f"must be one of {', '.join(choices)}")
    for key in ("enabled", "at_most_once"):
        if key in fields and not isinstance(fields[key], bool):
            raise ScheduleInvalidError(key, fields[key], "must be True or False")
    if before is None:
        _refuse_missing(fields)
    else:
        _refuse_lasting(fields, before)
    kind = fields["type"] if before is None else before.type
    timezone = _zone(fields["timezone"]) if "timezone" in fields else "UTC" if before is None else before.timezone
    spec, understood = _spec(kind, fields, before, timezone)
    definition = _definition(fields, None if before is None else definition_of(before.definition), timezone, now)
    columns = ScheduleColumns(
        name=_text("name", fields["name"]) if "name" in fields else default_name if before is None else before.name,
        type=kind,
        spec=spec,
        timezone=timezone,
        quiet_hours_policy_id=_policy_id(fields, before),
        catch_up_policy=fields.get("catch_up_policy", "skip" if before is None else before.catch_up_policy),
        payload=_payload(fields, before),
        definition=_encode(definition).decode(),
    )
    _check_together(columns, definition)
    return Written(columns, understood)


def _refuse_missing(fields: Mapping[str, Any]) -> None:
    for key in ("type", "spec", "action"):
        if key not in fields:
            raise ScheduleInvalidError(key, None, "is missing")


def _refuse_lasting(fields: Mapping[str, Any], before: ScheduleColumns) -> None:
    """Refuse a change of the fields that a schedule keeps for as long as it lives."""
    for key in ("schedule_id", "team"):
        if key in fields:
            raise ScheduleInvalidError(key, fields[key], "cannot be changed; create another schedule")
    if fields.get("type", before.type) != before.type:
        reason = f"cannot be changed from {before.type}; create another schedule"
        raise ScheduleInvalidError("type", fields["type"], reason)


def read_like(fields: Mapping[str, Any], model: ScheduleColumns, *, default_name: str) -> ScheduleColumns:
    """Check what a new schedule need not share with others that are like it: its name and its payload."""
    name = _text("name", fields["name"]) if "name" in fields else default_name
    payload = _payload(fields, None)
    if payload != model.payload:
        check_payload(definition_of(model.definition).action, payload)
    return ScheduleColumns(
        name, model.type, model.spec, model.timezone, model.quiet_hours_policy_id, model.catch_up_policy, payload,
        model.definition,
    )  # fmt: skip


def check_id(value: object, field: str = "schedule_id") -> str:
    """Return an id for something new, or refuse it: an id is also a part of an address, and must identify it alone."""
    chosen = _text(field, value)
    if chosen in _PAGES or not {".", ".."}.isdisjoint(chosen.split("/")):
        raise ScheduleInvalidError(field, chosen, "would mean something else in an address; choose another")
    if not chosen.isascii() and any(unicodedata.category(letter) in _NO_LETTERS for letter in chosen):
        raise ScheduleInvalidError(field, chosen, "must be of characters that Unicode gives a meaning to")
    if field == "schedule_id" and chosen.startswith(_OF_CHANNELS):
        raise ScheduleInvalidError(field, chosen, f'must not begin with "{_OF_CHANNELS}", which is kept for channels')
    return chosen


def check_text(field: str, value: object) -> str:
    """A text that can be stored, and is not blank."""
    return _text(field, value)


def check_team(value: object) -> str:
    if not _text("team", value).isprintable():
        raise ScheduleInvalidError("team", value, "must be a text of printable characters")
    return str(value)


def _spec(
    kind: str, fields: Mapping[str, Any], before: ScheduleColumns | None, timezone: str
) -> tuple[str, str | None]:
    typed = fields["spec"] if "spec" in fields or before is None else before.spec
    if kind == "interval":
        typed = interval_text(typed)
    elif kind == "one_shot" and isinstance(typed, datetime):
        if typed.tzinfo is None:
            reason = "has no time zone; pass an aware datetime, or text, which is in the zone of the schedule"
            raise ScheduleInvalidError("spec", typed, reason)
        typed = typed.isoformat()
    if not isinstance(typed, str):
        raise ScheduleInvalidError("spec", typed, f"must be text, such as {_example(kind)}")
    try:
        if kind == "cron":
            posix = _posix(typed)
            return posix, None if posix.split() == typed.split() else posix
        if kind == "interval":
            return str(parse_interval(typed)), None
        parse_one_shot(typed, ZoneInfo(timezone), stored={"spec", "timezone"}.isdisjoint(fields))
    except NoonbellError as error:
        raise ScheduleInvalidError("spec", typed, f"is not a valid {kind} spec: {_spec_reason(error)}") from error
    return typed.strip(), None


def _spec_reason(error: NoonbellError) -> str:
    """Return what is wrong with a spec, without the spec itself, which the message names before."""
    reason = error.details.get("reason")
    if not isinstance(reason, str):
        return str(error)
    text = f"it {reason}"
    if isinstance(error, InvalidCronExpressionError) and error.field != "expression":
        text = f"the {error.field} field {reason}"
    suggestion = getattr(error, "suggestion", None)
    return text if suggestion is None else f"{text}; right is {suggestion!r}"


def interval_text(typed: Any) -> Any:
    """The seconds of an interval as they are stored, from whatever a person may write; anything else as it is."""
    if isinstance(typed, timedelta):
        if typed % timedelta(seconds=1):
            raise ScheduleInvalidError("spec", typed, "must be whole seconds")
        return str(typed // timedelta(seconds=1))
    if isinstance(typed, int) and not isinstance(typed, bool):
        return str(typed)
    if isinstance(typed, float):
        raise ScheduleInvalidError("spec", typed, "must be a whole number of seconds")
    if not isinstance(typed, str):
        return typed
    try:
        return str(parse_interval(typed))
    except IntervalInvalidError as error:
        return typed if error.suggestion is None else error.suggestion


@lru_cache(maxsize=65_536)
def _posix(typed: str) -> str:
    return translate(typed)


def _example(kind: str) -> str:
    examples = {"cron": '"0 9 * * 1-5"', "interval": '"90" (seconds) or "15m"'}
    return examples.get(kind, '"2026-11-01T09:30", or an aware datetime')


@lru_cache(maxsize=1_024)
def _known_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _zone(value: object) -> str:
    if not isinstance(value, str) or not _known_zone(value):
        near = near_zones(value) if isinstance(value, str) else []
        right = f"; did you mean {' or '.join(near)}?" if near else ", such as Europe/Kyiv or UTC"
        raise ScheduleInvalidError("timezone", value, f"must be the name of an IANA zone{right}")
    return value


def _definition(fields: Mapping[str, Any], before: Definition | None, timezone: str, now: int | None) -> Definition:
    readers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "overlap": ("overlap", str),
        "catch_up_cap": ("cap", _cap),
        "retry_vs_new": ("retry_vs_new", str),
        "retry": ("retry", _retry),
        "dst": ("dst", str),
        "start_at": ("start_at", lambda value: _instant("start_at", value, timezone, now)),
        "end_at": ("end_at", lambda value: _instant("end_at", value, timezone, now)),
        "jitter_seconds": ("jitter_us", _jitter),
        "at_most_once": ("at_most_once", bool),
        "tags": ("tags", _tags),
        "action": ("action", check_action),
    }
    changes = {stored: read(fields[key]) for key, (stored, read) in readers.items() if key in fields}
    return msgspec.structs.replace(Definition() if before is None else before, **changes)


def _cap(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_CAP:
        raise ScheduleInvalidError("catch_up_cap", value, f"must be a whole number from 1 to {LARGEST_CAP}")
    return value


def _retry(value: object) -> Retrying:
    if not isinstance(value, Mapping):
        raise ScheduleInvalidError("retry", value, f"must be an object with some of {', '.join(_RETRY)}")
    for key in value:
        if key not in _RETRY:
            raise ScheduleInvalidError(f"retry.{key}", value[key], f"is not known; known are {', '.join(_RETRY)}")
    try:
        policy = RetryPolicy(
            attempts=value.get("attempts", 1),
            delay_us=_microseconds("retry.delay_seconds", value.get("delay_seconds", 5)),
            strategy=value.get("strategy", "exponential"),
            max_delay_us=(
                None
                if value.get("max_delay_seconds") is None
                else _microseconds("retry.max_delay_seconds", value["max_delay_seconds"])
            ),
            jitter=value.get("jitter", 0.0),
        )
    except RetryPolicyInvalidError as error:
        field = error.field.replace("_us", "_seconds")
        raise ScheduleInvalidError(f"retry.{field}", value.get(field), error.reason) from error
    return Retrying(policy.attempts, policy.delay_us, policy.strategy, policy.max_delay_us, policy.jitter)


def _jitter(value: object) -> int:
    found = _microseconds("jitter_seconds", value)
    if found > LONGEST_JITTER_SECONDS * SECOND:
        raise ScheduleInvalidError("jitter_seconds", value, f"must be at most {LONGEST_JITTER_SECONDS} (a day)")
    return found


def _microseconds(field: str, value: object) -> int:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e12:
        raise ScheduleInvalidError(field, value, "must be a number of seconds that is not negative")
    return round(value * SECOND)


def _instant(field: str, value: object, timezone: str, now: int | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ScheduleInvalidError(field, value, "has no time zone; pass an aware datetime, or text")
        return (value - EPOCH) // MICROSECOND
    if not isinstance(value, str):
        raise ScheduleInvalidError(field, value, "must be an aware datetime, or text such as 2026-11-01T09:30")
    zone = ZoneInfo(timezone)
    try:
        return parse_one_shot(value if now is None else _iso_time(value, zone, now), zone)
    except LanguageError as error:
        reason = f"is not a time: {error.reason}; accepted are {', '.join(ACCEPTED)}"
        raise ScheduleInvalidError(field, value, reason) from error
    except NoonbellError as error:
        raise ScheduleInvalidError(field, value, str(error)) from error


def _iso_time(text: str, zone: ZoneInfo, now: int) -> str:
    """Translate a time in English to ISO 8601; text that begins with a year stays as it is."""
    if _ISO.match(text):
        return text
    return read_time(text, moment(now).astimezone(zone)).isoformat()


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ScheduleInvalidError("tags", value, "must be a list of texts")
    if len(value) > _MOST_TAGS:
        raise ScheduleInvalidError("tags", value, f"must be at most {_MOST_TAGS}")
    return tuple(dict.fromkeys(_text("tags", tag) for tag in value))


def _policy_id(fields: Mapping[str, Any], before: ScheduleColumns | None) -> str | None:
    if "quiet_hours_policy_id" not in fields:
        return None if before is None else before.quiet_hours_policy_id
    value = fields["quiet_hours_policy_id"]
    return None if value is None else _text("quiet_hours_policy_id", value)


def _payload(fields: Mapping[str, Any], before: ScheduleColumns | None) -> str | None:
    if "payload" not in fields:
        return None if before is None else before.payload
    return written_payload(fields["payload"])


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_TEXT:
        raise ScheduleInvalidError(field, value, f"must be a text of 1 to {_LONGEST_TEXT} characters, not blank")
    if "\0" in value:
        raise ScheduleInvalidError(field, value, "must not hold a NUL character (\\0)")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ScheduleInvalidError(field, value, "must be text that UTF-8 can hold") from error
    return value


def _check_together(columns: ScheduleColumns, definition: Definition) -> None:
    check_payload(definition.action, columns.payload)
    start_at, end_at = definition.start_at, definition.end_at
    if start_at is not None and end_at is not None and end_at < start_at:
        raise ScheduleInvalidError("end_at", shown(end_at), f"must not be before start_at, which is {shown(start_at)}")
    if definition.action.get("kind") == "http" and definition.retry.attempts is None:
        reason = f"must be a whole number from 1 to {MOST_ATTEMPTS} where the action is http"
        raise ScheduleInvalidError("retry.attempts", None, reason)
    if definition.at_most_once and definition.retry.attempts != 1:
        attempts = definition.retry.attempts
        raise ScheduleInvalidError("retry.attempts", attempts, "must be 1 where at_most_once is set")
    if definition.jitter_us and columns.type != "one_shot":
        apart = _apart(columns.type, columns.spec)
        if definition.jitter_us >= apart:
            reason = f"must be less than the {apart / SECOND:g} s between two occurrences"
            raise ScheduleInvalidError("jitter_seconds", definition.jitter_us / SECOND, reason)


@lru_cache(maxsize=65_536)
def _apart(kind: str, spec: str) -> int:
    return parse_interval(spec) * SECOND if kind == "interval" else parse(spec).minimum_spacing() // MICROSECOND


def first_anchor(columns: ScheduleColumns, at: int) -> int | None:
    """Return the anchor of a new interval: now, or such that its start is its first occurrence."""
    if columns.type != "interval":
        return None
    start_at = definition_of(columns.definition).start_at
    return at if start_at is None or start_at <= at else start_at - parse_interval(columns.spec) * SECOND


def keeps_anchor(before: ScheduleColumns, after: ScheduleColumns, at: int) -> bool:
    """Return whether an interval goes on from its anchor: its start is the same, and is over."""
    start_at = definition_of(after.definition).start_at
    return start_at == definition_of(before.definition).start_at and (start_at is None or start_at <= at)


def moved_by(before: ScheduleColumns, after: ScheduleColumns) -> str | None:
    """The first field that has changed of those that say when a schedule comes."""
    was, will = _says_when(before), _says_when(after)
    return next((field for field in was if was[field] != will[field]), None)


def _says_when(columns: ScheduleColumns) -> dict[str, Any]:
    definition = definition_of(columns.definition)
    return {
        "spec": columns.spec,
        "timezone": columns.timezone,
        "start_at": None if definition.start_at is None else shown(definition.start_at),
        "end_at": None if definition.end_at is None else shown(definition.end_at),
        "dst": definition.dst,
    }


def require_future(columns: ScheduleColumns, timing: Timing, at: int, field: str = "spec") -> None:
    """Refuse a schedule that never comes; `field` is what has made it so."""
    if timing.following(at) is not None:
        return
    value, of_it = _says_when(columns)[field], "" if field == "spec" else f" with the spec {columns.spec!r}"
    if columns.type == "one_shot" and timing_of(columns, None).latest(at) is not None:
        raise ScheduleInvalidError(field, value, f"is in the past{of_it}: it is {_now(at)} now")
    end_at = definition_of(columns.definition).end_at
    if end_at is not None and end_at <= at:
        raise ScheduleInvalidError("end_at", shown(end_at), f"is in the past: it is {_now(at)} now")
    raise ScheduleInvalidError(field, value, f"never comes{of_it}; look at the spec and at start_at and end_at")


def shown(at: int) -> str:
    return moment(at).isoformat()


def _now(at: int) -> str:
    """Seconds are enough to compare with."""
    return moment(at).isoformat(timespec="seconds")
