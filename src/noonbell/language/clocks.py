"""Times of day: 9am, 14:30, noon, half past nine, minute 5 of every hour, from 9 to 17.

What is read stays as it was said: whether a plain 5 is morning or afternoon is decided when the whole phrase is known.
"""

from __future__ import annotations

from typing import Final

from noonbell.language.cursor import TO, Cursor
from noonbell.language.lists import Bounds, number_between, read_list, separators
from noonbell.language.phrase import Clock, Phrase, Place, Values, Window
from noonbell.language.words import CLOCK_WORDS, HALVES, MONTHS, UNITS

_A_TIME: Final = ("9am", "14:30", "noon", "half past nine")
_HOURS: Final = frozenset(range(24))
_O_CLOCK: Final = ("o'clock", "oclock")
_AFTER: Final = ("past", "after")
_BEFORE: Final = ("to", "before")
_READ_MINUTE: Final = number_between(0, 59, "minutes")
_READ_HOUR: Final = number_between(0, 23, "hours")


def read_at(cursor: Cursor, phrase: Phrase) -> None:
    """Read what follows 'at'."""
    if cursor.sees("minute", "minutes"):
        _minutes_named(cursor, phrase)
    elif cursor.peek().kind == "past":
        _minutes_with_colon(cursor, phrase)
    elif not (
        read_past_the_hour(cursor, phrase) or _past_an_hour(cursor, phrase) or read_times(cursor, phrase, bare=True)
    ):
        if cursor.peek().kind in ("number", "clock") and cursor.sees("m", "a", "p", ahead=1):
            place = cursor.place().to(cursor.place(1))
            words = (f"{cursor.peek().text}am", f"{cursor.peek().text}pm")
            candidates = tuple(cursor.replaced(place, word) for word in words)
            raise cursor.refusal("expected am or pm", place, words, candidates)
        if cursor.peek().kind == "number" and cursor.sees("h", ahead=1):
            place = cursor.place().to(cursor.place(1))
            word = f"{cursor.peek().text}:00"
            raise cursor.refusal("a time is written with a colon", place, (word,), (cursor.replaced(place, word),))
        raise cursor.unexpected("a time", *_A_TIME)


def read_times(cursor: Cursor, phrase: Phrase, *, bare: bool) -> bool:
    """A list of times, or a stretch of the day. `bare`: a number alone is an hour."""
    first = read_clock(cursor, bare=bare or _bare_range(cursor))
    if first is None:
        return False
    if cursor.sees(*TO) and _stretch(cursor, phrase, first):
        return True
    phrase.times.append(first)
    while True:
        before = cursor.at
        if not separators(cursor):
            return True
        cursor.take("at")
        clock = read_clock(cursor, bare=bare)
        if clock is None:
            cursor.at = before
            return True
        phrase.times.append(clock)


def read_window(cursor: Cursor, phrase: Phrase, *words: str) -> bool:
    """The times after 'from' or 'between'; a single time after 'from' is where a recurrence begins."""
    before = cursor.at
    first = read_clock(cursor, bare=True)
    if first is None:
        return False
    if cursor.sees(*words):
        if _stretch(cursor, phrase, first):
            return True
        cursor.next()
        raise cursor.unexpected("the time at which the stretch ends", *_A_TIME)
    if words == ("and",):
        cursor.at = before
        return False
    put_anchor(cursor, phrase, first)
    return True


def put_anchor(cursor: Cursor, phrase: Phrase, clock: Clock) -> None:
    if phrase.anchor is not None:
        raise cursor.refusal("the beginning was said before", clock.place)
    phrase.anchor = clock


def _stretch(cursor: Cursor, phrase: Phrase, first: Clock) -> bool:
    before = cursor.at
    cursor.next()
    last = read_clock(cursor, bare=True)
    if last is None:
        cursor.at = before
        return False
    if phrase.window is not None:
        raise cursor.refusal("a stretch of the day was said before", first.place.to(last.place))
    phrase.window = Window(first, last, first.place.to(last.place))
    return True


