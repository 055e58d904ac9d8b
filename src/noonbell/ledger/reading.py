"""What verify and why both need to read a ledger: pages of rows, the occurrences of an epoch, instants as text.

Stored values are not trusted. What cannot be an instant, a spec or a zone is told apart here, before anybody counts
with it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeGuard
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from noonbell.cron import CronExpression, DstPolicy, Zone, parse, zone_of
from noonbell.errors import CronCalculationError, InvalidCronExpressionError
from noonbell.ports import LEDGER_TABLES, LedgerTable, Store

SECOND: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
EARLIEST: Final = (datetime(1, 1, 3, tzinfo=UTC) - _EPOCH) // _MICROSECOND
LATEST: Final = (datetime(9999, 12, 29, tzinfo=UTC) - _EPOCH) // _MICROSECOND

_OFFSET: Final = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)(?::?(\d\d))?")


class Rhythm:
    """The occurrences of one spec in one zone, on instants in microseconds."""

    __slots__ = ("_asked", "_expression", "_following", "dst", "zone")

    def __init__(self, expression: CronExpression, zone: Zone, dst: DstPolicy) -> None:
        self._expression = expression
        self.zone = zone
        self.dst: DstPolicy = dst
        # neighbours in a burst ask the same question, so the last answer is kept
        self._asked: int | None = None
        self._following: int | None = None

    def after(self, at: int) -> int | None:
        """The first occurrence after `at`; None where the calendar ends before it."""
        if at != self._asked:
            self._asked = at
            try:
                self._following = self._expression.next_epoch(at // SECOND, self.zone, self.dst) * SECOND
            except CronCalculationError:
                self._following = None
        return self._following

    def latest(self, at: int) -> int | None:
        """The latest occurrence at or before `at`."""
        try:
            return self._expression.previous_epoch(at // SECOND, self.zone, self.dst) * SECOND
        except CronCalculationError:
            return None

    def count(self, first: int, last: int) -> int:
        """How many occurrences lie from `first` to `last`, both included."""
        return self._expression.count_epochs(-(-first // SECOND), last // SECOND + 1, self.zone, self.dst)

    def has(self, at: int) -> bool:
        """Whether `at` is an occurrence."""
        return at % SECOND == 0 and self.count(at, at) == 1


@lru_cache(maxsize=65_536)
def rhythm(spec: str, zone_name: str, dst: DstPolicy = "literal") -> Rhythm | str:
    """The rhythm of a stored spec and zone, or what is wrong with them, in words."""
    zone = zone_named(zone_name)
    if zone is None:
        return f"its time zone {zone_name!r} is not known here"
    try:
        return Rhythm(parse(spec), zone_of(zone), dst)
    except InvalidCronExpressionError as error:
        return f"its spec cannot be read: {error}"


@lru_cache(maxsize=1024)
def zone_named(name: str) -> tzinfo | None:
    """The zone that a stored name means: an IANA name, or a fixed offset such as UTC+02:00."""
    fixed = _OFFSET.fullmatch(name)
    if fixed is not None:
        sign, hours, minutes, seconds = fixed.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds or 0))
        return timezone(offset if sign == "+" else -offset) if offset < timedelta(days=1) else None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def dst_policy(policies: object) -> DstPolicy:
    """The DST policy among an epoch's stored policies; literal unless they say otherwise."""
    try:
        stored = msgspec.json.decode(policies) if isinstance(policies, str) else None
    except msgspec.DecodeError:
        return "literal"
    return "once" if isinstance(stored, dict) and stored.get("dst") == "once" else "literal"


class Bounds(NamedTuple):
    """From when to when a durable schedule is heard, both included; None leaves a side open."""

    start_at: int | None
    end_at: int | None


def durable_bounds(policies: object) -> Bounds | None:
    """The bounds among the stored policies of a durable schedule's epoch; None for a declared task, which has none."""
    try:
        stored = msgspec.json.decode(policies) if isinstance(policies, str) else None
    except msgspec.DecodeError:
        return None
    if not isinstance(stored, dict) or not isinstance(stored.get("definition"), dict):
        return None
    start_at, end_at = stored["definition"].get("start_at"), stored["definition"].get("end_at")
    return Bounds(start_at if is_instant(start_at) else None, end_at if is_instant(end_at) else None)


def is_instant(value: object) -> TypeGuard[int]:
    """Whether a stored value can be an instant: a whole number within the calendar."""
    return type(value) is int and EARLIEST <= value <= LATEST


def iso(at: object) -> str:
    """An instant as ISO text in UTC; anything else as it stands."""
    if not is_instant(at):
        return repr(at)
    return moment(at).isoformat().replace("+00:00", "Z")


def moment(at: int, zone: tzinfo = UTC) -> datetime:
    """An instant as a datetime in a zone."""
    return (_EPOCH + at * _MICROSECOND).astimezone(zone)


def instant(at: datetime) -> int:
    """A datetime as an instant."""
    return (at - _EPOCH) // _MICROSECOND


async def rows(
    store: Store,
    table: LedgerTable,
    *,
    after: tuple[Any, ...] | None = None,
    above_sid: int | None = None,
    upto_sid: int | None = None,
    page: int = 5_000,
) -> AsyncIterator[list[tuple[Any, ...]]]:
    """A table in pages of rows."""
    shape = LEDGER_TABLES[table]
    key = [shape.columns.index(column) for column in shape.key]
    while True:
        found = await store.read_ledger(table, after, page, above_sid=above_sid, upto_sid=upto_sid)
        if found:
            yield found
        if len(found) < page:
            return
        after = tuple(found[-1][column] for column in key)
