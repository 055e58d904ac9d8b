"""Recurrences: every 15 minutes, daily, twice a day; and lengths of time, which 'in 10 minutes' needs as well."""

from __future__ import annotations

from fractions import Fraction
from typing import NoReturn

from noonbell.language.clocks import put_anchor, read_clock, read_times
from noonbell.language.cursor import Cursor
from noonbell.language.dates import put_recurrence, read_days, read_weekday
from noonbell.language.phrase import Clock, EveryUnits, Phrase, Place, Share
from noonbell.language.words import (
    ADVERBS,
    CLOCK_WORDS,
    DAY_PARTS,
    SECONDS,
    TIMES,
    TWO_READINGS,
    UNITS,
    WEEKDAYS,
    Unit,
)

_WHAT = ("15 minutes", "hour", "day", "weekday", "monday", "month", "january 1st")


def read_every(cursor: Cursor, phrase: Phrase) -> None:
    """Read what follows 'every'."""
    place = cursor.place()
    cursor.next()
    if cursor.sees("other", "alternate"):
        _every_other(cursor, phrase, place)
        return
    found = cursor.ordinal_ahead()
    if found is not None and cursor.peek(found[1]).low in UNITS and not cursor.sees("of", ahead=found[1] + 1):
        _every_nth(cursor, phrase, found, place)
        return
    if found is not None and found[0] > 1 and cursor.peek(found[1]).low in WEEKDAYS:
        cursor.at += found[1]
        _refuse_alternation(cursor, place, found[0])
    length = read_duration(cursor)
    if length is not None:
        put_recurrence(
            cursor, phrase, _recurrence(length, cursor.since(place), quarter=cursor.sees("quarter", ahead=-1))
        )
        _skip_of_the_day(cursor)
        return
    if cursor.peek().low in DAY_PARTS:
        put_recurrence(cursor, phrase, EveryUnits(1, "day", place.to(cursor.place())))
        put_day_part(cursor, phrase)
        return
    if cursor.peek().low in CLOCK_WORDS:
        put_recurrence(cursor, phrase, EveryUnits(1, "day", place))
        read_times(cursor, phrase, bare=False)
        return
    if not read_days(cursor, phrase, repeats=True):
        raise cursor.unexpected("how often, or which days", *_WHAT)
    if cursor.peek().low in DAY_PARTS:
        put_day_part(cursor, phrase)


def _every_other(cursor: Cursor, phrase: Phrase, place: Place) -> None:
    cursor.next()
    unit = UNITS.get(cursor.peek().low)
    if unit is None or cursor.peek().kind != "word":
        _refuse_alternation(cursor, place, 2)
    cursor.next()
    put_recurrence(cursor, phrase, EveryUnits(2 * unit[0], unit[1], cursor.since(place)))


def _every_nth(cursor: Cursor, phrase: Phrase, found: tuple[int, int], place: Place) -> None:
    """'every 2nd hour', with the hour that it begins at."""
    cursor.at += found[1]
    count, unit = UNITS[cursor.next().low]
    if found[0] < 1:
        raise cursor.refusal("a step is at least 1", cursor.since(place), ("every 2nd hour",))
    put_recurrence(cursor, phrase, EveryUnits(found[0] * count, unit, cursor.since(place)))


def _refuse_alternation(cursor: Cursor, place: Place, step: int) -> NoReturn:
    item = read_weekday(cursor)
    if item is None:
        raise cursor.unexpected("what is to come every other time", "every other day", "every other hour")
    day = cursor.text[: cursor.peek(-1).end].split()[-1]
    whole = cursor.since(place)
    candidates = (cursor.replaced(whole, f"every {day}"), f"every {step} weeks")
    reason = (
        "cron does not count weeks: it fires on every such weekday or on none; an interval of weeks can be counted, "
        "without a weekday"
    )
    raise cursor.refusal(reason, whole, (), candidates)


def _skip_of_the_day(cursor: Cursor) -> None:
    """'every hour of the day', 'every day of the week' say nothing more."""
    if cursor.sees_in_row("of", "the") and cursor.sees("day", "week", "month", "year", ahead=2):
        cursor.at += 3


def put_day_part(cursor: Cursor, phrase: Phrase) -> None:
    token, place = cursor.peek(), cursor.place()
    if phrase.day_part is not None and phrase.day_part[0] != DAY_PARTS[token.low]:
        raise cursor.refusal("another part of the day was said before", place)
    phrase.day_part = (DAY_PARTS[token.low], place)
    cursor.next()


# --- adverbs and shares -----------------------------------------------------------------------------------------------


def read_adverb(cursor: Cursor, phrase: Phrase) -> bool:
    token, place = cursor.peek(), cursor.place()
    if token.kind != "word":
        return False
    if token.low in TWO_READINGS:
        meant = TWO_READINGS[token.low]
        candidates = tuple(cursor.replaced(place, words) for words in meant)
        raise cursor.refusal("this word has two meanings", place, meant, candidates)
    if token.low not in ADVERBS:
        return False
    cursor.next()
    count, unit = ADVERBS[token.low]
    put_recurrence(cursor, phrase, EveryUnits(count, unit, place, is_quarter=token.low == "quarterly"))
    if token.low == "nightly":
        phrase.day_part = ("night", place)
    return True


