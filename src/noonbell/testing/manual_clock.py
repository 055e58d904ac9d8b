"""A clock that moves only when the test advances it.

`ManualClock` is a `noonbell.ports.Clock`. Time stands still while code runs and moves between two moments of rest:
`advance` goes from one waiter to the next, in order, and lets the event loop run dry after each. Nothing ever sleeps,
so a test of a year takes as long as the work that falls due in it.

Four ways to move, as on a real machine:

- `advance`: time passes. Wall clock and elapsed time go on together.
- `jump`: the machine was suspended. Both leap at once; waits that are overdue end then, and all see the new time.
- `stall`: code has kept the event loop to itself for so long. As `jump`, but the machine was awake.
- `step`: the wall clock was set, forward or back. No time has elapsed. A wait for a wall time is a timer on
  elapsed time, as on a real machine: after a step forward it ends late, after a step back it ends early.

`new_event_loop` makes an asyncio loop whose timers follow this clock too, so that `asyncio.sleep` in the code under
test is manual as well. On any other loop use `clock.sleep`.

The loop is at rest when no callback is ready to run. Threads are not seen: use stores that work inline (`MemoryStore`,
`SqliteStore(threaded=False)`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import selectors
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVarTuple

from noonbell.core.instants import EPOCH, MICROSECOND, SECOND

_Ts = TypeVarTuple("_Ts")


# How many rounds of the loop may pass at one instant before it counts as a loop without end.
_MOST_ROUNDS: Final = 200_000
# On a loop that does not show its ready callbacks: enough rounds for any chain of callbacks that is met in practice.
_BLIND_ROUNDS: Final = 500


def microseconds(at: datetime | int) -> int:
    """An aware datetime as the engine's instant."""
    if isinstance(at, int):
        return at
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; pass an aware datetime")
    return (at - EPOCH) // MICROSECOND


class ManualClock:
    """A clock for tests; see the module's text."""

    def __init__(self, start: datetime | int) -> None:
        self._wall = microseconds(start)
        self._elapsed = 0
        self._order = 0
        self._timers: list[tuple[int, int, asyncio.AbstractEventLoop, Callable[[], object]]] = []

    def __repr__(self) -> str:
        return f"ManualClock({self.at.isoformat()})"

    # --- what the engine asks -------------------------------------------------------------------------------------

    def now(self) -> int:
        """Wall time, in microseconds since 1970."""
        return self._wall

    @property
    def at(self) -> datetime:
        """Wall time as a datetime in UTC."""
        return EPOCH + self._wall * MICROSECOND

    def elapsed(self) -> float:
        """Seconds since the clock was made; steps do not count."""
        return self._elapsed / SECOND

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        """Return when the time that is left until then has elapsed or `wakeup` is set, whichever is first."""
        if self._wall >= until or wakeup.is_set():
            await asyncio.sleep(0)
            return
        woken = asyncio.ensure_future(wakeup.wait())
        timer = self._timer(until - self._wall)
        either: tuple[asyncio.Future[Any], ...] = (woken, timer)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop was closed under us, and the wait is only being swept up
                woken.cancel()
                timer.cancel()

    async def sleep(self, seconds: float) -> None:
        """`asyncio.sleep` on this clock."""
        await self._timer(max(round(seconds * SECOND), 0))

    # --- moving ---------------------------------------------------------------------------------------------------

    async def advance(self, delta: timedelta) -> None:
        """Let time pass: each waiter wakes at its own moment, in order."""
        if delta < timedelta(0):
            raise ValueError(f"time does not go back: {delta}; to set the wall clock back use step()")
        target = self._elapsed + delta // MICROSECOND
        await self.settle()
        while (due := self._next_timer()) is not None and due <= target:
            self._move(due - self._elapsed)
            await self.settle()
        self._move(target - self._elapsed)
        await self.settle()

    async def jump(self, delta: timedelta) -> None:
        """The machine slept: time leaps, and what is overdue wakes afterwards."""
        if delta < timedelta(0):
            raise ValueError(f"a machine does not sleep for {delta}")
        await self.settle()
        self._move(delta // MICROSECOND)
        await self.settle()

    def stall(self, delta: timedelta) -> None:
        """Nothing else could run for so long; what is overdue wakes when the caller lets the loop go on."""
        if delta < timedelta(0):
            raise ValueError(f"nothing takes {delta}")
        self._move(delta // MICROSECOND)

    def step(self, delta: timedelta) -> None:
        """Set the wall clock forward or back, without time passing."""
        self._wall += delta // MICROSECOND

    async def settle(self) -> None:
        """Let the running loop go on until no callback is ready, at this instant."""
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        # While a task runs, the loop's queue holds the rest of the round and what it has called for since: if it is
        # empty, this task is the only thing left that can go on.
        for _ in range(_BLIND_ROUNDS if ready is None else _MOST_ROUNDS):
            await asyncio.sleep(0)
            if ready is not None and not ready:
                return
        if ready is not None:
            raise RuntimeError(
                f"the loop does not come to rest at {self.at.isoformat()}: callbacks keep calling callbacks"
            )

    @property
    def next_in(self) -> timedelta | None:
        """Return how long until the next waiter wakes; None without waiters."""
        due = self._next_timer()
        return None if due is None else (due - self._elapsed) * MICROSECOND

    def new_event_loop(self) -> ManualEventLoop:
        """An event loop whose timers follow this clock."""
        return ManualEventLoop(self)

    def forget(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drop the timers of a loop that will not run again."""
        self._timers = [timer for timer in self._timers if timer[2] is not loop]
        heapq.heapify(self._timers)

    def call_at(self, elapsed: int, loop: asyncio.AbstractEventLoop, fire: Callable[[], object]) -> None:
        """Call `fire` when so many microseconds have elapsed."""
        if elapsed <= self._elapsed:
            fire()
            return
        self._order += 1
        heapq.heappush(self._timers, (elapsed, self._order, loop, fire))

    def _timer(self, delta: int) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def fire() -> None:
            if not future.done():
                future.set_result(None)

        self.call_at(self._elapsed + delta, loop, fire)
        return future

    def _next_timer(self) -> int | None:
        return self._timers[0][0] if self._timers else None

    def _move(self, delta: int) -> None:
        self._wall += delta
        self._elapsed += delta
        while self._timers and self._timers[0][0] <= self._elapsed:
            heapq.heappop(self._timers)[3]()


class _Unblocking(selectors.SelectSelector):
    """A selector that never waits: on manual time nothing comes from outside."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and (timeout is None or timeout > 0):
            raise RuntimeError("nothing is ready and time stands still: what is awaited here can never happen")
        return found


class ManualEventLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on a ManualClock: `time()` is elapsed time, and timers fire as the clock is moved."""

    def __init__(self, clock: ManualClock) -> None:
        self._manual = clock
        super().__init__(_Unblocking())

    def time(self) -> float:
        return self._manual.elapsed()

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)

        def run() -> None:
            if not handle.cancelled():
                callback(*args)

        self._manual.call_at(round(when * SECOND), self, lambda: self.call_soon(run, context=context))
        return handle

    def close(self) -> None:
        if not self.is_running():
            self._manual.forget(self)
        super().close()