def _bare_range(cursor: Cursor) -> bool:
    """Return whether two plain numbers with a 'to' between them come next, and no unit or month after: '9-17'."""
    if cursor.peek().kind != "number" or not cursor.sees(*TO, ahead=1) or cursor.peek(2).kind != "number":
        return False
    after = cursor.peek(3).low
    return after not in UNITS and after not in MONTHS and after != "of"


# --- one time ---------------------------------------------------------------------------------------------------------


def read_clock(cursor: Cursor, *, bare: bool) -> Clock | None:
    """Read one time of day; None, and nothing taken, if none comes next."""
    token, place = cursor.peek(), cursor.place()
    if token.low in CLOCK_WORDS and token.kind == "word":
        cursor.next()
        return Clock(CLOCK_WORDS[token.low], 0, 0, None, plain=False, place=place)
    if token.kind == "clock":
        return _digital(cursor)
    if cursor.sees("half", "quarter") and cursor.sees("past", "to", "after", ahead=1):
        return _fraction(cursor)
    if token.kind == "decimal" and (bare or cursor.peek(1).low in HALVES):
        colon = cursor.replaced(place, token.text.replace(".", ":"))
        raise cursor.refusal("a time is written with a colon", place, _A_TIME, (colon,))
    return _hour_alone(cursor, bare=bare)


def _hour_alone(cursor: Cursor, *, bare: bool) -> Clock | None:
    before, place = cursor.at, cursor.place()
    hour = cursor.number()
    if hour is None:
        return None
    if cursor.peek().low in HALVES or cursor.take(*_O_CLOCK):
        return _with_half(cursor, (hour, 0, 0), place, padded=False)
    if not bare or cursor.peek().low in MONTHS or cursor.peek().low in UNITS:
        cursor.at = before
        return None
    padded = cursor.text[place.start : place.end].startswith("0")
    return _with_half(cursor, (hour, 0, 0), place, padded=padded)


def _digital(cursor: Cursor) -> Clock:
    token, place = cursor.peek(), cursor.place()
    parts = token.text.split(":")
    if len(parts[0]) > 2 or any(len(part) != 2 for part in parts[1:]):
        raise cursor.refusal("a time has hours, a colon and two digits for the minutes", place, _A_TIME)
    hour, minute, second = (int(part) for part in (*parts, "0")[:3])
    cursor.next()
    return _with_half(cursor, (hour, minute, second), place, padded=parts[0].startswith("0"))


def _with_half(cursor: Cursor, said: tuple[int, int, int], place: Place, *, padded: bool) -> Clock:
    hour, minute, second = said
    half_word = cursor.next().low if cursor.peek().kind == "word" and cursor.peek().low in HALVES else None
    whole = cursor.since(place)
    if minute > 59 or second > 59:
        near = cursor.replaced(whole, f"{min(hour, 23)}:59")
        raise cursor.refusal("minutes go from 0 to 59", whole, ("a time from 00:00 to 23:59",), (near,))
    if half_word is None:
        if hour > 23:
            shown = f"{hour // 100}:{hour % 100:02}" if hour > 99 else f"{0 if hour == 24 else 23}:{minute:02}"
            near = cursor.replaced(whole, shown)
            raise cursor.refusal("hours go from 0 to 23", whole, ("a time from 00:00 to 23:59",), (near,))
        plain = 1 <= hour <= 12 and not padded
        return Clock(hour, minute, second, None, plain=plain, place=whole)
    if not 1 <= hour <= 12:
        near = f"{hour}:{minute:02}" if hour <= 23 else "11:59pm"
        accepted = ("an hour from 1 to 12 with am or pm", "an hour from 0 to 23 without")
        raise cursor.refusal("with am and pm, hours go from 1 to 12", whole, accepted, (cursor.replaced(whole, near),))
    half = HALVES[half_word]
    return Clock(hour % 12 + half, minute, second, half, plain=False, place=whole)


