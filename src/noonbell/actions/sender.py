"""The way of one stream to its targets: message by message, up to the first that fails.

A target that takes many messages at once is given them by way of `batches`, any other one message at a time, each with
a time limit. Its `StreamInFlight` has how far a stream has come. Nothing here reads or writes the outbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

import msgspec

from noonbell.actions.backpressure import BackPressure
from noonbell.actions.batches import Batches, Numbered, in_parts
from noonbell.actions.stream_in_flight import StreamInFlight, error_text
from noonbell.actions.targets import BatchTarget, Target
from noonbell.actions.targets.target import ChannelDispatcher
from noonbell.actions.workers import Pace, TimeLimit
from noonbell.core.instants import SECOND
from noonbell.core.records import Delivery, OutboxMessage, Stream
from noonbell.errors import StoreError, TargetAwayError, describe_error
from noonbell.ports import Clock
from noonbell.store.outage import Outage

logger = logging.getLogger("noonbell.delivery")

MAX_ATTEMPTS: Final = 10
AT_ONCE_STREAMS: Final = 64
# After so long a stream lets others have their turn.
_LONGEST_TURN: Final = 5 * SECOND


class Delivering(msgspec.Struct, frozen=True):
    """The options of the delivery: how many streams side by side, and how patiently."""

    streams: int = AT_ONCE_STREAMS
    max_attempts: int = MAX_ATTEMPTS
    first_pause_us: int = SECOND
    longest_pause_us: int = 300 * SECOND
    longest_delivery_seconds: float = 60.0
    stop_seconds: float = 10.0

    def pause_us(self, attempt: int) -> int:
        """Return how long to wait after a failed attempt, counted from 1."""
        # a shift far beyond the cap is cut off, so that the number stays small
        return min(self.first_pause_us << min(attempt - 1, 40), self.longest_pause_us)


class Sender:
    """Delivers streams to targets, and counts what became of the messages."""

    def __init__(
        self,
        clock: Clock,
        targets: Mapping[str, Target],
        how: Delivering,
        outage: Outage,
        *,
        mask: Callable[[str], str],
        dispatcher: ChannelDispatcher | None,
    ) -> None:
        self.delivered = 0
        self.failed = 0
        self.dead = 0
        self.stopping = False  # no further message is begun
        self._clock = clock
        self._targets = targets
        self._how = how
        self._outage = outage
        self._mask = mask  # takes secrets out of what targets say
        self._dispatcher = dispatcher
        self._batches: dict[str, Batches] = {}
        self._singles: dict[str, Target] = {}  # targets that take one message at a time
        self._pace = Pace()
        self.restraint = BackPressure(clock, self._batches, self._target_of)

    async def deliver(self, served: StreamInFlight, limit: TimeLimit) -> None:
        """Deliver in order, up to the first that fails."""
        messages, pace = served.stream.messages, self._pace
        ends_at, place = self._clock.now() + _LONGEST_TURN, 0
        while place < len(messages) and not self.stopping:
            number, message = messages[place]
            batches = self._batches_of(message.target)
            if batches is None:
                target = self._target_of(message.target, message.sid)
                if target is None or self._is_worn_out(served):
                    self._refuse(served, number, message, target)
                    return
                error = await self._try(target, message.body, limit)
                if error is not None:
                    served.failed = message
                    self._give_up(served.delivery, number, self._tried(served) + 1, error)
                    return
                self.delivered += 1
                served.delivery.delivered = number
                place += 1
                if pace.is_due():
                    await pace.rest()
            else:
                part = _next_part(messages, place, batches.target.most_together)
                await self._together(served, part, batches)
                place += len(part)
            if served.failed is not None or self._clock.now() > ends_at:
                return

    def give_up_on_stuck(self, served: StreamInFlight) -> None:
        """Count a failed try of the message that is under way, whose handler does not end."""
        arrived = served.delivery.delivered
        number, message = next(one for one in served.stream.messages if arrived is None or one[0] > arrived)
        served.failed = message
        error = f"it took longer than {self._how.longest_delivery_seconds:g} s, and did not end when it was cancelled"
        self._give_up(served.delivery, number, self._tried(served) + 1, error)

    def _is_worn_out(self, served: StreamInFlight) -> bool:
        """Return whether the next message was under way at so many deaths of a process that it is not tried again."""
        return self._tried(served) > self._how.max_attempts

    def _refuse(self, served: StreamInFlight, number: int, message: OutboxMessage, target: Target | None) -> None:
        """Give a message up without a try, or leave it to engines that know its target."""
        if target is None and self.restraint.leaves_to_others(message):
            served.failed, served.away, served.delivery.error = message, True, "it is not known here"
            return
        attempt = self._tried(served)
        if self._is_worn_out(served):
            error = f"it was under way {attempt} times when the process ended; it is not tried again"
        else:
            known = ", ".join(sorted(self._targets)) or "none"
            unknown = f'No target named "{message.target}" is registered'
            error = f"{unknown} with any engine of the lane that has tried; registered here: {known}"
        served.failed = message
        self._give_up(served.delivery, number, attempt + 1, error)

    async def _try(self, target: Target, body: str, limit: TimeLimit) -> str | None:
        """Make one attempt; return the error, if any."""
        limit.begin()
        try:
            await target.deliver(body)
        except (asyncio.CancelledError, TimeoutError) as error:
            limit.end()
            if isinstance(error, asyncio.CancelledError):
                raise_if_cancelled()  # one that is not ours is a failure of the target
            return f"it took longer than {limit.seconds:g} s" if limit.expired else describe_error(error, self._mask)
        except Exception as error:  # noqa: BLE001 - whatever a target raises is a failed delivery
            limit.end()
            return error_text(error, self._mask)
        except BaseException as error:
            limit.end()
            if asyncio.current_task() is None:  # not the target: this coroutine is being closed
                raise
            return describe_error(error, self._mask)
        limit.end()
        return None

    async def _together(self, served: StreamInFlight, part: Sequence[Numbered], batches: Batches) -> None:
        """All at once, with those of other streams; where one is refused, those of this stream one after the other.

        Those as well by way of the batches, which know that the target is away, or busy with others.
        """
        try:
            if not await batches.send([message.body for _, message in part]):
                # no try: it is free again, and stays in the outbox until the target is asked again
                served.failed, served.away, served.delivery.error = part[0][1], True, "the target is away"
                return
        except TargetAwayError as error:
            self._has_arrived(served, part[: error.arrived])
            self.failed += 1
            served.failed, served.away = part[error.arrived][1], True
            served.delivery.error, served.delivery.wake_at = str(error), batches.tries_again_at
        except Exception as error:  # noqa: BLE001 - whatever a target raises is a failed delivery
            if len(part) == 1:
                served.failed = part[0][1]
                self._give_up(served.delivery, part[0][0], self._tried(served) + 1, error_text(error, self._mask))
                return
            for one in part:
                if served.failed is None and not self.stopping:
                    await self._together(served, [one], batches)
        else:
            self._has_arrived(served, part)

    def _has_arrived(self, served: StreamInFlight, part: Sequence[Numbered]) -> None:
        if part:
            self.delivered += len(part)
            served.delivery.delivered = part[-1][0]

    def _tried(self, served: StreamInFlight) -> int:
        """Return how often the next message of a stream has been tried before."""
        return served.stream.attempt if served.delivery.delivered is None else 0

    def _give_up(self, delivery: Delivery, number: int, attempt: int, error: str) -> None:
        self.failed += 1
        delivery.error = error
        if attempt >= self._how.max_attempts:
            self.dead += 1
            delivery.dead = number
        else:
            delivery.wake_at = self._clock.now() + self._how.pause_us(attempt)

    # --- targets ----------------------------------------------------------------------------------------------------

    def goes_together(self, stream: Stream) -> bool:
        return all(self._batches_of(message.target) is not None for _, message in stream.messages)

    def _target_of(self, name: str, sid: int = -1) -> Target | None:
        """The target of this name, for a message of this stream; the dispatcher's own streams have negative numbers."""
        target = self._targets.get(name)
        return self._dispatcher.target(name) if target is None and self._dispatcher is not None and sid < 0 else target

    def _batches_of(self, name: str) -> Batches | None:
        """Return the batches of this target; None if it takes one message at a time."""
        target = self._targets.get(name)
        if target is None or self._singles.get(name) is target:
            return None
        batches = self._batches.get(name)
        if batches is not None and batches.target is target:
            return batches
        if not isinstance(target, BatchTarget):  # which looks at every member of a class
            self._singles[name] = target
            return None
        seconds = self._how.longest_delivery_seconds
        made = self._batches[name] = Batches(name, target, self._clock, longest_seconds=seconds, mask=self._mask)
        return made

    async def turn_over(self, stream: Stream) -> None:
        """Let the channel of a stream that ends its turn write down what it has counted."""
        if self._dispatcher is None or stream.sid >= 0:
            return
        channel = self._dispatcher.target(stream.messages[0][1].target)
        if channel is not None:
            try:
                await channel.turn_over()
            except StoreError as error:
                raise_if_cancelled()
                message = f"counts of {channel!r} could not be written and go with the next: {error}"
                self._outage.failed("counts", message, self._clock.elapsed())
            else:
                self._outage.worked("counts", self._clock.elapsed())

    async def close_batches(self) -> None:
        for batches in self._batches.values():
            await batches.close()
        self._batches.clear()

    async def close(self) -> None:
        """Close the targets; the next delivery opens them again."""
        for name, target in self._targets.items():
            try:
                await target.close()
            except Exception:
                logger.exception("target not closed target=%s", name)
        if self._dispatcher is not None:
            try:
                await self._dispatcher.close()
            except Exception:
                logger.exception("channels not closed")


def _next_part(messages: Sequence[Numbered], place: int, most: int) -> list[Numbered]:
    """Return the messages to send together from this place on: for the same target, and not too many."""
    target = messages[place][1].target
    return next(in_parts(takewhile(lambda one: one[1].target == target, islice(messages, place, None)), most))


def raise_if_cancelled() -> None:
    """Raise CancelledError where this task is cancelled: a connection that is cut at that moment may hide it."""
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        raise asyncio.CancelledError
