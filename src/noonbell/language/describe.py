"""A cron expression in English.

The sentence is exact: two expressions with the same sentence fire at the same minutes. It is made of a time of day,
days and months, each said in the shortest form that fits. POSIX's rule that a day *or* a weekday is enough is always
spelt out, because it is what people do not expect.

Each sentence can be read again by `noonbell.language.parse`, and then means the same minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from noonbell.cron import FIELD_RANGES, CronExpression, parse

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FULL: Final = {name: frozenset(range(low, high + 1)) for name, (low, high) in FIELD_RANGES.items()}
_ORDINALS: Final = {2: "2nd", 3: "3rd"}
_MOST_TIMES: Final = 6  # a list of clock times longer than this is harder to read than its rule


def describe(expr: CronExpression | str) -> str:
    """When the expression fires, in one English sentence without a full stop. A text must be POSIX."""
    if isinstance(expr, str):
        expr = parse(expr)
    days = _days(expr)
    weekdays = _weekdays(expr)
    if days == _FULL["day"] or weekdays == _FULL["weekday"] or not (days or weekdays):
        days = weekdays = frozenset()
    return _times(expr.minutes, expr.hours, on_days=bool(days or weekdays)) + _dates(days, weekdays, expr.months)


def _days(expr: CronExpression) -> frozenset[int]:
    """The restricting days: those that some of the months have; all of them where they leave nothing out."""
    if not expr.day_restricted:
        return frozenset()
    longest = max(_LONGEST[month - 1] for month in expr.months)
    days = frozenset(day for day in expr.days if day <= longest)
    return _FULL["day"] if len(days) == longest else days


def _weekdays(expr: CronExpression) -> frozenset[int]:
    return expr.weekdays if expr.weekday_restricted else frozenset()


# --- the time of day --------------------------------------------------------------------------------------------------


def _times(minutes: frozenset[int], hours: frozenset[int], *, on_days: bool) -> str:
    every_hour = hours == _FULL["hour"]
    if not every_hour and len(minutes) * len(hours) <= _MOST_TIMES:
        times = _joined([f"{hour:02}:{minute:02}" for hour in sorted(hours) for minute in sorted(minutes)])
        return f"At {times}" if on_days else f"At {times} every day"
    step = _even_step(minutes)
    if step is None:
        word = "minute" if len(minutes) == 1 else "minutes"
        rule = f"At {word} {_joined(_runs(sorted(minutes), str))}"
        return f"{rule} of {_hours(hours)}"
    rule = "Every minute" if step == 1 else f"Every {step} minutes"
    if every_hour:
        return rule
    first, last = min(hours), max(hours)
    if len(hours) == last - first + 1:
        return f"{rule} from {first:02}:00 to {last:02}:{60 - step:02}"
    return f"{rule} during {_hours(hours)}"


def _even_step(minutes: frozenset[int]) -> int | None:
    """N where the minutes are 0, N, 2N … and go round the hour evenly, several times."""
    step = 60 // len(minutes)
    return step if step < 60 and minutes == frozenset(range(0, 60, step)) else None


def _hours(hours: frozenset[int]) -> str:
    if hours == _FULL["hour"]:
        return "every hour"
    ordered = sorted(hours)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"every hour from {ordered[0]:02} to {ordered[-1]:02}"
    step = 24 // len(ordered)
    if step < 24 and ordered == list(range(0, 24, step)):
        return f"every {_ORDINALS.get(step, f'{step}th')} hour from 00"
    word = "hour" if len(ordered) == 1 else "hours"
    return f"{word} {_joined(_runs(ordered, '{:02}'.format))}"


# --- days and months --------------------------------------------------------------------------------------------------


def _dates(days: frozenset[int], weekdays: frozenset[int], months: frozenset[int]) -> str:
    month_names = "" if months == _FULL["month"] else _joined(_runs(sorted(months), lambda month: MONTHS[month - 1]))
    if days and weekdays:
        either = f" on {_numbered(days)} of the month, or on any {_named(weekdays)}"
        return f"{either}, only in {month_names}" if month_names else either
    if days:
        return _on_dates(days, months, month_names)
    return (_on_weekdays(weekdays) if weekdays else "") + _within(month_names)


def _within(month_names: str) -> str:
    if not month_names:
        return ""
    # a single stretch reads better with 'from'; among several it would not say where it ends
    one_stretch = " to " in month_names and "," not in month_names and " and " not in month_names
    return f" from {month_names}" if one_stretch else f" in {month_names}"


def _on_dates(days: frozenset[int], months: frozenset[int], month_names: str) -> str:
    if not month_names:
        return f" on {_numbered(days)} of the month"
    if len(days) > 1 or len(months) > 1:
        return f" on {_numbered(days)} of {month_names}"
    (day,) = days
    # a date alone would be one day of one year; how often it comes is always said
    return f" on {day} {month_names}" + (
        " (leap years only)" if (day, month_names) == (29, "February") else " every year"
    )


def _numbered(days: Iterable[int]) -> str:
    return f"day {_joined(_runs(sorted(days), str))}"


def _on_weekdays(weekdays: frozenset[int]) -> str:
    if len(weekdays) == 1:
        return f" every {_named(weekdays)}"
    runs = _weekday_runs(weekdays)
    return f", {runs[0]}" if len(runs) == 1 else f" on {_joined(runs)}"


def _named(weekdays: frozenset[int]) -> str:
    return _joined(_weekday_runs(weekdays), "or")


def _weekday_runs(weekdays: frozenset[int]) -> list[str]:
    """Return the weekdays as runs. Weeks begin on Monday, so that a weekend stays together."""
    return _runs(sorted((day - 1) % 7 for day in weekdays), lambda day: WEEKDAYS[(day + 1) % 7])


# --- lists ------------------------------------------------------------------------------------------------------------


def _runs(ascending: Sequence[int], say: Callable[[int], str]) -> list[str]:
    """Each value said; three and more in a row as 'first to last'."""
    runs: list[list[int]] = []
    for value in ascending:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    said = []
    for run in runs:
        said += [f"{say(run[0])} to {say(run[-1])}"] if len(run) > 2 else [say(value) for value in run]
    return said


def _joined(parts: Sequence[str], word: str = "and") -> str:
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}"
