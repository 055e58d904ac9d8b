"""Separate threads for look-ups by the system's resolver.

The resolver blocks, and a name server may take as long as it likes to answer. In the threads that an event loop has for
everything, a few such names would keep all others waiting, and whatever else is done there. So there are threads for
nothing but this, made as they are needed. They are daemons: a look-up that is not awaited any more does not keep the
process from ending. A look-up that is cancelled before it began is withdrawn.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_IDLE_SECONDS: Final = 30.0


class ResolverThreads:
    """Runs plain functions in daemon threads, at most `most` at once; the others wait for their turn."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = 0
        self._idle = 0

    async def ask(self, question: Callable[[], T]) -> T:
        """Return what `question` returns, or raise what it raises."""
        answer: Future[T] = Future()
        with self._changed:
            self._waiting.append((answer, question))
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name="noonbell-look-up", daemon=True).start()
        return await asyncio.wrap_future(answer)

    def _work(self) -> None:
        while (asked := self._next()) is not None:
            answer, question = asked
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                found = question()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
                answer.set_exception(error)
            else:
                answer.set_result(found)

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """The next question; None where none came for a while, and this thread ends."""
        with self._changed:
            if not self._waiting:
                self._idle += 1
                self._changed.wait_for(lambda: bool(self._waiting), _IDLE_SECONDS)
                self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None
