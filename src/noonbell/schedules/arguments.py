"""The arguments of `Schedules` beside the fields of a schedule: settings, filters, instants, lists of new schedules.

Every complaint is a ScheduleInvalidError that names the argument, the value and what would be right. Nothing is read or
written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, Literal, get_args

from noonbell.actions.egress import Egress
from noonbell.actions.http.slots import HttpLimits
from noonbell.actions.secrets.keys import KeyRing
from noonbell.actions.secrets.secrets import Secrets
from noonbell.core.instants import EPOCH, MICROSECOND
from noonbell.core.records import DECLARED_OWNERS, DurableSchedule, TriggerSource
from noonbell.engine.threads import MOST_THREADS
from noonbell.errors import NaiveDatetimeError, NoonbellError, ScheduleInvalidError, ScheduleNotFoundError
from noonbell.ports import Clock, Ledger, ScheduleFilter
from noonbell.schedules.fields import ScheduleType, check_id, check_text

Order = Literal["newest", "oldest"]

_DAY: Final = timedelta(days=1)
_OF_FILES: Final = "file:"


def check_limits(http_limits: object, threads: object) -> None:
    if http_limits is not None and not isinstance(http_limits, HttpLimits):
        raise ScheduleInvalidError("http_limits", http_limits, "must be HttpLimits, such as HttpLimits(per_host=4)")
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
        raise ScheduleInvalidError("threads", threads, f"must be a whole number from 1 to {MOST_THREADS}")


def check_waits(longest_wait: object, retention: object) -> None:
    if not isinstance(longest_wait, timedelta):
        raise ScheduleInvalidError("longest_wait", longest_wait, "must be a timedelta, such as timedelta(seconds=5)")
    if longest_wait <= timedelta(0):
        raise ScheduleInvalidError("longest_wait", longest_wait, "must be longer than nothing")
    if retention is None:
        return
    if not isinstance(retention, timedelta):
        reason = "must be a timedelta, such as timedelta(days=30), or None to keep everything"
        raise ScheduleInvalidError("retention", retention, reason)
    if retention < _DAY:
        raise ScheduleInvalidError("retention", retention, "must be a day at least, or None to keep everything")


def check_names(**named: object) -> None:
    """Check names that are stored with everything: of a lane, of an owner, of an actor."""
    for argument, name in named.items():
        if not isinstance(name, str) or not name.strip() or "\0" in name:
            raise ScheduleInvalidError(argument, name, "must be a text that is not blank")
    for argument in ("managed_by", "lane"):
        name = named.get(argument)
        if isinstance(name, str) and name.startswith(DECLARED_OWNERS):
            reserved = " or ".join(f'"{prefix}"' for prefix in DECLARED_OWNERS)
            right = f"must not begin with {reserved}: these names are reserved for declared tasks"
            raise ScheduleInvalidError(argument, name, right)


def check_parts(clock: object, targets: object, secrets: object, egress: object, public_url: object) -> None:
    """Check the objects that a program passes in ready-made."""
    if clock is not None and not callable(getattr(clock, "now", None)):
        raise ScheduleInvalidError("clock", clock, "must be a clock, such as noonbell.testing.ManualClock, or left out")
    if targets is not None and not isinstance(targets, Mapping):
        raise ScheduleInvalidError("targets", targets, 'must be a dict of targets by name: {"orders": handle}')
    if secrets is not None and not isinstance(secrets, Secrets | KeyRing):
        right = "must be the master keys, such as read_keys(Path(...)), or Secrets"
        raise ScheduleInvalidError("secrets", type(secrets), right)
    if egress is not None and not isinstance(egress, Egress):
        raise ScheduleInvalidError("egress", egress, "must be an Egress")
    if public_url is not None and not isinstance(public_url, str):
        raise ScheduleInvalidError("public_url", public_url, "must be text, such as https://cron.example.com")


def check_callbacks(callbacks: object) -> None:
    if callbacks is None:
        return
    if not isinstance(callbacks, Mapping):
        raise ScheduleInvalidError("callbacks", callbacks, 'must be a dict of functions by name: {"report": report}')
    for name, callback in callbacks.items():
        check_callback(name, callback)


def check_callback(name: object, callback: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ScheduleInvalidError("callbacks", name, "must be the name of a function, a text that is not blank")
    if not callable(callback):
        raise ScheduleInvalidError(f"callbacks.{name}", callback, "must be a function, which is given a Call")


def check_commands(commands: object) -> None:
    if isinstance(commands, bool):
        return
    if isinstance(commands, str) or not isinstance(commands, (list, tuple, set, frozenset)):
        raise ScheduleInvalidError("commands", commands, "must be True, False or a list of programs")
    for program in commands:
        if not isinstance(program, str) or not program:
            raise ScheduleInvalidError("commands", program, "must be the name of a program or an absolute path")


def secrets_of(given: Secrets | KeyRing | None, store: Ledger, clock: Clock, actor: str) -> Secrets:
    """The secrets of the store; without a master key they can be listed, and that is all."""
    return given if isinstance(given, Secrets) else Secrets(store, given, clock, actor)


def require_id(kind: str, given: object) -> None:
    """Raise "not found" for what cannot be an id; a database might not even accept it in a query."""
    if not isinstance(given, str) or not _storable(given):
        raise ScheduleNotFoundError(kind, str(given).encode("utf-8", "backslashreplace").decode())


def require_trigger(via: object, *, queue: object, retry: object) -> None:
    if via not in get_args(TriggerSource):
        raise ScheduleInvalidError("via", via, f"must be one of {', '.join(get_args(TriggerSource))}")
    for field, value in (("queue", queue), ("retry", retry)):
        if not isinstance(value, bool):
            raise ScheduleInvalidError(field, value, "must be true or false")


def require_many(many: object, progress: object) -> None:
    if isinstance(many, str | Mapping) or not isinstance(many, Iterable):
        raise ScheduleInvalidError("many", many, "must be a list of dicts, each with the fields of a schedule")
    require_progress(progress)


def require_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise ScheduleInvalidError("progress", progress, "must be a function of two numbers: written, and of how many")


def check_texts(**named: object) -> None:
    """Filters that are texts, each None where it was left open."""
    for argument, text in named.items():
        if text is None:
            continue
        if not isinstance(text, str):
            raise ScheduleInvalidError(argument, text, "must be text")
        if not _storable(text):
            raise ScheduleInvalidError(argument, text, "must be text without NUL characters, which UTF-8 can hold")


def _storable(text: str) -> bool:
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_newest_first(order: object) -> bool:
    if order not in get_args(Order):
        raise ScheduleInvalidError("order", order, f"must be one of {', '.join(get_args(Order))}")
    return order == "newest"


def after_cursor(cursor: object) -> int:
    """The number that a page of a list ended with."""
    if cursor is None:
        return 0
    # isdigit alone would let other scripts' digits through
    if isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() and len(cursor) < 20:
        found = int(cursor)
        if found < 1 << 63:
            return found
    raise ScheduleInvalidError("cursor", cursor, "must be the next_cursor of a page")


def letter_numbers(numbers: object) -> Sequence[int]:
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise ScheduleInvalidError("numbers", numbers, "must be a list of the numbers of dead letters")
    found = list(numbers)
    for number in found:
        if type(number) is not int or not 0 <= number < 1 << 63:
            raise ScheduleInvalidError("numbers", number, "must be the numbers of dead letters, whole numbers")
    return found


def check_quiet_hours(policy_id: object, name: object, windows: object) -> None:
    check_text("policy_id", policy_id)
    check_text("name", name)
    if isinstance(windows, str | Mapping) or not isinstance(windows, Sequence):
        example = '[{"weekdays": [1, 2], "from": "22:00", "to": "06:00", "timezone": "UTC"}]'
        raise ScheduleInvalidError("windows", windows, f"must be a list of windows, such as {example}")


def check_new_policy_id(policy_id: str) -> None:
    """Check a new id. Only applying a file makes ids of files: the next file would take others for its own."""
    check_id(policy_id, "policy_id")
    if policy_id.startswith(_OF_FILES):
        raise ScheduleInvalidError("policy_id", policy_id, f'must not begin with "{_OF_FILES}", as those of files do')


def schedule_filter(wanted: Mapping[str, Any]) -> ScheduleFilter:
    """The filters of a list, checked."""
    for name, value in wanted.items():
        if name not in ScheduleFilter._fields:
            known = ", ".join(ScheduleFilter._fields)
            raise ScheduleInvalidError("filter", name, f"is not known; known are {known}")
        if value is None:
            continue
        if name == "enabled":
            if not isinstance(value, bool):
                raise ScheduleInvalidError(name, value, "must be True or False")
            continue
        check_texts(**{name: value})
        if name == "type" and value not in get_args(ScheduleType):
            raise ScheduleInvalidError(name, value, f"must be one of {', '.join(get_args(ScheduleType))}")
    return ScheduleFilter(**wanted)


def instant(argument: str, at: object) -> int:
    if not isinstance(at, datetime):
        raise ScheduleInvalidError(argument, at, "must be an aware datetime, such as datetime.now(UTC)")
    if at.tzinfo is None:
        raise NaiveDatetimeError(at)
    return (at - EPOCH) // MICROSECOND


def period(start: object, end: object) -> tuple[int | None, int | None]:
    """Return the start and the end of a stretch, each None where it was left open."""
    from_at = None if start is None else instant("start", start)
    to_at = None if end is None else instant("end", end)
    if from_at is not None and to_at is not None and from_at > to_at:
        raise ScheduleInvalidError("start", str(start), f"must not be after end, which is {end}")
    return from_at, to_at


class DuplicateCheck:
    """Finds the second of two new schedules with one id or one name, before anything is written."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._names: dict[tuple[str, str], int] = {}

    def add(self, index: int, new: DurableSchedule) -> None:
        first = self._ids.setdefault(new.schedule_id, index)
        if first != index:
            raise _double("schedule_id", new.schedule_id, first)
        first = self._names.setdefault((new.team, new.columns.name), index)
        if first != index:
            raise _double("name", new.columns.name, first)


def _double(field: str, value: str, first: int) -> ScheduleInvalidError:
    return ScheduleInvalidError(field, value, f"is also that of [{first}]; each needs its own")


def require_mapping(argument: str, fields: object) -> None:
    if not isinstance(fields, Mapping):
        raise ScheduleInvalidError(argument, fields, 'must be a dict of the fields of a schedule: {"name": "a", …}')


def require_ids(schedule_ids: object) -> None:
    if isinstance(schedule_ids, str) or not isinstance(schedule_ids, Sequence):
        raise ScheduleInvalidError("schedule_ids", schedule_ids, "must be a list of ids")


@contextmanager
def counting_written(written: int, of: int) -> Iterator[None]:
    """Add to the error of a batch how many schedules the batches before it have written."""
    try:
        yield
    except NoonbellError as error:
        if of > 1:
            error.with_facts(f"{written} of {of} are written", written=written)
        raise


def at_entry(error: NoonbellError, index: int) -> NoonbellError:
    """The same complaint, with the place of the entry that it is about."""
    if isinstance(error, ScheduleInvalidError):
        return ScheduleInvalidError(error.field, error.value, error.reason, index)
    return error.with_facts(f"this is entry [{index}]", index=index)
