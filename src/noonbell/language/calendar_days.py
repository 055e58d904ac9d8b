"""The day, month and weekday fields: which days a phrase names, where cron can say them."""

from __future__ import annotations

from typing import Final, NamedTuple

from noonbell.language.phrase import EveryUnits, Values
from noonbell.language.sense import Sense
from noonbell.language.words import MONTH_NAMES

_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EITHER: Final = "cron cannot ask for a weekday and a day of the month at once: there, either one is enough"


class DayFields(NamedTuple):
    """None is '*'."""

    days: frozenset[int] | None
    months: frozenset[int] | None
    weekdays: frozenset[int] | None


def day_fields(sense: Sense) -> DayFields:
    phrase = sense.phrase
    _refuse_both(sense)
    if phrase.dates:
        return _dates(sense)
    days, months, weekdays = _values(phrase.days), _values(phrase.months), _values(phrase.weekdays)
    if phrase.cycle is not None:
        days, months, weekdays = _cycle(sense, phrase.cycle, DayFields(days, months, weekdays))
    elif phrase.share is not None and phrase.share.unit not in ("day", "hour"):
        _check_share(sense)
    if phrase.yearly is not None:
        days, months = _yearly(sense, days, months, weekdays)
    _refuse_once(sense, months)
    if days is not None:
        _look_at_lengths(sense, days, months)
    return DayFields(days, months, weekdays)


def _values(said: Values | None) -> frozenset[int] | None:
    return None if said is None else said.values


def _refuse_both(sense: Sense) -> None:
    phrase = sense.phrase
    if phrase.weekdays is None or phrase.either:
        return
    if phrase.days is not None:
        place = phrase.days.place.to(phrase.weekdays.place)
        days, weekdays = sense.said(phrase.days.place), sense.said(phrase.weekdays.place)
        suggestions = (f"on any {weekdays} or on the {days} of every month", f"every {weekdays}")
        raise sense.refusal(_EITHER, place, ("one of the two", "'or' between them"), suggestions)
    if phrase.dates and phrase.weekdays is not None:
        place = phrase.dates[0].place.to(phrase.weekdays.place)
        raise sense.refusal(_EITHER, place, ("one of the two",))


def _dates(sense: Sense) -> DayFields:
    """Dates that come every year."""
    phrase = sense.phrase
    place = phrase.dates[0].place.to(phrase.dates[-1].place)
    for extra in (phrase.days, phrase.months, phrase.cycle):
        if extra is not None:
            raise sense.refusal("a date was said, and other days too", extra.place)
    with_year = [said for said in phrase.dates if said.year is not None]
    if with_year:
        reason = "cron has no years: a date with a year comes once, a date without one every year"
        raise sense.refusal(reason, with_year[0].place)
    pairs = {(said.day, said.month) for said in phrase.dates}
    days, months = frozenset(day for day, _ in pairs), frozenset(month for _, month in pairs)
    if len(days) * len(months) != len(pairs):
        reason = (
            "cron cannot say just these dates: it would take each day in each of the months; make a schedule for each"
        )
        raise sense.refusal(reason, place, (), sense.instead(place, *(sense.said(said.place) for said in phrase.dates)))
    if pairs == {(29, 2)}:
        sense.notes.append("29 February comes in leap years only")
    return DayFields(days, months, None)


# --- cycles -----------------------------------------------------------------------------------------------------------


def _cycle(sense: Sense, cycle: EveryUnits, said: DayFields) -> DayFields:
    phrase = sense.phrase
    if cycle.unit == "day":
        if phrase.days is not None:
            raise sense.refusal("every day was said already", phrase.days.place, (), sense.instead(cycle.place, ""))
        return said
    if cycle.unit == "week":
        if phrase.days is not None:
            raise sense.refusal("a day of the month does not come every week", phrase.days.place, ("a weekday",))
        if said.weekdays is None:
            sense.notes.append("no weekday was named: Sunday, as @weekly has it")
            return said._replace(weekdays=frozenset({0}))
        return said
    if cycle.unit == "year":
        reason = "cron does not count years: it fires every year"
        raise sense.refusal(reason, cycle.place, ("every year",), sense.instead(cycle.place, "every year"))
    return _monthly(sense, cycle, said)


