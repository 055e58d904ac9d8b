"""The deliverer: takes messages from the outbox to their targets.

Messages of one schedule are a stream: they are delivered one after the other, in the order in which they were written,
and the next is not begun before the one before it has arrived or is given up. Streams go side by side.

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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final

import msgspec

from noonbell.actions.batches import Batches, Numbered, in_parts
from noonbell.actions.restraint import LEAST_ROOM, Restraint
from noonbell.actions.served import Served, attempts_of, log_failures, told_by, told_of_dead
from noonbell.actions.targets import BatchTarget, Target
from noonbell.actions.targets.protocol import ChannelDesk
from noonbell.core.records import Delivery, OutboxMessage, Stream
from noonbell.errors import HoldLostError, StoreError, TargetAwayError, describe_error
from noonbell.ports import Clock, ScheduleStore, StreamBounds, StreamClaim
from noonbell.store.outage import outage_of

logger = logging.getLogger("noonbell.delivery")

MAX_ATTEMPTS: Final = 10
AT_ONCE_STREAMS: Final = 64
# Streams that are claimed ahead for each that is being delivered: transactions are fewer than messages then.
_AHEAD: Final = 4
_SECOND: Final = 1_000_000
_LONGEST_WAIT: Final = 5 * _SECOND
# After so long a stream lets others have their turn.
_LONGEST_TURN: Final = 5 * _SECOND
_STORE_PAUSE: Final = _SECOND // 2
# How soon to look again where a claim has left something alone: a try may have ended by then, or a target be known.
_SOON: Final = _SECOND // 10
_LEFT_PAUSE: Final = _SECOND
_LAST_CHANCES: Final = 3
# Where it is cut off: for what is under way, and for each step of writing down how far that came.
_CUT_OFF_SECONDS: Final = 1.0
_LAST_SECONDS: Final = 2.0


class Delivering(msgspec.Struct, frozen=True):
    """How messages are delivered: how many streams side by side, and how patiently."""

    streams: int = AT_ONCE_STREAMS
    max_attempts: int = MAX_ATTEMPTS
    first_pause_us: int = _SECOND
    longest_pause_us: int = 300 * _SECOND
    longest_delivery_seconds: float = 60.0
    stop_seconds: float = 10.0

    def pause_us(self, attempt: int) -> int:
        """How long to wait after a failed attempt, counted from 1."""
        # a shift far beyond the cap is cut off, so that the number stays small
        return min(self.first_pause_us << min(attempt - 1, 40), self.longest_pause_us)


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
        self.delivered = 0
        self.failed = 0
        self.dead = 0
        self._store = store
        self._clock = clock
        self._lane = lane
        self._owner = owner
        self._targets = targets
        self._how = Delivering() if how is None else how
        self._mask = mask  # takes secrets out of what targets say
        self._desk = desk
        self._batches: dict[str, Batches] = {}
        self._restraint = Restraint(clock, self._batches, self._target_of)
        self._outage = outage_of(store)
        self._wakeup = asyncio.Event()
        self._stopping = False
        self._cut_off = False
        self._doubtful = False  # a claim failed, and may have been committed all the same
        self._slots = asyncio.Semaphore(self._how.streams)
        self._in_hand: dict[int, Served] = {}
        self._ended: list[Served] = []
        self._settling: asyncio.Task[None] | None = None
        # A settle that failed may have been committed: it is repeated only when no claim is under way, and not for a
        # stream that was claimed again since.
        self._claiming = asyncio.Lock()

    def wake(self) -> None:
        """There may be messages: look now."""
        self._wakeup.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; returns when every stream is free again, as far as the store lets it."""
        self._stopping = self._cut_off = False
        self._doubtful = True  # whatever an earlier run under this name has left behind
        watch = asyncio.ensure_future(self._watch(stop))
        try:
            while not stop.is_set():
                self._wakeup.clear()
                wake_at = await self._look()
                await self._clock.wait(wake_at, self._wakeup)
            await self._finish(self._how.stop_seconds)
        except BaseException:
            self._stopping = self._cut_off = True
            await self._finish(min(self._how.stop_seconds, _CUT_OFF_SECONDS), _LAST_SECONDS)
            raise
        finally:
            await self._give_way(watch)

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stopping = True
        self._wakeup.set()

    # --- claiming -------------------------------------------------------------------------------------------------

    async def _look(self) -> int:
        """Claim what is due, as far as there is room; returns when to look again."""
        now = self._clock.now()
        room = self._how.streams * _AHEAD - len(self._in_hand)
        bounds = self._restraint.bounds(self._in_hand.values())
        if room < self._how.streams or bounds.most_bytes < LEAST_ROOM:
            return now + _LONGEST_WAIT  # those that end wake us
        try:
            async with self._claiming:
                claim = await self._claim(now, room, bounds)
        except HoldLostError:
            return now + _LONGEST_WAIT  # the engine that we deliver for notices as well, and ends us
        except StoreError as error:
            _heed_cancelling()
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
        for stream in claim.streams:
            served = self._in_hand[stream.sid] = Served(stream, self._owner, now)
            served.task = asyncio.ensure_future(self._serve(served))
            served.task.add_done_callback(partial(self._has_ended, served))
        return claim

    async def _account_for_claims(self, now: int) -> None:
        """Free what a failed claim has claimed all the same: nobody would ever deliver it."""
        lost = [sid for sid in await self._store.owned_streams(self._owner) if sid not in self._in_hand]
        if lost:
            logger.warning("%d streams were claimed by a look that failed; they are free again", len(lost))
            await self._store.settle_streams([Delivery(sid, self._owner, now, None) for sid in lost])

    # --- delivering -----------------------------------------------------------------------------------------------

    async def _serve(self, served: Served) -> None:
        if self._goes_together(served.stream):
            await self._deliver(served)  # what is under way there is one batch, whatever has gathered behind it
            return
        async with self._slots:
            try:
                await self._deliver(served)
            finally:  # cancelled, too: what has arrived so far leaves the outbox
                await self._turn_over(served.stream)

    def _has_ended(self, served: Served, _: asyncio.Task[None]) -> None:
        """Cancelled or not: what has arrived must not be sent again if that can be helped."""
        served.delivery.at = self._clock.now()
        if self._is_in_hand(served):
            self._ended.append(served)
            if self._settling is None:
                self._settling = asyncio.ensure_future(self._settle())

    async def _deliver(self, served: Served) -> None:
        """Deliver in order, up to the first that fails."""
        began = self._clock.now()
        for name, group in groupby(served.stream.messages, lambda one: one[1].target):
            batches = self._batches_of(name)
            for part in in_parts(group, 1 if batches is None else batches.target.most_together):
                if self._stopping or self._clock.now() - began > _LONGEST_TURN:
                    return
                if batches is None:
                    await self._alone(served, *part[0])
                else:
                    await self._together(served, part, batches)
                if served.failed is not None:
                    return

    async def _alone(self, served: Served, number: int, message: OutboxMessage) -> None:
        if self._restraint.leaves_to_others(message):
            served.failed, served.away, served.delivery.error = message, True, "it is not known here"
            return
        attempt = self._tried(served)
        error = await self._try(message, attempt)
        if error is None:
            self._has_arrived(served, [(number, message)])
            return
        served.failed = message
        self._give_up(served.delivery, number, attempt + 1, error)

    async def _together(self, served: Served, part: Sequence[Numbered], batches: Batches) -> None:
        """All at once, with those of other streams; where one is refused, those of this stream one after the other.

        Those as well by way of the batches, which know that the target is away, or busy with others.
        """
        try:
            await batches.send([message.body for _, message in part])
        except TargetAwayError as error:
            self._has_arrived(served, part[: error.arrived])
            self.failed += 1
            served.failed, served.away = part[error.arrived][1], True
            served.delivery.error, served.delivery.wake_at = str(error), batches.tries_again_at
        except Exception as error:  # noqa: BLE001 - whatever a target raises is a failed delivery
            if len(part) == 1:
                served.failed = part[0][1]
                self._give_up(served.delivery, part[0][0], self._tried(served) + 1, told_by(error, self._mask))
                return
            for one in part:
                if served.failed is None and not self._stopping:
                    await self._together(served, [one], batches)
        else:
            self._has_arrived(served, part)

    def _has_arrived(self, served: Served, part: Sequence[Numbered]) -> None:
        if part:
            self.delivered += len(part)
            served.delivery.delivered = part[-1][0]

    def _tried(self, served: Served) -> int:
        """How often the message that is next in a stream has been tried before."""
        return served.stream.attempt if served.delivery.delivered is None else 0

    def _goes_together(self, stream: Stream) -> bool:
        return all(self._batches_of(name) is not None for name in {message.target for _, message in stream.messages})

    def _target_of(self, name: str, sid: int = -1) -> Target | None:
        """The target of this name, for a message of this stream; the desk's own streams have negative numbers."""
        target = self._targets.get(name)
        return self._desk.target(name) if target is None and self._desk is not None and sid < 0 else target

    def _batches_of(self, name: str) -> Batches | None:
        """What gathers messages for this target; None where it takes one at a time."""
        target, batches = self._targets.get(name), self._batches.get(name)
        if batches is not None and batches.target is target:
            return batches
        if not isinstance(target, BatchTarget):
            return None
        seconds = self._how.longest_delivery_seconds
        made = self._batches[name] = Batches(name, target, self._clock, longest_seconds=seconds, mask=self._mask)
        return made

    async def _turn_over(self, stream: Stream) -> None:
        channel = None if self._desk is None or stream.sid >= 0 else self._desk.target(stream.messages[0][1].target)
        if channel is not None:
            try:
                await channel.turn_over()
            except StoreError as error:
                _heed_cancelling()
                told = f"counts of {channel!r} could not be written and go with the next: {error}"
                self._outage.failed("counts", told, self._clock.elapsed())
            else:
                self._outage.worked("counts", self._clock.elapsed())

    def _is_in_hand(self, served: Served) -> bool:
        return self._in_hand.get(served.stream.sid) is served

    async def _try(self, message: OutboxMessage, attempt: int) -> str | None:
        """One attempt; returns what went wrong."""
        target = self._target_of(message.target, message.sid)
        if attempt >= self._how.max_attempts:
            return f"it was under way {attempt} times when the process ended; it is not tried again"
        if target is None:
            known = ", ".join(sorted(self._targets)) or "none"
            told = f'No target named "{message.target}" is registered'
            return f"{told} with any engine of the lane that has tried; registered here: {known}"
        seconds = self._how.longest_delivery_seconds
        try:
            async with asyncio.timeout(seconds) as limit:
                await target.deliver(message.body)
        except asyncio.CancelledError as cancelled:
            _heed_cancelling()  # somebody else's is a failure of the target
            return describe_error(cancelled, self._mask)
        except TimeoutError as error:
            return f"it took longer than {seconds:g} s" if limit.expired() else describe_error(error, self._mask)
        except Exception as error:  # noqa: BLE001 - whatever a target raises is a failed delivery
            return told_by(error, self._mask)
        return None

    def _give_up(self, delivery: Delivery, number: int, attempt: int, error: str) -> None:
        self.failed += 1
        delivery.error = error
        if attempt >= self._how.max_attempts:
            self.dead += 1
            delivery.dead = number
        else:
            delivery.wake_at = self._clock.now() + self._how.pause_us(attempt)

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
            except Exception as error:
                _heed_cancelling()
                failures += 1
                self._ended = ended + self._ended
                if failures == 1 and not isinstance(error, StoreError):
                    logger.exception("Deliveries could not be recorded; that is tried again")
                if self._stopping and failures >= (1 if self._cut_off else _LAST_CHANCES):
                    logger.error("Deliveries could not be recorded and may be repeated: %s", error)  # noqa: TRY400 - the cause is in the message
                    break
                told = f"{len(ended)} deliveries could not be recorded: {error}"
                self._outage.failed("recording deliveries", told, self._clock.elapsed())
                await self._clock.wait(self._clock.now() + _STORE_PAUSE, asyncio.Event())
                continue
            failures = 0
            self._outage.worked("recording deliveries", self._clock.elapsed())
            for served in ended:
                if self._is_in_hand(served):
                    del self._in_hand[served.stream.sid]
            log_failures(ended)
            # there may be room now, and messages that came behind those that were claimed
            self._wakeup.set()
        self._settling = None

    async def _write(self, ended: list[Served]) -> None:
        mine = [served for served in ended if self._is_in_hand(served)]
        for served in mine:
            served.delivery.audit = told_of_dead(served)
            if served.delivery.dead is not None and not served.noticed:
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
        tasks = {served.task for served in self._in_hand.values() if served.task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=patience)
        if self._settling is not None:
            await asyncio.wait([self._settling], timeout=patience)

    async def _give_way(self, watch: asyncio.Task[None]) -> None:
        """End whatever is left, written down or not, and close the targets."""
        for batches in self._batches.values():
            await batches.close()
        self._batches.clear()
        tasks = [watch, *(served.task for served in self._in_hand.values() if served.task is not None)]
        if self._settling is not None:
            tasks.append(self._settling)
        self._in_hand.clear()
        self._ended.clear()
        self._settling = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name, target in self._targets.items():
            try:
                await target.close()
            except Exception:
                logger.exception('The target "%s" could not be closed', name)
        if self._desk is not None:
            try:
                await self._desk.close()
            except Exception:
                logger.exception("The channels could not be closed")


def _heed_cancelling() -> None:
    """End where this task was told to: a connection that is cut at the same moment may tell of that instead."""
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        raise asyncio.CancelledError
