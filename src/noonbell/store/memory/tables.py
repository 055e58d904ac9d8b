"""The tables of the memory store, what it takes to change several of them together, and their order.

Rows are replaced, never changed in place; a transaction remembers what it replaced. Nothing here knows what a row
means, apart from when its schedule wakes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import copy
from heapq import nsmallest
from typing import Any, Final, Self, TypeVar

from msgspec.structs import replace

from noonbell.core.presence import EngineRecord, Polls, lane_key
from noonbell.core.records import (
    Attempt,
    AuditEvent,
    DeadLetter,
    Document,
    Epoch,
    Kind,
    LifecycleEvent,
    LiveRun,
    OutboxMessage,
    Outcome,
    PrunedDay,
    QuietHoursPolicy,
    Run,
    Span,
)
from noonbell.errors import StoreError
from noonbell.ports import LEDGER_TABLES, LedgerTable, RowBounds
from noonbell.store.memory.wake_index import WakeIndex
from noonbell.store.waking import live_wake

K = TypeVar("K")
V = TypeVar("V")
Row = dict[str, Any]

NO_HISTORY: Final[Row] = {"last_ended_for": None, "last_ended_manual": False, "ended_runs": 0, "succeeded_runs": 0}


class MemoryHold:
    """A name that is taken, until it is released."""

    def __init__(self, held: dict[str, MemoryHold], name: str, holder: str) -> None:
        self._held = held
        self._name = name
        self.holder = holder

    def release(self) -> None:
        if self._held.get(self._name) is self:
            del self._held[self._name]


class MemoryData:
    """Everything that outlives a handle. Tables are plain dicts: by schedule, then by the rest of the primary key."""

    def __init__(self) -> None:
        self.schedules: dict[int, Row] = {}
        self.live: defaultdict[int, dict[tuple[Kind, int], LiveRun]] = defaultdict(dict)
        self.ended: dict[int, Row] = {}  # where the history of a schedule begins, and how long it is
        self.runs: defaultdict[int, dict[tuple[int, Kind], Run]] = defaultdict(dict)
        self.spans: defaultdict[int, dict[int, Span]] = defaultdict(dict)
        self.attempts: defaultdict[int, dict[tuple[int, Kind, int], Attempt]] = defaultdict(dict)
        self.epochs: defaultdict[int, dict[int, Epoch]] = defaultdict(dict)
        self.lifecycle: dict[int, LifecycleEvent] = {}
        self.durable: dict[int, Row] = {}  # what a durable schedule has beside its row
        self.quiet_hours: dict[str, QuietHoursPolicy] = {}
        self.audits: dict[int, AuditEvent] = {}
        self.pruned: defaultdict[int, dict[tuple[int, int], PrunedDay]] = defaultdict(dict)
        self.zone_rules: dict[str, str] = {}
        self.outbox: defaultdict[int, dict[int, OutboxMessage]] = defaultdict(dict)
        self.streams: dict[int, Row] = {}
        self.dead_letters: dict[int, DeadLetter] = {}
        self.documents: dict[tuple[str, str], Document] = {}
        self.counters: dict[str, int] = {}  # numbers that are never given twice
        self.held: dict[str, MemoryHold] = {}
        self.engines: dict[str, EngineRecord] = {}
        self.seen: dict[str, int] = {}  # when each engine gave its last sign of life
        self.lanes: dict[str, Polls] = {}
        self.due: defaultdict[str, WakeIndex] = defaultdict(WakeIndex)
        self.woken: defaultdict[str, WakeIndex] = defaultdict(WakeIndex)
        self.sending: defaultdict[str, WakeIndex] = defaultdict(WakeIndex)

    def index(self, sid: int) -> None:
        """Bring the wake-ups of one schedule up to its rows: its own, that of its live run, that of its stream.

        Not every stream belongs to a schedule. One that is gone was claimed before, and has no wake-up since.
        """
        if (stream := self.streams.get(sid)) is not None:
            self.sending[lane_key(stream["lane"])].put(sid, stream["wake_at"] if stream["owner"] is None else None)
        row = self.schedules.get(sid)
        if row is None:
            return
        durable = self.durable.get(sid)
        key = row["managed_by"] if durable is None else lane_key(durable["lane"])
        self.due[key].put(sid, row["next_run_at"] if row["enabled"] == 1 else None)
        lives = self.live.get(sid, {}).values()
        self.woken[key].put(sid, live_wake(lives, None if durable is None else durable["definition"]))

    def reindex(self) -> None:
        """Rebuild the indexes from the rows, which may have been edited by hand."""
        self.due.clear()
        self.woken.clear()
        self.sending.clear()
        for sid in self.schedules.keys() | self.streams.keys():
            self.index(sid)

    def beside(self, sid: int) -> Row:
        """The columns of a schedule that are kept in other tables than its row."""
        durable = self.durable.get(sid, {})
        return self.ended.get(sid, NO_HISTORY) | {name: durable.get(name) for name in ("anchor_at", "backlog_left")}

    def page(
        self, table: LedgerTable, after: tuple[Any, ...] | None, limit: int, bounds: RowBounds
    ) -> list[tuple[Any, ...]]:
        """Rows as tuples, in the order of the table's key."""
        above_sid, upto_sid, managed_by = bounds
        shape = LEDGER_TABLES[table]
        places = [shape.columns.index(name) for name in shape.key]
        rows: Iterable[tuple[Any, ...]]
        if table == "lifecycle":
            rows = (
                (number, *_values(event, shape.columns[1:]))
                for number, event in self.lifecycle.items()
                if managed_by in (None, event.managed_by)
            )
        elif table == "zone_rules":
            rows = iter(self.zone_rules.items())
        elif table == "schedules":
            rows = (
                _with_history(row, self.beside(sid), shape.columns)
                for sid, row in self.schedules.items()
                if _within(above_sid, sid, upto_sid) and managed_by in (None, row["managed_by"])
            )
        else:
            tables: Mapping[int, Mapping[Any, Any]] = getattr(self, table)
            rows = (
                _values(record, shape.columns)
                for sid, records in tables.items()
                if _within(above_sid, sid, upto_sid)
                for record in records.values()
            )
        keyed = ((order(tuple(row[place] for place in places)), row) for row in rows)
        wanted = (pair for pair in keyed if after is None or pair[0] > order(after))
        return [row for _, row in nsmallest(limit, wanted, key=lambda pair: pair[0])]


