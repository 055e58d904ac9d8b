"""A store whose verbs are timed: what a service knows of how long its database takes.

`timed` puts a thin layer around a store. Each verb is passed on as it is; its time goes into a histogram of its name,
and an error is counted. The layer keeps nothing else and decides nothing.
"""

from __future__ import annotations

import inspect
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
S = TypeVar("S")


class VerbTimes:
    """A histogram of one verb, in seconds."""

    __slots__ = ("buckets", "errors", "total_seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total_seconds = 0.0
        self.errors = 0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total_seconds += seconds


class StoreTimes:
    """What was measured, by verb."""

    def __init__(self) -> None:
        self.verbs: dict[str, VerbTimes] = {}

    def of(self, verb: str) -> VerbTimes:
        return self.verbs.setdefault(verb, VerbTimes())


class _Timed:
    """Passes every verb on. One that was looked up is kept, so that it costs two readings of a clock and no more."""

    def __init__(self, store: Any, times: StoreTimes) -> None:
        self._timed_store = store
        self._timed_times = times

    def __repr__(self) -> str:
        return repr(self._timed_store)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._timed_store, name)
        if not inspect.iscoroutinefunction(found):
            return found
        verb = _timed_verb(found, self._timed_times.of(name))
        setattr(self, name, verb)
        return verb


def _timed_verb(verb: Callable[..., Awaitable[Any]], times: VerbTimes) -> Callable[..., Awaitable[Any]]:
    perf_counter = time.perf_counter

    async def call(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            return await verb(*args, **kwargs)
        except Exception:
            times.errors += 1
            raise
        finally:
            times.observe(perf_counter() - began)

    return call


def timed(store: S) -> tuple[S, StoreTimes]:
    """The same store, timed, and where its times are kept."""
    times = StoreTimes()
    return cast("S", _Timed(store, times)), times
