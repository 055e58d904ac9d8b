"""Days: weekdays, days of the month, months, dates, and the days that cron cannot say."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Final, NoReturn

from noonbell.language.cursor import Cursor
from noonbell.language.lists import Bounds, Item, Listed, number_between, read_list
from noonbell.language.phrase import DateSaid, EveryUnits, Moment, Phrase, Place, Values
from noonbell.language.words import (
    HALVES,
    MONTH_NAMES,
    MONTHS,
    UNITS,
    WEEKDAY_GROUPS,
    WEEKDAYS,
    WORKING_ADJECTIVES,
)

_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_QUARTER_MONTHS: Final = frozenset({1, 4, 7, 10})
_DAYS_OF_MONTH: Final = Bounds(1, 31, wraps=False)
_WEEK: Final = Bounds(0, 6, wraps=True)
_YEAR: Final = Bounds(1, 12, wraps=True)
_READ_DAY: Final = number_between(1, 31, "days of a month")
_NTH_WEEKDAY: Final = (
    "cron has no n-th weekday of a month: it fires on every such weekday, or on a day of the month by its number"
)
_LAST_DAY: Final = "cron has no last day of the month: months end on the 28th, 29th, 30th or 31st"


def read_days(cursor: Cursor, phrase: Phrase, *, repeats: bool) -> bool:
    """Read days of any kind; False, and nothing taken, if none come next. `repeats`: an 'every' precedes them."""
    if cursor.sees("last"):
        _refuse_last(cursor)
    if cursor.sees("day", "days") and (cursor.peek(1).kind in ("number", "ordinal")):
        cursor.next()
        return _numbered(cursor, phrase, repeats=repeats)
    if cursor.peek().kind in ("date", "instant"):
        _written_date(cursor, phrase)
        return True
    if cursor.ordinal_ahead() is not None and not _is_unit_of_time(cursor):
        return _ordinals(cursor, phrase, repeats=repeats)
    if _month_day(cursor, phrase) or _months(cursor, phrase, repeats=repeats):
        return True
    return _weekdays(cursor, phrase, repeats=repeats)


def _is_unit_of_time(cursor: Cursor) -> bool:
    """'second' with nothing behind it that could be counted is the unit."""
    following = cursor.peek(1)
    if not cursor.sees("second"):
        return False
    countable = following.low in WEEKDAYS or following.low in UNITS or following.low in MONTHS
    return not (countable or following.low in ("of", "and", ","))


# --- weekdays ---------------------------------------------------------------------------------------------------------


def read_weekday(cursor: Cursor) -> Item | None:
    token = cursor.peek()
    if token.kind != "word":
        return None
    if token.low in WEEKDAYS:
        cursor.next()
        return Item(WEEKDAYS[token.low])
    if token.low in WEEKDAY_GROUPS:
        cursor.next()
        return Item(WEEKDAY_GROUPS[token.low], repeats=True)
    if token.low in WORKING_ADJECTIVES and cursor.sees("day", "days", ahead=1):
        cursor.at += 2
        return Item(WEEKDAY_GROUPS["weekdays"], repeats=True)
    return None


def _weekdays(cursor: Cursor, phrase: Phrase, *, repeats: bool) -> bool:
    listed = read_list(cursor, read_weekday, _WEEK)
    if listed is None:
        return False
    the = cursor.sees("the")
    following = cursor.peek(1 if the else 0)
    dated = cursor.peek(2 if the else 1).low
    if following.kind == "ordinal" and dated not in MONTHS and dated != "of":
        place = listed.place.to(cursor.place(1 if the else 0))
        words = f"the {following.text} of every month or on any {cursor.text[listed.place.start : listed.place.end]}"
        reason = "cron cannot ask for a weekday and a day of the month at once: there, either one is enough"
        raise cursor.refusal(reason, place, (), (cursor.replaced(place, words),))
    put_weekdays(cursor, phrase, listed, repeats=repeats)
    return True


def put_weekdays(cursor: Cursor, phrase: Phrase, listed: Listed, *, repeats: bool) -> None:
    known = phrase.weekdays
    values = listed.values if known is None else known.values | listed.values
    place = listed.place if known is None else known.place.to(listed.place)
    if known is not None and not _joined(cursor, listed.place):
        raise cursor.refusal("weekdays were said before; join them with 'and'", listed.place)
    again = repeats or not listed.single or (known is not None)
    phrase.weekdays = Values(values, place, again or (known is not None and known.repeats))


def _joined(cursor: Cursor, place: Place) -> bool:
    """Return whether an 'and' or a comma precedes this part, perhaps with 'on' or 'every' between."""
    words = cursor.text[: place.start].lower().replace(",", " , ").split()
    while words and words[-1] in ("on", "every", "each", "any", "the", "day", "days"):
        words.pop()
    return bool(words) and words[-1] in ("and", "or", ",", "&", ";")


# --- days of the month ------------------------------------------------------------------------------------------------


def _read_ordinal(cursor: Cursor) -> Item | None:
    before = cursor.at
    cursor.take("the")
    found = cursor.ordinal_ahead()
    if found is None:
        cursor.at = before
        return None
    value, length = found
    place = cursor.place()
    if not 1 <= value <= 31:
        near = cursor.replaced(place, "31st")
        raise cursor.refusal("a month has days from 1 to 31", place, ("1st to 31st",), (near,))
    cursor.at += length
    return Item(frozenset({value}))


def _ordinals(cursor: Cursor, phrase: Phrase, *, repeats: bool) -> bool:
    listed = read_list(cursor, _read_ordinal, _DAYS_OF_MONTH)
    if listed is None:
        return False
    if cursor.peek().low in WEEKDAYS or cursor.peek().low in WEEKDAY_GROUPS:
        _refuse_nth_weekday(cursor, listed)
    days = cursor.take("day", "days") is not None
    return _of(cursor, phrase, listed, repeats=repeats, days=days)


def _numbered(cursor: Cursor, phrase: Phrase, *, repeats: bool) -> bool:
    read = _read_ordinal if cursor.peek().kind == "ordinal" else _READ_DAY
    listed = read_list(cursor, read, _DAYS_OF_MONTH)
    if listed is None:
        raise cursor.unexpected("days of the month", "numbers from 1 to 31")
    return _of(cursor, phrase, listed, repeats=repeats, days=True)


def _of(cursor: Cursor, phrase: Phrase, listed: Listed, *, repeats: bool, days: bool) -> bool:
    """Read the period of the days: the month, a quarter, the year, or months by name."""
    if cursor.take("of"):
        every = cursor.sees("every", "each")
        article = cursor.take("the", "every", "each", "a", "any") is not None
        months = read_list(cursor, read_month, _YEAR)
        if months is not None:
            return _days_of_months(cursor, phrase, listed, months, repeats=repeats or every)
        _period(cursor, phrase, listed, article=article)
        return True
    if cursor.peek().low in MONTHS and cursor.peek().kind == "word":
        months = read_list(cursor, read_month, _YEAR)
        if months is not None:
            return _days_of_months(cursor, phrase, listed, months, repeats=repeats)
    if days and listed.single and not repeats and not cursor.sees("in"):
        raise cursor.unexpected("of which month", "of the month", "of every month", "of january")
    _put_days(cursor, phrase, listed, repeats=repeats)
    return True


def _period(cursor: Cursor, phrase: Phrase, listed: Listed, *, article: bool) -> None:
    start = cursor.place()
    other = cursor.take("other", "second") is not None
    number = 2 if other else cursor.number() or 1
    count, unit = UNITS.get(cursor.peek().low, (0, None))
    if cursor.peek().kind != "word" or unit not in ("month", "year", "week") or not article:
        raise cursor.unexpected("of which month", "the month", "every month", "january")
    quarter = cursor.next().low.startswith("quarter")
    place = cursor.since(start)
    if unit == "week":
        candidates = tuple(cursor.replaced(listed.place.to(place), f"every {day}") for day in ("monday", "sunday"))
        raise cursor.refusal(
            "weeks begin on Monday for some and on Sunday for others", place, ("a weekday",), candidates
        )
    if unit == "year":
        if not listed.single or number != 1:
            raise cursor.refusal("name the month", place, ("the month", "january"))
        (day,) = listed.values
        phrase.dates.append(DateSaid(day, 1, None, listed.place.to(place)))
        phrase.yearly = place
        return
    if quarter and listed.values != {1}:
        raise cursor.refusal("of a quarter only the first day is known", place, ("the first day of the quarter",))
    if count * number > 1:
        put_recurrence(cursor, phrase, EveryUnits(count * number, "month", place, is_quarter=quarter))
    _put_days(cursor, phrase, listed, repeats=True)


def _put_days(cursor: Cursor, phrase: Phrase, listed: Listed, *, repeats: bool) -> None:
    known = phrase.days
    if known is not None and not _joined(cursor, listed.place):
        raise cursor.refusal("days of the month were said before; join them with 'and'", listed.place)
    values = listed.values if known is None else known.values | listed.values
    place = listed.place if known is None else known.place.to(listed.place)
    phrase.days = Values(values, place, repeats or not listed.single or known is not None)


def put_recurrence(cursor: Cursor, phrase: Phrase, recurrence: EveryUnits) -> None:
    """A recurrence within the day and a cycle of days go together; two of a kind do not."""
    if (recurrence.count, recurrence.unit) == (1, "year"):
        phrase.yearly = recurrence.place
        return
    fine = recurrence.unit in ("second", "minute", "hour")
    known = phrase.recurrence if fine else phrase.cycle
    if known is not None and (known.count, known.unit) != (recurrence.count, recurrence.unit):
        raise cursor.refusal("how often was said before", recurrence.place)
    if fine:
        phrase.recurrence = recurrence
    else:
        phrase.cycle = recurrence


# --- months and dates -------------------------------------------------------------------------------------------------


def read_month(cursor: Cursor) -> Item | None:
    token = cursor.peek()
    if token.kind != "word" or token.low not in MONTHS:
        return None
    cursor.next()
    if len(token.text) <= 4:
        cursor.take(".")
    return Item(frozenset({MONTHS[token.low]}))


def read_months(cursor: Cursor, phrase: Phrase) -> bool:
    """Months after 'in' or 'from'."""
    return _months(cursor, phrase, repeats=True)


def _months(cursor: Cursor, phrase: Phrase, *, repeats: bool) -> bool:
    listed = read_list(cursor, read_month, _YEAR)
    if listed is None:
        return False
    if phrase.months is not None and not _joined(cursor, listed.place):
        raise cursor.refusal("months were said before; join them with 'and'", listed.place)
    known = frozenset[int]() if phrase.months is None else phrase.months.values
    phrase.months = Values(known | listed.values, listed.place, repeats or not listed.single)
    return True


def _days_of_months(cursor: Cursor, phrase: Phrase, listed: Listed, months: Listed, *, repeats: bool) -> bool:
    place = listed.place.to(months.place)
    if len(listed.values) == 1 and len(months.values) == 1:
        (day,), (month,) = listed.values, months.values
        _put_date(cursor, phrase, DateSaid(day, month, _year(cursor), cursor.since(place)), repeats=repeats)
        return True
    _refuse_if_never(cursor, listed.values, months.values, place)
    _put_days(cursor, phrase, listed, repeats=True)
    phrase.months = Values(months.values, months.place)
    return True


def _month_day(cursor: Cursor, phrase: Phrase) -> bool:
    """'1 march', 'march 1st', each perhaps with a year; nothing taken where it is something else."""
    before, place = cursor.at, cursor.place()
    if cursor.peek().low in MONTHS and cursor.peek().kind == "word":
        month = MONTHS[cursor.next().low]
        cursor.take(".")
        cursor.take("the")
        found = cursor.ordinal_ahead()
        if found is not None:
            cursor.at += found[1]
        day = found[0] if found else cursor.number()
        if day is None or cursor.peek().low in HALVES or cursor.peek().low in UNITS:
            cursor.at = before
            return False
    else:
        day = cursor.number()
        cursor.take("of")
        if day is None or cursor.peek().kind != "word" or cursor.peek().low not in MONTHS:
            cursor.at = before
            return False
        month = MONTHS[cursor.next().low]
    said = DateSaid(day, month, _year(cursor), cursor.since(place))
    _put_date(cursor, phrase, said, repeats=_every_before(cursor, place))
    return True


def _every_before(cursor: Cursor, place: Place) -> bool:
    return cursor.text[: place.start].lower().split()[-1:] in (["every"], ["each"])


def _year(cursor: Cursor) -> int | None:
    before = cursor.at
    cursor.take(",")
    if cursor.peek().kind == "number" and len(cursor.peek().text) == 4:
        return cursor.next().value
    cursor.at = before
    return None


def _put_date(cursor: Cursor, phrase: Phrase, said: DateSaid, *, repeats: bool) -> None:
    longest = _LONGEST[said.month - 1]
    if said.year is not None and said.month == 2 and (said.year % 4 or not (said.year % 100 or not said.year % 400)):
        longest = 28
    if not 1 <= said.day <= longest:
        _refuse_day(cursor, said, longest)
    if phrase.dates and not _joined(cursor, said.place):
        raise cursor.refusal("a date was said before", said.place)
    phrase.dates.append(said)
    if repeats:
        phrase.yearly = said.place


def _refuse_day(cursor: Cursor, said: DateSaid, longest: int) -> NoReturn:
    month = MONTH_NAMES[said.month - 1]
    near = f"{longest} {month}" + (f" {said.year}" if said.year else "")
    reason = f"{month.title()} has no day {said.day}"
    accepted = (f"a day from 1 to {longest}",)
    raise cursor.refusal(reason, said.place, accepted, (cursor.replaced(said.place, near),))


def _refuse_if_never(cursor: Cursor, days: frozenset[int], months: frozenset[int], place: Place) -> None:
    longest = max(_LONGEST[month - 1] for month in months)
    if min(days) > longest:
        near = f"day {longest} of {' and '.join(MONTH_NAMES[month - 1] for month in sorted(months))}"
        candidates = (cursor.replaced(place, near),)
        raise cursor.refusal("these months have no such day", place, (f"a day from 1 to {longest}",), candidates)


def _written_date(cursor: Cursor, phrase: Phrase) -> None:
    token, place = cursor.peek(), cursor.place()
    if phrase.moment is not None:
        raise cursor.refusal("the day was said before", place)
    try:
        if token.kind == "date":
            phrase.moment = Moment(place, day=date.fromisoformat(token.text))
        elif re.match(r"[0-9-]+[T ]24", token.text.upper()):
            raise ValueError("hour must be in 0..23")  # Python 3.14 reads it as the next day's midnight
        else:
            phrase.moment = Moment(place, instant=datetime.fromisoformat(token.text.upper()))
    except ValueError as error:
        raise cursor.refusal(f"this is not a date: {error}", place, ("a date such as 2027-03-01",)) from error
    cursor.next()


# --- what cron cannot express -----------------------------------------------------------------------------------------


def _refuse_nth_weekday(cursor: Cursor, listed: Listed) -> NoReturn:
    weekday = cursor.next().low
    _skip_of_month(cursor)
    place = cursor.since(listed.place)
    wide = cursor.widened(place)
    candidates: tuple[str, ...] = (cursor.replaced(wide, weekday if weekday in WEEKDAY_GROUPS else f"every {weekday}"),)
    if listed.values == {1}:
        candidates += (cursor.replaced(wide, "on the 1st of every month"),)
    raise cursor.refusal(_NTH_WEEKDAY, place, (), candidates)


def _refuse_last(cursor: Cursor) -> NoReturn:
    place = cursor.place()
    cursor.next()
    following = cursor.peek()
    if following.low in WEEKDAYS or following.low in WEEKDAY_GROUPS:
        cursor.next()
        _skip_of_month(cursor)
        whole = cursor.since(place)
        candidates: tuple[str, ...] = (cursor.replaced(cursor.widened(whole), f"every {following.low}"),)
        raise cursor.refusal(_NTH_WEEKDAY, whole, (), candidates)
    if cursor.take("day", "days"):
        _skip_of_month(cursor)
        whole = cursor.since(place)
        candidates = (
            cursor.replaced(cursor.widened(whole), "on the first day of the month"),
            cursor.replaced(cursor.widened(whole), "on the 28th of every month"),
        )
        raise cursor.refusal(_LAST_DAY, whole, ("a day by its number", "the first day of the month"), candidates)
    raise cursor.refusal("cron cannot say 'last'", place, ("days, weekdays and months by name or number",))


def _skip_of_month(cursor: Cursor) -> None:
    before = cursor.at
    if cursor.take("of", "in"):
        cursor.take("the", "every", "each")
        if not (cursor.take("month") or cursor.take(*MONTHS)):
            cursor.at = before