def read_share(cursor: Cursor, phrase: Phrase) -> bool:
    """'twice a day', '3 times an hour', 'once a week', 'twice daily'; a lone 'once' is left for others."""
    before, place = cursor.at, cursor.place()
    count = TIMES.get(cursor.peek().low) if cursor.peek().kind == "word" else None
    if count is not None:
        cursor.next()
    else:
        count = cursor.number()
        if count is None or not cursor.take("times", "time"):
            cursor.at = before
            return False
    unit = _share_unit(cursor)
    if unit is None:
        if count == 1 or cursor.at == before:
            cursor.at = before
            return False
        raise cursor.unexpected("in which time", "a day", "an hour", "per week")
    if count < 1:
        raise cursor.refusal("that is never", cursor.since(place), ("once", "twice", "3 times"))
    if count == 1:
        put_recurrence(cursor, phrase, EveryUnits(1, unit, cursor.since(place)))
    elif phrase.share is not None or phrase.recurrence is not None or phrase.cycle is not None:
        raise cursor.refusal("how often was said before", cursor.since(place))
    else:
        phrase.share = Share(count, unit, cursor.since(place))
    return True


def _share_unit(cursor: Cursor) -> Unit | None:
    token = cursor.peek()
    if token.kind == "word" and token.low in ADVERBS and ADVERBS[token.low][0] == 1 and token.low != "nightly":
        cursor.next()
        return ADVERBS[token.low][1]
    if not cursor.sees("a", "an", "per", "each", "every") or cursor.peek(1).low not in UNITS:
        return None
    if UNITS[cursor.peek(1).low][0] > 1:  # a fortnight, a quarter
        return None
    cursor.next()
    return UNITS[cursor.next().low][1]


# --- lengths of time --------------------------------------------------------------------------------------------------


def read_duration(cursor: Cursor) -> list[tuple[Fraction, Unit]] | None:
    """Read a length in one or several units; None, and nothing taken, if none comes next."""
    first = _part(cursor)
    if first is None:
        return None
    parts = [first]
    while True:
        before = cursor.at
        joined = cursor.take("and", ",") is not None
        if joined and cursor.sees_in_row("a", "half"):
            cursor.at += 2
            parts.append((Fraction(1, 2), parts[-1][1]))
            continue
        part = _part(cursor) if cursor.peek().kind in ("number", "decimal") else None
        another = part is not None and cursor.sees("past", "after")  # 'every hour, 5 minutes past'
        if part is None or another or part[1] == parts[-1][1] or (joined and not _smaller(part[1], parts[-1][1])):
            cursor.at = before
            return parts
        parts.append(part)


def _smaller(unit: Unit, than: Unit) -> bool:
    return SECONDS.get(unit, 10**9) < SECONDS.get(than, 10**9)


def _part(cursor: Cursor) -> tuple[Fraction, Unit] | None:
    """Read one number and its unit; a unit alone is one of it."""
    before = cursor.at
    amount = Fraction(1)
    if cursor.sees("half", "quarter") and _fraction_of(cursor):
        amount = Fraction(1, 2 if cursor.next().low == "half" else 4)
        cursor.take("of")
        cursor.take("a", "an")
    elif cursor.peek().kind == "decimal":
        amount = Fraction(cursor.next().text)
    elif cursor.peek().kind == "number" or not cursor.take("a", "an", "one"):
        number = cursor.number()
        amount = Fraction(1 if number is None else number)
    token = cursor.peek()
    if token.kind != "word" or token.low not in UNITS:
        cursor.at = before
        return None
    count, unit = UNITS[cursor.next().low]
    return amount * count, unit


def _fraction_of(cursor: Cursor) -> bool:
    """Return whether 'half' or 'quarter' is a part of an hour here, and not the quarter of a year."""
    ahead = 2 if cursor.sees("of", ahead=1) else 1
    ahead += 1 if cursor.sees("a", "an", ahead=ahead) else 0
    return cursor.peek(ahead).low in UNITS and UNITS[cursor.peek(ahead).low][1] in ("hour", "minute", "day")


def _recurrence(parts: list[tuple[Fraction, Unit]], place: Place, *, quarter: bool) -> EveryUnits:
    if len(parts) == 1 and parts[0][0].denominator == 1:
        return EveryUnits(int(parts[0][0]), parts[0][1], place, is_quarter=quarter)
    seconds = total_seconds(parts)
    if seconds is None:
        return EveryUnits(0, parts[0][1], place)  # refused with its place when the phrase is understood
    if seconds % 60:
        return EveryUnits(seconds, "second", place)
    return EveryUnits(seconds // 60, "minute", place)


def total_seconds(parts: list[tuple[Fraction, Unit]]) -> int | None:
    """The length in whole seconds; None where it has months, or a part of a second."""
    if any(unit not in SECONDS for _, unit in parts):
        return None
    total = sum((amount * SECONDS[unit] for amount, unit in parts), Fraction(0))
    return int(total) if total.denominator == 1 else None


def read_starting(cursor: Cursor, phrase: Phrase) -> None:
    """'starting at 9am', 'starting at :05'."""
    cursor.next()
    cursor.take("at", "from")
    if cursor.peek().kind == "past":
        token, place = cursor.next(), cursor.place(-1)
        if token.value > 59:
            raise cursor.refusal("minutes go from :00 to :59", place, (":15",))
        put_anchor(cursor, phrase, Clock(0, token.value, 0, None, plain=False, place=place))
        return
    clock = read_clock(cursor, bare=True)
    if clock is None:
        raise cursor.unexpected(
            "the time of day at which the recurrence begins; the first day of a schedule is its field start_at",
            "9am",
            ":05",
        )
    put_anchor(cursor, phrase, clock)
