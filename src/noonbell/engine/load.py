"""The load of an engine, for people who compare several of them: its starts of a minute, and how late they were."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from noonbell.engine.metrics import BOUNDS, Metrics

_WINDOW_SECONDS: Final = 60.0


class LoadMeter:
    """Compares what an engine has counted with what it had counted a minute ago."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._marks: deque[tuple[float, int, tuple[int, ...]]] = deque()

    def read(self, elapsed: float) -> dict[str, Any]:
        """Starts of the last minute, and how late they were: the bound below which so many of them lie."""
        lateness = self._metrics.start_lateness
        mark = (elapsed, self._metrics.started, tuple(lateness.buckets))
        self._marks.append(mark)
        while len(self._marks) > 2 and elapsed - self._marks[1][0] >= _WINDOW_SECONDS:
            self._marks.popleft()
        since = self._marks[0] if len(self._marks) > 1 else (elapsed, 0, (0,) * len(mark[2]))
        counts = [after - before for after, before in zip(mark[2], since[2], strict=True)]
        return {
            "started_per_minute": mark[1] - since[1],
            "late_p50_seconds": _bound(counts, 0.5, lateness.max_seconds),
            "late_p99_seconds": _bound(counts, 0.99, lateness.max_seconds),
        }


def _bound(counts: list[int], share: float, longest: float) -> float | None:
    wanted, passed = share * sum(counts), 0
    if not wanted:
        return None
    for count, bound in zip(counts, BOUNDS, strict=False):
        passed += count
        if passed >= wanted:
            return min(bound, round(longest, 6))
    return round(longest, 6)
