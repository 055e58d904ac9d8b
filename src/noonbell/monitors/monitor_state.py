"""The state machine of a heartbeat monitor. Pure: time and pings come in, flips come out.

The states:

- `new`: no ping has come yet, and none is due. A monitor may be made long before its job is.
- `up`: the last ping was good, and the next one is not due yet, or the job is running.
- `late`: a ping was due and has not come; the grace runs.
- `down`: the grace is over, the job said that it failed, or it began and did not end in time.
- `paused`: a user has switched it off. Pings are noted, and nothing is concluded.

The rules:

1. A success makes `new`, `late` and `down` into `up`. A start does so with `new` and `late`: the job is alive; what is
   down stays down until something has ended well. A failure makes anything `down`. A log entry changes nothing.
2. After a sign of life at `t` the next ping is due at the first occurrence after `t` (cron) or at `t` + the interval.
   From then on the monitor is `late`, and after the grace `down`. On a cron rhythm a ping that comes up to EARLY_US
   before an occurrence is the one of that occurrence: clocks of two machines are never quite the same.
3. While a run is open (it has started and not ended) nothing else is due; it has to end within `max_run_us`, or else
   the monitor is `down` and the run is forgotten.
4. Pings may overtake each other. A start does not open a run that has ended: one of the same name, or, without a name,
   one that began before the last end. An end that is older than the last one decides nothing.
5. A monitor is not down because pings could not be received: where a deadline passed before `watched_from`, the one of
   being late or the one of being down, the monitor is not down before that moment and the grace.
6. A clock that was ahead is not believed: a ping that comes more than AHEAD_US before what was noted takes it back to
   its own moment.

Every flip is at the instant at which it became true, which may be before the moment when it was noticed, but never
before the flip that precedes it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from noonbell.cron import DstPolicy
from noonbell.timing import IntervalTiming, Timing, cron_timing, parse_interval
from noonbell.timing.timing_protocol import SECOND

Status = Literal["new", "up", "late", "down", "paused"]
PingKind = Literal["start", "success", "fail", "log"]

EARLY_US: Final = 10 * SECOND
# Pings that are handled out of order lie closer together than this.
AHEAD_US: Final = 60 * SECOND
# More open runs than this are not kept apart: the oldest is forgotten.
MOST_RUNNING: Final = 20
# So many ended runs are remembered by name, for starts that come after their end.
_ENDED_KEPT: Final = 20
# Without grace, and without a word about how long a run may take, it would be over as it begins.
_SHORTEST_RUN: Final = 60 * SECOND


class PingSchedule(msgspec.Struct, frozen=True):
    """When pings are due, and how patiently they are waited for."""

    type: Literal["cron", "interval"]
    spec: str
    timezone: str
    dst: DstPolicy
    grace_us: int
    max_run_us: int | None  # None: as long as the grace, and a minute at least

    @property
    def longest_run_us(self) -> int:
        return max(self.grace_us, _SHORTEST_RUN) if self.max_run_us is None else self.max_run_us

    def due_after(self, at: int) -> int | None:
        """When the ping after a sign of life at `at` is due; None where the calendar ends before."""
        if self.type == "interval":
            return IntervalTiming(at, _interval_us(self.spec)).following(at)
        return _cron(self.spec, self.timezone, self.dst).following(at + EARLY_US)


@lru_cache(maxsize=8_192)
def _interval_us(spec: str) -> int:
    return parse_interval(spec) * SECOND


@lru_cache(maxsize=8_192)
def _cron(spec: str, timezone: str, dst: DstPolicy) -> Timing:
    return cron_timing(spec, ZoneInfo(timezone), dst)


class Running(msgspec.Struct, frozen=True):
    """A run of the job that has started and not ended. `run` is what the job calls it, and may be empty."""

    run: str
    since: int
    counted_from: int | None = None  # where the rhythm was changed while it ran

    def over_at(self, rhythm: PingSchedule) -> int:
        """When it has to have ended."""
        return (self.since if self.counted_from is None else self.counted_from) + rhythm.longest_run_us


class State(msgspec.Struct, frozen=True):
    """The state of a monitor."""

    status: Status
    since: int
    reason: str = ""
    counted_from: int | None = None  # the sign of life from which the next ping is counted
    running: tuple[Running, ...] = ()
    ended: tuple[str, ...] = ()  # names of the runs that ended last
    ended_at: int | None = None  # the latest end that was received
    spared_until: int | None = None  # not down before: see rule 5
    last_ping_at: int | None = None
    last_kind: PingKind | None = None


class PingFact(msgspec.Struct, frozen=True):
    """A ping, as far as it matters here."""

    at: int
    kind: PingKind
    run: str = ""
    exit_code: int | None = None


class Flip(msgspec.Struct, frozen=True):
    """A change of the status, and how long the one before had lasted."""

    at: int
    was: Status
    status: Status
    reason: str
    lasted_us: int


class Change(NamedTuple):
    """A state, and the flips that led to it."""

    state: State
    flips: tuple[Flip, ...] = ()


class Deadlines(NamedTuple):
    """The times at which the monitor will be late and down unless a ping comes; None where that cannot be."""

    late_at: int | None
    down_at: int | None

    @property
    def next_at(self) -> int | None:
        return min((at for at in self if at is not None), default=None)


def deadlines(rhythm: PingSchedule, state: State) -> Deadlines:
    if state.status not in ("up", "late"):
        return Deadlines(None, None)
    if state.running:
        late_at, down_at = None, min(run.over_at(rhythm) for run in state.running)
    else:
        due_at = None if state.counted_from is None else rhythm.due_after(state.counted_from)
        if due_at is None:
            return Deadlines(None, None)
        late_at, down_at = due_at, due_at + rhythm.grace_us
    if state.spared_until is not None:
        down_at = max(down_at, state.spared_until)
    if late_at is not None and (state.status == "late" or late_at >= down_at):
        late_at = None
    return Deadlines(late_at, down_at)


# --- time passes ------------------------------------------------------------------------------------------------------


def passed(rhythm: PingSchedule, state: State, now: int, watched_from: int | None = None) -> Change:
    """Return the state after the time up to `now`, with the flips on the way."""
    late_at, down_at = deadlines(rhythm, state)
    if down_at is None:
        return Change(state)
    if watched_from is not None and (down_at if late_at is None else late_at) < watched_from:
        state = msgspec.structs.replace(state, spared_until=watched_from + rhythm.grace_us)
        late_at, down_at = deadlines(rhythm, state)
        assert down_at is not None  # noqa: S101 - sparing puts a deadline off and takes none away; for mypy
    flips: list[Flip] = []
    if late_at is not None and late_at <= now:
        state = _flipped(state, "late", late_at, "no ping when one was due", flips)
    if down_at <= now:
        if state.running:
            open_still = tuple(run for run in state.running if run.over_at(rhythm) > down_at)
            state = msgspec.structs.replace(state, running=open_still)
            reason = "a run did not end in time"
        else:
            reason = "no ping within the grace"
        state = _flipped(state, "down", down_at, reason, flips)
    return Change(state, tuple(flips))


def _flipped(state: State, status: Status, at: int, reason: str, flips: list[Flip]) -> State:
    at = max(at, state.since)  # a clock that was set back does not turn history round
    flips.append(Flip(at, state.status, status, reason, at - state.since))
    spared_until = state.spared_until if status == "late" else None
    return msgspec.structs.replace(state, status=status, since=at, reason=reason, spared_until=spared_until)


# --- a ping arrives ---------------------------------------------------------------------------------------------------


def pinged(rhythm: PingSchedule, state: State, ping: PingFact, watched_from: int | None = None) -> Change:
    """Return the state after a ping, with the flips of the time up to the ping and of the ping itself."""
    state, flips = passed(rhythm, _taken_back(state, ping.at), ping.at, watched_from)
    all_flips = list(flips)
    if state.last_ping_at is None or ping.at >= state.last_ping_at:
        state = msgspec.structs.replace(state, last_ping_at=ping.at, last_kind=ping.kind)
    if state.status != "paused" and ping.kind != "log":
        state = _started(state, ping, all_flips) if ping.kind == "start" else _ended(rhythm, state, ping, all_flips)
    return Change(state, tuple(all_flips))


def _taken_back(state: State, at: int) -> State:
    """The state without instants that a clock which was ahead has left: see rule 6."""

    def ahead(noted: int | None) -> bool:
        return noted is not None and noted > at + AHEAD_US

    return msgspec.structs.replace(
        state,
        counted_from=at if ahead(state.counted_from) else state.counted_from,
        running=tuple(
            Running(run.run, at) if ahead(run.since) or ahead(run.counted_from) else run for run in state.running
        ),
        ended_at=None if ahead(state.ended_at) else state.ended_at,  # a start at this moment opens a run
        last_ping_at=at if ahead(state.last_ping_at) else state.last_ping_at,
    )


def _started(state: State, ping: PingFact, flips: list[Flip]) -> State:
    if ping.run in state.ended if ping.run else state.ended_at is not None and ping.at <= state.ended_at:
        return state
    others = tuple(run for run in state.running if run.run != ping.run)
    state = msgspec.structs.replace(
        state,
        running=(*others, Running(ping.run, ping.at))[-MOST_RUNNING:],
        counted_from=max(ping.at, state.counted_from or ping.at),
        spared_until=None,
    )
    return _flipped(state, "up", ping.at, "started", flips) if state.status in ("new", "late") else state


def _ended(rhythm: PingSchedule, state: State, ping: PingFact, flips: list[Flip]) -> State:
    stale = state.ended_at is not None and ping.at < state.ended_at
    # a run that took too long while the monitor was down causes no flip
    down = state.status == "down"
    running = tuple(
        run for run in state.running if run.run != ping.run and not (down and run.over_at(rhythm) <= ping.at)
    )
    ended = (*(run for run in state.ended if run != ping.run), ping.run)[-_ENDED_KEPT:] if ping.run else state.ended
    state = msgspec.structs.replace(state, running=running, ended=ended)
    if stale:
        return state
    counted = max(ping.at, state.counted_from or ping.at)
    state = msgspec.structs.replace(state, ended_at=ping.at, counted_from=counted, spared_until=None)
    if ping.kind == "success":
        return state if state.status == "up" else _flipped(state, "up", ping.at, "succeeded", flips)
    reason = "failed" if ping.exit_code is None else f"exit code {ping.exit_code}"
    return state if state.status == "down" else _flipped(state, "down", ping.at, reason, flips)


# --- a user decides ---------------------------------------------------------------------------------------------------


def paused(state: State, at: int) -> Change:
    if state.status == "paused":
        return Change(state)
    flips: list[Flip] = []
    state = _flipped(state, "paused", at, "paused", flips)
    return Change(msgspec.structs.replace(state, running=(), counted_from=None), tuple(flips))


def resumed(state: State, at: int) -> Change:
    """Count from now; a monitor that has never been pinged is new again."""
    if state.status != "paused":
        return Change(state)
    flips: list[Flip] = []
    state = _flipped(state, "new" if state.last_ping_at is None else "up", at, "resumed", flips)
    return Change(msgspec.structs.replace(state, counted_from=at), tuple(flips))


def changed(state: State, at: int) -> Change:
    """The rhythm was changed: what is due is counted from now, so that nothing is overdue by the new rhythm."""
    running = tuple(msgspec.structs.replace(run, counted_from=at) for run in state.running)
    state = msgspec.structs.replace(state, running=running)
    if state.status not in ("up", "late"):
        return Change(state)
    state, flips = msgspec.structs.replace(state, counted_from=at, spared_until=None), list[Flip]()
    if state.status == "late":
        state = _flipped(state, "up", at, "its rhythm was changed", flips)
    return Change(state, tuple(flips))
