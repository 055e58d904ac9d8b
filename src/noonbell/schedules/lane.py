"""A lane at work: who holds it, what its last holder left behind, and the duties beside its loop.

start, in order:

1. take the lane's name: a second live engine is refused;
2. free what a dead engine left: runs that were executing are queued again, ended as `unknown` where they must not be
   repeated, or given up where they have brought down engine after engine; streams of messages can be delivered again;
3. compare the rules of the time zones in use with those that schedules were computed with, and take the schedules of a
   changed zone over to the new ones (`zone_rules`);
4. learn the secrets that are to be masked; record that the lane is up, after the crash of the one before where it left
   no word;
5. begin to look, and the duties with it: delivery, pruning, the watch over zone rules. What was missed while nothing
   was up is decided by the first look.

A crash after any of these is as one before it: the next start does the same again, and finds done what was done.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from typing import Final, Literal

from noonbell.actions.message import message_of
from noonbell.actions.registry import Actions
from noonbell.core.records import LifecycleEvent
from noonbell.engine import Engine
from noonbell.engine.lane import LaneWork
from noonbell.engine.pruning import Pruner
from noonbell.engine.services import Duty, Services, every
from noonbell.errors import StoreError, describe_error
from noonbell.monitors.watch import Watch
from noonbell.notify.desk import Desk
from noonbell.ports import Clock, Hold, ScheduleStore
from noonbell.schedules.zone_rules import ZoneWatch

logger = logging.getLogger("noonbell.schedules")

_HOUR: Final = 3_600_000_000
_KNOW_SECRETS: Final = 5_000_000


class Lane:
    """The engine of one lane, while it runs."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Clock,
        name: str,
        actions: Actions,
        *,
        longest_wait_us: int,
        retention_us: int | None = None,
        desk: Desk | None = None,
    ) -> None:
        self.name = name
        self.actions = actions
        self.desk = desk
        self.engine: Engine[LaneWork] | None = None
        self._store = store
        self._clock = clock
        self._longest_wait_us = longest_wait_us
        self._retention_us = retention_us
        self._owner = f"lane:{name}"
        self._instance = ""
        self._hold: Hold | None = None
        self._services: Services | None = None
        self._changing = asyncio.Lock()

    # --- starting -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        async with self._changing:
            if self.engine is not None:
                return
            self._instance = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            holder = f"process {os.getpid()} on {socket.gethostname()} (instance {self._instance})"
            self._hold = await self._store.hold(self._owner, holder)
            zones = ZoneWatch(self._store, self._clock)
            try:
                await self._free(self._clock.now())
                await zones.check()
                await self.actions.know_secrets()
                if self.desk is not None:
                    await self.desk.refresh()
                await self._record_start(self._clock.now())
            except BaseException:
                self._release()
                raise
            self._begin(zones)

    async def _free(self, now: int) -> None:
        queued = await self._store.take_over(self.name, now)
        if queued:
            logger.warning("%d runs were cut off when the last engine ended; they start again", queued)

    async def _record_start(self, now: int) -> None:
        last = (await self._store.lifecycle(self._owner))[-1:]
        if last and last[0].event in ("init-ok", "stop-start"):
            told = "inferred at the next start"
            await self._store.record(LifecycleEvent(self._owner, now, last[0].instance, "crash", told))
        await self._store.record(LifecycleEvent(self._owner, now, self._instance, "init-ok"))

    def _begin(self, zones: ZoneWatch) -> None:
        work = LaneWork(
            self._store,
            lane=self.name,
            owner=self._instance,
            prepare=self.actions.prepare,
            message_of=message_of,
            on_messages=self.actions.wake,
            outdated=lambda: zones.outdated,
            notices=None if self.desk is None else self.desk.notifier,
        )
        engine = Engine(
            self._store,
            self._clock,
            work,
            longest_wait_us=self._longest_wait_us,
            on_messages=self.actions.wake,
            mask=self.actions.mask,
        )
        self.engine = engine
        self._services = Services(self._clock, self._duties(engine, zones))
        engine.start()
        self._services.start()

    def _duties(self, engine: Engine[LaneWork], zones: ZoneWatch) -> dict[str, Duty]:
        async def watch_zones() -> None:
            if await zones.check(engine.between_looks):
                engine.wake(self._clock.now())

        duties: dict[str, Duty] = {
            "delivery": self.actions.deliverer(self._store, lane=self.name, owner=self._instance, desk=self.desk).run,
            "zone-rules": every(self._clock, _HOUR, watch_zones, at_once=False),
        }
        if self.actions.secrets is not None and self.actions.secrets.usable:
            duties["secrets"] = every(self._clock, _KNOW_SECRETS, self.actions.know_secrets, at_once=False)
        if self.desk is not None:
            self.desk.deliver_by(self.actions.wake)
            duties["notices"] = self.desk.run
            duties["monitors"] = Watch(self.desk.store, self._clock, self.desk).run
        if self._retention_us is not None:
            duties["pruning"] = Pruner(self._store, self._clock, self._retention_us).run
        return duties

    # --- stopping -------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        async with self._changing:
            engine, self.engine = self.engine, None
            services, self._services = self._services, None
            if engine is None:
                return
            try:
                engine.request_stop()
                self.actions.request_stop()
                await self._record("stop-start")
                await engine.stop()
                if services is not None:  # after the loop: what its last runs have sent may still go out
                    await services.stop()
                await self.actions.close()
                await self._record("stop-end")
            finally:
                self._release()

    async def _record(self, event: Literal["stop-start", "stop-end"]) -> None:
        try:
            await self._store.record(LifecycleEvent(self._owner, self._clock.now(), self._instance, event))
        except Exception as error:
            expected = isinstance(error, StoreError)
            logger.error("%s could not be recorded: %s", event, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more

    def _release(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()
