"""The history of schedules in plain dicts: epochs, spans, ended runs, attempts. `core.history` links ended runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from heapq import nlargest
from typing import Any, TypeVar

from noonbell.core.records import Attempt, Epoch, History, Kind, Outcome, Run, Span
from noonbell.core.run_chain import RunKey, mended
from noonbell.ports import LedgerKey, PastRun, RunFilter
from noonbell.store.memory.handle import MemoryPart
from noonbell.store.memory.tables import NO_HISTORY, MemoryData, Transaction, between, in_order, order

V = TypeVar("V")


class MemoryHistory(MemoryPart):
    """The history of each schedule in a memory store."""

    async def find(self, schedule_id: str) -> History | None:
        data = self._tables()
        for sid in data.durable:
            row = data.schedules[sid] | data.ended.get(sid, NO_HISTORY)
            if row["schedule_id"] == schedule_id:
                return History(**{name: row[name] for name in History.__struct_fields__})
        return None

    async def epochs(self, sid: int) -> list[Epoch]:
        return in_order(self._tables().epochs.get(sid))

    async def spans(
        self, sid: int, from_at: int, to_at: int, limit: int | None = None, *, newest_first: bool = False
    ) -> list[Span]:
        low, high = order(from_at), order(to_at)
        spans = self._tables().spans.get(sid, {}).items()
        wanted = ((key, span) for key, span in spans if order(span.from_at) <= high and order(span.to_at) >= low)
        return _page(wanted, limit, newest_first=newest_first)

    async def runs(self, wanted: RunFilter, limit: int | None = None, *, newest_first: bool = False) -> list[Run]:
        runs = self._tables().runs.get(wanted.sid, {}).items()
        instants = None if wanted.instants is None else set(wanted.instants)
        found = (
            (key, run)
            for key, run in runs
            if wanted.kind in (None, run.kind)
            and (instants is None or run.run_for in instants)
            and (wanted.from_at is None or order(wanted.from_at) <= order(run.run_for))
            and (wanted.to_at is None or order(run.run_for) <= order(wanted.to_at))
        )
        return _page(found, limit, newest_first=newest_first)

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        attempts = in_order(self._tables().attempts.get(sid))
        return [attempt for attempt in attempts if between(from_at, attempt.run_for, to_at)]

    async def past_runs(self, sids: Sequence[int], before: RunKey | None, limit: int) -> list[Run]:
        data = self._tables()
        return [copy(run) for sid in sorted(set(sids)) for run in chain(data, sid, before, limit)]

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


def chain(data: MemoryData, sid: int, before: RunKey | None, limit: int | None) -> list[Run]:
    """Return up to `limit` runs, newest first: from the last that ended, or from the one that ended before `before`."""
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


def _page(rows: Iterable[tuple[Any, V]], limit: int | None, *, newest_first: bool) -> list[V]:
    """Return copies of the first rows by key, or of the last ones."""
    ordered = sorted(rows, key=lambda row: order(row[0]), reverse=newest_first)
    return [copy(row) for _, row in ordered[:limit]]


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
