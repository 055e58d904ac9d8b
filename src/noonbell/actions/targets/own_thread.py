"""Blocking work in a thread of its own, awaited.

The thread dies with the program: one that hangs must not keep the program from its end. It cannot be stopped either:
a caller that gives up waiting leaves it to itself, and its result is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from noonbell.errors import DeliveryError, describe_error

_T = TypeVar("_T")


async def in_own_thread(work: Callable[[], _T]) -> _T:
    """Return what the work returns, or raise what it raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        try:
            returned = work()
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it belongs to the caller
            call_in_loop(_fail, done, raised)
        else:
            call_in_loop(_hand_over, done, returned)

    def call_in_loop(how: Callable[..., None], *what: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            loop.call_soon_threadsafe(how, *what)

    threading.Thread(target=run, name="noonbell-target", daemon=True).start()
    return await done


def _hand_over(done: asyncio.Future[_T], returned: _T) -> None:
    if not done.done():
        done.set_result(returned)


def _fail(done: asyncio.Future[_T], error: BaseException) -> None:
    if done.done():
        return
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        done.set_exception(error)
    else:  # a future takes no StopIteration, and an exit of the thread does not end the program
        done.set_exception(ended_by(error))


def ended_by(error: BaseException) -> DeliveryError:
    """Return the failure of a function that raised something other than an Exception."""
    return DeliveryError("its function", f"it ended with {describe_error(error)}")
