"""A year of verdicts, a day at a time: how many occurrences succeeded, failed, were skipped, missed or coalesced.

It is read from the ledger with bounds: the latest MOST_RUNS runs and MOST_SPANS spans, and what pruning has kept of
older days. Days that lie before what was read, and of which nothing is kept, are `unread`: not empty, not known here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from noonbell.core.history import key_of
from noonbell.core.records import PrunedDay, Run, Span
from noonbell.ports import LEDGER_TABLES, ScheduleStore
from noonbell.web.times import instant, moment

MOST_RUNS: Final = 3_000
MOST_SPANS: Final = 1_000
_BLOCK: Final = 1_000
_WEEKS: Final = 53
_CELL: Final = 14
_LEFT: Final = 30
_TOP: Final = 18
_PRUNED: Final = LEDGER_TABLES["pruned"].columns
_WORDS: Final = ("succeeded", "failed", "abandoned", "unknown", "missed", "skipped", "coalesced")
_BAD: Final = ("failed", "abandoned", "unknown")


@dataclass(slots=True)
class Day:
    """One day. `parts` are verdicts of stretches over several days, of which the share of this day is not counted."""

    date: date
    counts: Counter[str] = field(default_factory=Counter)
    parts: set[str] = field(default_factory=set)
    unread: bool = False

    @property
    def look(self) -> str:
        """How it is drawn: bad, some (bad among good), miss, ok, skip, kept, out or none."""
        bad = any(self.counts[word] for word in _BAD)
        if bad:
            return "some" if self.counts["succeeded"] else "bad"
        if self.counts["missed"] or "missed" in self.parts:
            return "miss"
        if self.counts["succeeded"]:
            return "ok"
        if self.counts["skipped"] or self.counts["coalesced"] or self.parts:
            return "skip"
        if self.counts["kept"]:
            return "kept"
        return "out" if self.unread else "none"

    @property
    def told(self) -> str:
        """For people: what the day holds."""
        said = [f"{self.counts[word]} {word}" for word in _WORDS if self.counts[word]]
        said += [f"part of a stretch that was {word}" for word in sorted(self.parts)]
        if self.counts["kept"]:
            said.append(f"{self.counts['kept']} occurrences, of which only the number is kept")
        if not said:
            said.append("not read here" if self.unread else "nothing")
        return f"{self.date:%a} {self.date.day} {self.date:%b %Y}: {', '.join(said)}"


@dataclass(frozen=True, slots=True)
class Cell:
    day: Day
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Year:
    """The days of a year, placed for drawing: a column for each week, Monday on top."""

    cells: list[Cell]
    months: list[tuple[int, str]]
    totals: Counter[str]
    width: int = _LEFT + _WEEKS * _CELL
    height: int = _TOP + 7 * _CELL

    @property
    def unread(self) -> bool:
        return any(cell.day.unread and cell.day.look == "out" for cell in self.cells)


async def year_of(store: ScheduleStore, sid: int, timezone: str, now: datetime, since: datetime) -> Year:
    """The year up to `now` by the calendar of the zone; days before `since`, when the schedule began, are empty."""
    zone = _zone(timezone)
    today = now.astimezone(zone).date()
    first = today - timedelta(days=today.weekday() + 7 * (_WEEKS - 1))
    days = {
        first + timedelta(days=number): Day(first + timedelta(days=number))
        for number in range((today - first).days + 1)
    }
    begin = datetime(first.year, first.month, first.day, tzinfo=zone)
    reached = await _add_runs(store, sid, days, zone, instant(begin))
    spans = await store.next_spans(sid, max(instant(begin), reached) - 1, instant(now), MOST_SPANS)
    for span in spans:
        _add_span(days, span, zone)
    await _add_pruned(store, sid, days)
    oldest = moment(reached).astimezone(zone).date() if reached else first
    for one in days.values():
        one.unread = since.astimezone(zone).date() <= one.date < oldest
    return _drawn(list(days.values()), first)


async def _add_runs(store: ScheduleStore, sid: int, days: dict[date, Day], zone: tzinfo, begin: int) -> int:
    """Add the latest runs; returns the instant up to which they were read, 0 where all of the year were."""
    read = 0
    last: Run | None = None
    while read < MOST_RUNS:
        block = await store.past_runs(sid, None if last is None else key_of(last), _BLOCK)
        for run in block:
            day = days.get(moment(run.run_for).astimezone(zone).date())
            if day is not None:
                day.counts[run.outcome] += 1
        read += len(block)
        if len(block) < _BLOCK or block[-1].run_for < begin:
            return 0
        last = block[-1]
    return 0 if last is None else last.run_for


def _add_span(days: dict[date, Day], span: Span, zone: tzinfo) -> None:
    first = moment(span.from_at).astimezone(zone).date()
    last = moment(span.to_at).astimezone(zone).date()
    if first == last:
        if first in days:
            days[first].counts[span.verdict] += span.n
        return
    for one, day in days.items():
        if first <= one <= last:
            day.parts.add(span.verdict)


async def _add_pruned(store: ScheduleStore, sid: int, days: dict[date, Day]) -> None:
    for row in await store.read_ledger("pruned", None, 4 * 366, above_sid=sid - 1, upto_sid=sid):
        kept = PrunedDay(**dict(zip(_PRUNED, row, strict=True)))
        day = days.get(moment(kept.day).astimezone(UTC).date())
        if day is not None:
            day.counts["kept"] += kept.fired + kept.passed


def _drawn(days: list[Day], first: date) -> Year:
    cells = [
        Cell(day, _LEFT + (day.date - first).days // 7 * _CELL, _TOP + (day.date - first).days % 7 * _CELL)
        for day in days
    ]
    months = [
        (cell.x, f"{cell.day.date:%b}") for cell in cells if cell.day.date.day <= 7 and cell.day.date.weekday() == 0
    ]
    totals: Counter[str] = Counter()
    for day in days:
        totals.update(day.counts)
    return Year(cells, months, totals)


def _zone(timezone: str) -> tzinfo:
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
