"""CPU-bound work of requests: outside of the event loop, one piece at a time, and few waiting for each key.

Work above 50 ms belongs here: on the loop it would delay runs and all other requests. It runs in a thread
(`in_thread`), or in a process if it may take seconds (`api/helper.py`). One piece at a time, because threads share one
interpreter lock with the loop. A client that disconnects does not free its place: the work goes on to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, ParamSpec, TypeVar

from fastapi import FastAPI

from noonbell.access import Caller
from noonbell.api.problems import ProblemError

P = ParamSpec("P")
T = TypeVar("T")

_RETRY_SECONDS: Final = 2
_SWITCH_SECONDS: Final = 0.000_5


class Offload:
    """The heavy work of one service."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)
        self._of_key: Counter[str] = Counter()

    async def run(self, caller: Caller, work: Callable[[], Awaitable[T]], *, most: int, what: str) -> T:
        """Await the work when its turn comes. 429 where the key has `most` pieces waiting or under way."""
        who = caller.key_id or caller.actor
        if self._of_key[who] >= most:
            raise ProblemError(
                429, f"Another {what} of this key is being read; send one after the other", kind="too-many-requests",
                headers={"Retry-After": str(_RETRY_SECONDS)},
            )  # fmt: skip
        self._of_key[who] += 1

        async def in_turn() -> T:
            async with self._turn:
                return await work()

        task = asyncio.ensure_future(in_turn())
        task.add_done_callback(lambda _: self._done(who))
        return await asyncio.shield(task)

    def _done(self, who: str) -> None:
        self._of_key[who] -= 1
        if not self._of_key[who]:
            del self._of_key[who]


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a thread that gives way to the event loop."""
    with _courteous():
        return await asyncio.to_thread(function, *args, **kwargs)


@contextlib.contextmanager
def _courteous() -> Iterator[None]:
    """Let the event loop have the interpreter lock soon, and collect no garbage among millions of small objects.

    A full collection would stop the loop for 100 ms. The usual switch interval of 5 ms is paid several times by each
    request, because threads of the store answer it.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        sys.setswitchinterval(usual)


def offload_of(app: FastAPI) -> Offload:
    """The one of an application; made when it is first needed, on the loop that serves it."""
    if not hasattr(app.state, "offload"):
        app.state.offload = Offload()
    found: Offload = app.state.offload
    return found
