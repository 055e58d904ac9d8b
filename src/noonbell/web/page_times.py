"""Formats of times on pages. The server writes UTC and the zone of the schedule; a script then replaces UTC by the
viewer's own zone, from the `datetime` attribute. Pure: `now` is passed in.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def iso(at: datetime) -> str:
    """Return an instant for the `datetime` attribute."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at: datetime, zone: str = "UTC", *, seconds: bool = True) -> str:
    """Return the local time of day in a zone."""
    return f"{_in(at, zone):{'%H:%M:%S' if seconds else '%H:%M'}}"


def day(at: datetime, zone: str = "UTC", *, year: bool = False) -> str:
    local = _in(at, zone)
    return f"{local.day} {local:%b}" + (f" {local.year}" if year else "")


def full(at: datetime, zone: str = "UTC") -> str:
    local = _in(at, zone)
    return f"{local:%a} {local.day} {local:%b %Y} {local:%H:%M:%S}"


def place(zone: str) -> str:
    """Return the short name of a zone: the part after the last slash."""
    return zone.rpartition("/")[2].replace("_", " ")


def ago(at: datetime, now: datetime) -> str:
    """Return the distance from `now` in one unit: 'in 4 min', '3 d ago'."""
    seconds = round((at - now).total_seconds())
    if seconds == 0:
        return "now"
    unit, size = next((unit, size) for unit, size in _UNITS if abs(seconds) >= size)
    count = abs(seconds) // size
    return f"in {count} {unit}" if seconds > 0 else f"{count} {unit} ago"


def lasted(span: timedelta | float | None) -> str:
    """Return a duration in its two largest units; a short one in milliseconds."""
    if span is None:
        return "–"  # noqa: RUF001 - a dash, as in a timetable
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    sign = "-" if seconds < 0 else ""
    seconds = abs(seconds)
    if seconds < 1:
        return f"{sign}{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{sign}{seconds:.2f} s"
    if seconds < 60:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    for (big, size), (small, part) in pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // part
            return f"{sign}{whole // size} {big}" + (f" {rest} {small}" if rest else "")
    return f"{sign}{whole} s"


def _in(at: datetime, zone: str) -> datetime:
    try:
        return at.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return at.astimezone(UTC)  # a zone that is missing from the current zone data must not break the page
