"""The text format of quiet windows:

    Mon-Fri 22:00-06:00 Europe/Kyiv
    daily 12:00-13:00
    2026-12-25,2026-12-26 all day Europe/Kyiv
    weekends all day from 2026-06-01 to 2026-08-31

Days (names, ranges, lists, daily, weekdays, weekends) or dates, then the hours, the zone, and the first and last day.
Each part is recognized by its form, so their order does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

DAYS: Final = "Sun Mon Tue Wed Thu Fri Sat".split()
RIGHT: Final = 'DAYS HOURS [ZONE], such as "Mon-Fri 22:00-06:00 Europe/Kyiv" or "2026-12-25 all day"'
_NAMED: Final = {
    "daily": [0, 1, 2, 3, 4, 5, 6],
    "everyday": [0, 1, 2, 3, 4, 5, 6],
    "weekdays": [1, 2, 3, 4, 5],
    "weekends": [0, 6],
}
_HOURS: Final = re.compile(r"(\d{1,2}:\d\d(?::\d\d)?)\s*-\s*(\d{1,2}:\d\d(?::\d\d)?)")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_BOUND: Final = re.compile(r"\b(from|to)\s+(\d{4}-\d\d-\d\d)\b", re.IGNORECASE)


def read_window(text: str, zone: str) -> dict[str, Any]:
    """Return the window as a document; `zone` is the default zone. ValueError describes text that is not understood."""
    found: dict[str, Any] = {"timezone": zone}
    rest = text
    for bound, day in _BOUND.findall(rest):
        found["valid_from" if bound.lower() == "from" else "valid_to"] = day
    rest = _BOUND.sub(" ", rest)
    rest = _take_hours(rest, found)
    weekdays: set[int] = set()
    dates: list[str] = []
    for word in re.split(r"[\s,]+", rest.strip()):
        if not word:
            continue
        if _DATE.fullmatch(word):
            dates.append(word)
        elif (days := _days(word)) is not None:
            weekdays |= days
        elif "/" in word or word == "UTC":
            found["timezone"] = word
        else:
            raise ValueError(f'"{word}" is neither a day, nor a date, nor a zone')
    if not weekdays and not dates:
        raise ValueError("it names no days; daily is every day")
    if weekdays:
        found["weekdays"] = sorted(weekdays)
    if dates:
        found["dates"] = dates
    return found


def _take_hours(text: str, found: dict[str, Any]) -> str:
    """Put the hours into `found`, and return the rest of the text."""
    if hours := _HOURS.search(text):
        found["from"], found["to"] = (part.zfill(5) if len(part) < 6 else part.zfill(8) for part in hours.groups())
        return text[: hours.start()] + " " + text[hours.end() :]
    if whole := re.search(r"\ball[ -]day\b", text, re.IGNORECASE):
        found["from"] = found["to"] = "00:00"
        return text[: whole.start()] + " " + text[whole.end() :]
    raise ValueError("it names no hours, such as 22:00-06:00, and not all day")


def _days(word: str) -> set[int] | None:
    lower = word.lower()
    if lower in _NAMED:
        return set(_NAMED[lower])
    first, sign, last = lower.partition("-")
    begin, end = _day(first), _day(last) if sign else _day(first)
    if begin is None or end is None:
        return None
    return {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}


def _day(word: str) -> int | None:
    if len(word) < 3:
        return None
    names = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
    return next((number for number, name in enumerate(names) if name.startswith(word)), None)


def windows_text(windows: Sequence[Mapping[str, Any]]) -> str:
    """Return windows in the format of `read_window`, one after the other."""
    return "; ".join(map(window_text, windows)) or "none"


def window_text(window: Mapping[str, Any]) -> str:
    weekdays = list(window.get("weekdays", []))
    days = [DAYS[day] for day in weekdays]
    named = "daily" if len(days) == 7 else "Mon-Fri" if weekdays == [1, 2, 3, 4, 5] else ",".join(days)
    when = [part for part in (named, ",".join(window.get("dates", []))) if part]
    bounds = [f"{key[6:]} {window[key]}" for key in ("valid_from", "valid_to") if key in window]
    hours = f"{window['from']}-{window['to']}"
    hours = "all day" if hours == "00:00-00:00" else hours
    return " ".join([*when, hours, str(window["timezone"]), *bounds])
