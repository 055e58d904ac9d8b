"""The deliverer: takes messages from the outbox to their targets.

Messages of one schedule are a stream: they are delivered one after the other, in the order in which they were written,
and the next is not begun before the one before it has arrived or is given up. Streams go side by side, each served by
one of a bounded number of workers (see `workers`).

Targets that take many messages at once are given those of all streams together (see `batches`): a stream hands over
what it has claimed for such a target and goes on when all of it has arrived. Others get one message after the other.

A delivery that fails is tried again after 1, 2, 4, ... seconds, at most 5 minutes, and what comes after it in its
stream waits. After `max_attempts` the message becomes a dead letter, with an audit event `message.dead`, and the stream
goes on. A death of the process counts as a try for whatever was next in the streams in hand, begun or claimed ahead, so
that no message can bring the process down forever.

A target that is away as a whole is another matter: no message dies of that. What is for it waits, however long, and is
tried again within half a minute of its coming back. Nor does one die of a target that only another engine of the lane
knows (see `restraint`).

At least once: a message is dropped from the outbox after it has arrived, so a crash in between delivers it again, and
so does a delivery that was given up as too slow and arrives all the same. Its CloudEvent has the same `id` then.

`run` needs an engine that is alive: a stream belongs to the engine that has claimed it, and those of a dead one are
freed by `take_over`. A stop lets what is under way end, for a bounded time, and frees every stream. One that is cut off
(`run` is cancelled) does the same, in a hurry; where the engine has lost its name the store takes nothing from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from noonbell.actions.restraint import LEAST_ROOM, ClaimSize
from noonbell.actions.sender import Delivering, Sender, heed_cancelling
from noonbell.actions.served import Served, attempts_of, log_failures, told_of_dead
from noonbell.actions.targets import Target
from noonbell.actions.targets.protocol import ChannelDesk
from noonbell.actions.workers import TimeLimit, Workers
from noonbell.core.records import Delivery
from noonbell.errors import HoldLostError, StoreError
from noonbell.ports import Clock, ScheduleStore, StreamBounds, StreamClaim
from noonbell.store.outage import outage_of

logger = logging.getLogger("noonbell.delivery")

_SECOND: Final = 1_000_000
_LONGEST_WAIT: Final = 5 * _SECOND
_STORE_PAUSE: Final = _SECOND // 2
# How soon to look again where a claim has left something alone: a try may have ended by then, or a target be known.
_SOON: Final = _SECOND // 10
_LEFT_PAUSE: Final = _SECOND
_LAST_CHANCES: Final = 3
# Where it is cut off: for what is under way, and for each step of writing down how far that came.
_CUT_OFF_SECONDS: Final = 1.0
_LAST_SECONDS: Final = 2.0


class Deliverer:
    """Delivers the messages of one lane."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Clock,
        *,
        lane: str,
        owner: str,
        targets: Mapping[str, Target],
        how: Delivering | None = None,
        mask: Callable[[str], str] = str,
        desk: ChannelDesk | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lane = lane
        self._owner = owner
        self._how = Delivering() if how is None else how
        self._desk = desk
        self._outage = outage_of(store)
        self._sender = Sender(clock, targets, self._how, self._outage, mask=mask, desk=desk)
        self._wakeup = asyncio.Event()
        self._cut_off = False
        self._doubtful = False  # a claim failed, and may have been committed all the same
        self._size = ClaimSize(self._how.streams)
        self._workers = Workers(self._how.streams, self._how.longest_delivery_seconds, self._serve)
        self._in_hand: dict[int, Served] = {}
        self._ended: list[Served] = []
        self._settling: asyncio.Task[None] | None = None
        # A settle that failed may have been committed: it is repeated only when no claim is under way, and not for a
        # stream that was claimed again since.
        self._claiming = asyncio.Lock()

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
        """There may be messages: look now.

        With `more_due` schedules wait to be claimed. They go first: claims of messages stay small for a moment.
        """
        self._size.hold(self._clock.now() if more_due else None)
        self._wakeup.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; returns when every stream is free again, as far as the store lets it."""
        self._sender.stopping = self._cut_off = False
        self._doubtful = True  # whatever an earlier run under this name has left behind
        watch = asyncio.ensure_future(self._watch(stop))
        try:
            while not stop.is_set():
                self._wakeup.clear()
                wake_at = await self._look()
                await self._clock.wait(wake_at, self._wakeup)
            await self._finish(self._how.stop_seconds)
        except BaseException:
            self._sender.stopping = self._cut_off = True
            await self._finish(min(self._how.stop_seconds, _CUT_OFF_SECONDS), _LAST_SECONDS)
            raise
        finally:
            await self._give_way(watch)

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._sender.stopping = True
        self._wakeup.set()

    # --- claiming -------------------------------------------------------------------------------------------------

    async def _look(self) -> int:
        """Claim what is due, as far as there is room; returns when to look again."""
        now = self._clock.now()
        room = self._size.room(len(self._in_hand), now)
        if not room:
            return now + _LONGEST_WAIT  # those that end wake us
        bounds = self._sender.restraint.bounds(self._in_hand.values())
        if bounds.most_bytes < LEAST_ROOM:
            return now + _LONGEST_WAIT
        try:
            async with self._claiming:
                claim = await self._claim(now, room, bounds)
        except HoldLostError:
            return now + _LONGEST_WAIT  # the engine that we deliver for notices as well, and ends us
        except StoreError as error:
            heed_cancelling()
            self._doubtful = True
            self._outage.failed("delivery", error, self._clock.elapsed())
            return now + _STORE_PAUSE
        self._outage.worked("delivery", self._clock.elapsed())
        leaves = any(away.until is None for away in bounds.away.values())
        if claim.full:
            return now + _SOON if leaves else now
        longest = now + (_LEFT_PAUSE if leaves else _LONGEST_WAIT)
        return min(longest, claim.next_wake_at or longest)

    async def _claim(self, now: int, room: int, bounds: StreamBounds) -> StreamClaim:
        if self._doubtful:
            await self._account_for_claims(now)
            self._doubtful = False
        claim = await self._store.claim_streams(self._lane, self._owner, now, room, bounds)
        alone: list[Served] = []
        for stream in claim.streams:
            served = self._in_hand[stream.sid] = Served(stream, self._owner, now)
            if self._sender.goes_together(stream):
                served.task = asyncio.ensure_future(self._serve_together(served))
                served.task.add_done_callback(partial(self._has_ended, served))
            else:
                alone.append(served)
        self._workers.add(alone)
        self._size.claimed(sum(len(stream.messages) for stream in claim.streams), full=claim.full)
        return claim

    async def _account_for_claims(self, now: int) -> None:
        """Free what a failed claim has claimed all the same: nobody would ever deliver it."""
        lost = [sid for sid in await self._store.owned_streams(self._owner) if sid not in self._in_hand]
        if lost:
            logger.warning("%d streams were claimed by a look that failed; they are free again", len(lost))
            await self._store.settle_streams([Delivery(sid, self._owner, now, None) for sid in lost])

    # --- delivering -----------------------------------------------------------------------------------------------

    async def _serve_together(self, served: Served) -> None:
        """Deliver without a worker: what is under way there is one batch, whatever has gathered behind it."""
        limit = TimeLimit(self._how.longest_delivery_seconds)
        try:
            await self._sender.deliver(served, limit)
        finally:
            limit.close()

    async def _serve(self, served: Served, limit: TimeLimit) -> None:
        try:
            await self._sender.deliver(served, limit)
        finally:  # cancelled, too: what has arrived so far leaves the outbox
            try:
                await self._sender.turn_over(served.stream)
            finally:
                self._has_ended(served)

    def _has_ended(self, served: Served, _: asyncio.Task[None] | None = None) -> None:
        """Cancelled or not: what has arrived must not be sent again if that can be helped."""
        served.delivery.at = self._clock.now()
        if self._is_in_hand(served):
            self._ended.append(served)
            if self._settling is None:
                self._settling = asyncio.ensure_future(self._settle())

    def _is_in_hand(self, served: Served) -> bool:
        return self._in_hand.get(served.stream.sid) is served

    # --- settling -------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Write the ends that have gathered, again and again until there are none."""
        failures = 0
        while self._ended:
            ended, self._ended = self._ended, []
            try:
                if failures:
                    async with self._claiming:
                        await self._write(ended)
                else:
                    await self._write(ended)
            except Exception as error:  # noqa: BLE001 - whatever it is, what has arrived must be recorded
                heed_cancelling()
                failures += 1
                self._ended = ended + self._ended
                last = self._sender.stopping and failures >= (1 if self._cut_off else _LAST_CHANCES)
                with suppress(Exception):  # a log handler that raises must not end the recording
                    self._log_unrecorded(error, len(ended), first=failures == 1, last=last)
                if last:
                    break
                await self._clock.wait(self._clock.now() + _STORE_PAUSE, asyncio.Event())
                continue
            failures = 0
            for served in ended:
                if self._is_in_hand(served):
                    del self._in_hand[served.stream.sid]
            with suppress(Exception):
                self._outage.worked("recording deliveries", self._clock.elapsed())
                log_failures(ended)
            self._adapt(ended)
            # there may be room now, and messages that came behind those that were claimed
            self._wakeup.set()
        self._settling = None

    def _log_unrecorded(self, error: Exception, ended: int, *, first: bool, last: bool) -> None:
        if first and not isinstance(error, StoreError):
            logger.error("Deliveries could not be recorded; that is tried again", exc_info=error)
        if last:
            logger.error("Deliveries could not be recorded and may be repeated: %s", error)
        else:
            text = f"{ended} deliveries could not be recorded: {error}"
            self._outage.failed("recording deliveries", text, self._clock.elapsed())

    def _adapt(self, ended: list[Served]) -> None:
        """Adapt the size of claims; where streams take long, those that no worker has begun go back to the outbox."""
        if self._size.settled(self._clock.now() - min(served.claimed_at for served in ended)):
            for served in self._workers.withdraw(keep=self._size.most):
                self._has_ended(served)

    async def _write(self, ended: list[Served]) -> None:
        mine = [served for served in ended if self._is_in_hand(served)]
        for served in mine:
            if served.delivery.dead is not None:
                served.delivery.audit = told_of_dead(served)
                if not served.noticed:
                    await self._notify_of_dead(served)
        await self._store.settle_streams([served.delivery for served in mine])

    async def _notify_of_dead(self, served: Served) -> None:
        """Notify by the rules, before the letter is buried: after a crash in between it may be notified again."""
        desk, message, delivery = self._desk, served.failed, served.delivery
        if desk is not None and message is not None:
            try:
                await desk.undelivered(message, attempts_of(served), delivery.error or "", delivery.at)
            except StoreError:
                raise
            except Exception:
                logger.exception("No notification of a dead letter was sent message_id=%s", message.message_id)
        served.noticed = True

    # --- stopping -------------------------------------------------------------------------------------------------

    async def _finish(self, seconds: float, patience: float | None = None) -> None:
        """Let what is under way end, cancel what takes too long, and write down how far each stream came.

        `patience` bounds, in seconds, the wait for those that were cancelled, and for the store.
        """
        for served in self._workers.withdraw():
            self._has_ended(served)
        tasks = self._tasks()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=patience)
        if self._settling is not None:
            await asyncio.wait([self._settling], timeout=patience)

    def _tasks(self) -> set[asyncio.Task[None]]:
        return self._workers.tasks | {served.task for served in self._in_hand.values() if served.task is not None}

    async def _give_way(self, watch: asyncio.Task[None]) -> None:
        """End whatever is left, written down or not, and close the targets."""
        await self._sender.close_batches()
        self._workers.withdraw()
        tasks = {watch, *self._tasks()}
        if self._settling is not None:
            tasks.add(self._settling)
        self._in_hand.clear()
        self._ended.clear()
        self._settling = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sender.close()