def _fraction(cursor: Cursor) -> Clock | None:
    """Read a fraction of an hour: half past nine, quarter to five."""
    before, place = cursor.at, cursor.place()
    minute = 30 if cursor.next().low == "half" else 15
    earlier = cursor.next().low == "to"
    hour = _hour_alone(cursor, bare=True)
    if hour is None or (earlier and minute == 30):
        cursor.at = before
        return None
    return _moved(hour, -minute if earlier else minute, cursor.since(place))


# --- minutes of hours -------------------------------------------------------------------------------------------------


def _minutes_named(cursor: Cursor, phrase: Phrase) -> None:
    """'minutes 0 to 9 and 30', with the hours that may follow."""
    place = cursor.place()
    cursor.next()
    listed = read_list(cursor, _READ_MINUTE, Bounds(0, 59, wraps=False))
    if listed is None:
        raise cursor.unexpected("the minutes", "numbers from 0 to 59")
    put_minutes(cursor, phrase, listed.values, cursor.since(place))
    if cursor.take("of", "past"):
        read_hours(cursor, phrase)


def _minutes_with_colon(cursor: Cursor, phrase: Phrase) -> None:
    """':15 and :45'."""
    place, values = cursor.place(), set()
    while cursor.peek().kind == "past":
        token = cursor.next()
        if token.value > 59 or len(token.text) != 3:
            near = cursor.replaced(Place(token.start, token.end), f":{min(token.value, 59):02}")
            raise cursor.refusal("minutes go from :00 to :59", Place(token.start, token.end), (":15",), (near,))
        values.add(token.value)
        before = cursor.at
        if separators(cursor) and cursor.peek().kind != "past":
            cursor.at = before
            break
    put_minutes(cursor, phrase, frozenset(values), cursor.since(place))
    if cursor.sees("of", "past") and cursor.sees("every", "each", "the", ahead=1):
        cursor.next()
        read_hours(cursor, phrase)


def read_past_the_hour(cursor: Cursor, phrase: Phrase) -> bool:
    """'5 minutes past every hour', 'a quarter to each hour', '5 and 35 past the hour', 'every hour at 5 past'.

    Nothing is taken where something else is said.
    """
    before, place = cursor.at, cursor.place()
    said = _minutes_before_past(cursor)
    side = cursor.take(*_AFTER, *_BEFORE) if said else None
    listed, the_hour = cursor.sees("every", "each", "hours"), cursor.sees_in_row("the", "hour")
    # 'every hour at 5 past': which hours was said before
    hourly = phrase.recurrence is not None and phrase.recurrence.unit == "hour" and not _sees_hour(cursor)
    if said is None or side is None or not (listed or the_hour or hourly):
        cursor.at = before
        return False
    wrong = [minute for minute in said if minute > 59]
    if wrong:
        raise cursor.refusal("minutes go from 0 to 59", cursor.since(place), ("a number from 0 to 59",))
    minutes = frozenset(-minute % 60 if side.low in _BEFORE else minute for minute in said)
    put_minutes(cursor, phrase, minutes, cursor.since(place))
    if the_hour:
        cursor.at += 2  # which hours is said elsewhere, or all are meant
    elif listed:
        read_hours(cursor, phrase)
    return True


def _sees_hour(cursor: Cursor) -> bool:
    before = cursor.at
    found = cursor.peek().low in CLOCK_WORDS or cursor.number() is not None
    cursor.at = before
    return found


def _minutes_before_past(cursor: Cursor) -> list[int] | None:
    """'half', 'a quarter', '5', '5 minutes', '5, 20 and 35 minutes'."""
    if cursor.sees("half", "quarter", ahead=1 if cursor.sees("a") else 0):
        cursor.take("a")
        return [30 if cursor.next().low == "half" else 15]
    found: list[int] = []
    while (minute := cursor.number()) is not None:
        found.append(minute)
        cursor.take("minute", "minutes")
        if not separators(cursor):
            return found
    return None


