"""Probation of runs that were executing at two deaths: one engine executes one of them at a time.

The rule is in `core.crashes`; this module applies its third step to the claims of one engine. A claim admits one run on
probation if the engine executes none, and puts off the others. All other runs are claimed as usual.

Runs that are put off come up a few at a time: a thousand of them cost a poll no more than a bunch. An engine that
executes one defers those that have just come up for a moment before it puts them off: another engine may be free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from noonbell.core.crashes import is_on_probation
from noonbell.core.records import LiveRun, Start, StoredSchedule, Turn
from noonbell.core.turns import definition_of

_STEP: Final = 20_000  # between two that are put off behind one that starts: it may end soon
_PAUSE: Final = 1_000_000  # between two bunches that are put off while one executes
_BUNCH: Final = 512
_DEFERRED: Final = 300_000

_Key = tuple[int, str, int]


class CrashProbation:
    """The run on probation that the engine executes, and the last of the wake-ups given to those that wait."""

    def __init__(self) -> None:
        self._executing: _Key | None = None
        self._last_wake_at = 0
        self._bunch = 0  # how many were put off to the last wake-up

    @property
    def is_free(self) -> bool:
        """Return whether a run on probation may start."""
        return self._executing is None

    def begin(self, live: LiveRun) -> None:
        """A run on probation is about to start."""
        self._executing = _key(live)

    def ended(self, run: Start | LiveRun) -> None:
        """A run has ended or was handed back, on probation or not."""
        if self._executing is not None and self._executing == _key(run):
            self._executing = None

    def wake_up(self, now: int) -> int:
        """Return when the next run that has to wait is to come up again."""
        if self.is_free:
            self._last_wake_at = max(self._last_wake_at, now) + _STEP
            return self._last_wake_at
        soon = (now // _PAUSE + 2) * _PAUSE
        if self._last_wake_at < soon:
            self._last_wake_at, self._bunch = soon, 0
        elif self._bunch >= _BUNCH:
            self._last_wake_at, self._bunch = self._last_wake_at + _PAUSE, 0
        self._bunch += 1
        return self._last_wake_at


class ProbationBatch:
    """The runs on probation that one claim meets: one is `admitted` at most."""

    def __init__(self, probation: CrashProbation, now: int) -> None:
        self.admitted: LiveRun | None = None
        self.kept = 0  # schedules that were deferred
        self._probation = probation
        self._now = now

    def defers(self, stored: StoredSchedule) -> bool:
        """Return whether the schedule stays due as it is: another engine may be free for a run that just came up."""
        if self._probation.is_free or all(self._now - (live.wake_at or 0) >= _DEFERRED for live in self._due(stored)):
            return False
        self.kept += 1
        return True

    def held_back(self, stored: StoredSchedule) -> list[LiveRun]:
        """Return the runs of the schedule that have to wait, each with its new wake-up."""
        return [
            replace(live, wake_at=self._probation.wake_up(self._now))
            for live in self._due(stored)
            if not self._admits(live)
        ]

    def _due(self, stored: StoredSchedule) -> Iterator[LiveRun]:
        for live in stored.lives:
            due = live.state != "running" and live.wake_at is not None and live.wake_at <= self._now
            if due and is_on_probation(live.crashes):
                self._probation.ended(live)  # what is due does not execute: it was claimed here and never launched
                yield live

    def _admits(self, live: LiveRun) -> bool:
        if self.admitted is None and self._probation.is_free:
            self.admitted = live
        # a store that begins a claim again asks for the same run twice
        return self.admitted is not None and _key(self.admitted) == _key(live)


def without(stored: StoredSchedule, held: Sequence[LiveRun]) -> StoredSchedule | Turn:
    """Return what is left to be decided of a schedule while these runs wait.

    Under overlap `allow` that is all the rest; else its runs go one after the other, and the schedule waits with them.
    """
    if definition_of(stored.columns.definition).overlap != "allow":
        return Turn(
            stored.sid, stored.cursor_at, None, stored.enabled, stored.anchor_at, stored.last_run_for,
            stored.backlog_left, stored.backlog_until, put_off=list(held),
        )  # fmt: skip
    later = {(live.kind, live.run_for): live for live in held}
    return replace(stored, lives=[later.get((live.kind, live.run_for), live) for live in stored.lives])


def _key(run: LiveRun | Start) -> _Key:
    return run.sid, run.kind, run.run_for
