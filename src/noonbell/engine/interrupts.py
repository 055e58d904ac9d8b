"""KeyboardInterrupt and SystemExit raised by a coroutine that runs as an action.

The run ends as failed like any other. In a program that embeds the scheduler, a KeyboardInterrupt on the main thread
then counts as Ctrl-C, so the program stops in order once the end is recorded. A service (`serve`, `worker`) calls
`contain_interrupts` when it starts: no callback stops it.

asyncio lets both out of the event loop when a task raises them, before anything can catch them. So in a service the
tasks that an action creates raise ExitInTaskError instead. In a program that embeds the scheduler the event loop is the
program's own, and such a task ends it as it would without the scheduler.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

from noonbell.errors import ExitInTaskError

T = TypeVar("T")

_in_action: ContextVar[bool] = ContextVar("noonbell_in_action", default=False)
_contained: ContextVar[bool] = ContextVar("noonbell_interrupts_contained", default=False)


def contain_interrupts() -> None:
    """Treat a KeyboardInterrupt of an action as its failure only, in this context and the tasks created from it."""
    _contained.set(True)
    asyncio.get_running_loop().set_task_factory(_create_task)


def is_contained() -> bool:
    """Return whether interrupts of actions are contained in this context."""
    return _contained.get()


def enter_action() -> None:
    """Mark the current context as that of an action, whose tasks are contained in a service."""
    if _contained.get():
        _in_action.set(True)


def _create_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
) -> asyncio.Task[T]:
    if _in_action.get() and asyncio.iscoroutine(work):
        work = _contain(work)
    return asyncio.Task(work, loop=loop, **options)


async def _contain(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        raise ExitInTaskError(error) from error


def stops_program(error: BaseException | None) -> bool:
    """Return whether an error that an action raised here asks the whole program to stop."""
    if not isinstance(error, KeyboardInterrupt) or _contained.get():
        return False
    return threading.current_thread() is threading.main_thread()


async def interrupt_after(recorded: Awaitable[None]) -> None:
    """Do what Ctrl-C does, once the end of the run is recorded."""
    await recorded
    signal.raise_signal(signal.SIGINT)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell
        raise KeyboardInterrupt
