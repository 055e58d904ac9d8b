"""Pages of ledger rows, zones by their names, instants as datetimes and text: for verify and why.

Stored values are not trusted: `is_instant` and `zone_named` reject what cannot be an instant or a zone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final, TypeGuard
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from noonbell.core.instants import EPOCH, MICROSECOND, moment
from noonbell.core.records import LifecycleEvent
from noonbell.ports import LEDGER_TABLES, Ledger, LedgerTable

SECOND: Final = 1_000_000
EARLIEST: Final = (datetime(1, 1, 3, tzinfo=UTC) - EPOCH) // MICROSECOND
LATEST: Final = (datetime(9999, 12, 29, tzinfo=UTC) - EPOCH) // MICROSECOND

_OFFSET: Final = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)(?::?(\d\d))?")


@lru_cache(maxsize=1024)
def zone_named(name: str) -> tzinfo | None:
    """Return the zone of a stored name: an IANA name, or a fixed offset such as UTC+02:00."""
    fixed = _OFFSET.fullmatch(name)
    if fixed is not None:
        sign, hours, minutes, seconds = fixed.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds or 0))
        return timezone(offset if sign == "+" else -offset) if offset < timedelta(days=1) else None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_instant(value: object) -> TypeGuard[int]:
    """Return whether a stored value can be an instant: a whole number within the calendar."""
    return type(value) is int and EARLIEST <= value <= LATEST


def iso(at: object) -> str:
    """Return an instant as ISO text in UTC; anything else as it stands."""
    if not is_instant(at):
        return repr(at)
    return moment(at).isoformat().replace("+00:00", "Z")


async def rows(
    store: Ledger,
    table: LedgerTable,
    *,
    after: tuple[Any, ...] | None = None,
    above_sid: int | None = None,
    upto_sid: int | None = None,
    managed_by: str | None = None,
    page: int = 5_000,
) -> AsyncIterator[list[tuple[Any, ...]]]:
    """Read a table in pages of rows."""
    shape = LEDGER_TABLES[table]
    key = [shape.columns.index(column) for column in shape.key]
    while True:
        found = await store.read(table, after, page, above_sid=above_sid, upto_sid=upto_sid, managed_by=managed_by)
        if found:
            yield found
        if len(found) < page:
            return
        after = tuple(found[-1][column] for column in key)


async def schedule_rows(store: Ledger, managed_by: str | None = None) -> list[Mapping[str, Any]]:
    """Return all rows of the schedules table, or those of an owner, oldest first and with removed ones."""
    columns = LEDGER_TABLES["schedules"].columns
    pages = [found async for found in rows(store, "schedules", managed_by=managed_by)]
    return [dict(zip(columns, row, strict=True)) for found in pages for row in found]


async def declared_tasks(store: Ledger) -> list[Mapping[str, Any]]:
    """Return the rows of the tasks of all declared owners, oldest first, without removed ones."""
    columns = LEDGER_TABLES["schedules"].columns
    found = {row["sid"]: row for row in (await store.schedules.read_declared()).rows}
    return [{name: row[name] for name in columns} for row in found.values()]


async def lifecycle_of(store: Ledger, managed_by: str) -> list[LifecycleEvent]:
    """Return the lifecycle of an owner, oldest first."""
    pages = [found async for found in rows(store, "lifecycle", managed_by=managed_by)]
    return [LifecycleEvent(*row[1:]) for found in pages for row in found]


async def stored_zone_rules(store: Ledger) -> dict[str, str]:
    """Return for each zone of durable schedules and quiet hours the rules they were computed with, hash first."""
    pages = [found async for found in rows(store, "zone_rules")]
    return {timezone: rules for found in pages for timezone, rules in found}