def _past_an_hour(cursor: Cursor, phrase: Phrase) -> bool:
    """'10 past nine', '10 minutes to nine': a time."""
    before, place = cursor.at, cursor.place()
    minute = cursor.number()
    # without the word 'minutes', '9 to 17' is a stretch of the day
    sides = (*_AFTER, *_BEFORE) if cursor.take("minute", "minutes") else _AFTER
    side = None if minute is None else cursor.take(*sides)
    if minute is None or side is None:
        cursor.at = before
        return False
    if minute > 59:
        raise cursor.refusal("minutes go from 0 to 59", cursor.since(place), ("a number from 0 to 59",))
    named = cursor.peek().low in CLOCK_WORDS
    hour = read_clock(cursor, bare=True) if named else _hour_alone(cursor, bare=True)
    if hour is None:
        raise cursor.unexpected("an hour", "every hour", "nine", "9am")
    phrase.times.append(_moved(hour, -minute if side.low in _BEFORE else minute, cursor.since(place)))
    return True


def _moved(hour: Clock, minutes: int, place: Place) -> Clock:
    """So many minutes after an hour, or before it."""
    if minutes >= 0:
        return Clock(hour.hour, minutes, 0, hour.half, hour.plain, place)
    return Clock((hour.hour - 1) % 24, 60 + minutes, 0, hour.half, hour.plain and hour.hour > 1, place)


def put_minutes(cursor: Cursor, phrase: Phrase, values: frozenset[int], place: Place) -> None:
    if phrase.minutes is not None:
        raise cursor.refusal("the minutes were said before", place)
    phrase.minutes = Values(values, place)


def read_hours(cursor: Cursor, phrase: Phrase) -> None:
    """'every hour', 'every hour from 09 to 17', 'every 2nd hour from 00', 'hours 00 to 02 and 22'."""
    place = cursor.place()
    values: frozenset[int] | None = None
    if cursor.take("every", "each"):
        step = cursor.ordinal_ahead() if not cursor.sees("hour") else None
        cursor.at += step[1] if step else 0
        if not cursor.take("hour"):
            raise cursor.unexpected("hour", "hour", "2nd hour")
        values = _stepped(cursor, step[0] if step else 1, cursor.since(place))
    elif cursor.take("the"):
        if not cursor.take("hour"):
            raise cursor.unexpected("hour", "hour")
        values = _HOURS
    elif cursor.take("hour", "hours"):
        listed = read_list(cursor, _READ_HOUR, Bounds(0, 23, wraps=True))
        values = None if listed is None else listed.values
    if values is None:
        raise cursor.unexpected("the hours", "every hour", "hours 9 to 17", "every 2nd hour from 0")
    if phrase.hours is not None:
        raise cursor.refusal("the hours were said before", cursor.since(place))
    phrase.hours = Values(values, cursor.since(place))


def _stepped(cursor: Cursor, step: int, place: Place) -> frozenset[int]:
    """The hours from one to another, in steps; without a first one all of the day's."""
    first, last = 0, 23
    before = cursor.at
    if cursor.take("from"):
        low = _READ_HOUR(cursor)
        if low is None:
            cursor.at = before
        else:
            (first,) = low.values
            if cursor.take(*TO):
                high = _READ_HOUR(cursor)
                if high is None:
                    raise cursor.unexpected("the last hour", "a number from 0 to 23")
                (last,) = high.values
    if not 1 <= step <= 23:
        raise cursor.refusal("a step of hours goes from 1 to 23", place, ("every 2nd hour",))
    if last < first:
        last += 24
    return frozenset(hour % 24 for hour in range(first, last + 1, step))
