"""Rate limits: a token bucket for each key and each address, which fills again with time.

A bucket holds the requests of ten seconds, so that a burst passes and a flood does not. Buckets that have been full
again for a while are dropped; the number of buckets is bounded.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MOST_BUCKETS: Final = 50_000
_BURST_SECONDS: Final = 10.0


class Buckets:
    """Token buckets by name; `per_minute` 0 disables the limit."""

    def __init__(self, per_minute: int, elapsed: Callable[[], float]) -> None:
        self._rate = per_minute / 60
        self._size = max(1.0, self._rate * _BURST_SECONDS)
        self._elapsed = elapsed
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when that was

    def take(self, name: str, tokens: float = 1.0) -> int | None:
        """Take tokens; return None if there were enough, else the seconds until there are."""
        if not self._rate:
            return None
        left = self._left(name)
        enough = left >= tokens
        self._put(name, left - tokens if enough else left)
        return None if enough else max(1, math.ceil((tokens - left) / self._rate))

    def fine(self, name: str, tokens: float) -> None:
        """Take tokens for an event that has already happened, down to zero."""
        if self._rate:
            self._put(name, max(0.0, self._left(name) - tokens))

    def _left(self, name: str) -> float:
        left, at = self._buckets.get(name, (self._size, self._elapsed()))
        return min(self._size, left + (self._elapsed() - at) * self._rate)

    def _put(self, name: str, left: float) -> None:
        self._buckets.pop(name, None)
        self._buckets[name] = left, self._elapsed()
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)  # the least recently used one is the fullest, or nearly so
