"""Threads of our own for plain functions.

Daemon threads: one that never returns must not keep the process from ending. Threads are made as they are needed, up
to the number of slots; what finds no slot waits here, and can be taken back as long as it has not started.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from noonbell.engine.interrupts import enter_action

T = TypeVar("T")

MOST_THREADS: Final = 10_000
_here = threading.local()  # `slots`: whose thread this is


def check_threads(given: object) -> None:
    """Raise ValueError unless this is None, for the default, or a number of threads."""
    if given is not None and (type(given) is not int or not 1 <= given <= MOST_THREADS):
        raise ValueError(f"threads is {given!r}; it must be a whole number from 1 to {MOST_THREADS}")


class ThreadSlots(Generic[T]):
    """Runs plain functions, each tagged with a value that comes back with its result or error."""

    def __init__(
        self,
        slots: int,
        finished: Callable[[T, object, BaseException | None], None],
        awaited_failed: Callable[[T, BaseException], None] = lambda _tag, _error: None,
    ) -> None:
        """`awaited_failed` is called on the loop with what the coroutine that a function has returned raises there."""
        self._slots = slots
        self._finished = finished
        self._awaited_failed = awaited_failed
        self._waiting: deque[tuple[T, Callable[[], object], Callable[[T], None]]] = deque()
        self._handoff: queue.SimpleQueue[tuple[T, Callable[[], object], contextvars.Context] | None]
        self._handoff = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.tasks: set[asyncio.Task[Any] | None] = set()  # of coroutines that plain functions have returned

    def is_own(self) -> bool:
        """Return whether the calling thread is one of these."""
        return getattr(_here, "slots", None) is self

    def submit(self, tag: T, function: Callable[[], object], started: Callable[[T], None]) -> None:
        """Run `function` when a slot is free; `started` is called on the loop just before."""
        self._loop = asyncio.get_running_loop()
        self._waiting.append((tag, function, started))
        self._fill()

    @property
    def free(self) -> int:
        """Return how many slots are free for what does not wait yet; below zero where more waits than can start."""
        return self._slots - self._busy - len(self._waiting)

    @property
    def waiting(self) -> int:
        """Return how many wait for a slot."""
        return len(self._waiting)

    def take_back(self) -> list[T]:
        """Take back the work that has not started, and now will not."""
        unstarted = [tag for tag, _, _ in self._waiting]
        self._waiting.clear()
        return unstarted

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._threads):
            self._handoff.put(None)
        self._threads = 0

    def _fill(self) -> None:
        while self._waiting and self._busy < self._slots:
            tag, function, started = self._waiting.popleft()
            self._busy += 1
            if self._busy > self._threads:
                self._threads += 1
                threading.Thread(target=self._work, name=f"noonbell-task-{self._threads}", daemon=True).start()
            try:
                started(tag)
            finally:  # whatever a listener raises, the slot is taken and the run must end
                self._handoff.put((tag, function, contextvars.copy_context()))

    def _work(self) -> None:
        _here.slots = self
        while (job := self._handoff.get()) is not None:
            tag, function, context = job
            result, error = context.run(self._call, tag, function)
            assert self._loop is not None  # noqa: S101 - set before anything was handed over
            with contextlib.suppress(RuntimeError):  # the loop is gone: nothing waits for the result
                self._loop.call_soon_threadsafe(self._done, tag, result, error)

    def _call(self, tag: T, function: Callable[[], object]) -> tuple[object, BaseException | None]:
        """Call a function, in the context of the engine: a service contains interrupts there."""
        assert self._loop is not None  # noqa: S101 - set before anything was handed over
        try:
            result = function()
            if inspect.iscoroutine(result):  # a plain callable that wraps an async one
                return asyncio.run_coroutine_threadsafe(self._awaited(tag, result), self._loop).result()
        except BaseException as raised:  # noqa: BLE001 - nothing is above a thread; the end belongs to the run
            return None, raised
        return result, None

    def _done(self, tag: T, result: object, error: BaseException | None) -> None:
        self._busy -= 1
        self._finished(tag, result, error)
        self._fill()

    async def _awaited(self, tag: T, coroutine: Coroutine[Any, Any, object]) -> tuple[object, BaseException | None]:
        """Return a coroutine's result and error; a SystemExit that left its task would end the event loop."""
        task = asyncio.current_task()
        self.tasks.add(task)
        enter_action()
        try:
            return await coroutine, None
        except BaseException as raised:  # noqa: BLE001 - it is the failure of the run
            self._awaited_failed(tag, raised)
            return None, raised
        finally:
            self.tasks.discard(task)
