"""Runs that were executing when an engine died: they start again one at a time, and hold nobody else up.

Nobody knows which of them brought the engine down. If they all started together again, a poisonous one would take its
neighbours with it, death after death, until all were given up (see `core.crashes`). So one suspect executes at a time,
and the others wait in line. After its first death a run has to stay up for a while (`PROBATION`), and the next may
begin; from its second on it has to end.

Those in line are looked at one by one, a moment apart: a thousand of them cost no more at a look than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from noonbell.core.records import LiveRun, Start, StoredSchedule, Turn
from noonbell.core.turns import definition_of

PROBATION: Final = 5_000_000
_STEP: Final = 20_000
_PAUSE: Final = 1_000_000
_NEVER: Final = 1 << 62

_Key = tuple[int, str, int]


class Suspects:
    """The suspect that executes, and where the line ends."""

    def __init__(self) -> None:
        self.line_end = 0
        self._in_hand: _Key | None = None
        self._until = 0

    def is_free(self, now: int) -> bool:
        return self._in_hand is None or now >= self._until

    def begin(self, live: LiveRun, now: int) -> None:
        self._in_hand = (live.sid, live.kind, live.run_for)
        self._until = now + PROBATION if live.crashes == 1 else _NEVER

    def ended(self, start: Start) -> None:
        if self._in_hand == (start.sid, start.kind, start.run_for):
            self._in_hand = None


class Lineup:
    """The suspects of one claim. At most one of them is let through; it is `chosen`."""

    def __init__(self, suspects: Suspects, now: int) -> None:
        self.chosen: LiveRun | None = None
        self._suspects = suspects
        self._free = suspects.is_free(now)
        self._now = now

    def held_back(self, stored: StoredSchedule) -> list[LiveRun]:
        """Those of the schedule that have to wait, each with its new wake-up."""
        held = []
        for live in stored.lives:
            if live.state != "queued" or live.cause != "orphan" or not live.crashes:
                continue
            if live.wake_at is None or live.wake_at > self._now:
                continue
            if self._free and self.chosen is None:
                self.chosen = live
            else:
                held.append(replace(live, wake_at=self._next_place()))
        return held

    def _next_place(self) -> int:
        if not self._free:
            return self._now + _PAUSE
        self._suspects.line_end = max(self._suspects.line_end, self._now) + _STEP
        return self._suspects.line_end


def without(stored: StoredSchedule, held: Sequence[LiveRun]) -> StoredSchedule | Turn:
    """What is left to be decided of a schedule while these wait.

    Under overlap `allow` that is all the rest; else its runs go one after the other, and it waits with them.
    """
    if definition_of(stored.columns.definition).overlap != "allow":
        return Turn(
            stored.sid, stored.cursor_at, None, stored.enabled, stored.anchor_at, stored.last_run_for,
            stored.backlog_left, stored.backlog_until, put_off=list(held),
        )  # fmt: skip
    later = {(live.kind, live.run_for): live for live in held}
    return replace(stored, lives=[later.get((live.kind, live.run_for), live) for live in stored.lives])
