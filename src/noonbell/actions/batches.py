"""Messages of many streams that go to one target, sent together.

While a batch is under way the next one gathers: what streams hand over goes in one call of `deliver_many` then, in
the order in which it came. A stream waits for its own messages and hands over no others before, so its order is kept.

A batch that is refused is halved until the message that the target refuses is alone: the others are not held up
by it. A target that is away as a whole is not asked by every stream: what waits is not sent, which counts as no try.
The target is asked again by one message after a pause of 1, 2, 4, ... at most 30 seconds; `held_back` says what
the others do until then. An outage is logged once, once a minute, and when it is over.

A target that is back is given 1, 2, 4, ... messages, those first that were tried least, until that is all there is. So
a message that it answers as if it were away, or never, meets the others late: they do not fail with it each time.

A call that neither ends in its time nor when it is cancelled is abandoned; its end counts for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from noonbell.actions.targets import BatchTarget
from noonbell.core.instants import SECOND
from noonbell.core.records import OutboxMessage
from noonbell.errors import NoonbellError, TargetAwayError, describe_error
from noonbell.ports import AwayTarget, Clock
from noonbell.store.outage import Outage

logger = logging.getLogger("noonbell.delivery")

Numbered = tuple[int, OutboxMessage]

# A batch is bounded by the length of what is in it as well: messages may be large.
LONGEST_BATCH: Final = 4_000_000
# Clients of servers have been seen to lose a cancellation that meets a time limit of their own: so it is repeated.
_CANCELLATIONS: Final = 3
_CANCEL_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 30 * SECOND
# What is due while a target is being tried is put off for so long: it may answer at any moment.
_TRY_PAUSE: Final = 2 * SECOND


def in_parts(messages: Iterable[Numbered], most: int) -> Iterator[list[Numbered]]:
    """The messages in stretches that may go together."""
    part: list[Numbered] = []
    length = 0
    for one in messages:
        size = len(one[1].body)
        if part and (len(part) >= most or length + size > LONGEST_BATCH):
            yield part
            part, length = [], 0
        part.append(one)
        length += size
    if part:
        yield part


class _Request:
    """The messages that one stream has handed over, and the future of their delivery."""

    __slots__ = ("bodies", "end", "length")

    def __init__(self, bodies: Sequence[str]) -> None:
        self.bodies = bodies
        self.length = sum(map(len, bodies))
        self.end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class Batches:
    """Sends to one target, one batch at a time."""

    def __init__(
        self, name: str, target: BatchTarget, clock: Clock, *, longest_seconds: float, mask: Callable[[str], str] = str
    ) -> None:
        self._name = name
        self.target = target
        self.tries_again_at = 0  # when a target that is away is asked again
        self._clock = clock
        self._seconds = longest_seconds
        self._mask = mask
        self._outage = Outage(f'The target "{name}"', "what is sent there waits until it is back", logger)
        self._waiting: list[_Request] = []
        self._worker: asyncio.Task[None] | None = None
        self._away: TargetAwayError | None = None
        self._pause = 0
        self._most: int | None = None  # how many streams may go together, from when it was away until all may
        self._back_at = 0

    async def send(self, bodies: Sequence[str]) -> bool:
        """Return True when all have arrived, False where they were not sent because the target is known to be away.

        Raises:
            TargetAwayError: the target is away; try again at `tries_again_at`.
            Exception: anything else means that one of these was refused.

        """
        if self._is_known_away:
            return False
        request = _Request(bodies)
        self._waiting.append(request)
        if self._worker is None:
            self._worker = asyncio.ensure_future(self._work())
        return await request.end

    @property
    def _is_known_away(self) -> bool:
        """Return whether the target is away, and not to be tried yet."""
        return self._away is not None and self._clock.now() < self.tries_again_at

    def held_back(self, *, tried: bool) -> AwayTarget | None:
        """Return how streams with a next message for this target are held back, or None if all may go.

        `tried` says that one is in flight already.
        """
        now, tried = self._clock.now(), tried or self._worker is not None
        if self._away is None:
            if self._most is None or now - self._back_at >= _LONGEST_PAUSE:  # it may be long until more comes
                return None
            return AwayTarget("it was away", tries=0 if tried else self._most)
        until = None
        if now < self.tries_again_at:
            until = self.tries_again_at
        elif tried:
            until = now + _TRY_PAUSE
        return AwayTarget(str(self._away), until)

    async def close(self) -> None:
        """Cancel the batch under way. Its streams fail with the outcome unknown, and the waiting ones are not sent."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])

    async def _work(self) -> None:
        under_way: list[_Request] = []
        try:
            while self._waiting:
                under_way = self._gathered()
                await self._send(under_way)
                self._go_on(len(under_way))
                under_way = []
        finally:
            self._worker = None
            waiting, self._waiting = self._waiting, []
            for request in under_way:
                _fail(request, TargetAwayError(repr(self.target), "it was given up when the delivery ended"))
            for request in waiting:
                _resolve(request, sent=False)

    def _gathered(self) -> list[_Request]:
        """The next batch: whole streams, as many as may go together."""
        count = length = 0
        taken = 0
        for request in self._waiting:
            count += len(request.bodies)
            length += request.length
            if taken and (count > self.target.most_together or length > LONGEST_BATCH):
                break
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return [request for request in batch if not request.end.done()]  # without those that gave up waiting

    async def _send(self, batch: list[_Request]) -> None:
        if not batch:
            return
        if self._is_known_away:  # since the other half of what was refused
            for request in batch:
                _resolve(request, sent=False)
            return
        try:
            in_time = await self._deliver([body for request in batch for body in request.bodies])
        except TargetAwayError as error:
            self._is_away(batch, error)
        except TimeoutError as error:
            self._is_away(batch, TargetAwayError(repr(self.target), describe_error(error, self._mask)))
        except Exception as error:  # noqa: BLE001 - whatever a target raises is a failed delivery
            self._is_back()  # a target that refuses a message is not away
            if len(batch) == 1:
                _fail(batch[0], error)
                return
            middle = len(batch) // 2
            await self._send(batch[:middle])
            await self._send(batch[middle:])
        else:
            if not in_time:
                self._is_away(batch, TargetAwayError(repr(self.target), f"it took longer than {self._seconds:g} s"))
                return
            self._is_back()
            for request in batch:
                _resolve(request)

    async def _deliver(self, bodies: Sequence[str]) -> bool:
        """Return True when all have arrived, False where that took too long."""
        call = asyncio.ensure_future(self.target.deliver_many(bodies))
        try:
            await asyncio.wait([call], timeout=self._seconds)
        except asyncio.CancelledError:
            await self._end(call)
            raise
        in_time = call.done()
        if not in_time:
            await self._end(call)
        if not call.done() or (call.cancelled() and not in_time):
            return False
        call.result()
        return True

    async def _end(self, call: asyncio.Future[None]) -> None:
        """Cancel a call; abandon it where it does not end."""
        for _ in range(_CANCELLATIONS):
            call.cancel()
            await asyncio.wait([call], timeout=_CANCEL_SECONDS)
            if call.done():
                return
        logger.error("delivery abandoned target=%r: it was cancelled and does not end", self._name)
        call.add_done_callback(_forget)

    def _is_away(self, batch: list[_Request], error: TargetAwayError) -> None:
        """The batch fails, but for what has arrived of it; what waits is not sent."""
        away = TargetAwayError(error.target, _printable(self._mask(error.reason)))
        if error.arrived:
            self._pause = 0
        self._pause = min(max(2 * self._pause, SECOND), _LONGEST_PAUSE)
        self._away, self.tries_again_at, self._most = away, self._clock.now() + self._pause, 1
        self._outage.failed("delivery", away.reason, self._clock.elapsed())
        arrived = error.arrived
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            _resolve(request, sent=False)
        for request in batch:
            here = min(arrived, len(request.bodies))
            arrived -= here
            if here == len(request.bodies):
                _resolve(request)
            else:
                _fail(request, TargetAwayError(away.target, away.reason, here))

    def _is_back(self) -> None:
        if self._away is not None:
            self._back_at = self._clock.now()
        self._away, self._pause = None, 0
        self._outage.worked("delivery", self._clock.elapsed())

    def _go_on(self, count: int) -> None:
        """Raise the bound after a batch of `count` streams to a target that is back: to twice as many, then to all."""
        if self._most is not None and self._away is None:
            self._most = 2 * self._most if count >= self._most else None


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _forget(call: asyncio.Future[None]) -> None:
    """Take the error of an abandoned call, so that it is not logged as one that nothing has taken."""
    if not call.cancelled():
        call.exception()


def _resolve(request: _Request, *, sent: bool = True) -> None:
    if not request.end.done():
        request.end.set_result(sent)


def _fail(request: _Request, error: Exception) -> None:
    if request.end.done():
        return
    # a future takes no StopIteration
    request.end.set_exception(NoonbellError(describe_error(error)) if isinstance(error, StopIteration) else error)
