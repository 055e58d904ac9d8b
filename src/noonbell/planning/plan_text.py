"""The words for changed occurrences: rates, times of day, days and dates. Civil values in, text out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, tzinfo
from itertools import groupby
from typing import Final, Literal, NamedTuple

from noonbell.language.describe import WEEKDAYS

_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_SHORT_DAYS: Final = "Mon Tue Wed Thu Fri Sat Sun".split()
_MOST_TIMES: Final = 6  # longer lists are harder to read than their count
_MOST_DATES: Final = 4

Unit = Literal["day", "week", "total"]


class Rate(NamedTuple):
    """The number of fires in a unit; `total` is that of the coming four weeks."""

    n: int
    unit: Unit
    total: int


class Signature(NamedTuple):
    """The times of day that are gone and that are new on a day."""

    gone: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return bool(self.gone or self.new)

    @property
    def named(self) -> bool:
        """Return whether there is a difference, and few enough times to name each."""
        return self.differs and max(len(set(self.gone)), len(set(self.new))) <= _MOST_TIMES


# --- rates ------------------------------------------------------------------------------------------------------------


def rate(counts: Sequence[int], whole: Sequence[bool]) -> Rate:
    """The rate of daily counts; a day that a clock change made longer or shorter does not count against it."""
    total = sum(counts)
    plain = {count for count, is_whole in zip(counts, whole, strict=True) if is_whole}
    if len(plain) == 1:
        return Rate(plain.pop(), "day", total)
    if all(whole):
        weeks = {sum(counts[first : first + 7]) for first in range(0, len(counts), 7)}
        if len(weeks) == 1:
            return Rate(weeks.pop(), "week", total)
    return Rate(total, "total", total)


def rate_text(found: Rate, compared: str = "") -> str:
    """`24 fires a day`, `3 fires a week more`, `2 fires fewer in the coming 4 weeks`."""
    fires = f"{found.n:,} {'fire' if found.n == 1 else 'fires'}"
    if found.unit == "total":
        return f"{fires}{compared} in the coming 4 weeks"
    return f"{fires} a {found.unit}{compared}"


def rate_change(before: Rate, after: Rate) -> list[str]:
    """Describe the change of the rate, in the finest unit that both have."""
    if before.unit == "day" and after.unit == "week":
        before = Rate(before.n * 7, "week", before.total)
    elif before.unit == "week" and after.unit == "day":
        after = Rate(after.n * 7, "week", after.total)
    elif before.unit != after.unit:
        before, after = Rate(before.total, "total", before.total), Rate(after.total, "total", after.total)
    if before.n == after.n:
        return []
    way = " fewer" if after.n < before.n else " more"
    difference = rate_text(Rate(abs(after.n - before.n), after.unit, 0), way)
    return [f"{difference}: {after.n:,} instead of {before.n:,}"]


def beginning(found: Rate, first: str, zone: str) -> list[str]:
    if first == "never":
        return ["it never fires"]
    return [f"first fire {first} {zone}", rate_text(found)] if found.total > 1 else [f"first fire {first} {zone}"]


def ending(found: Rate, first: str, zone: str) -> list[str]:
    if first == "never":
        return ["it would not have fired again"]
    words = [rate_text(found, " fewer")] if found.total else []
    return [*words, f"the next would have been {first} {zone}"]


def totals(gone: int, new: int, upto: str) -> list[str]:
    """Count the fires that go and come, as far as they were compared; used if they follow no pattern."""
    said = []
    if gone:
        said.append(f"{gone} {'fire stays' if gone == 1 else 'fires stay'} away")
    if new:
        said.append(f"{new} {'comes' if new == 1 else 'come'} in addition")
    return [f"until {upto}: {' and '.join(said)}"] if said else []


# --- times of day -----------------------------------------------------------------------------------------------------


def times(found: Signature, zone: tzinfo, on: str) -> str | None:
    """Describe the change of the times of a day; None if there are too many to name and they follow no rule."""
    name = zone_name(zone)
    gone, new = _counted(found.gone), _counted(found.new)
    if len(gone) > _MOST_TIMES or len(new) > _MOST_TIMES:
        shift = _shift(found)
        return None if shift is None else f"each of the {len(found.gone)} fires of a day comes {shift}{on}"
    several = len(gone) > 1
    if gone and new:
        return f"{joined(gone)} {'become' if several else 'becomes'} {joined(new)} {name}{on}"
    if gone:
        return f"{joined(gone)} {name} {'stay' if several else 'stays'} away{on}"
    return f"{joined(new)} {name} {'come' if len(new) > 1 else 'comes'} in addition{on}"


def _counted(found: tuple[str, ...]) -> list[str]:
    return [time if (n := len(list(same))) == 1 else f"{time} ({n} times)" for time, same in groupby(found)]


def _shift(found: Signature) -> str | None:
    """Describe by how much all of them come later or earlier, if that is the same for all."""
    if len(found.gone) != len(found.new):
        return None
    shifts = {_seconds(new) - _seconds(gone) for gone, new in zip(found.gone, found.new, strict=True)}
    if len(shifts) != 1:
        return None
    shift = shifts.pop()
    hours, rest = divmod(abs(shift), 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min"), (seconds, "s")) if n]
    return f"{' '.join(parts)} {'later' if shift > 0 else 'earlier'}" if parts else None


def _seconds(time: str) -> int:
    hours, minutes, *rest = (int(part) for part in time.split(":"))
    return hours * 3600 + minutes * 60 + (rest[0] if rest else 0)


# --- days and dates ---------------------------------------------------------------------------------------------------


def on_days(dates: Sequence[date], all_dates: Sequence[date], today: date | None = None) -> str:
    """On which of all the dates, as briefly as it can be said; nothing where it is all of them.

    Of `today` a part has passed: whether it is among the dates says nothing.
    """
    found = set(dates)
    if _all_but(found, all_dates, today):
        return ""
    weekdays = _weekdays(found, all_dates, today)
    if weekdays and len(dates) > 1:
        return f" on {weekdays}"
    if len(dates) <= _MOST_DATES:
        return f" on {date_list(sorted(dates))}"
    return f" on {len(dates)} days, the first {date_list([min(dates)])}"


def nameable(dates: Sequence[date], all_dates: Sequence[date], today: date) -> bool:
    """Return whether the dates can be named: by weekdays, or one by one if they are few."""
    return len(dates) <= _MOST_DATES or steady(dates, all_dates, today)


def steady(dates: Sequence[date], all_dates: Sequence[date], today: date | None = None) -> bool:
    """Return whether a rule in them will go on: all of the dates, or weekdays that have come more than once."""
    found = set(dates)
    if _all_but(found, all_dates, today):
        return True
    seen = Counter(day.weekday() for day in found)
    return min(seen.values()) > 1 and bool(_weekdays(found, all_dates, today))


def _all_but(found: set[date], all_dates: Sequence[date], today: date | None) -> bool:
    return found >= set(all_dates) - {today}


def _weekdays(found: set[date], all_dates: Sequence[date], today: date | None) -> str:
    numbers = {day.weekday() for day in found}
    meant = {day for day in all_dates if day.weekday() in numbers}
    if meant - found - {today} or len(numbers) == 7:
        return ""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    said = []
    for run in runs:
        names = [f"{WEEKDAYS[(number + 1) % 7]}s" for number in run]
        said += [f"{names[0]} to {names[-1]}"] if len(run) > 2 else names
    return joined(said)


def date_list(dates: Sequence[date]) -> str:
    """Neighbours of one month share its name: `7 and 8 Mar`."""
    said = []
    for (_, month), found in groupby(dates, key=lambda day: (day.year, day.month)):
        said.append(f"{joined([str(day.day) for day in found])} {_MONTHS[month - 1]}")
    return joined(said)


def day_name(day: date, today: date) -> str:
    year = f" {day.year}" if day.year != today.year else ""
    return f"{_SHORT_DAYS[day.weekday()]} {day.day} {_MONTHS[day.month - 1]}{year}"


def moment(at: datetime, today: date) -> str:
    """`Mon 16 Nov 09:00`, with the year where it is not this one."""
    return f"{day_name(at.date(), today)} {clock(at)}"


def clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"


def zone_name(zone: tzinfo) -> str:
    """The city, as people call it: `New York`."""
    key = getattr(zone, "key", None) or str(zone)
    return str(key).rpartition("/")[2].replace("_", " ")


def joined(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
