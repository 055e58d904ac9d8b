"""The meaning of a phrase: a cron expression, an interval or an instant.

Cron is the first choice. A recurrence that cron has no even step for becomes an interval, and a note says so. With days
or hours it is refused, because an interval has none. A phrase for one moment becomes a one-shot.
"""

from __future__ import annotations

from typing import Final

from noonbell.language.calendar_days import day_fields
from noonbell.language.day_times import time_fields
from noonbell.language.describe import describe
from noonbell.language.once import comes_once, instant_of
from noonbell.language.phrase import EveryUnits, Phrase
from noonbell.language.sense import Sense, settle_clocks
from noonbell.language.understood import ScheduleKind, describe_instant, describe_interval
from noonbell.language.words import SECONDS

Meaning = tuple[ScheduleKind, str, str]

_LONGEST_SECONDS: Final = 36_525 * SECONDS["day"]  # a century, as for every interval
_RANGES: Final = {"minute": (0, 60), "hour": (0, 24), "day": (1, 32), "month": (1, 13), "weekday": (0, 7)}


def meaning_of(sense: Sense) -> Meaning:
    """Kind, spec and description."""
    phrase = sense.phrase
    if not phrase.says_when():
        accepted = ("every day at 9am", "every 15 minutes", "tomorrow at noon")
        raise sense.refusal(
            "say when something is to happen", sense.whole, accepted, (f"every day at 9am {phrase.text}",)
        )
    settle_clocks(sense)
    if comes_once(sense):
        at = instant_of(sense)
        _note_without_year(sense, at.year)
        return "one_shot", at.isoformat(timespec="seconds" if at.second else "minutes"), describe_instant(at)
    seconds = _interval(sense)
    if seconds is not None:
        return "interval", str(seconds), describe_interval(seconds)
    if phrase.second_time:
        raise sense.refusal("this belongs to what comes once", sense.whole)
    minutes, hours = time_fields(sense)
    days, months, weekdays = day_fields(sense)
    if not _says_days(phrase):
        sense.notes.append("no day was named: every day")
    spec = " ".join(
        field_text(values, name) for name, values in zip(_RANGES, (minutes, hours, days, months, weekdays), strict=True)
    )
    return "cron", spec, describe(spec)


def _says_days(phrase: Phrase) -> bool:
    """Return whether the phrase says on which days, or how often: a bare time does neither."""
    said = (phrase.recurrence, phrase.cycle, phrase.share, phrase.weekdays, phrase.days, phrase.yearly, phrase.minutes)
    return bool(phrase.dates) or any(part is not None for part in said)


def _note_without_year(sense: Sense, year: int) -> None:
    phrase = sense.phrase
    if phrase.dates and phrase.dates[0].year is None:
        said = sense.said(phrase.dates[0].place)
        sense.notes.append(
            f'"{said}" without a year or an "every" comes once, in {year}; for each year say "every {said}"'
        )


def field_text(values: frozenset[int] | None, name: str) -> str:
    """A field in POSIX: '*', or ascending values with runs of three and more as ranges."""
    low, end = _RANGES[name]
    if values is None or (name in ("minute", "hour", "month") and len(values) == end - low):
        return "*"
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


# --- intervals --------------------------------------------------------------------------------------------------------


def _interval(sense: Sense) -> int | None:
    """The seconds of an interval; None where cron can say it."""
    phrase = sense.phrase
    share = phrase.share
    if share is not None and share.unit in ("minute", "second"):
        return _interval_of_share(sense)
    recurrence = phrase.recurrence or phrase.cycle
    if recurrence is None:
        if phrase.counted is not None:
            raise sense.refusal("say how often", phrase.counted, ("every 15 minutes",))
        return None
    if recurrence.count < 1:
        accepted = ("a whole number from 1 up",)
        raise sense.refusal(
            "that is not a recurrence",
            recurrence.place,
            accepted,
            sense.instead(recurrence.place, f"every {recurrence.unit}"),
        )
    if recurrence.unit not in SECONDS:
        if phrase.counted is not None:
            raise sense.refusal("months have no fixed length", recurrence.place, ("every 30 days",))
        return None
    if phrase.counted is None and _cron_can(phrase, recurrence):
        return None
    seconds = recurrence.count * SECONDS[recurrence.unit]
    if seconds > _LONGEST_SECONDS:
        raise sense.refusal("an interval is at most a century long", recurrence.place, ("a shorter interval",))
    _refuse_restricted(sense, recurrence)
    if phrase.counted is None:
        sense.notes.append(_why_interval(recurrence))
    return seconds


