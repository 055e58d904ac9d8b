"""Metrics of an engine: how late runs start, and how fast interrupted ones are restarted."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from typing import Any, Final

logger = logging.getLogger("noonbell.engine")

BOUNDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 3600.0)


class Lateness:
    """A histogram of delays in seconds."""

    def __init__(self, what: str, threshold_seconds: float) -> None:
        self._what = what
        self._threshold = threshold_seconds
        self.count = 0
        self.total_seconds = 0.0
        self.max_seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    def observe(self, seconds: float, task: str) -> None:
        self.count += 1
        self.total_seconds += seconds
        self.max_seconds = max(self.max_seconds, seconds)
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        if seconds > self._threshold:
            logger.warning("%s of %s is late by %.1f s", self._what, task, seconds, extra={"noonbell": {"task": task}})

    def summary(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "mean_seconds": round(self.total_seconds / self.count, 6) if self.count else None,
            "max_seconds": round(self.max_seconds, 6),
            "buckets": dict(zip([*map(str, BOUNDS), "more"], self.buckets, strict=True)),
        }


class Metrics:
    """Counters and distributions of one engine."""

    def __init__(self, late_threshold_seconds: float = 60.0) -> None:
        self.polls = 0
        self.looked = 0
        self.started = 0
        self.succeeded = 0
        self.failed = 0
        self.stale = 0
        self.store_errors = 0
        self.poll_gaps = 0  # stretches without a poll of the lane that were longer than the grace
        self.poll_gap_seconds = 0.0
        self.start_lateness = Lateness("The start", late_threshold_seconds)
        self.recovery = Lateness("The restart", late_threshold_seconds)
        self.slot_wait = Lateness("A free slot", math.inf)

    def summary(self) -> dict[str, Any]:
        names = ("polls", "looked", "started", "succeeded", "failed", "stale", "store_errors", "poll_gaps")
        return {
            **{name: getattr(self, name) for name in names},
            "poll_gap_seconds": round(self.poll_gap_seconds, 6),
            "start_lateness": self.start_lateness.summary(),
            "recovery": self.recovery.summary(),
            "slot_wait": self.slot_wait.summary(),
        }
