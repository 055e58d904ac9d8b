"""One-shots: the instant that a phrase names, by the clock of its zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from noonbell.language.phrase import Clock, DateSaid, Place
from noonbell.language.sense import Sense

_DAY: Final = timedelta(days=1)
_WEEKDAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_LEAP_YEARS_AHEAD: Final = 9


def comes_once(sense: Sense) -> bool:
    """Return whether the phrase names a moment, and not days that come again."""
    phrase = sense.phrase
    if phrase.moment is not None or phrase.once is not None:
        return True
    if not phrase.dates or phrase.yearly is not None:
        return False
    return len(phrase.dates) == 1 or phrase.dates[0].year is not None


def instant_of(sense: Sense) -> datetime:
    """The instant, in the zone; raises where it has passed or does not exist."""
    phrase, moment = sense.phrase, sense.phrase.moment
    _refuse_rest(sense)
    if moment is not None and moment.seconds is not None:
        if phrase.times:
            raise sense.refusal("a time was said, and a distance from now too", phrase.times[0].place)
        return _with_nothing_else(sense, _later(sense, moment.seconds, moment.place))
    if moment is not None and moment.instant is not None:
        return _with_nothing_else(sense, _written(sense, moment.instant, moment.place))
    day, place, coming = _day(sense)
    clock = _clock(sense, place)
    if clock is None:
        return _future(sense, _on_the_wall(sense, datetime.combine(day, _time_of(sense.now)), place), place)
    return _on_day(sense, day, clock, place, coming=coming)


def _with_nothing_else(sense: Sense, at: datetime) -> datetime:
    _check_weekday(sense, at.date())
    if sense.phrase.day_part is not None:
        raise sense.refusal("the time is known already", sense.phrase.day_part[1])
    return at


def _refuse_rest(sense: Sense) -> None:
    phrase = sense.phrase
    for extra in (
        phrase.recurrence, phrase.cycle, phrase.share, phrase.minutes, phrase.hours, phrase.window, phrase.anchor,
        phrase.days, phrase.months,
    ):  # fmt: skip
        if extra is not None:
            place = _place_of_the_day(sense)
            reason = f"'{sense.said(place)}' comes once, and this again and again"
            suggestions = _yearly_instead(sense, place)
            raise sense.refusal(reason, extra.place, ("one or the other",), suggestions)
    if phrase.yearly is not None:
        reason = f"'{sense.said(_place_of_the_day(sense))}' comes once, and this every year"
        raise sense.refusal(reason, phrase.yearly, ("one or the other",), sense.instead(phrase.yearly, ""))
    if len(phrase.times) > 1:
        said = [sense.said(clock.place) for clock in phrase.times]
        place = phrase.times[0].place.to(phrase.times[-1].place)
        raise sense.refusal("what comes once has one time", place, tuple(said), sense.instead(place, *said[:3]))
    if len(phrase.dates) > 1 or (phrase.dates and phrase.moment is not None):
        raise sense.refusal("what comes once has one date", phrase.dates[-1].place)


def _yearly_instead(sense: Sense, place: Place) -> tuple[str, ...]:
    dates = sense.phrase.dates
    return (f"{sense.phrase.text} every year",) if dates and dates[0].year is None else sense.instead(place, "")


def _place_of_the_day(sense: Sense) -> Place:
    phrase = sense.phrase
    if phrase.moment is not None:
        return phrase.moment.place
    return phrase.dates[0].place if phrase.dates else phrase.once or sense.whole


# --- the day ----------------------------------------------------------------------------------------------------------


def _day(sense: Sense) -> tuple[date, Place, bool]:
    """Return the day, its place, and whether the next such day may replace one that has passed."""
    phrase, moment, today = sense.phrase, sense.phrase.moment, sense.now.date()
    if moment is not None:
        day = moment.day or today
        if moment.weekday is not None:
            ahead = (moment.weekday - today.isoweekday()) % 7
            day = _shifted(sense, today, ahead or (7 if moment.not_today else 0), moment.place)
        elif moment.days is not None:
            day = _shifted(sense, today, moment.days, moment.place)
        _check_weekday(sense, day)
        return day, moment.place, False
    if phrase.dates:
        (said,) = phrase.dates
        day = _date(sense, said)
        _check_weekday(sense, day)
        return day, said.place, said.year is None
    if phrase.weekdays is not None:
        if len(phrase.weekdays.values) > 1:
            raise sense.refusal("what comes once has one day", phrase.weekdays.place)
        (weekday,) = phrase.weekdays.values
        return today + (weekday - today.isoweekday()) % 7 * _DAY, phrase.weekdays.place, True
    return today, phrase.once or sense.whole, True


def _shifted(sense: Sense, today: date, days: int, place: Place) -> date:
    try:
        return today + days * _DAY
    except OverflowError:
        raise sense.refusal("the calendar ends in 9999", place, ("a day before that",)) from None


def _date(sense: Sense, said: DateSaid) -> date:
    if said.year is not None:
        if not 1 <= said.year <= 9998:
            raise sense.refusal("the calendar ends in 9999", said.place, ("a year before that",))
        return date(said.year, said.month, said.day)
    today = sense.now.date()
    for year in range(today.year, today.year + _LEAP_YEARS_AHEAD):
        try:
            day = date(year, said.month, said.day)
        except ValueError:  # 29 February of an ordinary year
            continue
        if day >= today:
            return day
    raise sense.refusal("the calendar ends before this day comes", said.place)


def _check_weekday(sense: Sense, day: date) -> None:
    weekdays = sense.phrase.weekdays
    if weekdays is not None and weekdays.repeats:
        place = _place_of_the_day(sense)
        reason = f"'{sense.said(place)}' comes once, and these days again and again"
        raise sense.refusal(reason, weekdays.place, ("one or the other",), sense.instead(weekdays.place, ""))
    if weekdays is not None and weekdays.values != {day.isoweekday() % 7}:
        right = _WEEKDAYS[day.weekday()]
        near = sense.instead(weekdays.place, right)
        raise sense.refusal(f"{day} is a {right}", weekdays.place, (right,), near)


# --- the time ---------------------------------------------------------------------------------------------------------


def _clock(sense: Sense, place: Place) -> Clock | None:
    """The time of the day; None where the distance in days alone was said, and the time of now stays."""
    phrase = sense.phrase
    if phrase.times:
        return phrase.times[0]
    if phrase.moment is not None and phrase.moment.keeps_time and phrase.day_part is None:
        return None
    text = phrase.text.rstrip(" .")
    raise sense.refusal("say at which time", place, ("at 9am", "at noon"), (f"{text} at 9am",))


def _time_of(now: datetime) -> time:
    return (now + timedelta(seconds=1, microseconds=-1)).time().replace(microsecond=0)


def _later(sense: Sense, seconds: int, place: Place) -> datetime:
    """Counted in elapsed time, from the next whole second."""
    start = (sense.now.astimezone(UTC) + timedelta(microseconds=999_999)).replace(microsecond=0)
    try:
        return (start + timedelta(seconds=seconds)).astimezone(sense.zone)
    except OverflowError:
        raise sense.refusal("the calendar ends in 9999", place, ("a shorter time",)) from None


def _on_day(sense: Sense, day: date, clock: Clock, place: Place, *, coming: bool) -> datetime:
    at = _on_the_wall(sense, datetime.combine(day, _civil(clock)), clock.place)
    if at > sense.now or not coming:
        return _future(sense, at, place)
    phrase = sense.phrase
    if phrase.dates:
        day = _date_after(sense, phrase.dates[0], day)
    else:
        day += _DAY if phrase.weekdays is None else 7 * _DAY
    return _on_the_wall(sense, datetime.combine(day, _civil(clock)), clock.place)


def _date_after(sense: Sense, said: DateSaid, day: date) -> date:
    for year in range(day.year + 1, day.year + _LEAP_YEARS_AHEAD):
        try:
            return date(year, said.month, said.day)
        except ValueError:
            continue
    raise sense.refusal("the calendar ends before this day comes", said.place)


def _civil(clock: Clock) -> time:
    return time(clock.hour, clock.minute, clock.second)


def _written(sense: Sense, at: datetime, place: Place) -> datetime:
    if sense.phrase.times:
        raise sense.refusal("a time was said already", sense.phrase.times[0].place)
    if at.tzinfo is None:
        return _future(sense, _on_the_wall(sense, at, place), place)
    return _future(sense, at.astimezone(sense.zone), place)


def _future(sense: Sense, at: datetime, place: Place) -> datetime:
    if at > sense.now:
        return at
    reason = f"that has passed: it is {sense.now:%Y-%m-%d %H:%M} now"
    raise sense.refusal(reason, place, ("a time to come",), sense.instead(place, "tomorrow"))


def _on_the_wall(sense: Sense, wall: datetime, place: Place) -> datetime:
    """The instant at which the zone's clocks show a time: the first one where it comes twice."""
    first, second = (wall.replace(tzinfo=sense.zone, fold=fold) for fold in (0, 1))
    try:
        shown = [_shown_at(at) for at in (first, second)]
    except OverflowError:
        raise sense.refusal("the calendar goes from the year 1 to 9999", place, ("a date within it",)) from None
    if wall not in shown:
        near = tuple(f"{at:%H:%M}" for at in sorted(shown))
        name = sense.zone
        reason = f"{wall:%H:%M} does not exist on {wall.date()} in {name}: the clocks go forward over it"
        raise sense.refusal(reason, place, near, sense.instead(place, *near))
    if first.utcoffset() == second.utcoffset():
        if sense.phrase.second_time:
            raise sense.refusal(f"{wall:%H:%M} comes only once on {wall.date()} in {sense.zone}", place)
        return first
    if sense.phrase.second_time:
        return second
    sense.notes.append(f"{wall:%H:%M} comes twice on {wall.date()} in {sense.zone}: the first one")
    return first


def _shown_at(at: datetime) -> datetime:
    return at.astimezone(UTC).astimezone(at.tzinfo).replace(tzinfo=None, fold=0)
