"""A store that fails on demand.

`FaultyStore` stands in front of any store and passes every verb on, unless its `Faults` say otherwise:

- the next reads or writes fail with StoreUnavailableError, and nothing has happened;
- the next claims fail when they are about to be committed, as on a full disk: all was decided, and nothing was written;
- the next writes fail after they were committed, as when the answer of a database is lost on its way;
- every verb takes some time on a clock;
- the process dies at a named point: the store is killed, `on_crash` is called and `Crash` is raised.

The Faults object outlives the handles, so a plan may reach into the life after a restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NoReturn, TypeVar

from noonbell.core.records import (
    Attempt,
    Declaration,
    Epoch,
    Kind,
    LifecycleEvent,
    LiveRun,
    Run,
    Settlement,
    Span,
    Start,
    StoredSchedule,
    Turn,
)
from noonbell.errors import StoreUnavailableError
from noonbell.ports import Decide, Declared, Hold, LaneClaim, LedgerTable, Settled, Store
from noonbell.testing.clock import ManualClock

T = TypeVar("T")

CrashPoint = Literal[
    "before-claim", "after-claim", "before-settle", "after-settle", "before-declare", "after-declare",
    "before-record", "after-record", "before-hand-back", "after-hand-back", "before-trigger", "after-trigger",
]  # fmt: skip
Fault = Literal["read", "write", "rollback", "lost-answer"]


class Crash(BaseException):
    """The process died here."""

    def __init__(self, point: CrashPoint) -> None:
        super().__init__(point)
        self.point = point


class _RollbackError(BaseException):
    """Ends a transaction from inside; stores forgive an Exception of a single row."""


@dataclass
class Faults:
    """What goes wrong next. Counters run down as the faults happen."""

    reads: int = 0  # so many reads fail
    writes: int = 0  # so many writes fail, and nothing was written
    rollbacks: int = 0  # so many claims fail once they have decided something
    lost_answers: int = 0  # so many writes fail, and were written all the same
    latency: timedelta = timedelta(0)  # of each verb, before it and after it
    crash_at: CrashPoint | None = None
    crash_after: int = 0  # how often the point is passed before it
    on_crash: Callable[[CrashPoint], None] | None = None
    on_fault: Callable[[Fault], None] | None = None
    on_commit: Callable[[str, Any, Any], None] | None = None  # the verb, what it was asked, what it answered

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.reads = self.writes = self.rollbacks = self.lost_answers = self.crash_after = 0
        self.latency = timedelta(0)
        self.crash_at = None

    @property
    def sound(self) -> bool:
        """Whether nothing is planned to go wrong."""
        counted = self.reads or self.writes or self.rollbacks or self.lost_answers
        return not (counted or self.latency or self.crash_at)

    def fail(self, fault: Fault) -> NoReturn:
        if self.on_fault is not None:
            self.on_fault(fault)
        raise StoreUnavailableError(f"The store failed on demand ({fault})")


class FaultyStore:
    """A store in front of another one."""

    def __init__(self, store: Store, faults: Faults, clock: ManualClock) -> None:
        self.inner = store
        self.faults = faults
        self._clock = clock

    def __repr__(self) -> str:
        return f"FaultyStore({self.inner!r})"

    async def open(self) -> None:
        await self._read(self.inner.open)

    async def close(self) -> None:
        await self.inner.close()

    def kill(self) -> None:
        self.inner.kill()

    async def hold(self, name: str, holder: str) -> Hold:
        return await self.inner.hold(name, holder)

    async def holder(self, name: str) -> str | None:
        return await self._read(lambda: self.inner.holder(name))

    # --- writing --------------------------------------------------------------------------------------------------

    async def declare(self, declaration: Declaration) -> list[int]:
        return await self._write("declare", declaration, lambda: self.inner.declare(declaration))

    async def claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any) -> LaneClaim:
        return await self._write(
            "claim",
            owner,
            lambda: self._claim(lane, owner, now, limit, decide, **narrowed),
            lambda claim: bool(claim.claimed.starts),
        )

    async def _claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any) -> LaneClaim:
        if self.faults.rollbacks == 0:
            return await self.inner.claim(lane, owner, now, limit, decide, **narrowed)

        def decide_in_vain(stored: StoredSchedule) -> Turn:
            decide(stored)
            raise _RollbackError

        try:
            return await self.inner.claim(lane, owner, now, limit, decide_in_vain, **narrowed)
        except _RollbackError:
            self.faults.rollbacks -= 1
            self.faults.fail("rollback")

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        return await self._write("settle", settlements, lambda: self.inner.settle(settlements))

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        await self._write("hand-back", starts, lambda: self.inner.hand_back(starts, owner, now))

    async def trigger(self, sid: int, owner: str, now: int) -> Start | None:
        return await self._write("trigger", sid, lambda: self.inner.trigger(sid, owner, now))

    async def record(self, event: LifecycleEvent) -> None:
        await self._write("record", event, lambda: self.inner.record(event))

    # --- reading --------------------------------------------------------------------------------------------------

    async def read_declared(self, managed_by: str) -> Declared:
        return await self._read(lambda: self.inner.read_declared(managed_by))

    async def owned(self, owner: str) -> list[LiveRun]:
        return await self._read(lambda: self.inner.owned(owner))

    async def deleted_among(self, sids: Sequence[int]) -> set[int]:
        return await self._read(lambda: self.inner.deleted_among(sids))

    async def schedules(self, managed_by: str | None = None) -> list[Mapping[str, Any]]:
        return await self._read(lambda: self.inner.schedules(managed_by))

    async def declared_tasks(self) -> list[Mapping[str, Any]]:
        return await self._read(self.inner.declared_tasks)

    async def epochs(self, sid: int) -> list[Epoch]:
        return await self._read(lambda: self.inner.epochs(sid))

    async def spans(self, sid: int, from_at: int, to_at: int) -> list[Span]:
        return await self._read(lambda: self.inner.spans(sid, from_at, to_at))

    async def runs(self, sid: int, from_at: int, to_at: int, kind: Kind | None = None) -> list[Run]:
        return await self._read(lambda: self.inner.runs(sid, from_at, to_at, kind))

    async def live(self, sid: int) -> list[LiveRun]:
        return await self._read(lambda: self.inner.live(sid))

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        return await self._read(lambda: self.inner.attempts(sid, from_at, to_at))

    async def lifecycle(self, managed_by: str) -> list[LifecycleEvent]:
        return await self._read(lambda: self.inner.lifecycle(managed_by))

    async def read_ledger(
        self,
        table: LedgerTable,
        after: tuple[Any, ...] | None,
        limit: int,
        *,
        above_sid: int | None = None,
        upto_sid: int | None = None,
    ) -> list[tuple[Any, ...]]:
        return await self._read(
            lambda: self.inner.read_ledger(table, after, limit, above_sid=above_sid, upto_sid=upto_sid)
        )

    # --- going wrong ----------------------------------------------------------------------------------------------

    async def _read(self, verb: Callable[[], Awaitable[T]]) -> T:
        await self._pass_time()
        if self.faults.reads > 0:
            self.faults.reads -= 1
            self.faults.fail("read")
        return await verb()

    async def _write(
        self,
        name: str,
        asked: object,
        verb: Callable[[], Awaitable[T]],
        changes: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """One write. `changes` says of its answer whether it wrote anything that a crash could cut off."""
        faults = self.faults
        await self._pass_time()
        self._crash_here(f"before-{name}")
        if faults.writes > 0:
            faults.writes -= 1
            faults.fail("write")
        answer = await verb()
        if faults.on_commit is not None:
            faults.on_commit(name, asked, answer)
        if changes(answer):
            self._crash_here(f"after-{name}")
        if faults.lost_answers > 0:
            faults.lost_answers -= 1
            faults.fail("lost-answer")
        await self._pass_time()
        return answer

    async def _pass_time(self) -> None:
        if self.faults.latency:
            await self._clock.sleep(self.faults.latency.total_seconds())

    def _crash_here(self, point: str) -> None:
        faults = self.faults
        if faults.crash_at != point:
            return
        if faults.crash_after > 0:
            faults.crash_after -= 1
            return
        where, faults.crash_at = faults.crash_at, None
        self.inner.kill()
        if faults.on_crash is not None:
            faults.on_crash(where)
        raise Crash(where)
