"""The values of a decision: policies, terms and position of a schedule, and the result. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from noonbell.core.records import Cause, LiveRun, Span, Start
from noonbell.timing.quiet_hours import QuietHours
from noonbell.timing.timing_protocol import LATEST, SECOND, Timing

CatchUp = Literal["skip", "run_once", "run_all_capped"]
Overlap = Literal["coalesce", "skip", "allow"]

NOT_POLLED: Final = "not polled in time"
CAUGHT_UP: Final = "one run for all that was missed"
# A live run always has a wake-up. Where quiet hours have no end it is this one, a week before the calendar's.
FOR_GOOD: Final = LATEST - 7 * 86_400 * SECOND


class Policies(msgspec.Struct, frozen=True):
    """The policies of a schedule.

    `consumes`: any start answers for everything that is due by then, so nothing is ever missed or queued up. Declared
    tasks have it (`consuming`), with catch-up `run_once` and overlap `coalesce`.
    """

    catch_up: CatchUp = "skip"
    cap: int = 10
    overlap: Overlap = "coalesce"
    retry_vs_new: Literal["finish", "preempt"] = "finish"
    consumes: bool = False


class Terms(msgspec.Struct, frozen=True):
    """A schedule as the decision sees it.

    `every_us` is set for intervals: their next occurrence counts from the start of a run. `jitter` gives how long after
    an occurrence its start is put off.
    """

    timing: Timing
    policies: Policies = Policies()
    quiet: QuietHours = QuietHours()
    every_us: int | None = None
    jitter: Callable[[int], int] = lambda _occurrence: 0
    end_at: int | None = None
    cause: Cause = "cron"  # of the first attempt of a run

    def next_after(self, started_at: int) -> int | None:
        """Of an interval: the occurrence that counts from this start; None where it would come after the end."""
        following = started_at + (self.every_us or 0)
        return None if self.end_at is not None and following > self.end_at else following


def declared_terms(timing: Timing, retry_vs_new: Literal["finish", "preempt"]) -> Terms:
    """The terms of a declared task: one bundle of policies, but for what a retry does when an occurrence comes."""
    return Terms(timing, Policies(catch_up="run_once", retry_vs_new=retry_vs_new, consumes=True))


class Backlog(msgspec.Struct, frozen=True):
    """A capped catch-up under way: the oldest `left` occurrences are still to be fired, the rest up to `until` not."""

    left: int
    until: int


class Position(msgspec.Struct, frozen=True):
    """The position of a schedule in its history. `ran` is when its last run began and ended."""

    sid: int
    epoch: int
    cursor_at: int
    ran: tuple[int, int] | None = None
    live: LiveRun | None = None
    backlog: Backlog | None = None


class Verdicts(msgspec.Struct, frozen=True):
    """The result of a decision: spans in order, a start, the new cursor, and when to poll again.

    `live_wake_at` puts a waiting retry off. `next_run_at` is None where nothing is left to come, and from when an
    occurrence has come while a run executes or waits: its end brings the wake-up back. `caught_up`: the start stands
    for everything that was missed, be it a single occurrence. `quiet`: the first occurrence of a quiet stretch that has
    begun and is not over, and when it ends.
    """

    cursor_at: int
    next_run_at: int | None
    spans: tuple[Span, ...] = ()
    start: Start | None = None
    backlog: Backlog | None = None
    live_wake_at: int | None = None
    caught_up: bool = False
    quiet: tuple[int, int] | None = None
