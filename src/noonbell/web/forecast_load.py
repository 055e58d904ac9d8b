"""The number of starts in each minute of the coming week, at a bounded cost for any number of schedules.

Schedules with the same timing are counted together, by arithmetic if they start once a minute or more. There are two
bounds: at most SCHEDULES schedules are read, and at most STARTS starts are visited one by one. The rest is estimated:
the counts of a sample are scaled up, and starts that were not visited are spread evenly. `whole` means that nothing was
estimated. The calculation yields to the event loop regularly.

Quiet hours are left out, and manual runs are not predicted. Jitter is included: it follows from the schedule and the
occurrence, so each schedule with jitter is visited by itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from noonbell.core.records import StoredSchedule
from noonbell.core.terms import Terms
from noonbell.core.turns import definition_of, terms_of
from noonbell.errors import NoonbellError
from noonbell.ports import Sample
from noonbell.timing.jitter import jitter_us

MINUTE: Final = 60_000_000
HOUR: Final = 60
WEEK: Final = 7 * 24 * HOUR
SCHEDULES: Final = 4_000
STARTS: Final = 120_000
_NAMED: Final = 4
_BUSIEST: Final = 8
_BREATH: Final = 2_000


class Busy(NamedTuple):
    """A minute of the week: its number, its starts, the number of days with the same count, and some names."""

    minute: int
    starts: float
    days: int
    names: list[tuple[str, str]]
    schedules: int


@dataclass(slots=True)
class Forecast:
    """The forecast of a week. `begins` is the instant of minute 0; `counts` are starts per minute."""

    begins: int
    counts: list[float] = field(default_factory=lambda: [0.0] * WEEK)
    looked_at: int = 0
    schedules: int = 0
    whole: bool = True
    busiest: list[Busy] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(self.counts)

    @property
    def peak(self) -> float:
        return max(self.counts)


class _Group(NamedTuple):
    """Schedules with the same occurrences; with jitter, each starts up to that much later."""

    terms: Terms
    members: list[StoredSchedule]
    jitter: int

    def starts(self, at: int) -> Iterator[tuple[int, StoredSchedule]]:
        """Return when each member starts for an occurrence that is not decided yet."""
        for one in self.members:
            if at > one.cursor_at:
                yield at + jitter_us(one.schedule_id, at, self.jitter), one


async def look_ahead(sample: Sample, team: str, now: int) -> Forecast:
    """Return the forecast of the week that begins with the minute of `now`, for the schedules of a team."""
    found = Forecast(now // MINUTE * MINUTE)
    end = found.begins + WEEK * MINUTE
    groups = await _grouped([one for one in sample.schedules if one.team == team])
    weight = sample.total / len(sample.schedules) if sample.schedules else 1.0
    found.looked_at = sum(len(group.members) for group in groups)
    found.schedules = round(found.looked_at * weight)
    found.whole = sample.whole
    counting = _Counting(found)
    for group in groups:
        await counting.add(group, max(now, found.begins), end, len(group.members) * weight)
    counting.spread()
    found.busiest = await _busiest(found, groups, weight)
    return found


async def _grouped(schedules: Sequence[StoredSchedule]) -> list[_Group]:
    groups: dict[Any, _Group] = {}
    for place, stored in enumerate(schedules):
        if place % _BREATH == _BREATH - 1:
            await asyncio.sleep(0)  # the engine shares this loop
        columns, definition = stored.columns, definition_of(stored.columns.definition)
        anchor = None if columns.type == "cron" else (stored.anchor_at, stored.sid)
        key = (
            columns.type, columns.spec, columns.timezone, definition.dst, definition.start_at, definition.end_at,
            columns.quiet_hours_policy_id, anchor, definition.jitter_us,
        )  # fmt: skip
        known = groups.get(key)
        if known is not None:
            known.members.append(stored)
            continue
        try:
            groups[key] = _Group(terms_of(stored), [stored], definition.jitter_us)
        except NoonbellError:
            continue  # damaged: verify reports it
    return list(groups.values())


class _Counting:
    def __init__(self, found: Forecast) -> None:
        self._found = found
        self._visited = 0
        self._even: dict[Any, float] = defaultdict(float)  # starts per minute, by the quiet hours that silence them
        self._still: dict[Any, bytes] = {}
        self._quiet: dict[Any, Terms] = {}

    async def add(self, group: _Group, after: int, end: int, weight: float) -> None:
        timing, terms = group.terms.timing, group.terms
        starts = timing.count(after, end - 1)
        policy = group.members[0].columns.quiet_hours_policy_id
        if starts >= WEEK - 1:  # of the minute that has begun there may be nothing left
            often = timing.count(self._found.begins - 1, end - 1)
            self._spread_later(policy, terms, weight * often / WEEK)
            return
        visits = starts if not group.jitter else starts * len(group.members)
        if self._visited + visits > STARTS:
            self._found.whole = False
            self._spread_later(policy, terms, weight * starts / WEEK)
            return
        self._visited += visits
        still = self._still_minutes(policy, terms)
        if group.jitter:
            await self._add_jittered(group, after, end, weight / len(group.members), still)
            return
        begins, counts = self._found.begins, self._found.counts
        for visited, at in enumerate(_starts(terms, after, starts)):
            if visited % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
            minute = (at - begins) // MINUTE
            if not still[minute]:
                counts[minute] += weight

    async def _add_jittered(self, group: _Group, after: int, end: int, weight: float, still: bytes) -> None:
        """Count each member of each occurrence, including those whose nominal time has passed but not their start."""
        timing, begins, counts = group.terms.timing, self._found.begins, self._found.counts
        visited = 0
        at = timing.following(after - group.jitter)
        while at is not None and at < end:
            quiet = still[(at - begins) // MINUTE] if at >= begins else group.terms.quiet.is_quiet(at)
            for starts, _ in group.starts(at):
                if after < starts < end and not quiet:
                    counts[(starts - begins) // MINUTE] += weight
                visited += 1
                if visited % _BREATH == 0:
                    await asyncio.sleep(0)
            at = timing.following(at)

    def _spread_later(self, policy: Any, terms: Terms, rate: float) -> None:
        self._even[policy] += rate
        self._quiet[policy] = terms

    def spread(self) -> None:
        """Count schedules that start in every minute that is not quiet."""
        counts = self._found.counts
        for policy, rate in self._even.items():
            still = self._still_minutes(policy, self._quiet[policy])
            for minute in range(WEEK):
                if not still[minute]:
                    counts[minute] += rate

    def _still_minutes(self, policy: Any, terms: Terms) -> bytes:
        """Return 1 for each quiet minute of the week, and 0 for the others."""
        known = self._still.get(policy)
        if known is None:
            marks = bytearray(WEEK)
            begins = self._found.begins
            if policy is not None:
                for start, stop in terms.quiet.stretches(begins - 1, begins + WEEK * MINUTE - 1):
                    first, last = (start - begins) // MINUTE, -((begins - stop) // MINUTE)
                    marks[first:last] = b"\x01" * (min(last, WEEK) - first)
            known = self._still[policy] = bytes(marks)
        return known


def _starts(terms: Terms, after: int, starts: int) -> Iterator[int]:
    at = terms.timing.following(after)
    for _ in range(starts):
        if at is None:
            return
        yield at
        # an interval goes on from itself, which is quicker than asking its timing
        at = at + terms.every_us if terms.every_us is not None else terms.timing.following(at)


async def _busiest(found: Forecast, groups: Sequence[_Group], weight: float) -> list[Busy]:
    """Return the minutes with the most starts; the same minute of several days with equal counts is listed once."""
    often: Counter[tuple[int, float]] = Counter()
    first: dict[tuple[int, float], int] = {}
    for minute, starts in enumerate(found.counts):
        if starts:
            key = (minute % (24 * HOUR), starts)
            often[key] += 1
            first.setdefault(key, minute)
    busy = [key for key in often if key[1] > found.peak / 2]
    best = sorted(busy, key=lambda key: (-key[1], first[key]))[:_BUSIEST]
    busiest: list[Busy] = []
    for key in best:
        names, schedules = _starting(groups, found.begins + first[key] * MINUTE)
        busiest.append(Busy(first[key], key[1], often[key], names, round(schedules * weight)))
        await asyncio.sleep(0)
    return busiest


def _starting(groups: Sequence[_Group], begins: int) -> tuple[list[tuple[str, str]], int]:
    """Return some of the schedules that start within a minute, and their number."""
    names: list[tuple[str, str]] = []
    schedules = 0
    for group in groups:
        members = _members_starting(group, begins)
        schedules += len(members)
        names += [(one.schedule_id, one.columns.name) for one in members[: _NAMED - len(names)]]
    return names, schedules


def _members_starting(group: _Group, begins: int) -> Sequence[StoredSchedule]:
    timing, quiet = group.terms.timing, group.terms.quiet
    if not group.jitter:
        there = timing.count(begins - 1, begins + MINUTE - 1) and not quiet.is_quiet(begins)
        return group.members if there else ()
    found: dict[int, StoredSchedule] = {}
    at = timing.following(begins - 1 - group.jitter)
    while at is not None and at < begins + MINUTE:  # few: jitter is less than what lies between two occurrences
        if not quiet.is_quiet(at):
            found |= {one.sid: one for starts, one in group.starts(at) if begins <= starts < begins + MINUTE}
        at = timing.following(at)
    return list(found.values())
