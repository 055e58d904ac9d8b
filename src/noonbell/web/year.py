"""A year of verdicts, a day at a time: how many occurrences succeeded, failed, were skipped, missed or coalesced.

It is read from the ledger with bounds: the latest MOST_RUNS runs, about the latest MOST_SPANS spans, and what pruning
has kept of older days. Days that lie before what was read are `unread`: what they show may not be all, and where they
show nothing they are not empty, but not known here. `runs_since` and `spans_since` say from when on each is whole.
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
_DAY: Final = 86_400_000_000
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
        elif self.unread:
            said.append("and more, perhaps, that is not read here")
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
    runs_since: datetime | None = None  # None: all of the year was read
    spans_since: datetime | None = None
    width: int = _LEFT + _WEEKS * _CELL
    height: int = _TOP + 7 * _CELL

    @property
    def unread(self) -> bool:
        return any(cell.day.unread and cell.day.look == "out" for cell in self.cells)

    @property
    def bounds(self) -> list[str]:
        """In words, what was not read; for whoever may take the calendar for the whole."""
        told = []
        if self.runs_since is not None:
            told.append(
                f"runs before the latest {MOST_RUNS:,}, which reach back to {self.runs_since:%d %b %Y %H:%M} UTC"
            )
        if self.spans_since is not None:
            since = f"{self.spans_since:%d %b %Y %H:%M} UTC"
            told.append(f"stretches that were skipped, missed or coalesced before {since}, of which there are many")
        return told


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
    spans, spans_since = await _latest_spans(store, sid, max(instant(begin), reached), instant(now))
    for span in spans:
        _add_span(days, span, zone)
    await _add_pruned(store, sid, days)
    whole_from = max(reached, spans_since)
    oldest = moment(whole_from).astimezone(zone).date() if whole_from else first
    for one in days.values():
        one.unread = since.astimezone(zone).date() <= one.date < oldest
    return _drawn(
        list(days.values()), first, moment(reached) if reached else None, moment(spans_since) if spans_since else None
    )


async def _latest_spans(store: ScheduleStore, sid: int, begin: int, now: int) -> tuple[list[Span], int]:
    """The spans of the year, and 0; where they are too many the latest, and the instant from which on they are whole.

    The store reads them from old to new, so the latest are sought in stretches that grow: a day, then two, then four.
    """
    found = await store.next_spans(sid, begin - 1, now, MOST_SPANS + 1)
    if len(found) <= MOST_SPANS:
        return found, 0
    latest: dict[int, Span] = {}
    reached, step = now, _DAY
    while reached > begin:
        start = max(begin, reached - step)
        block = await store.next_spans(sid, start - 1, reached, MOST_SPANS + 1)
        if len(block) > MOST_SPANS or len(latest | {span.from_at: span for span in block}) > MOST_SPANS:
            break
        latest |= {span.from_at: span for span in block}
        reached, step = start, 2 * step
    return list(latest.values()), reached


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


def _drawn(days: list[Day], first: date, runs_since: datetime | None, spans_since: datetime | None) -> Year:
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
    return Year(cells, months, totals, runs_since, spans_since)


def _zone(timezone: str) -> tzinfo:
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
