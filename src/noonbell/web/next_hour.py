"""The starts of the next hour, calculated from the schedules that wake first. Pure; `now` is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from noonbell.core.instants import moment
from noonbell.core.records import StoredSchedule
from noonbell.core.turns import definition_of, terms_of
from noonbell.errors import NoonbellError

MINUTE: Final = 60_000_000
MINUTES: Final = 60
MOST_SCHEDULES: Final = 300
_MOST_LISTED: Final = 12
_LISTED_OF_EACH: Final = 1


@dataclass(frozen=True, slots=True)
class Fire:
    """An upcoming start."""

    at: datetime
    schedule_id: str
    name: str
    timezone: str
    quiet: bool


@dataclass(slots=True)
class NextHour:
    """The number of starts in each of the next 60 minutes, and the first starts one by one.

    Not `whole`: more schedules wake in this hour than were read.
    """

    counts: list[int] = field(default_factory=lambda: [0] * MINUTES)
    quiet: list[int] = field(default_factory=lambda: [0] * MINUTES)
    fires: list[Fire] = field(default_factory=list)
    schedules: int = 0
    whole: bool = True

    @property
    def total(self) -> int:
        return sum(self.counts) + sum(self.quiet)

    @property
    def peak(self) -> tuple[int, int]:
        """The busiest minute, counted from now, and its starts."""
        both = [loud + still for loud, still in zip(self.counts, self.quiet, strict=True)]
        most = max(both)
        return both.index(most), most


def next_hour(soon: Sequence[StoredSchedule], now: int) -> NextHour:
    """Return the hour after `now` for schedules that wake in it; one beyond MOST_SCHEDULES means there are more."""
    found = NextHour(whole=len(soon) <= MOST_SCHEDULES)
    end = now + MINUTES * MINUTE
    for stored in soon[:MOST_SCHEDULES]:
        try:
            _add(found, stored, now, end)
        except NoonbellError:
            continue  # damaged: verify reports it; the others are still shown
    found.fires.sort(key=lambda fire: fire.at)
    del found.fires[_MOST_LISTED:]
    return found


def _add(found: NextHour, stored: StoredSchedule, now: int, end: int) -> None:
    terms = terms_of(stored)
    # jitter may delay a start whose nominal time has passed
    after = max(now - definition_of(stored.columns.definition).jitter_us, stored.cursor_at)
    often = terms.timing.count(after, end) > MINUTES
    found.schedules += 1
    if often:
        _add_often(found, stored, now)
    listed = 0
    at = terms.timing.following(after)
    while at is not None and at <= end and not (often and listed == _LISTED_OF_EACH):
        quiet, starts = terms.quiet.is_quiet(at), at + terms.jitter(at)
        at = terms.timing.following(at)
        if not now < starts <= end:
            continue
        if not often:
            _count(found, (starts - now - 1) // MINUTE, 1, quiet=quiet)
        if listed < _LISTED_OF_EACH:
            name, zone = stored.columns.name, stored.columns.timezone
            found.fires.append(Fire(moment(starts), stored.schedule_id, name, zone, quiet))
            listed += 1


def _add_often(found: NextHour, stored: StoredSchedule, now: int) -> None:
    """Count a schedule that starts more than once a minute minute by minute instead of start by start."""
    terms = terms_of(stored)
    for minute in range(MINUTES):
        begins = max(now + minute * MINUTE, stored.cursor_at)
        ends = now + (minute + 1) * MINUTE
        if begins < ends:
            _count(found, minute, terms.timing.count(begins, ends), quiet=terms.quiet.is_quiet(begins))


def _count(found: NextHour, minute: int, starts: int, *, quiet: bool) -> None:
    place = min(max(minute, 0), MINUTES - 1)
    if quiet:
        found.quiet[place] += starts
    else:
        found.counts[place] += starts