class Transaction:
    """Writes that are all undone where the block raises. The indexes follow at its end, either way."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._touched: dict[int, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is not None:
            for table, key, before in reversed(self._undo):
                if before is None:
                    del table[key]
                else:
                    table[key] = before
        for sid in self._touched:
            self._data.index(sid)

    def touch(self, sids: Iterable[int]) -> None:
        """Mark these schedules to be indexed again."""
        self._touched.update(dict.fromkeys(sids))

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        self._undo.append((table, key, table.get(key)))
        table[key] = value

    def insert(self, table: dict[K, V], key: K, value: V) -> None:
        if key in table:
            raise StoreError(f"The memory store failed: {type(value).__name__} {key!r} exists already")
        self.put(table, key, value)

    def delete(self, table: dict[K, V], key: K) -> None:
        self._undo.append((table, key, table[key]))
        del table[key]

    def update(self, sid: int, **columns: Any) -> None:
        """Change columns of a schedule; one that does not exist is left alone."""
        row = self._data.schedules.get(sid)
        if row is not None:
            self.put(self._data.schedules, sid, row | columns)
            self._touched[sid] = None

    def put_live(self, live: LiveRun) -> None:
        self.put(self._data.live[live.sid], (live.kind, live.run_for), live)
        self._touched[live.sid] = None

    def delete_live(self, live: LiveRun) -> None:
        self.delete(self._data.live[live.sid], (live.kind, live.run_for))
        self._touched[live.sid] = None

    def end_live(self, live: LiveRun, outcome: Outcome, at: int, *, waited_us: int = 0) -> None:
        """Move a live run that will not go on to the ended ones."""
        started_at = at if live.started_at is None else live.started_at
        owner = "" if live.owner is None else live.owner
        run = Run(live.sid, live.run_for, live.kind, outcome, live.attempt, started_at, at, owner, live.epoch)
        self.add_run(replace(run, waited_us=waited_us) if waited_us else run)
        self.delete_live(live)

    def end_together(self, lives: Iterable[tuple[LiveRun, Outcome]], at: int) -> None:
        """End live runs at one instant; those of a schedule follow each other in the order of what they are for."""
        for live, outcome in sorted(lives, key=lambda pair: order((pair[0].run_for, pair[0].kind))):
            self.end_live(live, outcome, at)

    def add_run(self, run: Run) -> None:
        """Put an ended run into the ledger: it becomes the first of its schedule's history."""
        before = self._data.ended.get(run.sid, NO_HISTORY)
        prev_for, prev_manual = before["last_ended_for"], before["last_ended_manual"]
        self.insert(
            self._data.runs[run.sid],
            (run.run_for, run.kind),
            replace(run, prev_for=prev_for, prev_manual=prev_manual),
        )
        if run.sid in self._data.schedules:
            history = {
                "last_ended_for": run.run_for,
                "last_ended_manual": run.kind == "manual",
                "ended_runs": before["ended_runs"] + 1,
                "succeeded_runs": before["succeeded_runs"] + (run.outcome == "succeeded"),
            }
            self.put(self._data.ended, run.sid, history)

    def add_audits(self, audits: Iterable[AuditEvent]) -> None:
        for event in audits:
            number = self._data.counters.get("audits", 0) + 1
            self.put(self._data.counters, "audits", number)
            self.insert(self._data.audits, number, copy(event))

    def record(self, event: LifecycleEvent) -> None:
        self.insert(self._data.lifecycle, max(self._data.lifecycle, default=0) + 1, copy(event))


def in_order(table: Mapping[Any, V] | None) -> list[V]:
    """Copies of the rows by key; the caller may change them."""
    rows = sorted((table or {}).items(), key=lambda item: order(item[0]))
    return [copy(row) for _, row in rows]


def between(low: object, value: object, high: object) -> bool:
    return order(low) <= order(value) <= order(high)


def order(value: object) -> tuple[Any, ...]:
    """Compare anything with anything: nothing, then numbers, then texts, then the rest; keys part by part."""
    if isinstance(value, tuple):
        return tuple(order(part) for part in value)
    if value is None:
        return (0,)
    if isinstance(value, int | float):
        return (1, value)
    return (2, value) if isinstance(value, str) else (3, repr(value))


def _values(record: object, columns: tuple[str, ...]) -> tuple[Any, ...]:
    values = (getattr(record, column) for column in columns)
    return tuple(int(value) if isinstance(value, bool) else value for value in values)


def _with_history(row: Row, history: Row, columns: tuple[str, ...]) -> tuple[Any, ...]:
    values = (history[column] if column in history else row.get(column) for column in columns)
    return tuple(int(value) if isinstance(value, bool) else value for value in values)


def _within(above: int | None, sid: int, upto: int | None) -> bool:
    return (above is None or sid > above) and (upto is None or sid <= upto)