def _cron_can(phrase: Phrase, recurrence: EveryUnits) -> bool:
    if recurrence.unit == "second":
        return False
    if recurrence.unit in ("day", "week"):
        return recurrence.count == 1
    if phrase.window is not None:
        return True
    minutes = recurrence.count * (SECONDS[recurrence.unit] // 60)
    return 60 % minutes == 0 if minutes < 60 else minutes % 60 == 0 and 24 % (minutes // 60) == 0 and minutes < 1440


def _why_interval(recurrence: EveryUnits) -> str:
    counted = "this is an interval, counted from the start of the last run and not by the clock"
    if recurrence.unit == "second":
        return f"cron has no seconds: {counted}"
    if recurrence.unit in ("day", "week"):
        return f"cron does not count {recurrence.unit}s: {counted}"
    if recurrence.count * SECONDS[recurrence.unit] == SECONDS["day"]:
        return f'{counted}; "every day at 00:00" goes by the clock'
    seconds = recurrence.count * SECONDS[recurrence.unit]
    if SECONDS["hour"] < seconds and SECONDS["day"] % seconds == 0:
        return f"{recurrence.count} {recurrence.unit}s are no whole number of hours, which cron would need: {counted}"
    whole = "an hour" if recurrence.unit == "minute" and recurrence.count < 60 else "a day"
    return f"{recurrence.count} {recurrence.unit}s do not divide {whole} evenly: {counted}"


def _refuse_restricted(sense: Sense, recurrence: EveryUnits) -> None:
    """An interval knows no days and no hours."""
    phrase = sense.phrase
    places = [clock.place for clock in phrase.times] + [said.place for said in phrase.dates]
    cycle = phrase.cycle if phrase.cycle is not recurrence else None
    parts = (
        phrase.minutes, phrase.hours, phrase.window, phrase.anchor, phrase.weekdays, phrase.days, phrase.months, cycle,
    )  # fmt: skip
    places += [part.place for part in parts if part is not None]
    if phrase.day_part is not None:
        places.append(phrase.day_part[1])
    if phrase.yearly is not None:
        places.append(phrase.yearly)
    if not places:
        return
    said = sense.said(recurrence.place)
    reason = f"'{said}' can only be an interval, which knows no days and no times of day"
    near = _even_near(recurrence)
    raise sense.refusal(reason, places[0], (f"{said} alone", *near), (*sense.instead(recurrence.place, *near), said))


def _even_near(recurrence: EveryUnits) -> list[str]:
    """Recurrences that cron has, a little shorter and a little longer."""
    if recurrence.unit == "minute" and recurrence.count < 60:
        steps = [n for n in range(1, 31) if 60 % n == 0]
    elif recurrence.unit == "hour" and recurrence.count < 24:
        steps = [1, 2, 3, 4, 6, 8, 12]
    else:
        unit = {"second": "minute", "minute": "hour", "hour": "day"}.get(recurrence.unit, recurrence.unit)
        return [f"every {unit}"]
    below, above = [n for n in steps if n <= recurrence.count], [n for n in steps if n > recurrence.count]
    near = [n for n in (*below[-1:], *above[:1]) if n != recurrence.count]
    return [f"every {n} {recurrence.unit}s" if n > 1 else f"every {recurrence.unit}" for n in near]


def _interval_of_share(sense: Sense) -> int:
    share = sense.phrase.share
    if share is None or share.unit == "second" or 60 % share.count:
        place = sense.whole if share is None else share.place
        reason = "an interval has whole seconds"
        raise sense.refusal(
            reason, place, ("every 2 seconds",), sense.instead(place, "every second", "every 2 seconds")
        )
    seconds = 60 // share.count
    _refuse_restricted(sense, EveryUnits(seconds, "second", share.place))
    sense.notes.append(_why_interval(EveryUnits(seconds, "second", share.place)))
    return seconds
