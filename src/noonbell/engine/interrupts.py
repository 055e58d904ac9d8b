"""KeyboardInterrupt raised by a coroutine that runs as an action.

The run ends as failed like any other. In a program that embeds the scheduler, a KeyboardInterrupt on the main thread
then counts as Ctrl-C, so the program stops in order once the end is recorded. A service (`serve`, `worker`) calls
`contain_interrupts` when it starts: no callback stops it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable
from contextvars import ContextVar

_contained: ContextVar[bool] = ContextVar("noonbell_interrupts_contained", default=False)


def contain_interrupts() -> None:
    """Treat a KeyboardInterrupt of an action as its failure only, in this context and the tasks created from it."""
    _contained.set(True)


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
