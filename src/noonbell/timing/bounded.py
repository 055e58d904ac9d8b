"""A timing that is heard only from a start to an end, both included."""

from __future__ import annotations

from noonbell.errors import BoundsInvalidError
from noonbell.timing.timing_protocol import EARLIEST, LATEST, Look, Timing


class Bounded:
    """The occurrences of `timing` in [start_at, end_at]; None leaves that side open."""

    __slots__ = ("_high", "_low", "timing")

    def __init__(self, timing: Timing, start_at: int | None = None, end_at: int | None = None) -> None:
        if start_at is not None and end_at is not None and end_at < start_at:
            raise BoundsInvalidError(start_at, end_at)
        self.timing = timing
        self._low = EARLIEST if start_at is None else max(start_at, EARLIEST)
        self._high = LATEST if end_at is None else min(end_at, LATEST)

    def latest(self, at: int) -> int | None:
        """The latest occurrence at or before `at`."""
        if at < self._low:
            return None
        return self._not_before_start(self.timing.latest(min(at, self._high)))

    def following(self, after: int) -> int | None:
        """The first occurrence after `after`."""
        if after >= self._high:
            return None
        return self._not_after_end(self.timing.following(max(after, self._low - 1)))

    def count(self, after: int, upto: int) -> int:
        """Return how many occurrences lie after `after`, up to and including `upto`."""
        low, high = max(after, self._low - 1), min(upto, self._high)
        return self.timing.count(low, high) if low < high else 0

    def look(self, at: int) -> Look:
        """Latest, the one before it, and following, seen from `at`."""
        if at < self._low:
            return Look(None, None, self.following(at))
        latest, before, following = self.timing.look(min(at, self._high))
        return Look(
            self._not_before_start(latest),
            self._not_before_start(before),
            self._not_after_end(following),
        )

    def _not_before_start(self, found: int | None) -> int | None:
        return found if found is not None and found >= self._low else None

    def _not_after_end(self, found: int | None) -> int | None:
        return found if found is not None and found <= self._high else None
