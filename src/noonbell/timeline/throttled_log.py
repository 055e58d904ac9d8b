"""Counters of a timeline, and its log of members that do not belong there: one line at once, then one a minute."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

logger = logging.getLogger("noonbell.timeline")

_AGAIN_SECONDS: Final = 60.0
_MOST_NAMED: Final = 5


class Counters:
    """Counts of events since the process began."""

    __slots__ = ("built", "dropped", "errors", "popped", "repaired", "up")

    def __init__(self) -> None:
        self.popped = 0  # members that were taken, because they were due
        self.repaired = 0  # schedules that the database found, and the set had not brought up
        self.dropped = 0  # members that are not ids, or not active schedules
        self.built = 0  # how often the set was rebuilt
        self.errors = 0
        self.up = False

    def summary(self) -> dict[str, int]:
        return {name: int(getattr(self, name)) for name in sorted(self.__slots__)}


class ThrottledLog:
    """A line of the log that may come up thousands of times a second, and is written once a minute."""

    def __init__(self, level: int, message: str) -> None:
        self._level = level
        self._message = message
        self._at: float | None = None
        self._kept = 0

    def report(self, found: Collection[Any], now: float) -> None:
        """`now` is on a clock that only goes on."""
        self._kept += len(found)
        if self._at is not None and now - self._at < _AGAIN_SECONDS:
            return
        named = ", ".join(repr(one)[:60] for one in list(found)[:_MOST_NAMED])
        logger.log(self._level, self._message, self._kept, named)
        self._at, self._kept = now, 0
