"""Durations and failures of the verbs of a store, which a service reports about its database."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any, Final

from noonbell.ports import PARTS, Ledger
from noonbell.store.wrapping import verbs_of

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


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
    """The measurements by verb: `runs.claim`, `documents.find`, `snapshot`."""

    def __init__(self) -> None:
        self.verbs: dict[str, VerbTimes] = {}

    def of(self, verb: str) -> VerbTimes:
        return self.verbs.setdefault(verb, VerbTimes())


def time_verbs(store: Ledger) -> StoreTimes:
    """Time every verb of the store from now on; what reads within a snapshot counts as the snapshot."""
    times = StoreTimes()
    for name in ("", *PARTS):
        part = getattr(store, name) if name else store
        for verb, call in verbs_of(part).items():
            vars(part)[verb] = _timed(call, times.of(f"{name}.{verb}" if name else verb))
    return times


def _timed(verb: Callable[..., Awaitable[Any]], times: VerbTimes) -> Callable[..., Awaitable[Any]]:
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
