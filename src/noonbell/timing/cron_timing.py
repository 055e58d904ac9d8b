"""The cron kind on the engine's instants: whole microseconds since 1970.

An occurrence is the start of a matching civil minute. A CronTiming is shared by all schedules of one expression and
zone, and remembers its last look: in a burst thousands of schedules ask the same question.
"""

from __future__ import annotations

from datetime import tzinfo
from functools import lru_cache

from noonbell.cron import CronExpression, DstPolicy, Zone, parse, zone_of
from noonbell.errors import CronCalculationError
from noonbell.timing.timing_protocol import SECOND, Look


class CronTiming:
    """Occurrences of one expression in one zone, in microseconds."""

    __slots__ = ("_seen", "dst", "expression", "zone")

    def __init__(self, expression: CronExpression, zone: Zone, dst: DstPolicy = "literal") -> None:
        self.expression = expression
        self.zone = zone
        self.dst = dst
        # The last look and its instant, as one tuple: engines in several threads share a timing.
        self._seen: tuple[int | None, Look] = (None, Look(None, None, None))

    def look(self, at: int) -> Look:
        """Latest, the one before it, and following, seen from `at`."""
        seen_at, look = self._seen
        if seen_at != at:
            latest = self.latest(at)
            before = None if latest is None else self.latest(latest - 1)
            look = Look(latest, before, self.following(at))
            self._seen = (at, look)
        return look

    def latest(self, at: int) -> int | None:
        """The latest occurrence at or before `at`."""
        try:
            return self.expression.previous_epoch(at // SECOND, self.zone, self.dst) * SECOND
        except CronCalculationError:
            return None

    def following(self, after: int) -> int | None:
        """The first occurrence after `after`."""
        try:
            return self.expression.next_epoch(after // SECOND, self.zone, self.dst) * SECOND
        except CronCalculationError:
            return None

    def count(self, after: int, upto: int) -> int:
        """Return how many occurrences lie after `after`, up to and including `upto`."""
        return self.expression.count_epochs(after // SECOND + 1, upto // SECOND + 1, self.zone, self.dst)

    def minute_start(self, at: int) -> int:
        """The start of the civil minute that holds `at`."""
        second = at // SECOND
        return (second - (second + self.zone.offset(second)) % 60) * SECOND


@lru_cache(maxsize=65_536)
def cron_timing(text: str, zone: tzinfo, dst: DstPolicy = "literal") -> CronTiming:
    """The timing of a text in a zone; schedules of the same text share it."""
    return CronTiming(parse(text), zone_of(zone), dst)
