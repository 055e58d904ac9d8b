"""The deliverer: takes messages from the outbox to their targets.

Messages of one schedule are a stream: they are delivered one after the other, in the order in which they were written,
and the next is not begun before the one before it has arrived or is given up. Streams go side by side, each served by
one of a bounded number of workers (see `workers`).

Targets that take many messages at once are given those of all streams together (see `batches`): a stream hands over
what it has claimed for such a target and goes on when all of it has arrived. Others get one message after the other.

A delivery that fails is tried again after 1, 2, 4, ... seconds, at most 5 minutes, and what comes after it in its
stream waits. After `max_attempts` the message becomes a dead letter, with an audit event `message.dead`, and the stream
goes on. A death of the process counts as a try for the first message of every stream in flight, begun or claimed ahead,
so that no message can bring the process down forever; the last try is made alone (see `last_tries`).

A target that is away as a whole is another matter: no message dies of that. What is for it waits, however long, and is
tried again within half a minute of its coming back. Nor does one die of a target that only another engine of the lane
knows (see `restraint`).

At least once: a message is dropped from the outbox after it has arrived, so a crash in between delivers it again, and
so does a delivery that was given up as too slow and arrives all the same. Its CloudEvent has the same `id` then.

`run` needs an engine that is alive: a stream belongs to the engine that has claimed it, and those of a dead one are
freed by a rescue. A stop lets what is under way end, for a bounded time, and frees every stream. When `run` is
cancelled it does the same, faster; where the engine has lost its lease the store takes nothing from it.

A handler that neither ends in its time nor when it is cancelled is abandoned: its stream goes on after the pause of a
failed try, another worker takes its place, and its own end counts for nothing. While no worker gets on, streams that
wait for one are freed, and none are claimed: other engines of the lane can deliver them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from noonbell.actions.backpressure import LEAST_ROOM, ClaimSize
from noonbell.actions.last_tries import LastTries
from noonbell.actions.recording import STORE_PAUSE, StreamRecorder
from noonbell.actions.sender import Delivering, Sender, raise_if_cancelled
from noonbell.actions.stream_in_flight import StreamInFlight
from noonbell.actions.targets import Target
from noonbell.actions.targets.target import ChannelDispatcher
from noonbell.actions.workers import TimeLimit, Workers
from noonbell.background import PeriodicService
from noonbell.core.instants import SECOND
from noonbell.core.records import Delivery
from noonbell.errors import LeaseLostError, StoreError
from noonbell.ports import Clock, Ledger, StreamBounds, StreamClaim
from noonbell.store.outage import outage_log_for

logger = logging.getLogger("noonbell.delivery")

_LONGEST_WAIT: Final = 5 * SECOND
# How soon to claim again where a claim has left something: a try may have ended by then, or a target be known.
_SOON: Final = SECOND // 10
_LEFT_PAUSE: Final = SECOND
# A stream that waits so long for a worker, while none gets on, is freed.
_HANGS: Final = 5 * SECOND
# At a stop: how often a write is tried, and how long what was cancelled has to clean up.
_LAST_TRIES: Final = 3
_CLEANUP_SECONDS: Final = 5.0
# Where `run` is cancelled: for what is under way, and for each step of recording how far that came.
_CANCELLED_SECONDS: Final = 1.0
_LAST_SECONDS: Final = 2.0


class Claiming(NamedTuple):
    """The result of a pass of the deliverer: the streams that it claimed, and when the next pass is needed."""

    streams: int
    next_at: int


class Deliverer(PeriodicService[Claiming]):
    """Delivers the messages of one lane. `run_once` claims what is due and starts it."""

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        *,
        lane: str,
        owner: str,
        targets: Mapping[str, Target],
        how: Delivering | None = None,
        mask: Callable[[str], str] = str,
        dispatcher: ChannelDispatcher | None = None,
    ) -> None:
        super().__init__(clock, _LONGEST_WAIT)
        self._store = store
        self._lane = lane
        self._owner = owner
        self._how = Delivering() if how is None else how
        self._outage = outage_log_for(store)
        self._sender = Sender(clock, targets, self._how, self._outage, mask=mask, dispatcher=dispatcher)
        self._doubtful = False  # a claim failed, and may have been committed all the same
        self._hangs = False  # no worker gets on: nothing is claimed until one does
        self._progress = (0, 0)  # how many items workers had taken, and since when
        self._size = ClaimSize(self._how.streams)
        self._last_tries = LastTries(self._how.max_attempts)
        self._workers = Workers(
            self._how.streams, self._how.longest_delivery_seconds, self._serve, on_stuck=self._on_stuck
        )
        self._recorder = StreamRecorder(
            store,
            clock,
            self._outage,
            dispatcher=dispatcher,
            is_busy=lambda: len(self._workers) > 0,
            on_recorded=self._on_recorded,
        )
        self._in_flight = self._recorder.in_flight

    @property
    def delivered(self) -> int:
        return self._sender.delivered

    @property
    def failed(self) -> int:
        return self._sender.failed

    @property
    def dead(self) -> int:
        return self._sender.dead

    def wake(self, *, more_due: bool = False) -> None:
        """Poll now, because there may be messages.

        With `more_due` schedules wait to be claimed. They go first: claims of messages stay small for a moment.
        """
        self._size.hold(self._clock.now() if more_due else None)
        self._wakeup.set()

    def next_at(self, result: Claiming) -> int:
        return result.next_at

    def request_stop(self) -> None:
        self._sender.stopping = True
        self._recorder.most_tries = _LAST_TRIES
        super().request_stop()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; returns when every stream is free again, as far as the store lets it."""
        self._sender.stopping, self._recorder.most_tries = False, None
        self._doubtful = True  # whatever an earlier run under this name has left behind
        try:
            await super().run(stop)
            self.request_stop()
            await self._finish(self._how.stop_seconds, _CLEANUP_SECONDS)
        except BaseException:
            self._sender.stopping, self._recorder.most_tries = True, 1
            await self._finish(min(self._how.stop_seconds, _CANCELLED_SECONDS), _LAST_SECONDS, hurry=True)
            raise
        finally:
            await self._close()

    # --- claiming -------------------------------------------------------------------------------------------------

    async def run_once(self) -> Claiming:
        """Claim what is due, as far as there is room, and start it."""
        now = self._clock.now()
        self._free_waiting(now)
        if (alone := self._last_tries.take(self._in_flight)) is not None:
            self._deliver([alone])
            return Claiming(0, now + _LONGEST_WAIT)
        held = self._hangs or not self._last_tries.may_claim(self._in_flight, now)
        room = 0 if held else self._size.room(len(self._in_flight), now)
        if not room:
            return Claiming(0, now + _LONGEST_WAIT)  # those that end wake us
        bounds = self._sender.restraint.bounds(self._in_flight.values())
        if bounds.most_bytes < LEAST_ROOM:
            return Claiming(0, now + _LONGEST_WAIT)
        try:
            async with self._recorder.claiming:
                claim = await self._claim(now, room, bounds)
        except LeaseLostError:
            return Claiming(0, now + _LONGEST_WAIT)  # the engine that we deliver for notices as well, and ends us
        except StoreError as error:
            raise_if_cancelled()
            self._doubtful = True
            self._outage.failed("delivery", error, self._clock.elapsed())
            return Claiming(0, now + STORE_PAUSE)
        self._outage.worked("delivery", self._clock.elapsed())
        leaves = any(away.until is None for away in bounds.away.values())
        if claim.full:
            return Claiming(len(claim.streams), now + _SOON if leaves else now)
        longest = now + (_LEFT_PAUSE if leaves else _LONGEST_WAIT)
        return Claiming(len(claim.streams), min(longest, claim.next_wake_at or longest))

    def _free_waiting(self, now: int) -> None:
        """Free what waits for a worker, where it has waited long and no worker gets on."""
        first, progress = self._workers.first, self._workers.progress
        if first is None or progress != self._progress[0]:
            self._progress = (progress, now)
        elif now - first.claimed_at >= _HANGS and now - self._progress[1] >= _HANGS:
            waiting = self._workers.withdraw()
            logger.warning("no delivery ends lane=%s streams_freed=%d", self._lane, len(waiting))
            self._hangs = True
            for served in waiting:
                self._has_ended(served)

    async def _claim(self, now: int, room: int, bounds: StreamBounds) -> StreamClaim:
        if self._doubtful:
            await self._account_for_claims(now)
            self._doubtful = False
        claim = await self._store.outbox.claim(self._lane, self._owner, now, room, bounds)
        claimed = [StreamInFlight(stream, self._owner, now) for stream in claim.streams]
        chosen = self._last_tries.choose(claimed, self._in_flight, now)
        for served in claimed:
            self._in_flight[served.stream.sid] = served
        for served in chosen.put_back:
            self._recorder.add(served, free_at=chosen.free_at)
        self._deliver(chosen.start)
        self._size.claimed(sum(len(stream.messages) for stream in claim.streams), full=claim.full)
        return claim

    def _deliver(self, streams: Iterable[StreamInFlight]) -> None:
        alone: list[StreamInFlight] = []
        for served in streams:
            if self._sender.goes_together(served.stream):
                served.task = asyncio.ensure_future(self._serve_together(served))
                served.task.add_done_callback(partial(self._has_ended, served))
            else:
                alone.append(served)
        self._workers.add(alone)

    async def _account_for_claims(self, now: int) -> None:
        """Free what a failed claim has claimed all the same: it would never be delivered."""
        lost = [sid for sid in await self._store.outbox.owned(self._owner) if sid not in self._in_flight]
        if lost:
            logger.warning("claim failed lane=%s streams_released=%d", self._lane, len(lost))
            await self._store.outbox.settle([Delivery(sid, self._owner, now, None) for sid in lost])

    # --- delivering -----------------------------------------------------------------------------------------------

    async def _serve_together(self, served: StreamInFlight) -> None:
        """Deliver without a worker: what is under way there is one batch, whatever has gathered behind it."""
        limit = TimeLimit(self._how.longest_delivery_seconds)
        try:
            await self._sender.deliver(served, limit)
        finally:
            limit.close()

    async def _serve(self, served: StreamInFlight, limit: TimeLimit) -> None:
        served.task = asyncio.current_task()
        try:
            await self._sender.deliver(served, limit)
        finally:  # cancelled, too: what has arrived so far leaves the outbox
            self._hangs = False
            try:
                await self._sender.turn_over(served.stream)
            finally:
                self._has_ended(served)

    def _has_ended(self, served: StreamInFlight, _: asyncio.Task[None] | None = None) -> None:
        self._recorder.add(served)

    def _on_recorded(self, ended: list[StreamInFlight]) -> None:
        """Adapt the size of claims; where streams take long, those that no worker has begun are freed."""
        if self._size.settled(self._clock.now() - min(served.claimed_at for served in ended)):
            for served in self._workers.withdraw(keep=self._size.most):
                self._has_ended(served)
        # there may be room now, and messages that came behind those that were claimed
        self._wakeup.set()

    def _on_stuck(self, served: StreamInFlight) -> None:
        """Go on without a handler that was cancelled and does not end."""
        if self._recorder.holds(served):
            self._hangs = False
            left = self._abandon(served)
            self._sender.give_up_on_stuck(left)
            self._has_ended(left)

    def _abandon(self, served: StreamInFlight) -> StreamInFlight:
        """Hold the stream by a copy: what its task still does counts for nothing."""
        left = self._in_flight[served.stream.sid] = served.copied()
        logger.error("delivery abandoned sid=%d: it was cancelled and does not end", served.stream.sid)
        return left

    # --- stopping -------------------------------------------------------------------------------------------------

    async def _finish(self, seconds: float, cleanup_seconds: float, *, hurry: bool = False) -> None:
        """Let what is under way end, cancel what takes too long, and record how far each stream came.

        What was cancelled has `cleanup_seconds`; after that it is abandoned. With `hurry` so has the store.
        """
        waiting = self._last_tries.withdraw()
        for served in (*self._workers.withdraw(), *(() if waiting is None else (waiting,))):
            self._has_ended(served)
        tasks = self._tasks()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for served in await self._cancel(late, cleanup_seconds):
                self._has_ended(self._abandon(served))
        await self._recorder.recorded(cleanup_seconds if hurry else None)

    async def _cancel(self, tasks: Iterable[asyncio.Task[None]], seconds: float) -> list[StreamInFlight]:
        """Cancel tasks, again after half of the time; returns the streams of those that have not ended by then."""
        left = set(tasks)
        for _ in range(2):
            for task in left:
                task.cancel()
            if left:
                _, left = await asyncio.wait(left, timeout=seconds / 2)
        self._workers.forget(left)
        return [served for served in self._in_flight.values() if served.task in left]

    def _tasks(self) -> set[asyncio.Task[None]]:
        return self._workers.tasks | {served.task for served in self._in_flight.values() if served.task is not None}

    async def _close(self) -> None:
        """End what is left, recorded or not, and close the targets."""
        await self._sender.close_batches()
        self._workers.withdraw()
        await self._cancel(self._tasks(), _LAST_SECONDS)
        await self._recorder.close()
        await self._sender.close()
