"""The vocabulary: the meaning of single words.

Only words, never phrases: how words go together is the grammar's matter. Everything here is lower case.
"""

from __future__ import annotations

from typing import Final, Literal

Unit = Literal["second", "minute", "hour", "day", "week", "month", "year"]
DayPart = Literal["morning", "afternoon", "evening", "night"]

SECONDS: Final[dict[Unit, int]] = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}

# word -> (how many, of which unit)
UNITS: Final[dict[str, tuple[int, Unit]]] = {
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), (1, "second")),
    **dict.fromkeys(("minute", "minutes", "min", "mins", "m"), (1, "minute")),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), (1, "hour")),
    **dict.fromkeys(("day", "days", "d"), (1, "day")),
    **dict.fromkeys(("week", "weeks", "wk", "wks", "w"), (1, "week")),
    **dict.fromkeys(("fortnight", "fortnights"), (2, "week")),
    **dict.fromkeys(("month", "months"), (1, "month")),
    **dict.fromkeys(("quarter", "quarters"), (3, "month")),
    **dict.fromkeys(("year", "years", "yr", "yrs"), (1, "year")),
}

ADVERBS: Final[dict[str, tuple[int, Unit]]] = {
    "minutely": (1, "minute"),
    "hourly": (1, "hour"),
    "daily": (1, "day"),
    "everyday": (1, "day"),
    "nightly": (1, "day"),
    "weekly": (1, "week"),
    "fortnightly": (2, "week"),
    "monthly": (1, "month"),
    "quarterly": (3, "month"),
    "yearly": (1, "year"),
    "annually": (1, "year"),
}

# Two readings each, and neither is the obvious one: word -> what to say instead.
TWO_READINGS: Final = {
    "biweekly": ("every 2 weeks", "every monday and thursday"),
    "bimonthly": ("every 2 months", "on the 1st and 15th of every month"),
    "biannually": ("every 6 months",),
    "biannual": ("every 6 months",),
    "semimonthly": ("on the 1st and 15th of every month",),
}

_ONES: Final = "one two three four five six seven eight nine".split()
_TEENS: Final = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS: Final = {
    word: 10 * ten for ten, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)
}
NUMBERS: Final = {"zero": 0} | {word: value for value, word in enumerate(_ONES + _TEENS, start=1)} | TENS

_ORDINAL_ONES: Final = "first second third fourth fifth sixth seventh eighth ninth".split()
_ORDINAL_TEENS: Final = (
    "tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth".split()
)
ORDINALS: Final = {word: value for value, word in enumerate(_ORDINAL_ONES + _ORDINAL_TEENS, start=1)} | {
    "twentieth": 20,
    "thirtieth": 30,
}

MONTH_NAMES: Final = "january february march april may june july august september october november december".split()
MONTHS: Final = {name[:length]: i for i, name in enumerate(MONTH_NAMES, start=1) for length in (3, len(name))} | {
    "sept": 9
}

_WEEKDAY_NAMES: Final = "sunday monday tuesday wednesday thursday friday saturday".split()
_SINGLE_DAYS: Final = {name[:length]: i for i, name in enumerate(_WEEKDAY_NAMES) for length in (3, len(name))} | {
    "tues": 2,
    "thur": 4,
    "thurs": 4,
}
_WORKING: Final = frozenset({1, 2, 3, 4, 5})
_WEEKEND: Final = frozenset({0, 6})
# one day, said in the singular
WEEKDAYS: Final = {word: frozenset({day}) for word, day in _SINGLE_DAYS.items()}
# more than one day, or one day again and again: these repeat without an 'every'
WEEKDAY_GROUPS: Final = (
    {f"{name}s": frozenset({day}) for day, name in enumerate(_WEEKDAY_NAMES)}
    | dict.fromkeys(("weekday", "weekdays", "workday", "workdays"), _WORKING)
    | dict.fromkeys(("weekend", "weekends"), _WEEKEND)
)
# 'business days': an adjective in front of 'day'
WORKING_ADJECTIVES: Final = frozenset({"business", "working"})

CLOCK_WORDS: Final = {"noon": 12, "midday": 12, "midnight": 0}
HALVES: Final = {"am": 0, "pm": 12, "a.m.": 0, "p.m.": 12, "a.m": 0, "p.m": 12}
DAY_PARTS: Final[dict[str, DayPart]] = {
    "morning": "morning",
    "mornings": "morning",
    "afternoon": "afternoon",
    "afternoons": "afternoon",
    "evening": "evening",
    "evenings": "evening",
    "night": "night",
    "nights": "night",
}

TIMES: Final = {"once": 1, "twice": 2, "thrice": 3}

# Words that ask for what no schedule here can do: word -> why, and what to do about it.
BEYOND: Final = {
    **dict.fromkeys(
        ("except", "excluding", "unless", "without", "but", "not"),
        "exceptions cannot be said; name the days and hours that are meant, or give the schedule quiet hours",
    ),
    **dict.fromkeys(
        ("holiday", "holidays"), "holidays are not known here; give the schedule quiet hours on those dates"
    ),
    **dict.fromkeys(
        ("random", "randomly", "about", "around", "roughly"), "a schedule is exact; to spread its starts, use jitter"
    ),
    **dict.fromkeys(
        ("sunrise", "sunset", "dawn", "dusk"), "the sun's times are not known here; name a time of the clock"
    ),
    **dict.fromkeys(("now", "immediately"), "what is to run at once is triggered, not scheduled"),
    **dict.fromkeys(
        ("until", "till", "ending"),
        "the end of a schedule is its field end_at; a stretch of the day is 'from 9am to 5pm'",
    ),
    **dict.fromkeys(("ago", "yesterday"), "that lies in the past"),
    "always": "say how often, such as 'every minute'",
    "never": "a schedule that never fires is none",
    "sometimes": "a schedule is exact; say how often",
}  # fmt: skip

# Every other word that the grammar knows; it looks for them by name.
GLUE: Final = frozenset(
    "every each any all other alternate at on in from between and or to through thru of the a an per past after "
    "minute minutes hour hours starting beginning during today tomorrow tonight next this coming last first only leap "
    "years times half quarter o'clock oclock time counted run start previous second day days".split()
)

KNOWN: Final = frozenset().union(
    UNITS, ADVERBS, NUMBERS, ORDINALS, MONTHS, WEEKDAYS, WEEKDAY_GROUPS, WORKING_ADJECTIVES, CLOCK_WORDS, HALVES,
    DAY_PARTS, TIMES, BEYOND, TWO_READINGS, GLUE,
)  # fmt: skip
