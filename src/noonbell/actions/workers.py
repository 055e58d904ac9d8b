"""Tasks that serve a queue side by side, each one item after the other.

A task for each item would cost more than a fast handler does. A worker is started for each item that waits, up to the
bound, and ends when the queue is empty. An item that takes long holds up its own worker alone.

A handler that never suspends would keep the event loop to itself: `Pace` hands it back after every so many steps.
`TimeLimit` bounds each step of a worker with one timer for all of them, which is set again only when it fires early.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# How many steps all workers together take before the event loop serves others: a few milliseconds.
_STEPS_A_TURN: Final = 256
# So long after it was cancelled a step counts as stuck.
_CLEANUP_SECONDS: Final = 5.0


class TimeLimit:
    """Cancels its task when one step takes longer than `seconds`; `expired` is the reason then.

    `on_stuck` is called where the step has not ended a while after that.
    """

    __slots__ = ("_ends_at", "_loop", "_on_stuck", "_task", "_timer", "expired", "seconds")

    def __init__(self, seconds: float, on_stuck: Callable[[], None] | None = None) -> None:
        self.seconds = seconds
        self.expired = False
        self._on_stuck = on_stuck
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._ends_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self.expired = False
        self._ends_at = self._loop.time() + self.seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._ends_at, self._check)

    def end(self) -> None:
        """End the step; the cancellation of one that took too long is taken back."""
        self._ends_at = None
        if self.expired and self._task is not None:
            self._task.uncancel()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._ends_at is None or self._task is None:
            return  # between two steps: the next one sets the timer
        if self._loop.time() < self._ends_at:
            self._timer = self._loop.call_at(self._ends_at, self._check)
        else:
            self.expired = True
            self._timer = self._loop.call_later(_CLEANUP_SECONDS, self._check_stuck, self._ends_at)
            self._task.cancel()

    def _check_stuck(self, ends_at: float) -> None:
        self._timer = None
        if self._ends_at == ends_at:
            if self._on_stuck is not None:
                self._on_stuck()
        elif self._ends_at is not None:  # a later step, which found a timer set
            self._timer = self._loop.call_at(self._ends_at, self._check)


class Pace:
    """Counts the steps of all workers, and lets the event loop serve others after every so many."""

    def __init__(self) -> None:
        self._steps = 0

    def is_due(self) -> bool:
        """Count a step; returns whether to rest after it."""
        self._steps += 1
        return self._steps >= _STEPS_A_TURN

    async def rest(self) -> None:
        # the others wait as well until the one that came first goes on, after a turn of the event loop
        first = self._steps == _STEPS_A_TURN
        try:
            await asyncio.sleep(0)
        finally:
            if first:
                self._steps = 0


class Workers(Generic[T]):
    """At most `most` tasks that call `serve` for what is added, oldest first; each step of it may take `seconds`.

    A worker whose step does not end when it is cancelled is replaced by another, and `on_stuck` called with its item.
    """

    def __init__(
        self,
        most: int,
        seconds: float,
        serve: Callable[[T, TimeLimit], Awaitable[None]],
        *,
        on_stuck: Callable[[T], None] = lambda _: None,
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.progress = 0  # how often a worker has taken an item
        self._most = most
        self._seconds = seconds
        self._serve = serve
        self._on_stuck = on_stuck
        self._queue: deque[T] = deque()

    def __len__(self) -> int:
        """Count what waits for a worker."""
        return len(self._queue)

    @property
    def first(self) -> T | None:
        """Return the item that has waited longest for a worker."""
        return self._queue[0] if self._queue else None

    def add(self, items: Iterable[T]) -> None:
        self._queue.extend(items)
        self._start()

    def withdraw(self, keep: int = 0) -> list[T]:
        """Take back what no worker has begun, the newest first, except for the oldest `keep`."""
        return [self._queue.pop() for _ in range(len(self._queue) - keep)]

    def forget(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Count these tasks no more: others may take their places."""
        self.tasks.difference_update(tasks)

    def _start(self) -> None:
        for _ in range(min(self._most - len(self.tasks), len(self._queue))):
            task = asyncio.ensure_future(self._work())
            self.tasks.add(task)
            task.add_done_callback(self._ended)

    async def _work(self) -> None:
        context, stuck = copy_context(), False
        item: T

        def on_stuck() -> None:
            nonlocal stuck
            stuck = True
            if task is not None:
                self.tasks.discard(task)
            self._on_stuck(item)
            self._start()

        task = asyncio.current_task()
        limit = TimeLimit(self._seconds, on_stuck)
        try:
            while self._queue and not stuck:
                item = self._queue.popleft()
                self.progress += 1
                await self._serve(item, limit)
                if copy_context() != context:
                    return  # what was set there must not be seen by the next: another worker goes on
        finally:
            limit.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._start()  # it may have been cancelled, or have failed
