"""One time as people type it, past or coming: yesterday at 9:30, 2 hours ago, last monday, 1 march 2027, 14:05.

    read_time("yesterday at 9", now_in_the_zone)     # a civil time, without an offset
    read_time("2 hours ago", now_in_the_zone)        # an instant, with one

ISO 8601 is read as well. A day without a time is its midnight. Schedules have a grammar of their own (`grammar`);
this one is for questions about a moment.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from noonbell.language.clocks import read_clock
from noonbell.language.cursor import Cursor
from noonbell.language.dates import read_month, read_weekday
from noonbell.language.recurrences import read_duration, total_seconds

ACCEPTED: Final = (
    "2026-11-01T09:30", "09:30", "yesterday at 9:30", "2 hours ago", "last monday at noon", "1 march 2027", "now",
)  # fmt: skip
_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}


def read_time(text: str, here: datetime) -> datetime:
    """The time that a text names; `here` is now, in the zone that it is meant in.

    Raises:
        LanguageError: it names none.
    """
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        pass
    cursor = Cursor(text)
    try:
        found = _relative(cursor, here) or _civil(cursor, here)
    except OverflowError:
        raise cursor.refusal("that lies beyond the years 1 to 9999", cursor.place(), ACCEPTED) from None
    if not cursor.ended():
        raise cursor.unexpected("a time", *ACCEPTED)
    return found


def _relative(cursor: Cursor, here: datetime) -> datetime | None:
    """'now', '2 hours ago', 'in 10 minutes'."""
    if cursor.take("now"):
        return here
    before = cursor.at
    coming = cursor.take("in") is not None
    place = cursor.place()
    length = read_duration(cursor)
    if length is None or not (coming or cursor.take("ago")):
        cursor.at = before
        return None
    seconds = total_seconds(length)
    if seconds is None:
        reason = "only seconds, minutes, hours, days and weeks can be counted from now; for months, name the date"
        raise cursor.refusal(reason, cursor.since(place), ACCEPTED)
    return (here.astimezone(UTC) + timedelta(seconds=seconds if coming else -seconds)).astimezone(here.tzinfo)


def _civil(cursor: Cursor, here: datetime) -> datetime:
    """A day, a time of day, or both in either order."""
    day: date | None = None
    clock: time | None = None
    while not cursor.ended() and (day is None or clock is None):
        cursor.take(",", "on")
        named = cursor.take("at") is not None
        found = None if day is not None or named else _day(cursor, here)
        if found is not None:
            day = found
            continue
        said = read_clock(cursor, bare=named) if clock is None else None
        if said is None:
            raise cursor.unexpected("a time", *ACCEPTED)
        clock = time(said.hour, said.minute, said.second)
    if day is None and clock is None:
        raise cursor.unexpected("a time", *ACCEPTED)
    return datetime.combine(here.date() if day is None else day, clock or time())


def _day(cursor: Cursor, here: datetime) -> date | None:
    today = here.date()
    if cursor.sees(*_DAYS):
        return today + timedelta(days=_DAYS[cursor.next().low])
    if cursor.peek().kind == "date":
        return _iso_day(cursor)
    before = cursor.at
    step = cursor.take("last", "next", "this")
    weekday = read_weekday(cursor)
    if weekday is not None and len(weekday.values) == 1:
        (number,) = weekday.values  # 0 is Sunday, as in cron
        ahead = (number - today.isoweekday()) % 7
        if step is not None and step.low == "last":
            ahead = ahead - 7
        elif step is not None and step.low == "next":
            ahead = ahead or 7
        return today + timedelta(days=ahead)
    cursor.at = before
    return _named_date(cursor, today)


def _iso_day(cursor: Cursor) -> date:
    token, place = cursor.next(), cursor.place(-1)
    try:
        return date.fromisoformat(token.text)
    except ValueError as error:
        raise cursor.refusal(f"this day does not exist: {error}", place, ACCEPTED) from None


def _named_date(cursor: Cursor, today: date) -> date | None:
    """'1 march 2027', 'march 1st'; without a year it is that of today."""
    before, place = cursor.at, cursor.place()
    number = _number(cursor)
    month = read_month(cursor)
    if month is not None and number is None:
        number = _number(cursor)
    if month is None or number is None:
        cursor.at = before
        return None
    cursor.take(",")
    year = cursor.next().value if cursor.peek().kind == "number" and cursor.peek().value > 999 else today.year
    try:
        return date(year, next(iter(month.values)), number)
    except ValueError:
        raise cursor.refusal("this day does not exist", cursor.since(place), ACCEPTED) from None


def _number(cursor: Cursor) -> int | None:
    ordinal = cursor.ordinal_ahead()
    if ordinal is None:
        return cursor.number()
    cursor.at += ordinal[1]
    cursor.take("of")
    return ordinal[0]
