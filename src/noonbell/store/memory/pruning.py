"""Pruning in plain dicts: the oldest day of the ledger goes, and its counts stay.

What may go is settled for good. A scheduled run goes when its schedule has decided something after it, or will decide
nothing more: a run at the cursor of a schedule in use is what the next decision looks back at. A span goes with the day
in which it ends, and the lifecycle as `core.lives` says. Live runs, their attempts and epochs stay, and so does the
newest audit event, whose number says which comes next. Where a run goes that ended after one that stays, the history is
closed over it. Rows that cannot be right, or have no owner, are left for `verify` to report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from noonbell.core.lives import ended_lives
from noonbell.core.records import PrunedDay, Run, Span
from noonbell.ports import Pruned
from noonbell.store.memory import history
from noonbell.store.memory.handle import MemoryHandle
from noonbell.store.memory.tables import MemoryData, Transaction

DAY_US: Final = 86_400_000_000


def prune_day(handle: MemoryHandle, before: int) -> Pruned | None:
    """Drop the oldest day of the ledger if it ended by `before`; None if there is none."""
    data = handle.tables()
    lives = _ended_lives(data, before)
    first = min((*_ends(data), *lives.values()), default=None)
    day = None if first is None else first - first % DAY_US
    if day is None or day + DAY_US > before:
        return None
    end = day + DAY_US
    runs = [run for run in _settled_runs(data) if day <= run.run_for < end]
    spans = [span for span in _settled_spans(data) if day <= span.to_at < end]
    keys = {(run.sid, run.run_for, run.kind) for run in runs}
    attempts = [
        (sid, key)
        for sid, table in data.attempts.items()
        for key in table
        if (sid, *key[:2]) in keys
    ]  # fmt: skip
    audits = [number for number, at in _old_audits(data) if day <= at < end]
    letters = [number for number, letter in data.dead_letters.items() if _among(day, letter.died_at, end)]
    events = [number for number, at in lives.items() if day <= at < end]
    with handle.transaction() as tx:
        history.mend(tx, data, runs)
        for run in runs:
            if run.kind == "scheduled":
                _keep(tx, data, PrunedDay(run.sid, run.epoch, day, run.run_for, run.run_for, 1, 0, run.run_for,
                                          run.started_at))  # fmt: skip
            tx.delete(data.runs[run.sid], (run.run_for, run.kind))
        for span in spans:
            kept = PrunedDay(span.sid, span.epoch, day, span.from_at, span.to_at, 0, span.n, None, None)
            _keep(tx, data, kept)
            tx.delete(data.spans[span.sid], span.from_at)
        for sid, key in attempts:
            tx.delete(data.attempts[sid], key)
        for number in audits:
            tx.delete(data.audits, number)
        for number in letters:
            tx.delete(data.dead_letters, number)
        for number in events:
            tx.delete(data.lifecycle, number)
    return Pruned(day, len(runs), len(spans), len(attempts), len(audits), len(letters), len(events))


def _ends(data: MemoryData) -> Iterator[int]:
    """Yield the instants that assign the rows that may go to a day."""
    yield from (run.run_for for run in _settled_runs(data))
    yield from (span.to_at for span in _settled_spans(data))
    yield from (at for _, at in _old_audits(data))
    yield from (letter.died_at for letter in data.dead_letters.values() if type(letter.died_at) is int)


def _settled_runs(data: MemoryData) -> Iterator[Run]:
    for sid, runs in data.runs.items():
        row = data.schedules.get(sid)
        cursor = None if row is None else row["cursor_at"]
        if row is None or type(cursor) is not int:
            continue
        for key, run in runs.items():
            decided = run.run_for < cursor or (run.run_for == cursor and row["enabled"] == 0)
            if (decided or run.kind == "manual") and (run.kind, key[0]) not in data.live[sid]:
                yield run


def _settled_spans(data: MemoryData) -> Iterator[Span]:
    for sid, spans in data.spans.items():
        row = data.schedules.get(sid)
        cursor = None if row is None else row["cursor_at"]
        if type(cursor) is int:
            whole = (span for span in spans.values() if type(span.to_at) is int and type(span.n) is int)
            yield from (span for span in whole if span.to_at <= cursor)


def _ended_lives(data: MemoryData, before: int) -> dict[int, int]:
    events = ((number, e.managed_by, e.at, e.instance, e.event) for number, e in data.lifecycle.items())
    return ended_lives(row for row in sorted(events) if type(row[2]) is int and row[2] < before)


def _old_audits(data: MemoryData) -> Iterator[tuple[int, int]]:
    newest = max(data.audits, default=0)
    for number, event in data.audits.items():
        if number != newest and type(event.at) is int:
            yield number, event.at


def _keep(tx: Transaction, data: MemoryData, new: PrunedDay) -> None:
    """Add to what is kept of the day; one that was pruned before gets more."""
    table, key = data.pruned[new.sid], (new.epoch, new.day)
    before = table.get(key)
    if before is None:
        tx.put(table, key, new)
        return
    last, started = before.last_for, before.last_started_at
    if new.last_for is not None and (last is None or new.last_for > last):
        last, started = new.last_for, new.last_started_at
    first_at, to_at = min(before.first_at, new.first_at), max(before.to_at, new.to_at)
    fired, passed = before.fired + new.fired, before.passed + new.passed
    tx.put(table, key, PrunedDay(new.sid, new.epoch, new.day, first_at, to_at, fired, passed, last, started))


def _among(first: int, at: object, end: int) -> bool:
    return type(at) is int and first <= at < end
