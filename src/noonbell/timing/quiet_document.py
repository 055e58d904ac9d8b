"""Quiet hours as a plain document, for JSON and TOML:

    {"windows": [{"weekdays": [1, 2, 3, 4, 5], "from": "22:00", "to": "06:00", "timezone": "Europe/Kyiv",
                  "dates": ["2026-12-25"], "valid_from": "2026-01-01", "valid_to": "2026-12-31"}]}

`from`, `to`, `timezone` and one of `weekdays` and `dates` are needed. Every error names the path of what is wrong.
A `to` of 24:00 is midnight, and is written back as 00:00.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, time, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from noonbell.errors import QuietHoursInvalidError
from noonbell.timing.quiet_window import Window
from noonbell.timing.zone_names import near_zones

_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_KEYS: Final = ("weekdays", "dates", "from", "to", "timezone", "valid_from", "valid_to")
_NEEDED: Final = ("from", "to", "timezone")
_FIELDS: Final = {"from_time": "from", "to_time": "to", "zone": "timezone"}  # where the document says it otherwise


def read_windows(document: Mapping[str, Any]) -> tuple[Window, ...]:
    """The windows of a document; raises QuietHoursInvalidError."""
    _check_keys(document, ("windows",), ("windows",), "")
    windows = _listed(document["windows"], "windows")
    return tuple(_read_window(window, f"windows[{index}]") for index, window in enumerate(windows))


def written_windows(windows: Iterable[Window]) -> dict[str, Any]:
    """The document of these windows; what a window does not say is left out."""
    return {"windows": [_written(window, f"windows[{index}]") for index, window in enumerate(windows)]}


def _read_window(window: Any, path: str) -> Window:
    _check_keys(window, _KEYS, _NEEDED, path)
    weekdays = _listed(window.get("weekdays", []), f"{path}.weekdays")
    dates = _listed(window.get("dates", []), f"{path}.dates")
    for index, weekday in enumerate(weekdays):
        if not isinstance(weekday, int):  # it may not even fit into a set
            raise QuietHoursInvalidError(
                f"{path}.weekdays[{index}]", weekday, "must be a number from 0 (Sunday) to 6 (Saturday)"
            )
    try:
        return Window(
            weekdays=frozenset(weekdays),
            dates=frozenset(_date(day, f"{path}.dates[{index}]") for index, day in enumerate(dates)),
            from_time=_time(window["from"], f"{path}.from"),
            to_time=_time(window["to"], f"{path}.to", midnight_is_24=True),
            zone=_zone(window["timezone"], f"{path}.timezone"),
            valid_from=_optional_date(window, "valid_from", path),
            valid_to=_optional_date(window, "valid_to", path),
        )
    except QuietHoursInvalidError as error:
        if error.field.startswith(path):
            raise
        field = _FIELDS.get(error.field, error.field)
        raise QuietHoursInvalidError(f"{path}.{field}", error.value, error.reason) from error


def _written(window: Window, path: str) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if window.weekdays:
        written["weekdays"] = sorted(window.weekdays)
    if window.dates:
        written["dates"] = [day.isoformat() for day in sorted(window.dates)]
    written["from"], written["to"] = _clock(window.from_time), _clock(window.to_time)
    written["timezone"] = _zone_name(window.zone, path)
    if window.valid_from is not None:
        written["valid_from"] = window.valid_from.isoformat()
    if window.valid_to is not None:
        written["valid_to"] = window.valid_to.isoformat()
    return written


def _check_keys(found: Any, known: tuple[str, ...], needed: tuple[str, ...], path: str) -> None:
    where = path or "quiet hours"
    if not isinstance(found, Mapping):
        raise QuietHoursInvalidError(where, found, f"must be an object with {', '.join(needed)}")
    for key in found:
        if key not in known:
            raise QuietHoursInvalidError(where, key, f"is not a known key; known are {', '.join(known)}")
    for key in needed:
        if key not in found:
            raise QuietHoursInvalidError(f"{path}.{key}".lstrip("."), None, "is missing")


def _listed(value: Any, path: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise QuietHoursInvalidError(path, value, "must be a list")
    return list(value)


def _time(value: Any, path: str, *, midnight_is_24: bool = False) -> time:
    if midnight_is_24 and value in ("24:00", "24:00:00"):
        return time(0)
    read = _TIME.fullmatch(value) if isinstance(value, str) else None
    if read is None:
        raise QuietHoursInvalidError(path, value, 'must be a time of day, such as "22:00"')
    hour, minute, second = (int(part or 0) for part in read.groups())
    try:
        return time(hour, minute, second)
    except ValueError as error:
        raise QuietHoursInvalidError(path, value, f"is not a time of day: {error}") from error


def _date(value: Any, path: str) -> date:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise QuietHoursInvalidError(path, value, 'must be a date, such as "2026-12-25"')
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise QuietHoursInvalidError(path, value, f"is not a date: {error}") from error


def _optional_date(window: Mapping[str, Any], key: str, path: str) -> date | None:
    value = window.get(key)
    return None if value is None else _date(value, f"{path}.{key}")


def _zone(value: Any, path: str) -> tzinfo:
    if not isinstance(value, str):
        raise QuietHoursInvalidError(path, value, "must be the name of an IANA zone, such as Europe/Kyiv")
    try:
        return ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        near = near_zones(value)
        right = f"did you mean {' or '.join(near)}?" if near else "right is a name such as Europe/Kyiv"
        raise QuietHoursInvalidError(path, value, f"is not an IANA zone; {right}") from error


def _zone_name(zone: tzinfo, path: str) -> str:
    key = "UTC" if zone is UTC else getattr(zone, "key", None)
    if not isinstance(key, str):
        raise QuietHoursInvalidError(f"{path}.timezone", str(zone), "has no IANA name, so it cannot be written down")
    return key


def _clock(of_day: time) -> str:
    return of_day.isoformat(timespec="seconds" if of_day.second else "minutes")
