"""A second opinion on English: phrase and occurrences from one abstract choice, by brute force over calendar days.

Nothing here imports `noonbell`. A choice is a list of times of day and a test of days, both plain Python; the phrase is
put together from the same choice in one of several wordings. Whatever the package makes of the phrase has to fire at
the times of the list, on the days that pass the test, and at no others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
]  # fmt: skip
LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
ZONES = {
    "Kyiv": "Europe/Kyiv",
    "New York": "America/New_York",
    "Tokyo": "Asia/Tokyo",
    "Mumbai": "Asia/Kolkata",
    "UTC": "UTC",
    "Europe/Berlin": "Europe/Berlin",
    "Los Angeles time": "America/Los_Angeles",
}
NUMBER_WORDS = {
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    10: "ten",
    12: "twelve",
    15: "fifteen",
    20: "twenty",
}


@dataclass(frozen=True)
class Choice:
    """A phrase, the zone that it names, and what it means."""

    phrase: str
    zone: str | None
    times: tuple[time, ...]
    on: Callable[[date], bool]

    def occurrences(self, first: date, days: int) -> Iterator[datetime]:
        """Civil times, one day after the other."""
        for day in (first + timedelta(days=number) for number in range(days)):
            if self.on(day):
                yield from (datetime.combine(day, at) for at in self.times)

    def first_day(self, after: date) -> date:
        """The first day on which something happens; a leap day is at most eight years away."""
        return next(day for n in range(3000) if self.on(day := after + timedelta(days=n)))


@dataclass(frozen=True)
class Part:
    """A piece of a phrase; times without days or days without times."""

    words: str
    times: tuple[time, ...] = ()
    on: Callable[[date], bool] = lambda _day: True


def make(draw: random.Random) -> Choice:
    """One choice, in one wording."""
    kind = draw.random()
    if kind < 0.6:
        when, days = clock_times(draw), day_words(draw)
    elif kind < 0.85:
        when, days = rhythm(draw), draw.choice([Part(""), weekdays(draw), months(draw), weekdays(draw)])
    else:
        when, days = share(draw), Part("")
    pieces = [when.words, days.words]
    draw.shuffle(pieces)
    zone = draw.choice([None, None, *ZONES])
    if zone is not None:
        pieces.append(zone if "/" in zone or "time" in zone or zone == "UTC" else f"in {zone}")
    glue = draw.choice([" ", " ", ", "])
    phrase = glue.join(piece for piece in pieces if piece)
    phrase = draw.choice([phrase, phrase.lower(), phrase.upper(), phrase.capitalize()])
    return Choice(phrase, None if zone is None else ZONES[zone], tuple(sorted(set(when.times))), days.on)


# --- times of day -----------------------------------------------------------------------------------------------------


def clock_times(draw: random.Random) -> Part:
    """One to three times that share their minutes."""
    minute = draw.choice([0, 0, 0, 5, 15, 30, 45, 59])
    hours = sorted(draw.sample(range(24), draw.choice([1, 1, 1, 2, 3])))
    in_halves = draw.random() < 0.5
    said = [twelve(draw, hour, minute) if in_halves else f"{hour:02}:{minute:02}" for hour in hours]
    words = draw.choice(["at ", "at ", ""]) + joined(draw, said)
    return Part(words, tuple(time(hour, minute) for hour in hours))


def twelve(draw: random.Random, hour: int, minute: int) -> str:
    if minute == 0 and hour in (0, 12) and draw.random() < 0.5:
        return "midnight" if hour == 0 else draw.choice(["noon", "midday"])
    number = 12 if hour in (0, 12) else hour % 12
    half = "am" if hour < 12 else "pm"
    minutes = f":{minute:02}" if minute or draw.random() < 0.2 else ""
    return f"{number}{minutes}{draw.choice(['', ' '])}{draw.choice([half, half.upper(), f'{half[0]}.m.'])}"


def rhythm(draw: random.Random) -> Part:
    return draw.choice([every_minutes, every_hours, within_a_stretch, past_the_hour])(draw)


def number(draw: random.Random, value: int) -> str:
    return NUMBER_WORDS[value] if value in NUMBER_WORDS and draw.random() < 0.3 else str(value)


def whole_day(*, step: int, offset: int = 0) -> tuple[time, ...]:
    return tuple(time(at // 60, at % 60) for at in range(24 * 60) if at % step == offset)


def every_minutes(draw: random.Random) -> Part:
    step = draw.choice([1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30])
    wordings = [f"every {number(draw, step)} minutes", f"each {step} min", f"every {step}m"]
    if step == 1:
        wordings = ["every minute", "each minute"]
    if step == 30:
        wordings += ["every half hour", "every half an hour"]
    if step == 2:
        wordings.append("every other minute")
    return Part(draw.choice(wordings), whole_day(step=step))


def every_hours(draw: random.Random) -> Part:
    step = draw.choice([1, 2, 3, 4, 6, 8, 12])
    wordings = [f"every {number(draw, step)} hours", f"every {step}h"]
    if step == 1:
        wordings = ["every hour", "hourly", "each hour"]
    if step == 2:
        wordings.append("every other hour")
    words, minute = draw.choice(wordings), 0
    if draw.random() < 0.4:
        minute = draw.randrange(60)
        words += f" at :{minute:02}"
    return Part(words, whole_day(step=60 * step, offset=minute))


def past_the_hour(draw: random.Random) -> Part:
    minutes = sorted(draw.sample(range(60), draw.randint(1, 3)))
    colons = joined(draw, [f":{minute:02}" for minute in minutes])
    wordings = [
        f"every hour at {colons}",
        f"hourly at {colons}",
        f"at minute {joined(draw, [str(m) for m in minutes])}",
    ]
    hours = draw.choice(["every hour", "each hour", "the hour"])
    past = draw.choice(["past", "after"])
    said = " and ".join(number(draw, minute) for minute in minutes)
    unit = draw.choice(["", " minutes"])
    if len(minutes) < 3:  # a list with commas looks like the minutes of a cron expression
        wordings += [f"{said}{unit} {past} {hours}", f"at {said}{unit} {past} {hours}", f"hourly at {said}{unit} past"]
        left = " and ".join(number(draw, (60 - minute) % 60) for minute in minutes)
        wordings += [f"{left}{unit} {draw.choice(['to', 'before'])} {hours}"]
    named = {15: "a quarter past", 30: "half past", 45: "quarter to"}.get(minutes[0])
    if named is not None and len(minutes) == 1:
        wordings = [f"{draw.choice(['', 'at '])}{named} {hours}"]
    return Part(draw.choice(wordings), tuple(time(hour, minute) for hour in range(24) for minute in minutes))


def within_a_stretch(draw: random.Random) -> Part:
    """Minutes go up to the end and leave it out; hours that reach the end include it."""
    first, last = sorted(draw.sample(range(24), 2))
    if draw.random() < 0.4:
        step = draw.choice([1, 2, 3])
        hours = [hour for hour in range(first, last + 1) if (hour - first) % step == 0]
        words = "every hour" if step == 1 else f"every {step} hours"
        return Part(stretch(draw, words, first, last), tuple(time(hour) for hour in hours))
    step = draw.choice([5, 10, 15, 20, 30])
    times = tuple(time(hour, minute) for hour in range(first, last) for minute in range(60) if minute % step == 0)
    return Part(stretch(draw, f"every {step} minutes", first, last), times)


def stretch(draw: random.Random, words: str, first: int, last: int) -> str:
    low, high = draw.choice(
        [
            (f"{first:02}:00", f"{last:02}:00"),
            (twelve(draw, first, 0), twelve(draw, last, 0)),
            (f"{first}", f"{last}"),
        ]
    )
    between = draw.choice([f"between {low} and {high}", f"from {low} to {high}"])
    return draw.choice([f"{words} {between}", f"{between} {words}"])


def share(draw: random.Random) -> Part:
    count = draw.choice([2, 3, 4, 6, 8, 12, 24])
    times = f"{number(draw, count)} times" if count > 2 else "twice"
    if draw.random() < 0.6:
        step = 24 // count
        return Part(draw.choice([f"{times} a day", f"{times} daily", f"{times} per day"]), whole_day(step=60 * step))
    count = draw.choice([2, 3, 4, 6, 10, 12])
    times = f"{number(draw, count)} times" if count > 2 else "twice"
    return Part(f"{times} {draw.choice(['an', 'per', 'every'])} hour", whole_day(step=60 // count))


# --- days -------------------------------------------------------------------------------------------------------------


def day_words(draw: random.Random) -> Part:
    return draw.choice([every_day, weekdays, weekdays, days_of_month, dates, months, weekdays_in_months, quarters])(
        draw
    )


def every_day(draw: random.Random) -> Part:
    return Part(draw.choice(["every day", "daily", "each day", "everyday", ""]))


def weekdays(draw: random.Random) -> Part:
    groups = {
        (0, 1, 2, 3, 4): [
            "every weekday",
            "weekdays",
            "on weekdays",
            "monday to friday",
            "mon-fri",
            "every business day",
        ],
        (5, 6): ["weekends", "on weekends", "every saturday and sunday", "sat, sun"],
        (4, 5, 6): ["friday to sunday", "from friday to sunday", "fri - sun"],
        (5, 6, 0): ["saturday to monday"],
    }
    if draw.random() < 0.4:
        wanted = draw.choice(list(groups))
        words = draw.choice(groups[wanted])
    else:
        wanted = tuple(sorted(draw.sample(range(7), draw.choice([1, 1, 2, 3, 4]))))
        names = [WEEKDAYS[day] for day in wanted]
        wordings = [f"every {joined(draw, names)}", f"on {joined(draw, [f'{name}s' for name in names])}"]
        if len(wanted) > 1:
            wordings += [f"on {joined(draw, names)}", joined(draw, [name[:3] for name in names])]
        words = draw.choice(wordings)
    return Part(words, on=lambda day: day.weekday() in wanted)


def ordinal(day: int) -> str:
    if 11 <= day <= 13:
        return f"{day}th"
    return f"{day}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th') }"


def days_of_month(draw: random.Random) -> Part:
    wanted = sorted(draw.sample(range(1, 32), draw.choice([1, 1, 2, 3])))
    said, plain = joined(draw, [ordinal(day) for day in wanted]), joined(draw, [str(day) for day in wanted])
    wordings = [
        f"on the {said} of every month",
        f"on the {said} of the month",
        f"every month on the {said}",
        f"on day {plain} of the month",
        f"monthly on the {said}",
    ]
    if wanted == [1]:
        wordings += ["first day of the month", "on the first of every month"]
    return Part(draw.choice(wordings), on=lambda day: day.day in wanted)


def dates(draw: random.Random) -> Part:
    month = draw.randrange(12)
    day = draw.randint(1, LENGTHS[month] + (month == 1))
    name = MONTHS[month]
    wordings = [
        f"every {name} {ordinal(day)}",
        f"every {day} {name}",
        f"every year on {day} {name}",
        f"on the {ordinal(day)} of {name} every year",
        f"yearly on {name[:3]} {day}",
    ]
    return Part(draw.choice(wordings), on=lambda at: (at.day, at.month) == (day, month + 1))


def months(draw: random.Random) -> Part:
    wanted = sorted(draw.sample(range(12), draw.choice([1, 2, 3])))
    said = joined(draw, [MONTHS[month] for month in wanted])
    if draw.random() < 0.3:
        first, last = sorted(draw.sample(range(12), 2))
        wanted, said = list(range(first, last + 1)), f"{MONTHS[first]} to {MONTHS[last]}"
    return Part(f"in {said}", on=lambda day: day.month - 1 in wanted)


def weekdays_in_months(draw: random.Random) -> Part:
    week, year = weekdays(draw), months(draw)
    return Part(f"{week.words} {year.words}", on=lambda day: week.on(day) and year.on(day))


def quarters(draw: random.Random) -> Part:
    step, wordings = draw.choice(
        [
            (3, ["every quarter", "quarterly", "every 3 months", "first day of the quarter"]),
            (2, ["every 2 months", "every other month"]),
            (6, ["every 6 months", "every six months"]),
            (1, ["every month", "monthly", "once a month"]),
            (12, ["every year", "yearly", "annually", "first day of the year"]),
        ]
    )
    return Part(draw.choice(wordings), on=lambda day: day.day == 1 and (day.month - 1) % step == 0)


def joined(draw: random.Random, words: list[str]) -> str:
    if len(words) == 1:
        return words[0]
    last = draw.choice([" and ", ", and ", ", "]) if len(words) > 2 else draw.choice([" and ", ", "])
    return ", ".join(words[:-1]) + last + words[-1]
