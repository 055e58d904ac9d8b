"""The history of schedules in plain dicts: ended runs, newest first. How they hang together: see `core.history`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from heapq import nlargest, nsmallest

from noonbell.core.history import RunKey, mended
from noonbell.core.records import History, Kind, Outcome, Run, Span
from noonbell.ports import LedgerKey, PastRun
from noonbell.store.memory_tables import NO_HISTORY, MemoryData, Transaction


class HistoryInMemory:
    """The verbs of ScheduleStore that look back."""

    data: MemoryData
    _tables: Callable[[], MemoryData]

    async def history_of(self, schedule_id: str) -> History | None:
        data = self._tables()
        for sid in data.durable:
            row = data.schedules[sid] | data.ended.get(sid, NO_HISTORY)
            if row["schedule_id"] == schedule_id:
                return History(**{name: row[name] for name in History.__struct_fields__})
        return None

    async def last_outcomes(self, sids: Sequence[int]) -> dict[int, Outcome]:
        data = self._tables()
        return {sid: run.outcome for sid in sids for run in chain(data, sid, None, 1)}

    async def past_runs(self, sid: int, before: RunKey | None, limit: int) -> list[Run]:
        return [copy(run) for run in chain(self._tables(), sid, before, limit)]

    async def latest_runs(self, before: LedgerKey | None, limit: int, outcome: Outcome | None = None) -> list[PastRun]:
        data = self._tables()
        keyed = (
            ((run.run_for, sid, run.kind), run)
            for sid in data.durable
            for run in data.runs.get(sid, {}).values()
            if outcome in (None, run.outcome)
        )
        older = (pair for pair in keyed if before is None or pair[0] < tuple(before))
        rows = data.schedules
        return [
            PastRun(rows[run.sid]["schedule_id"], rows[run.sid]["name"], copy(run), rows[run.sid]["team"])
            for _, run in nlargest(limit, older, key=lambda pair: pair[0])
        ]

    async def runs_for(self, sid: int, instants: Sequence[int]) -> list[Run]:
        runs = self._tables().runs.get(sid, {})
        return [copy(runs[at, "scheduled"]) for at in instants if (at, "scheduled") in runs]

    async def next_runs(self, sid: int, after: int, upto: int, limit: int) -> list[Run]:
        runs = self._tables().runs.get(sid, {}).values()
        wanted = (run for run in runs if run.kind == "scheduled" and after < run.run_for <= upto)
        return [copy(run) for run in nsmallest(limit, wanted, key=lambda run: run.run_for)]

    async def next_spans(self, sid: int, after: int, upto: int, limit: int) -> list[Span]:
        spans = self._tables().spans.get(sid, {}).values()
        wanted = (span for span in spans if span.from_at <= upto and span.to_at > after)
        return [copy(span) for span in nsmallest(limit, wanted, key=lambda span: span.from_at)]

    async def previous_runs(self, sid: int, after: int, upto: int, limit: int) -> list[Run]:
        runs = self._tables().runs.get(sid, {}).values()
        wanted = (run for run in runs if run.kind == "scheduled" and after < run.run_for <= upto)
        return [copy(run) for run in nlargest(limit, wanted, key=lambda run: run.run_for)]

    async def previous_spans(self, sid: int, after: int, upto: int, limit: int) -> list[Span]:
        spans = self._tables().spans.get(sid, {}).values()
        wanted = (span for span in spans if span.from_at <= upto and span.to_at > after)
        return [copy(span) for span in nlargest(limit, wanted, key=lambda span: span.from_at)]


def chain(data: MemoryData, sid: int, before: RunKey | None, limit: int | None) -> list[Run]:
    """Up to `limit` runs, newest first: from the last that ended, or from the one that ended before `before`."""
    runs = data.runs.get(sid, {})
    found: list[Run] = []
    key: tuple[int, Kind] | None
    if before is None:
        row = data.ended.get(sid, NO_HISTORY)
        key = _key(row["last_ended_for"], manual=row["last_ended_manual"])
    else:
        key = _before(runs.get((before.run_for, before.kind)))
    while key is not None and (limit is None or len(found) < limit):
        run = runs.get(key)
        if run is None:
            break
        found.append(run)
        key = _before(run)
    return found


def mend(tx: Transaction, data: MemoryData, gone: Iterable[Run]) -> None:
    """Close the chains over runs that are about to go."""
    leaving: dict[int, set[RunKey]] = {}
    for run in gone:
        leaving.setdefault(run.sid, set()).add(RunKey(run.run_for, run.kind))
    for sid, keys in leaving.items():
        first, changed = mended(chain(data, sid, None, None), keys)
        if first is not None:
            moved = {"last_ended_for": first.run_for, "last_ended_manual": first.kind == "manual"}
            tx.put(data.ended, sid, data.ended[sid] | moved)
        for run in changed:
            tx.put(data.runs[sid], (run.run_for, run.kind), run)


def _before(run: Run | None) -> tuple[int, Kind] | None:
    return None if run is None else _key(run.prev_for, manual=run.prev_manual)


def _key(run_for: int | None, *, manual: bool) -> tuple[int, Kind] | None:
    return None if run_for is None else (run_for, "manual" if manual else "scheduled")
