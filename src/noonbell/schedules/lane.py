"""A lane at work: who holds it, what its last holder left behind, and which functions its actions call.

start, in order:

1. take the lane's name: a second live engine is refused;
2. queue again what a dead engine left running, or end it as `unknown` where it must not be repeated;
3. record that the lane is up, after the crash of the one before where it left no word;
4. begin to look.

A crash after any of these is as one before it: the next start does the same again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from noonbell.core.records import LifecycleEvent, Start, StoredSchedule
from noonbell.core.turns import definition_of
from noonbell.engine.service import LaneEngine, Prepared
from noonbell.errors import NoonbellError, StoreError
from noonbell.ports import Clock, Hold, ScheduleStore
from noonbell.schedules.records import Call, moment

logger = logging.getLogger("noonbell.schedules")


class Lane:
    """The engine of one lane, while it runs."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Clock,
        name: str,
        callbacks: dict[str, Callable[[Call], Any]],
        longest_wait_us: int,
    ) -> None:
        self.name = name
        self.callbacks = callbacks
        self.engine: LaneEngine | None = None
        self._store = store
        self._clock = clock
        self._longest_wait_us = longest_wait_us
        self._owner = f"lane:{name}"
        self._instance = ""
        self._hold: Hold | None = None
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        async with self._changing:
            if self.engine is not None:
                return
            self._instance = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            holder = f"process {os.getpid()} on {socket.gethostname()} (instance {self._instance})"
            self._hold = await self._store.hold(self._owner, holder)
            try:
                await self._take_over(self._clock.now())
            except BaseException:
                self._release()
                raise
            self.engine = LaneEngine(
                self._store,
                self._clock,
                lane=self.name,
                instance=self._instance,
                longest_wait_us=self._longest_wait_us,
                prepare=self._prepare,
            )
            self.engine.start()

    async def _take_over(self, now: int) -> None:
        queued = await self._store.take_over(self.name, now)
        if queued:
            logger.warning("%d runs were cut off when the last engine ended; they start again", queued)
        last = (await self._store.lifecycle(self._owner))[-1:]
        if last and last[0].event in ("init-ok", "stop-start"):
            told = "inferred at the next start"
            await self._store.record(LifecycleEvent(self._owner, now, last[0].instance, "crash", told))
        await self._store.record(LifecycleEvent(self._owner, now, self._instance, "init-ok"))

    async def stop(self) -> None:
        async with self._changing:
            engine, self.engine = self.engine, None
            if engine is None:
                return
            engine.request_stop()
            await self._record("stop-start")
            await engine.stop()
            await self._record("stop-end")
            self._release()

    async def _record(self, event: Literal["stop-start", "stop-end"]) -> None:
        try:
            await self._store.record(LifecycleEvent(self._owner, self._clock.now(), self._instance, event))
        except StoreError as error:
            logger.error("%s could not be recorded: %s", event, error)  # noqa: TRY400 - the cause is in the message

    def _release(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()

    def _prepare(self, stored: StoredSchedule, start: Start) -> Prepared:
        name = definition_of(stored.columns.definition).action.get("name", "")
        callback = self.callbacks.get(name)
        if callback is None:
            known = ", ".join(sorted(self.callbacks)) or "none"
            raise NoonbellError(f'No callback named "{name}" is registered; registered: {known}', name=name)
        payload = stored.columns.payload
        call = Call(
            run_id=f"{stored.schedule_id}:{start.kind}:{start.run_for}",
            schedule_id=stored.schedule_id,
            name=stored.columns.name,
            scheduled_for=moment(start.run_for),
            attempt=start.attempt,
            manual=start.kind == "manual",
            payload=None if payload is None else msgspec.json.decode(payload),
        )
        return Prepared(partial(callback, call), inspect.iscoroutinefunction(callback))
