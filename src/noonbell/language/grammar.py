"""The grammar: a phrase is a row of clauses in any order, each of which fills a slot.

    phrase    = clause { [","] ["and" | "or"] clause }
    clause    = every | adverb | share | at | on | in | from | during | starting | moment | days | times | zone | remark

    every     = ("every" | "each" | "any") ( "other" unit | ordinal unit | length | day part | days )
    adverb    = "hourly" | "daily" | …
    share     = ("twice" | number "times") ("a" | "per" | …) unit
    at        = "at" ( times | "minute" numbers ["of" hours] | ":15" | number "past" hours | "night" )
    on        = "on" ( days | "the hour" )
    in        = "in" ( length | day part | months | zone )
    from      = ("from" time ["to" time]) | ("between" time "and" time) | the same with weekdays or months
    days      = weekdays | ordinals ["of" months] | date | months
    moment    = "today" | "tomorrow" | "next" weekday | a date with a year
    remark    = "(leap years only)" | "counted from the last run" | "(the second time)"

`clocks`, `dates` and `recurrences` read the clauses. Nothing is decided here but which words go together; a
slot that is filled twice is refused.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NoReturn

from noonbell.language.clocks import put_minutes, read_at, read_hours, read_past_the_hour, read_times, read_window
from noonbell.language.cursor import TO, Cursor
from noonbell.language.dates import read_days, read_months, read_weekday
from noonbell.language.lists import separators
from noonbell.language.phrase import Moment, Phrase, Place
from noonbell.language.recurrences import (
    put_day_part,
    read_adverb,
    read_duration,
    read_every,
    read_share,
    read_starting,
    total_seconds,
)
from noonbell.language.words import BEYOND, DAY_PARTS, SECONDS, UNITS, Unit
from noonbell.language.zone_words import near_cities, read_zone

_BEGINNINGS: Final = (
    "every …", "daily", "twice a day", "at 9am", "on monday", "in january", "in Kyiv", "from 9am to 5pm", "tomorrow",
)  # fmt: skip
_LEADING: Final = ("run", "fire")


def read_phrase(text: str) -> tuple[Cursor, Phrase]:
    """All that a text says; raises LanguageError where it stops making sense."""
    cursor, phrase = Cursor(text), Phrase(text)
    while cursor.take(*_LEADING):
        pass
    if cursor.ended():
        raise cursor.unexpected("when something is to happen", *_BEGINNINGS)
    while not cursor.ended():
        before, place = cursor.at, cursor.place()
        joined = separators(cursor)
        comma = joined and cursor.at == before + 1 and cursor.sees(",", ";", ahead=-1)
        if cursor.ended() and joined:
            raise cursor.unexpected(f"what comes after '{cursor.peek(-1).text}'", *_BEGINNINGS)
        if joined and before == 0:
            cursor.at = before
            raise cursor.unexpected("when something is to happen", *_BEGINNINGS)
        known = phrase.slots()
        joint = cursor.since(place)
        _clause(cursor, phrase)
        if joined and not comma:
            _check_joint(cursor, phrase, known, joint)
        if cursor.sees(".") and cursor.peek(1).kind == "end":
            cursor.next()
    return cursor, phrase


def _check_joint(cursor: Cursor, phrase: Phrase, known: dict[str, object], joint: Place) -> None:
    """An 'and' adds to what was said: more times, more days. Between unlike things it would join two schedules."""
    changed = {name for name, value in phrase.slots().items() if value != known[name]}
    if any(known[name] for name in changed):
        return
    if (changed == {"weekdays"} and known["days"]) or (changed == {"days"} and known["weekdays"]):
        phrase.either = True
        return
    if changed:
        reason = "this joins two things of different kinds, which would be two schedules; leave it out if it is one"
        raise cursor.refusal(reason, joint, (), (cursor.replaced(joint, ""), cursor.text[: joint.start].rstrip()))


def _clause(cursor: Cursor, phrase: Phrase) -> None:
    if cursor.sees("only") and cursor.sees("in", "on", "at", "from", ahead=1):
        cursor.next()
    if cursor.sees("every", "each", "any", "all"):
        read_every(cursor, phrase)
    elif cursor.take("at"):
        _at(cursor, phrase)
    elif cursor.take("on"):
        _on(cursor, phrase)
    elif cursor.take("in"):
        _in(cursor, phrase)
    elif cursor.sees("from", "between"):
        _from(cursor, phrase)
    elif cursor.take("during"):
        read_hours(cursor, phrase)
    elif cursor.sees("starting", "beginning"):
        read_starting(cursor, phrase)
    elif not (_moment(cursor, phrase) or _remark(cursor, phrase) or _bare(cursor, phrase)):
        _refuse_beginning(cursor)


def _bare(cursor: Cursor, phrase: Phrase) -> bool:
    """Clauses without a word in front that announces them."""
    if read_adverb(cursor, phrase) or read_share(cursor, phrase):
        return True
    if cursor.sees("once"):
        phrase.once = cursor.place()
        cursor.next()
        return True
    if read_past_the_hour(cursor, phrase):
        return True
    cursor.take("the")
    if read_days(cursor, phrase, repeats=False) or read_times(cursor, phrase, bare=False):
        if cursor.peek().low in DAY_PARTS and (phrase.weekdays or phrase.moment):
            put_day_part(cursor, phrase)
        return True
    if cursor.peek().low in DAY_PARTS:
        put_day_part(cursor, phrase)
        return True
    if cursor.peek().kind == "past":
        read_at(cursor, phrase)
        return True
    return _zone(cursor, phrase)


def _refuse_beginning(cursor: Cursor) -> NoReturn:
    token = cursor.peek()
    if token.kind == "number" and cursor.sees("/", ahead=1):
        place = cursor.place().to(cursor.place(2))
        reason = "a date with slashes has two readings"
        raise cursor.refusal(reason, place, ("a date such as 1 march 2027 or 2027-03-01",))
    unit = UNITS.get(cursor.peek(1).low)
    if token.kind == "number" and unit is not None:
        place = cursor.place().to(cursor.place(1))
        said = cursor.text[place.start : place.end]
        candidates = tuple(cursor.replaced(place, f"{word} {said}") for word in ("every", "in"))
        reason = "a length of time needs a word before it: 'every' or 'in'"
        raise cursor.refusal(reason, place, (f"every {said}", f"in {said}"), candidates)
    if token.kind == "number":
        place = cursor.place()
        candidates = (cursor.replaced(place, f"at {token.text}"), cursor.replaced(place, f"{token.text}am"))
        raise cursor.refusal("a number alone is neither a time nor a day", place, ("at 9", "9am", "9:00"), candidates)
    if token.kind == "word" and token.low in UNITS and token.low not in BEYOND:
        candidates = (cursor.replaced(cursor.place(), f"every {token.text}"),)
        raise cursor.refusal("expected when something is to happen", cursor.place(), _BEGINNINGS, candidates)
    raise cursor.unexpected("when something is to happen", *_BEGINNINGS)


# --- at, on, in, from -------------------------------------------------------------------------------------------------


def _at(cursor: Cursor, phrase: Phrase) -> None:
    if cursor.sees("night"):
        put_day_part(cursor, phrase)
    elif cursor.sees("the") and cursor.sees("hour", "top", ahead=1):
        raise cursor.unexpected("a time", "9am", ":00")
    else:
        read_at(cursor, phrase)


def _on(cursor: Cursor, phrase: Phrase) -> None:
    place = cursor.place()
    if cursor.sees_in_row("the", "hour") or cursor.sees_in_row("the", "half", "hour"):
        half = cursor.sees("half", ahead=1)
        cursor.at += 3 if half else 2
        put_minutes(cursor, phrase, frozenset({30 if half else 0}), cursor.since(place))
        return
    if cursor.sees("every", "each", "any", "all"):
        read_every(cursor, phrase)
        return
    cursor.take("the")
    if not read_days(cursor, phrase, repeats=False):
        raise cursor.unexpected("a day", "monday", "weekdays", "the 15th of every month", "1 march")
    if cursor.peek().low in DAY_PARTS:
        put_day_part(cursor, phrase)


def _in(cursor: Cursor, phrase: Phrase) -> None:
    if cursor.sees("the") and cursor.peek(1).low in DAY_PARTS:
        cursor.next()
        put_day_part(cursor, phrase)
        return
    if read_months(cursor, phrase):
        return
    place = cursor.place()
    length = read_duration(cursor)
    if length is not None:
        _put_moment(cursor, phrase, _distance(cursor, length, cursor.since(place)))
    elif not _zone(cursor, phrase):
        token = cursor.peek()
        if token.kind == "word":
            candidates = tuple(cursor.replaced(cursor.place(), city) for city in near_cities(token.text))
            accepted = ("a month", "a city or a time zone", "a length of time, such as 10 minutes")
            error = cursor.unexpected("a month, a place or a length of time", *accepted)
            raise cursor.refusal(error.reason, cursor.place(), accepted, candidates + error.suggestions)
        raise cursor.unexpected("a month, a place or a length of time", "january", "Kyiv", "10 minutes")


def _distance(cursor: Cursor, parts: list[tuple[Fraction, Unit]], place: Place) -> Moment:
    seconds = total_seconds(parts)
    if seconds is None:
        reason = "only seconds, minutes, hours, days and weeks can be counted from now; for months, name the date"
        raise cursor.refusal(reason, place, ("10 minutes", "3 days", "1 march 2027"))
    if seconds < 1:
        raise cursor.refusal("that is now", place, ("1 minute",))
    if all(unit in ("day", "week") for _, unit in parts) and seconds % SECONDS["day"] == 0:
        return Moment(place, days=seconds // SECONDS["day"], keeps_time=True)
    return Moment(place, seconds=seconds)


def _from(cursor: Cursor, phrase: Phrase) -> None:
    between = cursor.next().low == "between"
    words = ("and",) if between else (*TO, "until", "till")
    if read_window(cursor, phrase, *words):
        return
    if between:
        raise cursor.unexpected("two times with 'and' between them", "9am and 5pm", "9:00 and 17:00")
    if cursor.sees("today", "tomorrow", "now", "next") or cursor.peek().kind == "date":
        reason = "the first day of a schedule is its field start_at, not a part of its recurrence"
        raise cursor.refusal(reason, cursor.place(), ("9am to 5pm", "monday to friday", "june to august"))
    if cursor.peek().low in UNITS or not (read_months(cursor, phrase) or read_days(cursor, phrase, repeats=True)):
        raise cursor.unexpected("where the stretch begins", "9am to 5pm", "monday to friday", "june to august")


# --- moments, zones and remarks ---------------------------------------------------------------------------------------


def _moment(cursor: Cursor, phrase: Phrase) -> bool:
    place = cursor.place()
    if cursor.sees("today", "tomorrow", "tonight"):
        word = cursor.next().low
        _put_moment(cursor, phrase, Moment(place, days=1 if word == "tomorrow" else 0))
        if word == "tonight":
            phrase.day_part = ("night", place)
        elif cursor.peek().low in DAY_PARTS:
            put_day_part(cursor, phrase)
        return True
    if not cursor.sees("next", "this", "coming"):
        return False
    word = cursor.next().low
    item = read_weekday(cursor)
    if item is None or len(item.values) > 1 or item.repeats:
        raise cursor.unexpected("a weekday", "monday", "friday")
    (weekday,) = item.values
    _put_moment(cursor, phrase, Moment(cursor.since(place), weekday=weekday, not_today=word != "this"))
    if cursor.peek().low in DAY_PARTS:
        put_day_part(cursor, phrase)
    return True


def _put_moment(cursor: Cursor, phrase: Phrase, moment: Moment) -> None:
    if phrase.moment is not None:
        raise cursor.refusal("the day was said before", moment.place)
    phrase.moment = moment


def _zone(cursor: Cursor, phrase: Phrase) -> bool:
    place = cursor.place()
    zone = read_zone(cursor)
    if zone is None:
        return False
    if phrase.zone is not None and phrase.zone[0] != zone:
        raise cursor.refusal(f"another time zone was said before, {phrase.zone[0]}", cursor.since(place))
    phrase.zone = (zone, cursor.since(place))
    return True


def _remark(cursor: Cursor, phrase: Phrase) -> bool:
    place = cursor.place()
    opened = cursor.sees("(")
    ahead = 1 if opened else 0
    words = [cursor.peek(ahead + i).low for i in range(5)]
    if words[:3] == ["leap", "years", "only"]:
        length, phrase.yearly = 3, place
    elif words[:3] == ["the", "second", "time"]:
        length, phrase.second_time = 3, True
    elif words[:3] == ["counted", "from", "the"] and words[3] in ("last", "previous") and words[4] in ("run", "start"):
        length, phrase.counted = 5, place
    else:
        return False
    cursor.at += ahead + length
    if opened and not cursor.take(")"):
        raise cursor.unexpected("')'", ")")
    if phrase.counted == place:
        phrase.counted = cursor.since(place)
    return True
