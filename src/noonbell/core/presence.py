"""Presence: which engines are alive, and when their lane was polled. The one place where that is decided. Pure.

An engine is one life of one process on one lane, under a name that is never used again. It is alive for as long as that
name is held in the store, and only the store knows that: what it returns are engines that are alive. A lane is up
(`lanes_up`) when one of them has started. It is stalled (`is_stalled`) when none completed a poll within the grace.

An occurrence is missed if no poll of its lane completed between its start time, jitter included, and the grace after
it: the process was dead, frozen or suspended, its event loop blocked, or the database unreachable. So engines record
when the lane was last polled, and each stretch without a poll that is longer than the grace, as a `Gap`. What a poll
has left, because a run was in its way or there was no slot, is late and not missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from noonbell.core.records import DECLARED_OWNERS, LifecycleEvent

# The lifecycle of a lane is kept under this and its name; an engine's own name is held under the other.
LANE: Final = "lane:"
ENGINE: Final = "engine:"

# An occurrence that starts later than this after its time, without a poll between, is missed.
GRACE_US: Final = 60_000_000
GRACE_SECONDS: Final = GRACE_US / 1_000_000
# So many gaps of a lane are kept, the latest. What came before them is late, not missed.
MOST_GAPS: Final = 64

EngineState = Literal["starting", "up", "stopping"]
# Of the engine of a process: none runs, none completes a poll, or all is well.
EngineHealth = Literal["stopped", "stalled", "running"]


def lane_name(lane: str) -> str:
    """The name under which the lifecycle of a lane is kept."""
    return f"{LANE}{lane}"


def lane_key(lane: str) -> str:
    """The name of a lane among all: declared tasks are on a private lane, which goes by the name of their owner."""
    return lane if lane.startswith(DECLARED_OWNERS) else f"{LANE}{lane}"


def engine_name(instance: str) -> str:
    """The name that an engine holds for as long as it lives."""
    return f"{ENGINE}{instance}"


class EngineRecord(msgspec.Struct, frozen=True):
    """An engine as it has described itself in the store."""

    instance: str
    lane: str
    host: str
    pid: int
    version: str
    zone_data: str  # the version of the zone data it goes by
    joined_at: int
    up_since: int  # since when the lane is up, as far as this engine knows
    state: EngineState = "starting"
    load: dict[str, Any] = {}  # how busy it is, for people to see
    last_poll_at: int | None = None  # when it last completed a poll, by its own clock; written every few seconds
    seen_ago_us: int = 0  # how long ago it gave a sign of life, when it is read

    def poll_seconds_ago(self, now: int) -> float | None:
        """Return how long ago it completed a poll, as far as is recorded; None before the first one."""
        return None if self.last_poll_at is None else seconds_since(self.last_poll_at, now)


class EngineSign(msgspec.Struct, frozen=True):
    """A sign of life: what an engine writes every few seconds, and with each step of its life (`event`)."""

    instance: str
    at: int
    up_since: int
    state: EngineState
    zone_data: str = "-"
    load: dict[str, Any] = {}
    last_poll_at: int | None = None
    grace_us: int = GRACE_US
    event: LifecycleEvent | None = None


class Gap(NamedTuple):
    """A stretch without a poll of the lane: the times of the poll before it and of the poll that ended it."""

    since: int
    until: int
    grace_us: int = GRACE_US

    @property
    def missed_upto(self) -> int:
        """The latest start that is missed: the poll at the end came too late for it."""
        return self.until - self.grace_us

    def misses(self, start_at: int) -> bool:
        """Return whether no poll completed between this start and the grace after it."""
        return self.since < start_at <= self.missed_upto


class Polls(msgspec.Struct, frozen=True):
    """The polls of a lane: its last one, 0 if there was none, and the latest gaps between them, oldest first."""

    last_poll_at: int = 0
    grace_us: int = GRACE_US
    gaps: tuple[Gap, ...] = ()

    def at(self, now: int, last_poll_at: int | None = None) -> tuple[Gap, ...]:
        """The gaps up to `now`, with the one that a poll at `now` ends, if it does.

        `last_poll_at` is a poll that may not be recorded yet. Gaps that end later are those of a clock that was ahead.
        """
        gaps = self.gaps if not self.gaps or self.gaps[-1].until <= now else self._upto(now)
        last = max(self.last_poll_at, last_poll_at or 0)
        return (*gaps, Gap(last, now, self.grace_us)) if now - last > self.grace_us else gaps

    def polled(self, at: int, grace_us: int, now: int) -> Polls:
        """Return the polls after one at `at`. One that is older than the last changes nothing.

        `now` must have been read after these polls were: if it is older than the last poll by more than the grace, the
        clock was set back. A time that was read earlier would make a write that was delayed look the same.
        """
        if now < self.last_poll_at - self.grace_us:
            return Polls(min(at, now), grace_us, self._upto(now))
        return replace(self, last_poll_at=max(self.last_poll_at, at), grace_us=grace_us)

    def ended(self, gaps: Iterable[Gap], now: int) -> Polls:
        """Return the polls after some that have ended these gaps, oldest first; another poll may have ended one of them
        before.
        """
        polls = self
        for gap in gaps:
            polls = polls.polled(gap.until, gap.grace_us, now)
            if not any(gap.since < one.until and one.since < gap.until for one in polls.gaps):
                polls = replace(polls, gaps=tuple(sorted((*polls.gaps, gap)))[-MOST_GAPS:])
        return polls

    def _upto(self, at: int) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.gaps if gap.until <= at)


_decode_gaps = msgspec.json.Decoder(tuple[Gap, ...]).decode


def read_gaps(text: str) -> tuple[Gap, ...]:
    """Gaps as they are stored. A text that cannot be read counts as none: nothing is missed by it."""
    try:
        return _decode_gaps(text)
    except msgspec.MsgspecError:
        return ()


def seconds_since(poll_at: int, now: int) -> float:
    """Seconds since a poll; 0 where the clock was set back, or another engine's is ahead."""
    return max(now - poll_at, 0) / 1_000_000


def is_stalled(poll_age: float, grace_seconds: float = GRACE_SECONDS) -> bool:
    """Return whether no poll completed within the grace: what is due does not run."""
    return poll_age > grace_seconds


def health(poll_age: float | None, grace_seconds: float = GRACE_SECONDS) -> EngineHealth:
    """Return the health of an engine whose last poll was so many seconds ago; None: no engine is running."""
    if poll_age is None:
        return "stopped"
    return "stalled" if is_stalled(poll_age, grace_seconds) else "running"


def others_up(engines: Iterable[EngineRecord], lane: str, instance: str) -> bool:
    """Return whether another engine of the lane is up, and can take what `instance` leaves."""
    return any(one.lane == lane and one.state == "up" and one.instance != instance for one in engines)


def lanes_up(engines: Iterable[EngineRecord]) -> dict[str, int]:
    """The lanes of these engines, which are alive, each with the instant since when it is up.

    An engine that is starting does not count yet; one that stops counts until its last run has ended.
    """
    found: dict[str, int] = {}
    for one in engines:
        if one.state != "starting":
            found[one.lane] = min(found.get(one.lane, one.up_since), one.up_since)
    return found