def _monthly(sense: Sense, cycle: EveryUnits, said: DayFields) -> DayFields:
    phrase = sense.phrase
    days, months, weekdays = said
    if phrase.weekdays is not None and not phrase.either:
        name = sense.said(phrase.weekdays.place)
        reason = f"which {name} of the month cannot be said: cron fires on every one, or on a day by its number"
        accepted = ("the 1st", "day 15")
        raise sense.refusal(reason, phrase.weekdays.place, accepted, sense.instead(phrase.weekdays.place, "the 1st"))
    if cycle.count > 1:
        if months is not None and phrase.months is not None:
            raise sense.refusal("months were said twice", phrase.months.place, (), sense.instead(cycle.place, ""))
        if 12 % cycle.count:
            near = sorted((2, 3, 4, 6), key=lambda n: abs(n - cycle.count))[:2]
            words = [f"every {n} months" for n in sorted(near)]
            reason = f"{cycle.count} months do not divide the year evenly, and cron does not count years"
            raise sense.refusal(reason, cycle.place, tuple(words), sense.instead(cycle.place, *words))
        months = frozenset(range(1, 13, cycle.count))
        listed = ", ".join(MONTH_NAMES[month - 1].title() for month in sorted(months))
        sense.notes.append(f"counted from January: {listed}")
    if days is None:
        sense.notes.append("no day was named: the first of the month")
        days = frozenset({1})
    return DayFields(days, months, weekdays)


def _check_share(sense: Sense) -> None:
    """'twice a week' needs two weekdays, 'twice a month' two days."""
    phrase = sense.phrase
    share = phrase.share
    if share is None:
        return
    named = {"week": phrase.weekdays, "month": phrase.days}.get(share.unit)
    if named is not None and len(named.values) == share.count:
        return
    examples = {"week": "every monday and thursday", "month": "on the 1st and 15th of every month"}
    example = examples.get(share.unit, "on the 1st of january and july")
    reason = f"say on which days of the {share.unit}"
    if named is not None:
        reason = f"that is {share.count} times, and {len(named.values)} of them have a day"
        raise sense.refusal(reason, share.place, (), sense.instead(share.place, f"every {share.unit}"))
    raise sense.refusal(reason, share.place, (example,), sense.instead(share.place, example))


def _yearly(
    sense: Sense, days: frozenset[int] | None, months: frozenset[int] | None, weekdays: frozenset[int] | None
) -> tuple[frozenset[int] | None, frozenset[int] | None]:
    phrase = sense.phrase
    place = phrase.yearly or sense.whole
    finer = phrase.recurrence is not None or phrase.cycle is not None or weekdays is not None
    if days is None and months is None and not finer:
        sense.notes.append("no day was named: 1 January")
        return frozenset({1}), frozenset({1})
    if months is None:
        raise sense.refusal("say in which month of the year", place, ("1 march", "in june"), ())
    if days is None and not finer:
        month = MONTH_NAMES[min(months) - 1]
        reason = "say on which day of the month"
        suggestions = (f"every year on 1 {month}", f"every day in {month}")
        raise sense.refusal(reason, phrase.months.place if phrase.months else place, (f"1 {month}",), suggestions)
    return days, months


# --- whether it comes again -------------------------------------------------------------------------------------------


def _refuse_once(sense: Sense, months: frozenset[int] | None) -> None:
    """A day in the singular, with nothing that says whether it comes once or again and again."""
    phrase = sense.phrase
    again = phrase.recurrence or phrase.cycle or phrase.share or phrase.yearly or phrase.either
    if again or (months is not None and len(months) > 1):
        return
    if phrase.weekdays is not None and not phrase.weekdays.repeats:
        place = sense.cursor.widened(phrase.weekdays.place)
        name = sense.said(phrase.weekdays.place)
        words = (f"every {name}", f"next {name}")
        reason = "once, or every week?"
        raise sense.refusal(reason, phrase.weekdays.place, words, sense.instead(place, *words))
    if phrase.days is not None and not phrase.days.repeats:
        place = phrase.days.place
        said = sense.said(place)
        monthly = f"{said} of every month"
        raise sense.refusal("once, or every month?", place, (monthly,), sense.instead(place, monthly))
    if phrase.months is not None and phrase.days is None and phrase.weekdays is None and not phrase.months.repeats:
        name = sense.said(phrase.months.place)
        place = sense.cursor.widened(phrase.months.place)
        daily = f"every day in {name}"
        raise sense.refusal("on which days of it?", phrase.months.place, (daily,), sense.instead(place, daily))


def _look_at_lengths(sense: Sense, days: frozenset[int], months: frozenset[int] | None) -> None:
    phrase = sense.phrase
    lengths = [_LONGEST[month - 1] for month in months or range(1, 13)]
    longest = max(lengths)
    place = phrase.days.place if phrase.days is not None else sense.whole
    if min(days) > longest and phrase.weekdays is None:
        near = sense.instead(place, f"day {longest}", f"{longest}th")
        raise sense.refusal("none of the months has such a day", place, (f"a day from 1 to {longest}",), near)
    if phrase.weekdays is None and len(days) == 1 and min(lengths) < min(days):
        sense.notes.append(f"months without a day {min(days)} are left out")
