"""The ledger in plain dicts: the executable specification of the store.

Every verb does here, row by row and in order, what another store may do in one statement, and a verb that fails leaves
nothing behind. Values are stored as they come: a damaged one is passed on, for the reader to judge.

The data outlives its handle. `MemoryStore(data)` goes on where another store on the same data was closed or killed, as
a file is opened again; it does not outlive the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from noonbell.errors import SchedulerInUseError
from noonbell.ports import (
    BackgroundService,
    Ledger,
    LedgerAudit,
    LedgerDocuments,
    LedgerEngines,
    LedgerHistory,
    LedgerOutbox,
    LedgerRuns,
    LedgerSchedules,
    LedgerTable,
    Pruned,
    RowBounds,
)
from noonbell.store.memory import pruning
from noonbell.store.memory.audit import MemoryAudit
from noonbell.store.memory.documents import MemoryDocuments
from noonbell.store.memory.engines import MemoryEngines
from noonbell.store.memory.handle import MemoryHandle, SnapshotHandle
from noonbell.store.memory.history import MemoryHistory
from noonbell.store.memory.outbox import MemoryOutbox
from noonbell.store.memory.runs import MemoryRuns
from noonbell.store.memory.schedules import MemorySchedules
from noonbell.store.memory.tables import MemoryData, MemoryHold
from noonbell.store.snapshot import in_one_step
from noonbell.store.wrapping import without_replaced

T = TypeVar("T")


class MemoryStore:
    """A ledger in memory."""

    lease_seconds: float = 0.0
    has_shared_clock: bool = False
    clock_offset_us: int = 0

    def __init__(self, data: MemoryData | None = None) -> None:
        self.data = MemoryData() if data is None else data
        self._holds: list[MemoryHold] = []
        self._attach(MemoryHandle(self.data))

    def _attach(self, handle: MemoryHandle) -> None:
        """Build the parts on this handle."""
        self._handle = handle
        self.schedules: LedgerSchedules = MemorySchedules(handle)
        self.runs: LedgerRuns = MemoryRuns(handle)
        self.history: LedgerHistory = MemoryHistory(handle)
        self.engines: LedgerEngines = MemoryEngines(handle)
        self.outbox: LedgerOutbox = MemoryOutbox(handle)
        self.documents: LedgerDocuments = MemoryDocuments(handle)
        self.audit: LedgerAudit = MemoryAudit(handle)

    def __repr__(self) -> str:
        return f"MemoryStore({len(self.data.schedules)} schedules)"

    async def open(self) -> None:
        if not self._handle.is_open:
            self.data.reindex()
            self._handle.is_open = True

    async def close(self) -> None:
        self._handle.is_open = False

    def kill(self) -> None:
        self._handle.is_open = False
        for hold in self._holds:
            hold.release()
        self._holds.clear()

    async def hold(self, name: str, holder: str) -> MemoryHold:
        if (other := self.data.held.get(name)) is not None:
            raise SchedulerInUseError(name, other.holder)
        hold = self.data.held[name] = MemoryHold(self.data.held, name, holder)
        self._holds.append(hold)
        return hold

    async def holder(self, name: str) -> str | None:
        held = self.data.held.get(name)
        return None if held is None else held.holder

    def subscribe(self, lane: str, wake: Callable[[int], None]) -> Callable[[], None]:
        """Do nothing: memory gives no hints."""
        del lane, wake
        return lambda: None

    def services(self, lane: str, wake: Callable[[int], None]) -> Mapping[str, BackgroundService]:
        del lane, wake
        return {}

    async def snapshot(self, read: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
        self._handle.tables()
        view = without_replaced(self)
        view._attach(SnapshotHandle(self.data, is_open=True))  # noqa: SLF001 - another of this class
        return in_one_step(read(view))

    async def read(
        self,
        table: LedgerTable,
        after: tuple[Any, ...] | None,
        limit: int,
        *,
        above_sid: int | None = None,
        upto_sid: int | None = None,
        managed_by: str | None = None,
    ) -> list[tuple[Any, ...]]:
        return self._handle.tables().page(table, after, limit, RowBounds(above_sid, upto_sid, managed_by))

    async def backlog(self, now: int) -> dict[str, int]:
        data = self._handle.tables()
        rows = (row for row in data.schedules.values() if row["enabled"] == 1 and row["next_run_at"] is not None)
        states = Counter(str(live.state) for lives in data.live.values() for live in lives.values())
        messages = sorted((number, one.created_at) for kept in data.outbox.values() for number, one in kept.items())
        return {
            "due": sum(row["next_run_at"] <= now for row in rows),
            **states,
            "outbox": len(messages),
            "outbox_oldest_us": max(now - messages[0][1], 0) if messages else 0,
            "dead_letters": len(data.dead_letters),
        }

    async def prune_day(self, before: int) -> Pruned | None:
        return pruning.prune_day(self._handle, before)
