"""A store that fails on demand.

`FaultyStore` wraps any store and passes every verb on, unless its `Faults` say otherwise:

- the next reads or writes fail with StoreUnavailableError, and nothing has happened;
- the next claims fail when they are about to be committed, as on a full disk: all was decided, and nothing was written;
- the next writes fail after they were committed, as when the answer of a database is lost on its way;
- every verb takes some time on a clock;
- the process dies at a named point: the store is killed, `on_crash` is called and `Crash` is raised.

The Faults object outlives the handles, so a plan may reach into the life after a restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, NoReturn, TypeVar

from noonbell.core.records import StoredSchedule, Turn
from noonbell.errors import StoreUnavailableError
from noonbell.ports import Decide, LaneClaim, Ledger, LedgerTable, Pruned
from noonbell.store.wrapping import LedgerWrapper, verbs_of, with_verbs
from noonbell.testing.manual_clock import ManualClock

P = TypeVar("P")
T = TypeVar("T")

CrashPoint = Literal[
    "before-claim", "after-claim", "before-settle", "after-settle", "before-declare", "after-declare",
    "before-hand-back", "after-hand-back", "before-trigger", "after-trigger",
]  # fmt: skip
Fault = Literal["read", "write", "rollback", "lost-answer"]

# The verbs that write, by part; all others read.
_WRITES: Final[Mapping[str, frozenset[str]]] = {
    "schedules": frozenset(("declare", "apply")),
    "runs": frozenset(("claim", "settle", "hand_back", "trigger", "ask")),
    "engines": frozenset(("join", "beat", "leave", "record_gaps", "rescue")),
    "outbox": frozenset(("post", "claim", "settle", "resolve")),
    "documents": frozenset(("write",)),
}


class Crash(BaseException):
    """The process died here."""

    def __init__(self, point: CrashPoint) -> None:
        super().__init__(point)
        self.point = point


class _RollbackError(BaseException):
    """Ends a transaction from inside; stores forgive an Exception of a single row."""


@dataclass
class Faults:
    """The faults to come. Counters run down as the faults happen."""

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
        """Return whether nothing is planned to go wrong."""
        counted = self.reads or self.writes or self.rollbacks or self.lost_answers
        return not (counted or self.latency or self.crash_at)

    def fail(self, fault: Fault) -> NoReturn:
        if self.on_fault is not None:
            self.on_fault(fault)
        raise StoreUnavailableError(f"The store failed on demand ({fault})")


class FaultyStore(LedgerWrapper):
    """A store in front of another one."""

    def __init__(self, store: Ledger, faults: Faults, clock: ManualClock) -> None:
        super().__init__(store)
        self.inner = store
        self.faults = faults
        self._clock = clock
        self.schedules = self._faulty("schedules", store.schedules)
        self.runs = with_verbs(self._faulty("runs", store.runs), {"claim": self._claim})
        self.history = self._faulty("history", store.history)
        self.engines = self._faulty("engines", store.engines)
        self.outbox = self._faulty("outbox", store.outbox)
        self.documents = self._faulty("documents", store.documents)
        self.audit = self._faulty("audit", store.audit)

    def __repr__(self) -> str:
        return f"FaultyStore({self.inner!r})"

    def _faulty(self, name: str, part: P) -> P:
        writes = _WRITES.get(name, frozenset())
        verbs = verbs_of(part)
        return with_verbs(
            part,
            {
                verb: self._writing(_named(name, verb), call) if verb in writes else self._reading(call)
                for verb, call in verbs.items()
            },
        )

    def _reading(self, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def read(*args: Any, **more: Any) -> Any:
            return await self._read(lambda: verb(*args, **more))

        return read

    def _writing(self, name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def write(*args: Any, **more: Any) -> Any:
            asked = args[0] if args else None
            return await self._write(name, asked, lambda: verb(*args, **more))

        return write

    # --- what belongs to no part ----------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._read(super().open)

    async def holder(self, name: str) -> str | None:
        return await self._read(lambda: self.inner.holder(name))

    async def snapshot(self, read: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
        return await self._read(lambda: self.inner.snapshot(read))

    async def read(self, table: LedgerTable, *given: Any, **bounds: Any) -> list[tuple[Any, ...]]:
        return await self._read(lambda: self.inner.read(table, *given, **bounds))

    async def backlog(self, now: int) -> dict[str, int]:
        return await self._read(lambda: self.inner.backlog(now))

    async def prune_day(self, before: int) -> Pruned | None:
        return await self._write("prune-day", before, lambda: self.inner.prune_day(before))

    # --- claiming -------------------------------------------------------------------------------------------------

    async def _claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any) -> LaneClaim:
        return await self._write(
            "claim",
            owner,
            lambda: self._claim_or_roll_back(lane, owner, now, limit, decide, **narrowed),
            lambda claim: bool(claim.claimed.starts),
        )

    async def _claim_or_roll_back(
        self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any
    ) -> LaneClaim:
        runs = self.inner.runs
        if self.faults.rollbacks == 0:
            return await runs.claim(lane, owner, now, limit, decide, **narrowed)

        def decide_in_vain(stored: StoredSchedule) -> Turn:
            decide(stored)
            raise _RollbackError

        try:
            return await runs.claim(lane, owner, now, limit, decide_in_vain, **narrowed)
        except _RollbackError:
            self.faults.rollbacks -= 1
            self.faults.fail("rollback")

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


def _named(part: str, verb: str) -> str:
    """Return what crash points and `on_commit` call a verb: those of runs and declarations go by their own name."""
    plain = part == "runs" or (part, verb) == ("schedules", "declare")
    return (verb if plain else f"{part}-{verb}").replace("_", "-")
