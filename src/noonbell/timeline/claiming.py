"""A claim with a timeline: of what was popped, and every two seconds of what the set has lost.

1. The database claims among the popped, by key, under its own guards and locks.
2. Where the repair is ours, it claims what is overdue by two seconds, whatever the set says.
3. The true wake-ups of all of these are written to the set. Most turns name theirs; for the others, and for those that
   turned out not to be due, the database is asked.

A crash after any step leaves members in flight, which come again when their lease is over.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noonbell.core.records import AT_ONCE, StoredSchedule, Turn
from noonbell.errors import StoreError, TimelineAwayError
from noonbell.ports import Claimed, Decide, LaneClaim, Ledger, ScheduleFilter
from noonbell.store.waking import wake_times
from noonbell.timeline.redis_timeline import REPAIR_US, Popped

if TYPE_CHECKING:
    from noonbell.timeline.timeline_store import TimelineStore

logger = logging.getLogger("noonbell.timeline")

# The set holds what wakes within the horizon. The engine that fills it may have a clock that is ahead of ours: what
# comes so much later is still put by ourselves.
HORIZON_US: Final = 600_000_000
SLACK_US: Final = 300_000_000
# A due row that another transaction holds is looked at again this much later.
_LOCKED_PAUSE_US: Final = 100_000
# A set that was built so shortly before we came need not be built again.
_FRESH_US: Final = 60_000_000


def may_be_whole(until: int, now: int) -> bool:
    """Return whether a set may know all up to there. One filled further was filled by a clock that was ahead."""
    return now < until <= now + HORIZON_US + SLACK_US


class LaneState:
    """The state of the set of one lane, as far as it is known here."""

    __slots__ = ("lost_at", "owed", "repair_at", "until", "whole")

    def __init__(self, now: int) -> None:
        self.whole = False  # the set knows all that wakes up to `until`
        self.until = 0
        self.repair_at = 0
        self.owed = False  # a repair that is to be made at once
        self.lost_at = now - _FRESH_US  # the set may lack what was committed up to then

    def mark_incomplete(self, now: int) -> None:
        self.whole = False
        self.lost_at = now


class ClaimRequest(NamedTuple):
    """The arguments of an engine's claim."""

    lane: str
    owner: str
    now: int
    limit: int
    decide: Decide


