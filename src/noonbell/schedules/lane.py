"""A lane at work: who holds it, what its last holder left behind, and the duties beside its loop.

start, in order:

1. take the lane's name: a second live engine is refused;
2. free what a dead engine left: runs that were executing are queued again, ended as `unknown` where they must not be
   repeated, or given up where they have brought down engine after engine; streams of messages can be delivered again;
3. compare the rules of the time zones in use with those that schedules were computed with, and take the schedules of a
   changed zone over to the new ones (`zone_rules`);
4. learn the secrets that are to be masked; record that the lane is up, after the crash of the one before where it left
   no word;
5. begin to look, and the duties with it: delivery, pruning, the watch over zone rules and over what was deleted
   elsewhere. What was missed while nothing was up is decided by the first look.

A crash after any of these is as one before it: the next start does the same again, and finds done what was done.

The name is kept until nothing of ours runs any more. A stop is a task of its own: who waits for it may give up, and
whoever asks again waits for the same one. A stop that was given a time cuts off what has not ended by then: it is
cancelled and handed over in the ledger, as `take_over` would, before the name is let go; it was no crash, and counts as
none. Only a plain function cannot be cancelled: it may still run here when its run begins again elsewhere.

A lane may be taken by another engine while this process stands still (a lease that was not renewed in time). Then
nothing more is launched here, what runs is waited for, and the name is tried for again, at pauses that grow up to a
minute: once it is free, the lane starts as above. Until then `engine` is None.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Literal

from noonbell.actions.message import message_of
from noonbell.actions.registry import Actions
from noonbell.core.records import LifecycleEvent, LiveRun, OutboxMessage, Outcome, StoredSchedule
from noonbell.engine import Engine
from noonbell.engine.lane import LaneWork
from noonbell.engine.pruning import Pruner
from noonbell.engine.services import Duty, Services, every
from noonbell.errors import HoldLostError, SchedulerInUseError, StoreError, describe_error
from noonbell.monitors.watch import Watch
from noonbell.notify.desk import Desk
from noonbell.ports import Clock, Hold, ScheduleStore, TellCut
from noonbell.schedules.zone_rules import ZoneWatch
from noonbell.store.outage import outage_of

logger = logging.getLogger("noonbell.schedules")

_HOUR: Final = 3_600_000_000
_LOOK_FOR_DELETED: Final = 5_000_000
_KNOW_SECRETS: Final = 5_000_000
_FIRST_RETURN: Final = 1_000_000
_LONGEST_RETURN: Final = 60_000_000


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
        self.lost = 0  # how often another engine has taken the lane
        self._store = store
        self._clock = clock
        self._longest_wait_us = longest_wait_us
        self._retention_us = retention_us
        self._owner = f"lane:{name}"
        self._instance = ""
        self._hold: Hold | None = None
        self._services: Services | None = None
        self._changing = asyncio.Lock()
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()  # set when the stop that is under way has ended
        self._ending: tuple[Engine[LaneWork], Services | None] | None = None  # what it waits for
        self._cut_off: int | None = None  # how many runs it did not wait for, where it was told not to wait
        self._returning: asyncio.Task[None] | None = None
        self._give_up = asyncio.Event()  # of the return that is under way

    # --- starting -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._stopping is not None:
            await asyncio.wait([self._stopping])
        async with self._changing:
            if self.engine is None:
                await self._start()

    async def _start(self) -> None:
        self._instance = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        holder = f"process {os.getpid()} on {socket.gethostname()} (instance {self._instance})"
        self._hold = await self._store.hold(self._owner, holder)
        zones = ZoneWatch(self._store, self._clock)
        try:
            if self.desk is not None:  # before the rest: there may be something to tell of what a dead engine left
                await self.desk.refresh()
            await self._free(self._clock.now())
            await zones.check()
            await self.actions.know_secrets()
            await self._record_start(self._clock.now())
        except BaseException:
            self._release()
            raise
        self._begin(zones)

    async def _free(self, now: int) -> None:
        reason = "the engine ended while it was executing, and it is not repeated"
        queued = await self._store.take_over(self.name, now, self._teller(now, reason))
        if queued:
            logger.warning("%d runs were cut off when the last engine ended; they start again", queued)

    def _teller(self, at: int, reason: str) -> TellCut:
        desk = self.desk

        def tell(stored: StoredSchedule, live: LiveRun, outcome: Outcome) -> Sequence[OutboxMessage]:
            return [] if desk is None else _told_of_cut(desk, stored, live, outcome, at, reason=reason)

        return tell

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
            needs_thread=self.actions.needs_thread,
            notices=None if self.desk is None else self.desk.notifier,
        )
        engine = Engine(
            self._store,
            self._clock,
            work,
            longest_wait_us=self._longest_wait_us,
            on_messages=self.actions.wake,
            on_lost=lambda: self._return_later(engine),
            mask=self.actions.mask,
        )
        self.engine = engine
        self._services = Services(self._clock, self._duties(engine, zones), outage_of(self._store))
        engine.start()
        self._services.start()
        logger.info('The lane "%s" is up (instance %s)', self.name, self._instance)

    def _duties(self, engine: Engine[LaneWork], zones: ZoneWatch) -> dict[str, Duty]:
        async def watch_zones() -> None:
            if await zones.check(engine.between_looks):
                engine.wake(self._clock.now())

        duties: dict[str, Duty] = {
            "delivery": self.actions.deliverer(self._store, lane=self.name, owner=self._instance, desk=self.desk).run,
            "deleted": every(self._clock, _LOOK_FOR_DELETED, engine.look_for_deleted, at_once=False),
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

    async def stop(self, timeout_us: int | None = None) -> bool:
        """False: some runs had not ended in the time given, and were cut off."""
        if self._stopping is None or self._stopping.done():
            self._stopped.clear()
            self._cut_off = None
            self._stopping = _task(self._stop(), "noonbell-stop")
            self._stopping.add_done_callback(lambda _: self._stopped.set())
        # shielded: the lane must not be let go while something of ours runs, whoever gives up waiting
        await asyncio.shield(self._stopping if timeout_us is None else self._stop_within(self._stopping, timeout_us))
        return not self._cut_off

    async def _stop_within(self, stopping: asyncio.Task[None], timeout_us: int) -> None:
        await self._clock.wait(self._clock.now() + timeout_us, self._stopped)
        ending = self._ending
        if ending is not None and self._cut_off is None:
            engine, services = ending
            self._cut_off = 0
            self._cut_off = await engine.cut_off()
            if services is not None:
                services.cut_off()
        await stopping

    async def _stop(self) -> None:
        if self._returning is not None:
            self._give_up.set()
            await asyncio.wait([self._returning])
        async with self._changing:
            self._give_up.set()  # of one that began while we waited
            if self.engine is not None:
                await self._end(self.engine)

    async def _end(self, engine: Engine[LaneWork], *, lost: bool = False) -> None:
        self.engine = None
        services, self._services = self._services, None
        self._ending = (engine, services)
        try:
            engine.request_stop()
            self.actions.request_stop()
            if not lost:
                await self._record("stop-start")
            await engine.stop()
            if services is not None:  # after the loop: what its last runs have sent may still go out
                await services.stop()
            await self.actions.close()
            if self._cut_off is not None and not lost:
                await self._hand_over(engine)
            if not lost:
                await self._record("stop-end")
                logger.info('The lane "%s" is down: nothing of it runs here any more', self.name)
        finally:
            self._ending = None
            self._release()

    async def _hand_over(self, engine: Engine[LaneWork]) -> None:
        """What was cut off is queued again, for whoever has the lane next, or ends where it must not be repeated."""
        reason = "the engine was stopped while it was executing, and it is not repeated"
        try:
            queued = await self._store.take_over(
                self.name, self._clock.now(), self._teller(self._clock.now(), reason), stopped=engine.work.owner
            )
        except Exception as error:
            expected = isinstance(error, StoreError)
            told = "%d runs that were cut off could not be handed back; to the next start they are as after a crash: %s"
            logger.error(told, self._cut_off, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more
        else:
            if self._cut_off:
                logger.warning("%d runs were cut off by the stop; %d of them start again", self._cut_off, queued)

    async def _record(self, event: Literal["stop-start", "stop-end"]) -> None:
        try:
            await self._store.record(LifecycleEvent(self._owner, self._clock.now(), self._instance, event))
        except HoldLostError:
            logger.warning('%s is not recorded: another engine has taken the lane "%s"', event, self.name)
        except Exception as error:
            expected = isinstance(error, StoreError)
            logger.error("%s could not be recorded: %s", event, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more

    def _release(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()

    # --- losing the lane ------------------------------------------------------------------------------------------

    def _return_later(self, engine: Engine[LaneWork]) -> None:
        logger.error(
            'Another engine has taken the lane "%s"; nothing more is started here until the lane is free again',
            self.name,
        )
        self.lost += 1
        self._give_up = asyncio.Event()
        self._returning = _task(self._return(engine, self._give_up), "noonbell-return")

    async def _return(self, engine: Engine[LaneWork], give_up: asyncio.Event) -> None:
        async with self._changing:
            if self.engine is not engine:
                return  # it is being stopped
            await self._end(engine, lost=True)
        await self._take_again(give_up)

    async def _take_again(self, give_up: asyncio.Event) -> None:
        pause = _FIRST_RETURN
        while not give_up.is_set():
            await self._clock.wait(self._clock.now() + pause, give_up)
            async with self._changing:
                if give_up.is_set() or self.engine is not None:
                    return
                try:
                    await self._start()
                except Exception as error:  # noqa: BLE001 - whatever it is, it may be over at the next try
                    _tell_failed(self.name, error)
                else:
                    logger.warning('The lane "%s" is ours again', self.name)
                    return
            pause = min(2 * pause, _LONGEST_RETURN)


def _told_of_cut(
    desk: Desk, stored: StoredSchedule, live: LiveRun, outcome: Outcome, at: int, *, reason: str
) -> Sequence[OutboxMessage]:
    """A rule that cannot be applied must not keep the lane from starting."""
    if outcome == "abandoned":
        reason = f"the engine died {live.crashes + 1} times while it was executing, and it is not tried again"
    try:
        return desk.notifier.of_cut(stored, live, at, reason)
    except Exception:
        logger.exception("Nobody is told of a run of %r that was cut off: the rules failed", stored.columns.name)
        return []


def _tell_failed(lane: str, error: Exception) -> None:
    if isinstance(error, SchedulerInUseError):  # as was told when it was lost
        logger.debug('The lane "%s" is not free yet: %s', lane, error)
        return
    expected = isinstance(error, StoreError)
    logger.error('The lane "%s" could not be taken again yet: %s', lane, describe_error(error), exc_info=not expected)


def _task(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work, name=name)
