"""The time limit of tests: a safety net of minutes, never a measurement.

A test waits for an event, or polls until something is so; it ends as soon as that has happened. The limit is there for
the case that it never happens, so that a test fails instead of hanging. It has to be longer than the slowest machine
takes under load. Where a timeout is the thing under test, it is a number of that test.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

PATIENCE_SECONDS: Final = 300.0
PATIENCE_MS: Final = PATIENCE_SECONDS * 1000
_POLL_SECONDS: Final = 0.02

T = TypeVar("T")


async def until(is_so: Callable[[], bool | Awaitable[bool]]) -> None:
    """Poll until a condition, sync or async, is true; raises TimeoutError after PATIENCE_SECONDS."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = is_so()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(_POLL_SECONDS)


async def patiently(ask: Callable[[], Awaitable[T]], *errors: type[Exception]) -> T:
    """The result of an operation; one that fails with these errors because this machine is slow is tried again."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await ask()
            except errors:
                await asyncio.sleep(_POLL_SECONDS)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Poll until a condition is true, in a test without an event loop; raises TimeoutError after PATIENCE_SECONDS."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"not so after {PATIENCE_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
