"""The fields of a monitor and of a ping as people write them, checked and brought into the form that is stored.

Every complaint is a MonitorInvalidError: it names the field, the value and what would be right. What is left out has
its default when a monitor is created, and stays as it is when one is updated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypedDict
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from noonbell.cron import DstPolicy, translate
from noonbell.errors import MonitorInvalidError, NoonbellError
from noonbell.monitors.monitor_state import PingKind, PingSchedule
from noonbell.timing import parse_interval
from noonbell.timing.timing_protocol import SECOND

DEFAULT_GRACE_SECONDS: Final = 300
LONGEST_SECONDS: Final = 366 * 86_400
LONGEST_NAME: Final = 200
LONGEST_RUN_NAME: Final = 64
# What fits into a path without being escaped, and says in a log what it is.
_ID_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_MOST_TAGS: Final = 100


class MonitorChanges(TypedDict, total=False):
    """The fields of a monitor that a person may write, and change."""

    name: str
    type: str
    spec: str | int
    timezone: str
    dst: DstPolicy
    grace_seconds: float
    max_run_seconds: float | None
    tags: Sequence[str]


class MonitorFields(MonitorChanges, total=False):
    """The fields that a person may write of a new monitor; without an id it gets one."""

    monitor_id: str
    team: str


_CHANGEABLE: Final = tuple(MonitorChanges.__annotations__)
_KNOWN: Final = tuple(MonitorFields.__annotations__)


class Written(NamedTuple):
    """Fields in the form that is stored. `understood` is the POSIX expression where another dialect was typed."""

    name: str
    tags: tuple[str, ...]
    rhythm: PingSchedule
    understood: str | None


def read_new(fields: Mapping[str, Any], now: int) -> Written:
    for key in ("name", "type", "spec"):
        if key not in fields:
            raise MonitorInvalidError(key, None, "is missing")
    _known_only(fields, _KNOWN)
    rhythm = PingSchedule("interval", "60", "UTC", "once", DEFAULT_GRACE_SECONDS * SECOND, None)
    return _read(fields, Written("", (), rhythm, None), now)


def read_changes(fields: Mapping[str, Any], before: Written, now: int) -> Written:
    for key in ("monitor_id", "team"):
        if key in fields:
            raise MonitorInvalidError(key, fields[key], "cannot be changed; create another monitor")
    _known_only(fields, _CHANGEABLE)
    if fields.get("type", before.rhythm.type) != before.rhythm.type and "spec" not in fields:
        raise MonitorInvalidError("spec", None, "is missing: another type needs a spec of its own")
    return _read(fields, before, now)


def _known_only(fields: Mapping[str, Any], known: Sequence[str]) -> None:
    for key, value in fields.items():
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise MonitorInvalidError(str(key), value, f"is not a field of a monitor; {hint}")


def _read(fields: Mapping[str, Any], before: Written, now: int) -> Written:
    old = before.rhythm
    for key, choices in (("type", ("cron", "interval")), ("dst", ("literal", "once"))):
        if key in fields and fields[key] not in choices:
            raise MonitorInvalidError(key, fields[key], f"must be {' or '.join(choices)}")
    kind = fields.get("type", old.type)
    spec, understood = _spec(kind, fields["spec"]) if "spec" in fields else (old.spec, None)
    longest = old.max_run_us
    if "max_run_seconds" in fields:
        given = fields["max_run_seconds"]
        longest = None if given is None else _microseconds("max_run_seconds", given, least=1)
    rhythm = PingSchedule(
        type=kind,
        spec=spec,
        timezone=_zone(fields["timezone"]) if "timezone" in fields else old.timezone,
        dst=fields.get("dst", old.dst),
        grace_us=(
            _microseconds("grace_seconds", fields["grace_seconds"], least=0)
            if "grace_seconds" in fields
            else old.grace_us
        ),
        max_run_us=longest,
    )
    if rhythm.due_after(now) is None:
        raise MonitorInvalidError("spec", spec, "never comes; write one that does")
    return Written(
        text("name", fields["name"]) if "name" in fields else before.name,
        _tags(fields["tags"]) if "tags" in fields else before.tags,
        rhythm,
        understood,
    )


def _spec(kind: str, typed: object) -> tuple[str, str | None]:
    if kind == "interval" and isinstance(typed, int) and not isinstance(typed, bool):
        typed = str(typed)
    if not isinstance(typed, str):
        example = '"0 9 * * 1-5"' if kind == "cron" else '"3600" (seconds)'
        raise MonitorInvalidError("spec", typed, f"must be text, such as {example}")
    try:
        if kind == "interval":
            return str(parse_interval(typed)), None
        posix = translate(typed)
    except NoonbellError as error:
        raise MonitorInvalidError("spec", typed, f"is no {kind} spec: {error}") from error
    return posix, None if posix.split() == typed.split() else posix


def _zone(value: object) -> str:
    try:
        if isinstance(value, str):
            ZoneInfo(value)
            return value
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise MonitorInvalidError("timezone", value, "must be the name of an IANA zone, such as Europe/Kyiv")


def _microseconds(field: str, value: object, *, least: int) -> int:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= LONGEST_SECONDS:
        raise MonitorInvalidError(field, value, f"must be a number of seconds from {least} to {LONGEST_SECONDS}")
    return round(value * SECOND)


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > _MOST_TAGS:
        raise MonitorInvalidError("tags", value, f"must be a list of at most {_MOST_TAGS} texts")
    return tuple(dict.fromkeys(text("tags", tag) for tag in value))


def text(field: str, value: object, *, longest: int = LONGEST_NAME) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not value.isprintable():
        right = f"must be a text of 1 to {longest} characters that can be printed, not blank"
        raise MonitorInvalidError(field, value, right)
    return value


def monitor_id(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_NAME or not _ID_LETTERS.issuperset(value):
        right = f"must be 1 to {LONGEST_NAME} letters (a-z, A-Z), digits, dots, underscores or hyphens"
        raise MonitorInvalidError("monitor_id", value, right)
    if value in (".", "..", "new"):
        raise MonitorInvalidError("monitor_id", value, "would mean something else in an address; choose another")
    return value


# --- pings ------------------------------------------------------------------------------------------------------------


def ping_kind(kind: object, exit_code: object) -> PingKind:
    """Return the kind of a ping: the given one, or the one that its exit code means."""
    if exit_code is None:
        return msgspec.convert(kind, PingKind) if kind in ("start", "success", "fail", "log") else _no_kind(kind)
    if not isinstance(exit_code, int) or isinstance(exit_code, bool) or not 0 <= exit_code <= 255:
        raise MonitorInvalidError("exit_code", exit_code, "must be a whole number from 0 to 255")
    meant: PingKind = "fail" if exit_code else "success"
    if kind not in (None, meant):
        raise MonitorInvalidError("exit_code", exit_code, f"means {meant}, not {kind}; give one of the two")
    return meant


def _no_kind(kind: object) -> PingKind:
    if kind is None:
        return "success"
    raise MonitorInvalidError("kind", kind, "must be start, success, fail or log")


def run_name(value: object) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_RUN_NAME or not value.isprintable():
        right = f"must be a text of at most {LONGEST_RUN_NAME} characters that can be printed"
        raise MonitorInvalidError("run", value, right)
    return value
