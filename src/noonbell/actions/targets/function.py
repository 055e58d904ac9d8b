"""A function of the program as a target."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from noonbell.actions.targets.own_thread import ended_by, in_own_thread


class Function:
    """A function that is given the CloudEvent as a dict: an `async def` on the event loop, any other in a thread.

    A thread cannot be stopped: a delivery that is given up goes on in it, and its end is not waited for.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - whether the call of an object is async is the question
        )

    def __repr__(self) -> str:
        return f"Function({getattr(self._function, '__qualname__', repr(self._function))})"

    async def deliver(self, body: str) -> None:
        """Call the function. A SystemExit or another BaseException is a failed delivery, and ends nothing else."""
        event = msgspec.json.decode(body)
        if not self._is_async:
            await in_own_thread(lambda: self._call(event))
            return
        try:
            await self._function(event)
        except (Exception, asyncio.CancelledError, GeneratorExit):  # the last where the coroutine itself is closed
            raise
        except BaseException as error:
            raise ended_by(error) from error

    def _call(self, event: dict[str, Any]) -> None:
        returned = self._function(event)
        if inspect.iscoroutine(returned):
            returned.close()
            raise TypeError("it returned a coroutine, which is not awaited in a thread; register an async def")

    async def close(self) -> None:
        """Do nothing: nothing is open."""
