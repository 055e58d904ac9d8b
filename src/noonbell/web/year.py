"""A year of verdicts by day: the number of occurrences that succeeded, failed, were skipped, missed or coalesced.

The read is bounded: the latest MOST_RUNS runs, the latest MOST_SPANS spans, and the counts that pruning has kept of
older days. Days before that are `unread`: their counts may be incomplete, and a day without counts is unknown rather
than empty. `runs_since` and `spans_since` are the instants from which on each is complete.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from noonbell.core.instants import instant, moment
from noonbell.core.records import PrunedDay, Run, Span
from noonbell.core.run_chain import key_of
from noonbell.ports import LEDGER_TABLES, Ledger

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
    """One day. `parts` are the verdicts of spans over several days, whose share of this day is not counted."""

    date: date
    counts: Counter[str] = field(default_factory=Counter)
    parts: set[str] = field(default_factory=set)
    unread: bool = False

    @property
    def look(self) -> str:
        """The style of the day: bad, some (bad among good), miss, ok, skip, kept, out or none."""
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
    def label(self) -> str:
        """The counts of the day, as text."""
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
        """The parts of the year that were not read, as text, so that the calendar is not taken for complete."""
        unread_parts = []
        if self.runs_since is not None:
            unread_parts.append(
                f"runs before the latest {MOST_RUNS:,}, which reach back to {self.runs_since:%d %b %Y %H:%M} UTC"
            )
        if self.spans_since is not None:
            since = f"{self.spans_since:%d %b %Y %H:%M} UTC"
            unread_parts.append(f"skipped, missed or coalesced stretches before {since}, of which there are many")
        return unread_parts


class _Rows(NamedTuple):
    """The rows of a year, read in one transaction; `runs_since` and `spans_since` are 0 if all were read."""

    runs: list[Run]
    runs_since: int
    spans: list[Span]
    spans_since: int
    pruned: list[PrunedDay]


async def year_of(store: Ledger, sid: int, timezone: str, now: datetime, since: datetime) -> Year:
    """Return the year up to `now` by the calendar of the zone; days before `since`, its creation, are empty."""
    zone = _zone(timezone)
    today = now.astimezone(zone).date()
    first = today - timedelta(days=today.weekday() + 7 * (_WEEKS - 1))
    days = {
        first + timedelta(days=number): Day(first + timedelta(days=number))
        for number in range((today - first).days + 1)
    }
    begin = instant(datetime(first.year, first.month, first.day, tzinfo=zone))
    rows = await store.snapshot(lambda read: _read(read, sid, begin, instant(now)))
    for run in rows.runs:
        day = days.get(moment(run.run_for).astimezone(zone).date())
        if day is not None:
            day.counts[run.outcome] += 1
    for span in rows.spans:
        _add_span(days, span, zone)
    for kept in rows.pruned:
        day = days.get(moment(kept.day).astimezone(UTC).date())
        if day is not None:
            day.counts["kept"] += kept.fired + kept.passed
    whole_from = max(rows.runs_since, rows.spans_since)
    oldest = moment(whole_from).astimezone(zone).date() if whole_from else first
    for one in days.values():
        one.unread = since.astimezone(zone).date() <= one.date < oldest
    return _drawn(list(days.values()), first, _maybe_moment(rows.runs_since), _maybe_moment(rows.spans_since))


async def _read(store: Ledger, sid: int, begin: int, now: int) -> _Rows:
    runs, runs_since = await _latest_runs(store, sid, begin)
    spans, spans_since = await _latest_spans(store, sid, max(begin, runs_since), now)
    pruned = await store.read("pruned", None, 4 * 366, above_sid=sid - 1, upto_sid=sid)
    kept = [PrunedDay(**dict(zip(_PRUNED, row, strict=True))) for row in pruned]
    return _Rows(runs, runs_since, spans, spans_since, kept)


async def _latest_runs(store: Ledger, sid: int, begin: int) -> tuple[list[Run], int]:
    """Return the latest runs, and the instant back to which they were read; 0 if all of the year were."""
    runs: list[Run] = []
    while len(runs) < MOST_RUNS:
        block = await store.history.past_runs([sid], key_of(runs[-1]) if runs else None, _BLOCK)
        runs += block
        if len(block) < _BLOCK or block[-1].run_for < begin:
            return runs, 0
    return runs, runs[-1].run_for


async def _latest_spans(store: Ledger, sid: int, begin: int, now: int) -> tuple[list[Span], int]:
    """Return the spans of the year, and 0; of too many, the latest and the instant since which they are complete."""
    found = await store.history.spans(sid, begin, now, MOST_SPANS + 1, newest_first=True)
    if len(found) <= MOST_SPANS:
        return found, 0
    return found[:MOST_SPANS], found[MOST_SPANS - 1].from_at


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


def _maybe_moment(at: int) -> datetime | None:
    return moment(at) if at else None


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
