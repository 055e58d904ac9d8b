"""Runs that were executing when an engine died: they start again by and by, and hold nobody else up.

Nobody knows which of them brought the engine down. If they all started together again, a poisonous one would take its
neighbours with it, death after death, until all were given up (see `core.crashes`). So those that have died once begin
in batches: one, then two, then four and so on, each when all of the batch before have ended or stayed up for a while
(`PROBATION`); a death ends the growth, since the next engine begins with one again, and so does everybody who cleared
up after the dead one. Whoever has died twice begins alone. The next of his kind waits until he has ended; those that
have died once wait for a minute at most, since a run may take a day. So a poisonous run costs its neighbours one death
more at most, and at its last nobody is near who could be given up with it.

Those in line are looked at a few at a time, a moment apart: a thousand of them cost no more at a look than one batch.
An engine that has no place leaves those that have just come up to others for a moment, before it puts them off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from noonbell.core.records import LiveRun, Start, StoredSchedule, Turn
from noonbell.core.turns import definition_of

PROBATION: Final = 5_000_000
LONG_PROBATION: Final = 60_000_000
_STEP: Final = 20_000
_PAUSE: Final = 1_000_000
_MOST_AGAIN: Final = 512  # while none may begin, so many are looked at again together, a pause apart
_CHANCE: Final = 300_000
_FORGOTTEN: Final = 10_000_000  # so long after the end of the line nobody waits in it
_MOST_TOGETHER: Final = 4_096

_Key = tuple[int, str, int]


class Suspects:
    """The suspects that execute, how many may begin together, and where the line ends."""

    def __init__(self) -> None:
        self.line_end = 0
        self.together = 1
        self.together_again = 0  # how many wait for the end of the line, where that is a bunch of them
        self.alone: set[_Key] = set()  # those that execute and have died twice
        self._in_hand: dict[_Key, int] = {}  # until when each stands in the way of others

    def places(self, now: int) -> int:
        """How many may begin now."""
        if not self._in_hand:
            if now > self.line_end + _FORGOTTEN:
                self.together = 1  # whoever comes next is of another death
            return self.together
        if any(until > now for until in self._in_hand.values()):
            return 0
        self._in_hand.clear()
        self._grow()
        return self.together

    def begin(self, live: LiveRun, now: int) -> None:
        key = (live.sid, live.kind, live.run_for)
        self._in_hand[key] = now + (PROBATION if live.crashes == 1 else LONG_PROBATION)
        if live.crashes > 1:
            self.alone.add(key)

    def ended(self, start: Start) -> None:
        key = (start.sid, start.kind, start.run_for)
        self.alone.discard(key)
        if self._in_hand.pop(key, None) is not None and not self._in_hand:
            self._grow()

    def begin_again(self) -> None:
        """An engine has died: a poisonous run may be among those that wait now."""
        self.together = 1

    def _grow(self) -> None:
        self.together = min(2 * self.together, _MOST_TOGETHER)


class Lineup:
    """The suspects of one claim: those that are let through are `chosen`."""

    def __init__(self, suspects: Suspects, now: int) -> None:
        self.chosen: list[LiveRun] = []
        self.kept = 0  # schedules that were left to other engines
        self._suspects = suspects
        self._places = suspects.places(now)
        self._now = now

    def leaves(self, stored: StoredSchedule) -> bool:
        """Whether it stays as it is for now: another engine may have a place for what has just come up."""
        if self._places or all(self._now - (live.wake_at or 0) >= _CHANCE for live in self._due(stored)):
            return False
        self.kept += 1
        return True

    def _due(self, stored: StoredSchedule) -> Iterator[LiveRun]:
        for live in stored.lives:
            suspect = live.state == "queued" and live.cause == "orphan" and live.crashes
            if suspect and live.wake_at is not None and live.wake_at <= self._now:
                yield live

    def held_back(self, stored: StoredSchedule) -> list[LiveRun]:
        """Those of the schedule that have to wait, each with its new wake-up."""
        held = []
        for live in self._due(stored):
            if self._has_place(live):
                self.chosen.append(live)
            else:
                held.append(replace(live, wake_at=self._next_place()))
        return held

    def _has_place(self, live: LiveRun) -> bool:
        if live.crashes > 1:
            return self._places > 0 and not self.chosen and not self._suspects.alone
        return len(self.chosen) < self._places and all(other.crashes == 1 for other in self.chosen)

    def _next_place(self) -> int:
        suspects = self._suspects
        if self._places:
            suspects.line_end = max(suspects.line_end, self._now) + max(_STEP // self._places, 1)
        else:
            soon = (self._now // _PAUSE + 2) * _PAUSE  # the same for many: those that come up together may begin so
            if suspects.line_end < soon:
                suspects.line_end, suspects.together_again = soon, 0
            elif suspects.together_again >= _MOST_AGAIN:
                suspects.line_end, suspects.together_again = suspects.line_end + _PAUSE, 0
            suspects.together_again += 1
        return suspects.line_end


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
