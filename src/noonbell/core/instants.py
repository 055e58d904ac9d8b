"""Instants: whole microseconds since 1970 (UTC), which is how the engine and the stores keep time, and datetimes.

Nothing here reads a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

SECOND: Final = 1_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


@lru_cache(maxsize=1_024)  # in a burst thousands of runs are for the same instant
def moment(at: int, zone: tzinfo = UTC) -> datetime:
    """Return an instant as a datetime in a zone."""
    found = EPOCH + at * MICROSECOND
    return found if zone is UTC else found.astimezone(zone)


def moment_or_none(at: int | None) -> datetime | None:
    return None if at is None else moment(at)


def instant(at: datetime) -> int:
    """Return an aware datetime as an instant."""
    return (at - EPOCH) // MICROSECOND


def microseconds(duration: timedelta) -> int:
    """Return a duration in whole microseconds."""
    return duration // MICROSECOND