class Claim:
    """One claim: of what was popped, and of what the set has lost."""

    def __init__(self, with_timeline: TimelineStore, store: Ledger, request: ClaimRequest) -> None:
        self._front = with_timeline
        self._store = store
        self._request = request
        self._turns: dict[int, tuple[StoredSchedule, Turn]] = {}

    def _watched(self, stored: StoredSchedule) -> Turn:
        turn = self._request.decide(stored)
        self._turns[stored.sid] = (stored, turn)
        return turn

    async def make(self, popped: Popped, state: LaneState, *, full_at: int) -> LaneClaim:
        made: list[LaneClaim] = []
        if popped.sids:
            made.append(await self._claim_popped(popped.sids))
        full = len(popped.sids) >= full_at
        if state.owed:
            full |= await self._repair(made, state, self._behind() if full else self._request.now)
        next_at = await self._acknowledge(popped, made) if popped.sids or self._turns else popped.next_at
        upcoming = [state.until, state.repair_at, *(at for at in (next_at, popped.next_at) if at is not None)]
        return _merged(made, full=full, next_wake_at=min(upcoming))

    async def _claim_popped(self, sids: Sequence[int]) -> LaneClaim:
        try:
            return await self._claim(len(sids), among=sids)
        except Exception:  # they would come again when their lease is over; others need not wait that long
            lane, timeline = self._request.lane, self._front.timeline
            with contextlib.suppress(TimelineAwayError):
                await self._front.reach(lane, lambda: timeline.ack(lane, dict.fromkeys(sids, self._request.now)))
            raise

    async def _claim(self, limit: int, **narrowed: Any) -> LaneClaim:
        return await self._store.runs.claim(
            self._request.lane, self._request.owner, self._request.now, limit, self._watched, **narrowed
        )

    async def _repair(self, made: list[LaneClaim], state: LaneState, upto: int) -> bool:
        """Claim what is overdue, whatever the set says; returns whether there may be more of it."""
        room = self._request.limit - sum(len(one.claimed.starts) for one in made)
        if room <= 0:
            return True
        known = len(self._turns)
        try:
            found = await self._claim(room, due_by=upto - REPAIR_US)
        except StoreError:
            if not made:
                raise
            return False  # what was claimed before must start; the repair stays owed
        made.append(found)
        state.owed = found.claimed.full
        self._front.counters.repaired += len(self._turns) - known + len(found.claimed.quarantined)
        return found.claimed.full

    def _behind(self) -> int:
        """Return how far the set has come. In a burst it pops what has been due for seconds: it has not lost the rest.

        What was left as it stands, for want of a thread, comes up over and over and says nothing about the rest.
        """
        now = self._request.now
        moved = (seen for seen, turn in self._turns.values() if turn.starts or turn.next_run_at != seen.next_run_at)
        return min((_due(seen, now) for seen in moved), default=now)

    async def _acknowledge(self, popped: Popped, made: Sequence[LaneClaim]) -> int | None:
        """Write to the set when all of these truly wake; return its smallest score.

        Nothing that fails here fails the claim, which is committed: what is not acknowledged comes again.
        """
        with_timeline, now = self._front, self._request.now
        refused = {sid for one in made for sid, _ in one.claimed.quarantined}
        times = {sid: _next(turn) for sid, (seen, turn) in self._turns.items() if _is_plain(seen, turn)}
        asked = [sid for sid in {*popped.sids, *self._turns} if sid not in times or sid in refused]
        inactive: list[int] = []
        if asked:
            try:
                true = wake_times(await self._store.schedules.find(ScheduleFilter(sids=asked)))
            except StoreError as error:
                logger.debug("%d members of the timeline are not acknowledged: %s", len(asked), error)
                true = dict.fromkeys(asked, now + _LOCKED_PAUSE_US)
            for sid in asked:
                at = true.get(sid)
                if sid not in self._turns:  # not due, or locked by another transaction: then it is polled again shortly
                    at = None if at is None else max(at, now + _LOCKED_PAUSE_US)
                    inactive += [] if sid in true else [sid]
                times[sid] = at
        with_timeline.note_inactive(inactive)
        upto = now + HORIZON_US + SLACK_US
        near = {sid: at if at is not None and at <= upto else None for sid, at in times.items()}
        try:
            return await with_timeline.reach(
                self._request.lane, lambda: with_timeline.timeline.ack(self._request.lane, near)
            )
        except TimelineAwayError:
            return now  # look again at once, without Redis


def _due(seen: StoredSchedule, now: int) -> int:
    """Return since when it is due; a run that wakes at once has no instant of its own."""
    waiting = (live.wake_at for live in seen.lives if live.state != "running")
    return min((at for at in (seen.next_run_at, *waiting) if at is not None and AT_ONCE < at <= now), default=now)


def _is_plain(seen: StoredSchedule, turn: Turn) -> bool:
    """Return whether the turn says by itself when the schedule wakes next: no live run has a say in it."""
    return not seen.lives and not turn.queued and not turn.put_off


def _next(turn: Turn) -> int | None:
    return turn.next_run_at if turn.enabled else None


def _merged(made: Sequence[LaneClaim], *, full: bool, next_wake_at: int) -> LaneClaim:
    stored: dict[int, StoredSchedule] = {}
    for one in made:
        stored.update(one.stored)
    claimed = Claimed(
        starts=[start for one in made for start in one.claimed.starts],
        looked=sum(one.claimed.looked for one in made),
        full=full,
        next_wake_at=next_wake_at,
        quarantined=[pair for one in made for pair in one.claimed.quarantined],
        locked=any(one.claimed.locked for one in made),
    )
    return LaneClaim(claimed, stored)
