"""The random choices of a simulation: places near clock changes, tasks, and how their runs go.

Everything comes from a `random.Random` that is passed in, so a seed is a whole life. The chances are chosen so that
rare meetings are common: expressions that are due often, clock changes within hours, delays that end on a minute.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from noonbell.core.instants import SECOND
from noonbell.testing.trace import DeclaredTask

_NAMES: Final = ("ant", "bee", "cat", "dog", "eel")

# A zone, and an instant about which something happens there.
_PLACES: Final = (
    ("UTC", datetime(2025, 6, 1, 0, 0, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2025, 3, 30, 1, 0, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2025, 10, 26, 1, 0, tzinfo=UTC)),
    ("America/New_York", datetime(2025, 3, 9, 7, 0, tzinfo=UTC)),
    ("America/New_York", datetime(2025, 11, 2, 6, 0, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2025, 10, 4, 15, 30, tzinfo=UTC)),  # half an hour forward
    ("Australia/Lord_Howe", datetime(2025, 4, 5, 15, 0, tzinfo=UTC)),  # and half an hour back
    ("Asia/Kolkata", datetime(2024, 12, 31, 18, 30, tzinfo=UTC)),  # midnight and a new year
    ("Pacific/Chatham", datetime(2025, 9, 27, 14, 0, tzinfo=UTC)),
    ("America/Havana", datetime(2025, 11, 2, 5, 0, tzinfo=UTC)),  # midnight comes twice
)
_DELAYS: Final = (0, 0, 1, 5, 30, 59, 60, 60, 61, 90, 300, 600, 3600)
_FREQUENT: Final = (
    *("* * * * *", "* * * * *", "0,30 * * * *", "0,15,30,45 * * * *", "0,5,10,15,20,25,30,35,40,45,50,55 * * * *"),
    *("0-9 * * * *", "1,2,3,58,59 * * * *", "0 * * * *", "30 0-3 * * *", "* 1,2 * * *", "0,2,4 2 * * *"),
)


class Outcome(NamedTuple):
    """The outcome of one call of a task."""

    kind: Literal["ok", "fail", "hang"]  # hang: until the simulation lets it go, then ok
    seconds: float


def draw_place(lot: random.Random) -> tuple[ZoneInfo, int]:
    """A zone, and an instant in microseconds, mostly in the hours around a clock change."""
    key, about = lot.choice(_PLACES)
    at = about + timedelta(seconds=lot.randint(-4 * 3600, 2 * 3600))
    if lot.random() < 0.4:
        at = at.replace(second=lot.choice((0, 0, 59)))
    fraction = lot.choice((0, 0, 1, 999_999, 500_000))
    return ZoneInfo(key), int(at.timestamp()) * SECOND + fraction


def draw_cron(lot: random.Random) -> str:
    if lot.random() < 0.6:
        return lot.choice(_FREQUENT)
    minutes = ",".join(str(minute) for minute in sorted(lot.sample(range(60), lot.randint(1, 6))))
    hours = (
        "*" if lot.random() < 0.5 else ",".join(str(hour) for hour in sorted(lot.sample(range(24), lot.randint(3, 12))))
    )
    days = "*" if lot.random() < 0.9 else lot.choice(("1-15", "1,2,26,30,31", "2"))
    weekdays = "*" if lot.random() < 0.9 else lot.choice(("0", "0,6", "1-5"))
    return f"{minutes} {hours} {days} * {weekdays}"


def draw_task(lot: random.Random) -> DeclaredTask:
    return DeclaredTask(draw_cron(lot), lot.choice(_DELAYS) * SECOND)


def draw_tasks(lot: random.Random, before: dict[str, DeclaredTask]) -> dict[str, DeclaredTask]:
    """The tasks of the next initialisation: the same, or some of them left out, changed or new."""
    if before and lot.random() < 0.4:
        return dict(before)
    tasks: dict[str, DeclaredTask] = {}
    for name in lot.sample(_NAMES, lot.choice((1, 1, 2, 2, 3, 4) if lot.random() < 0.97 else (0,))):
        known = before.get(name)
        if known is None:
            tasks[name] = draw_task(lot)
        elif lot.random() < 0.6:
            tasks[name] = known
        else:
            other = draw_task(lot)
            tasks[name] = lot.choice((other, DeclaredTask(known.cron, other.retry_delay)))
    return tasks


def draw_outcome(lot: random.Random, task: str) -> Outcome:
    """Draw the outcome of a call. Each task has its temper: some hardly ever fail, some mostly do."""
    temper = sum(map(ord, task)) % 3
    chance = lot.random()
    seconds = 0.0
    if lot.random() < 0.5:
        seconds = lot.choice((0.001, 1, 20, 59, 60, 61, 150)) if lot.random() < 0.8 else lot.choice((600, 3600, 7200))
    if chance < (0.1, 0.35, 0.7)[temper]:
        return Outcome("fail", seconds)
    return Outcome("hang", 0) if chance > 0.97 else Outcome("ok", seconds)
