"""Stored tasks, read with suspicion: a row is believed field by field, or refused with the field named.

`read_task` is strict about one record. `read_stored` is what `initialize` does with the rows of a store: those of tasks
that are no longer registered are set aside unread, since they are about to be removed; a missing expression or delay is
taken from the registration; everything else that is wrong raises. Neither writes anything.

Field names in errors are the names of the stored columns. A record made by hand may leave out all fields but `name`,
`spec` and `retry_delay_us`; a field that is None counts as left out. Whether values fit each other across rows, or fit
the ledger, is for verify to say.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn, get_args

import msgspec

from noonbell.core.instants import EPOCH, MICROSECOND
from noonbell.core.records import Cause, Kind, LiveRun, LiveState
from noonbell.cron import parse
from noonbell.declarative.registrations import Registration
from noonbell.errors import (
    InvalidCronExpressionError,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
)

_FIRST: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
_LAST: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND

# The optional columns, in the order in which `_plain` and `_live` unpack them.
_INSTANTS: Final = ("cursor_at", "created_at", "next_run_at", "last_attempt_at", "last_success_at", "last_failure_at")
_COUNTS: Final = ("sid", "epoch")
_TEXTS: Final = ("schedule_id", "timezone", "zone_hash", "policies")
_LIVE_INSTANTS: Final = ("run_for", "wake_at", "started_at", "attempt_at")
_LIVE_COUNTS: Final = ("fence", "attempt", "crashes", "live_epoch")
_LIVE_TEXTS: Final = ("owner",)
_STATES: Final[tuple[str, ...]] = get_args(LiveState)
_KINDS: Final[tuple[str, ...]] = get_args(Kind)
_CAUSES: Final[tuple[str, ...]] = get_args(Cause)
_CHOICES: Final = {"state": _STATES, "live_kind": _KINDS, "cause": _CAUSES}
_PLAIN: Final = (*_INSTANTS, *_COUNTS, *_TEXTS)
_LIVE: Final = (*_LIVE_INSTANTS, *_LIVE_COUNTS, *_LIVE_TEXTS, *_CHOICES)
_plain_of: Final = itemgetter(*_PLAIN)
_live_of: Final = itemgetter(*_LIVE)
_NO_LIVE: Final = (None,) * len(_LIVE)


class StoredTask(msgspec.Struct, frozen=True, gc=False):
    """A stored task whose every field has been checked."""

    name: str
    spec: str
    retry_delay_us: int
    sid: int  # 0 where the record came without one
    schedule_id: str  # empty where the record came without one
    epoch: int
    timezone: str | None
    zone_hash: str | None
    cursor_at: int | None
    created_at: int | None
    next_run_at: int | None
    last_attempt_at: int | None
    last_success_at: int | None
    last_failure_at: int | None
    live: LiveRun | None = None
    manual: LiveRun | None = None
    enabled: bool = True
    filled: bool = False  # spec or delay came from the registration: the row itself still lacks it
    policies: str | None = None  # of the epoch


class Stored(NamedTuple):
    """The stored state of a set of registrations.

    `gone` has a row for each task that is not registered any more: `name` and `sid` hold, the rest is unread.
    """

    tasks: dict[str, StoredTask]
    gone: list[Mapping[str, Any]]


def read_task(record: object, registered: Container[str]) -> StoredTask:
    """Read one record, strictly."""
    row = _mapping(record)
    name = _name(row)
    if name not in registered:
        raise TaskInvalidValueError("name", name, "no task of this name is registered")
    spec, delay = _required(row, "spec"), _required(row, "retry_delay_us")
    _check_spec(spec)
    _check_delay(delay)
    return _task(row, name, spec, delay, filled=False)


def read_stored(rows: Iterable[object], registrations: Iterable[Registration]) -> Stored:
    """Read the rows of a store for these registrations, by the rules of `initialize`."""
    declared = {registration.name: registration for registration in registrations}
    tasks: dict[str, StoredTask] = {}
    gone: dict[int, Mapping[str, Any]] = {}
    for record in rows:
        row = _mapping(record)
        name = _name(row)
        if type(row.get("sid")) is not int:
            _refuse_number(row, "sid")
        registration = declared.get(name)
        if registration is None:
            gone.setdefault(row["sid"], row)
            continue
        task = _task_for(row, name, registration)
        known = tasks.get(name)
        tasks[name] = task if known is None else _merged(known, task)
    return Stored(tasks, list(gone.values()))


def _task_for(row: Mapping[str, Any], name: str, registration: Registration) -> StoredTask:
    spec, delay = row.get("spec"), row.get("retry_delay_us")
    filled = spec is None or delay is None
    if spec is None:
        spec = registration.cron
    elif spec != registration.cron:
        _check_spec(spec)
    if delay is None:
        delay = registration.retry_delay_us
    else:
        _check_delay(delay)
    return _task(row, name, spec, delay, filled=filled)


def _merged(known: StoredTask, other: StoredTask) -> StoredTask:
    """One schedule comes in two rows when it has a manual run besides its scheduled one, and for no other reason."""
    if known.sid != other.sid or (other.live is None and other.manual is None):
        raise TaskInvalidValueError("name", other.name, "is stored twice")
    for mine, its in ((known.live, other.live), (known.manual, other.manual)):
        if mine is not None and its is not None:
            raise TaskInvalidValueError("run_for", its.run_for, f"is a second {its.kind} run in progress of one task")
    return msgspec.structs.replace(known, live=known.live or other.live, manual=known.manual or other.manual)


# --- one row ----------------------------------------------------------------------------------------------------------


def _task(row: Mapping[str, Any], name: str, spec: str, delay: int, *, filled: bool) -> StoredTask:
    plain = _fetch(row, _plain_of, _PLAIN)
    cursor, created, following, attempt, success, failure, sid, epoch, *texts = plain
    schedule_id, timezone, zone_hash, policies = texts
    for at in (cursor, created, following, attempt, success, failure):
        if at is not None and (type(at) is not int or not _FIRST <= at <= _LAST):
            _refuse(row)
    for number in (sid, epoch):
        if number is not None and (type(number) is not int or number < 0):
            _refuse(row)
    for text in texts:
        if text is not None and not isinstance(text, str):
            _refuse(row)
    sid, epoch = sid or 0, 1 if epoch is None else epoch
    live = _live(row, sid, epoch)
    is_manual = live is not None and live.kind == "manual"
    return StoredTask(
        name, spec, delay, sid, schedule_id or "", epoch, timezone, zone_hash, cursor, created, following, attempt,
        success, failure, None if is_manual else live, live if is_manual else None, row.get("enabled", 1) == 1, filled,
        policies,
    )  # fmt: skip


def _live(row: Mapping[str, Any], sid: int, epoch: int) -> LiveRun | None:
    found = _fetch(row, _live_of, _LIVE)
    if found == _NO_LIVE:
        return None
    if not _sound(found):
        for field in _LIVE:
            _check(field, row.get(field))
    run_for, wake_at, started_at, attempt_at, fence, attempt, crashes, live_epoch, owner, state, kind, cause = found
    # These three are what makes a row of a live run; a record by hand may name, say, an owner and no run.
    if run_for is None and state is None and kind is None:
        return None
    for field in ("run_for", "state"):
        if row.get(field) is None:
            raise TaskMissingFieldError(field)
    is_manual = kind == "manual"
    return LiveRun(
        sid=sid,
        kind="manual" if is_manual else "scheduled",
        run_for=run_for,
        fence=_or(fence, 1),
        owner=owner,
        state=state,
        attempt=_or(attempt, 1),
        wake_at=wake_at,
        started_at=started_at,
        attempt_at=attempt_at,
        crashes=_or(crashes, 0),
        epoch=_or(live_epoch, epoch),
        cause=cause or ("manual" if is_manual else "cron"),
    )


def _sound(found: tuple[Any, ...]) -> bool:
    """A quick look at a whole live run: True only if nothing can be wrong with it."""
    run_for, wake_at, started_at, attempt_at, fence, attempt, crashes, epoch, owner, state, kind, cause = found
    for at in (run_for, wake_at, started_at, attempt_at):
        if at is not None and (type(at) is not int or not _FIRST <= at <= _LAST):
            return False
    return (
        type(fence) is type(attempt) is type(crashes) is type(epoch) is int
        and (fence | attempt | crashes | epoch) >= 0
        and (owner is None or type(owner) is str)
        and state in _STATES
        and kind in _KINDS
        and cause in _CAUSES
    )


def _fetch(row: Mapping[str, Any], getter: itemgetter[Any], fields: tuple[str, ...]) -> tuple[Any, ...]:
    try:
        found: tuple[Any, ...] = getter(row)
    except KeyError:
        found = tuple(map(row.get, fields))
    return found


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


# --- one field --------------------------------------------------------------------------------------------------------


def _mapping(record: object) -> Mapping[str, Any]:
    if type(record) is dict or isinstance(record, Mapping):
        return record
    raise TaskInvalidStructureError(f"A stored task must map fields to values, but is {_type_name(record)}", record)


def _name(row: Mapping[str, Any]) -> str:
    name = row.get("name")
    if not isinstance(name, str):
        name = _required(row, "name")
        raise TaskInvalidTypeError("name", name, "str", _type_name(name))
    return name


def _required(row: Mapping[str, Any], field: str) -> Any:
    try:
        return row[field]
    except KeyError:
        raise TaskMissingFieldError(field) from None


def _check_spec(spec: object) -> None:
    if not isinstance(spec, str):
        raise TaskInvalidTypeError("spec", spec, "str", _type_name(spec))
    _parse_once(spec)


@lru_cache(maxsize=65_536)
def _parse_once(spec: str) -> None:
    """Remembers the texts that do parse; one that does not raises each time."""
    try:
        parse(spec)
    except InvalidCronExpressionError as error:
        raise TaskInvalidValueError("spec", spec, f"{error.field} field {error.reason}") from error


def _check_delay(delay: object) -> None:
    if type(delay) is not int:
        raise TaskInvalidTypeError("retry_delay_us", delay, "int", _type_name(delay))
    if delay < 0:
        raise TaskInvalidValueError("retry_delay_us", delay, "must not be negative")


def _check(field: str, value: object) -> None:
    """Raise what is wrong with an optional field, if anything is."""
    if value is None:
        return
    if field in _TEXTS or field in _LIVE_TEXTS or field in _CHOICES:
        if not isinstance(value, str):
            raise TaskInvalidTypeError(field, value, "str", _type_name(value))
        if field in _CHOICES and value not in _CHOICES[field]:
            raise TaskInvalidValueError(field, value, f"must be one of {', '.join(_CHOICES[field])}")
        return
    if type(value) is not int:
        raise TaskInvalidTypeError(field, value, "int", _type_name(value))
    if field in _INSTANTS or field in _LIVE_INSTANTS:
        if not _is_instant(value):
            raise TaskInvalidValueError(field, value, "lies outside the years 1 to 9999, as microseconds since 1970")
    elif value < 0:
        raise TaskInvalidValueError(field, value, "must not be negative")


def _is_instant(value: object) -> bool:
    return type(value) is int and _FIRST <= value <= _LAST


def _refuse(row: Mapping[str, Any]) -> NoReturn:
    """Find the field that a quick look found wrong, and say so."""
    for field in _PLAIN:
        _check(field, row.get(field))
    raise TaskInvalidStructureError("A stored task cannot be read", row)


def _refuse_number(row: Mapping[str, Any], field: str) -> NoReturn:
    value = _required(row, field)
    raise TaskInvalidTypeError(field, value, "int", _type_name(value))


def _type_name(value: object) -> str:
    return "None" if value is None else type(value).__name__
