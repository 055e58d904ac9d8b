"""The recorder: writes how far claimed streams came, and with that frees them.

Ends that come while one transaction is under way go into the next. While streams wait for a worker the first one waits
for a few turns of the event loop, so that a burst of small streams takes few transactions.

A write that failed may have been committed: it is repeated only while no claim is under way, and not for a stream that
was claimed again since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from noonbell.actions.sender import raise_if_cancelled
from noonbell.actions.stream_in_flight import StreamInFlight, attempts_of, dead_letter_event, log_failures
from noonbell.actions.targets.target import ChannelDispatcher
from noonbell.errors import StoreError
from noonbell.ports import Clock, Ledger
from noonbell.store.outage import Outage

logger = logging.getLogger("noonbell.delivery")

STORE_PAUSE: Final = 500_000
# Turns of the event loop: each is up to 256 messages of handlers that never suspend, and next to nothing otherwise.
_GATHER_TURNS: Final = 4


class StreamRecorder:
    """Records the ends of the streams in flight. `on_recorded` is called with those that a transaction has freed."""

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        outage: Outage,
        *,
        dispatcher: ChannelDispatcher | None,
        is_busy: Callable[[], bool],
        on_recorded: Callable[[list[StreamInFlight]], None],
    ) -> None:
        self.in_flight: dict[int, StreamInFlight] = {}
        self.claiming = asyncio.Lock()
        self.most_tries: int | None = None  # of a write that fails; None: until it succeeds
        self._store = store
        self._clock = clock
        self._outage = outage
        self._dispatcher = dispatcher
        self._is_busy = is_busy
        self._on_recorded = on_recorded
        self._ended: list[StreamInFlight] = []
        self._task: asyncio.Task[None] | None = None

    def holds(self, served: StreamInFlight) -> bool:
        return self.in_flight.get(served.stream.sid) is served

    def add(self, served: StreamInFlight, *, free_at: int | None = None) -> None:
        """Record the end of a stream, cancelled or not: what has arrived must not be sent again if that is possible.

        With `free_at` it cannot be claimed again before then; that counts as no try.
        """
        served.delivery.at = self._clock.now() if free_at is None else free_at
        if self.holds(served):
            self._ended.append(served)
            if self._task is None:
                self._task = asyncio.ensure_future(self._record())

    async def recorded(self, seconds: float | None = None) -> None:
        """Return when all ends are recorded, the tries are used up, or the time is over."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)

    async def close(self) -> None:
        """Leave what is not recorded to the next claim, or to a rescue."""
        task, self._task = self._task, None
        self.in_flight.clear()
        self._ended.clear()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _record(self) -> None:
        for _ in range(_GATHER_TURNS):
            if not self._is_busy():
                break
            await asyncio.sleep(0)
        failures = 0
        while self._ended:
            ended, self._ended = self._ended, []
            try:
                if failures:
                    async with self.claiming:
                        await self._write(ended)
                else:
                    await self._write(ended)
            except Exception as error:  # noqa: BLE001 - whatever it is, what has arrived must be recorded
                raise_if_cancelled()
                failures += 1
                self._ended = ended + self._ended
                last = self.most_tries is not None and failures >= self.most_tries
                with suppress(Exception):  # a log handler that raises must not end the recording
                    self._log_unrecorded(error, len(ended), first=failures == 1, last=last)
                if last:
                    break
                await self._clock.wait(self._clock.now() + STORE_PAUSE, asyncio.Event())
                continue
            failures = 0
            for served in ended:
                if self.holds(served):
                    del self.in_flight[served.stream.sid]
            with suppress(Exception):
                self._outage.worked("recording deliveries", self._clock.elapsed())
                log_failures(ended)
            self._on_recorded(ended)
        self._task = None

    def _log_unrecorded(self, error: Exception, ended: int, *, first: bool, last: bool) -> None:
        if first and not isinstance(error, StoreError):
            logger.error("deliveries not recorded, retrying", exc_info=error)
        if last:
            logger.error("deliveries not recorded, they may be repeated reason=%s", error)
        else:
            text = f"{ended} deliveries could not be recorded: {error}"
            self._outage.failed("recording deliveries", text, self._clock.elapsed())

    async def _write(self, ended: list[StreamInFlight]) -> None:
        mine = [served for served in ended if self.holds(served)]
        for served in mine:
            if served.delivery.dead is not None:
                served.delivery.audit = dead_letter_event(served)
                if not served.noticed:
                    await self._notify_of_dead(served)
        await self._store.outbox.settle([served.delivery for served in mine])

    async def _notify_of_dead(self, served: StreamInFlight) -> None:
        """Notify by the rules, before the dead letter is written: after a crash in between it may be repeated."""
        dispatcher, message, delivery = self._dispatcher, served.failed, served.delivery
        if dispatcher is not None and message is not None:
            try:
                await dispatcher.undelivered(message, attempts_of(served), delivery.error or "", delivery.at)
            except StoreError:
                raise
            except Exception:
                logger.exception("dead letter not notified message_id=%s", message.message_id)
        served.noticed = True
