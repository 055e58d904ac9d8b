"""An engine of a lane: how it begins and ends, what it does for dead ones, and the duties beside its loop.

Any number of engines may share a lane, in one process or on many machines. start, in order:

1. join the lane, under a name of this engine's own (`engine.membership`);
2. free what dead engines have left: runs that were executing are queued again, ended as `unknown` where they must not
   be repeated, or given up where they have brought down engine after engine; messages can be delivered again;
3. compare the rules of the time zones in use with those that schedules were computed with, and take the schedules of a
   changed zone over to the new ones (`zone_rules`);
4. learn the secrets that are to be masked; record that this engine is up;
5. begin to look, and the duties with it: delivery, the watch over the other engines, pruning, the watch over zone rules
   and over what was deleted elsewhere. The first look decides what was missed.

A crash after any of these is as one before it: the next start does the same again, and finds done what was done.

The name is kept until nothing of ours runs any more. A stop is a task of its own: who waits for it may give up, and
whoever asks again waits for the same one. A stop that was given a time cuts off what has not ended by then: it is
cancelled and handed over in the ledger, as `take_over` would, before the name is let go; it was no crash, and counts as
none. Only a plain function cannot be cancelled: it may still run here when its run begins again elsewhere.

An engine may be taken for dead while this process stands still (a lease that was not renewed in time). What it had in
hand is another's by then, and whatever still runs here is cut off. It comes back at once, as a new engine; while the
store fails it tries again, at pauses that grow up to a minute. Until then `engine` is None.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from importlib import metadata
from typing import Any, Final, Literal, TypeVar

from noonbell.actions.message import message_of
from noonbell.actions.registry import Actions
from noonbell.core.presence import GRACE_US
from noonbell.core.records import AT_ONCE, LiveRun, OutboxMessage, Outcome, StoredSchedule
from noonbell.engine import Engine
from noonbell.engine.lane import LaneWork
from noonbell.engine.load import LoadMeter
from noonbell.engine.membership import RECORDED_WITHIN, Membership
from noonbell.engine.pruning import Pruner
from noonbell.engine.services import Duty, Services, every
from noonbell.errors import HoldLostError, StopFromTaskError, StoreError, describe_error
from noonbell.monitors.watch import Watch
from noonbell.notify.desk import Desk
from noonbell.ports import Clock, ScheduleStore, TellCut
from noonbell.schedules.zone_rules import ZoneWatch, zone_data_version
from noonbell.store.outage import outage_of

logger = logging.getLogger("noonbell.schedules")

T = TypeVar("T")
Heed = Callable[[str, Callable[[int], None]], Callable[[], None]]

_HOUR: Final = 3_600_000_000
_LOOK_FOR_DELETED: Final = 5_000_000
_KNOW_SECRETS: Final = 5_000_000
_MOST_TARGETS: Final = 1_000  # that an engine publishes
_FIRST_RETURN: Final = 1_000_000
_LONGEST_RETURN: Final = 60_000_000


class Lane:
    """An engine of one lane, while it runs."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Clock,
        name: str,
        actions: Actions,
        *,
        longest_wait_us: int,
        retention_us: int | None = None,
        threads: int | None = None,
        desk: Desk | None = None,
    ) -> None:
        self.name = name
        self.actions = actions
        self.desk = desk
        self.engine: Engine[LaneWork] | None = None
        self.lost = 0  # how often this engine was taken for dead
        self._store = store
        self._clock = clock
        self._longest_wait_us = longest_wait_us
        self._retention_us = retention_us
        self._threads = threads
        self._member: Membership | None = None
        self._services: Services | None = None
        self._stop_heeding: Callable[[], None] = _nothing
        self._changing = asyncio.Lock()
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()  # set when the stop that is under way has ended
        self._ending: tuple[Engine[LaneWork], Services | None] | None = None  # what it waits for
        self._reached = asyncio.Event()  # set when it has come so far
        self._cut_off: int | None = None  # how many runs it did not wait for, where it was told not to wait
        self._returning: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[int] | None = None
        self._give_up = asyncio.Event()  # of the return that is under way

    def require_other_thread(self, method: str) -> None:
        """Raise StopFromTaskError in a plain function that this engine runs: it would wait for its own end."""
        engine = self._engine_or_ending
        if engine is not None and engine.in_own_thread():
            raise StopFromTaskError(method, owner="schedules", thread=True)

    def require_other_task(self, method: str) -> None:
        """Raise StopFromTaskError in a coroutine that this engine runs: it would wait for its own end."""
        engine = self._engine_or_ending
        if engine is not None and engine.is_own_task(asyncio.current_task()):
            raise StopFromTaskError(method, owner="schedules")

    @property
    def _engine_or_ending(self) -> Engine[LaneWork] | None:
        return self.engine if self._ending is None else self._ending[0]

    @property
    def instance(self) -> str | None:
        """The name of the engine that runs here, while it does."""
        return None if self._member is None else self._member.instance

    # --- starting -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._stopping is not None:
            await asyncio.wait([self._stopping])
        async with self._changing:
            if self.engine is None:
                await self._start()

    async def _start(self) -> None:
        member = Membership(self._store, self._clock, self.name, version=_version(), zone_data=zone_data_version)
        zones = ZoneWatch(self._store, self._clock)
        try:
            await member.join()
            if self.desk is not None:  # before the rest: there may be something to tell of what a dead engine left
                await self.desk.refresh()
            rescued = await self._rescue(member)
            await zones.check()
            await self.actions.know_secrets()
            await member.record("init-ok")
            await member.beat("up")
        except BaseException:
            member.release()
            raise
        self._member = member
        self._begin(member, zones, rescued_at=self._clock.now() if rescued else None)

    async def _rescue(self, member: Membership) -> int:
        """Free what dead engines have left; returns how many runs start again."""
        reason = "the engine ended while it was executing, and it is not repeated"
        queued, dead, _ = await member.rescue(self._teller(self._clock.now(), reason))
        if dead:
            told = 'Dead engines of the lane "%s": %s; what they had in hand is free again'
            logger.warning(told, self.name, ", ".join(dead))
        if queued:
            logger.warning("%d runs were cut off when their engine ended; they start again", queued)
        return queued

    def _teller(self, at: int, reason: str) -> TellCut:
        desk = self.desk

        def tell(stored: StoredSchedule, live: LiveRun, outcome: Outcome) -> Sequence[OutboxMessage]:
            return [] if desk is None else _told_of_cut(desk, stored, live, outcome, at, reason=reason)

        return tell

    def _begin(self, member: Membership, zones: ZoneWatch, *, rescued_at: int | None) -> None:
        work = LaneWork(
            self._store,
            lane=self.name,
            owner=member.instance,
            prepare=self.actions.prepare,
            message_of=message_of,
            on_messages=self.actions.wake,
            outdated=lambda: zones.outdated,
            needs_thread=self.actions.needs_thread,
            knows=self.actions.knows,
            others=lambda: member.others_up,
            now=self._clock.now,
            up_since=member.up_since,
            grace_us=max(GRACE_US, self._longest_wait_us + RECORDED_WITHIN),
            notices=None if self.desk is None else self.desk.notifier,
        )
        if rescued_at is not None:
            work.rescued(rescued_at)
        engine = Engine(
            self._store,
            self._clock,
            work,
            longest_wait_us=self._longest_wait_us,
            on_messages=self.actions.wake,
            on_lost=lambda: self._on_lost(engine),
            mask=self.actions.mask,
            threads=self._threads,
        )
        member.polled = lambda: (None if work.has_unrecorded_gap else engine.last_poll_at, work.grace_us)
        self.engine = engine
        duties = self._duties(engine, member, zones)
        self._services = Services(self._clock, duties, outage_of(self._store), engine.lose)
        engine.start(member.up_since)
        self._services.start()
        heed: Heed | None = getattr(self._store, "heed", None)  # not every store hears of what others do
        self._stop_heeding = _nothing if heed is None else heed(self.name, engine.wake)
        logger.info('An engine of the lane "%s" is up (instance %s)', self.name, member.instance)

    def _duties(self, engine: Engine[LaneWork], member: Membership, zones: ZoneWatch) -> dict[str, Duty]:
        async def watch_zones() -> None:
            if await zones.check(engine.claim_lock):
                engine.wake(self._clock.now())

        duties: dict[str, Duty] = {
            "engines": self._watch_engines(engine, member, watch_zones),
            "delivery": self.actions.deliverer(self._store, lane=self.name, owner=member.instance, desk=self.desk).run,
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
        if hasattr(self._store, "timeline_duties"):  # it has a timeline in front of it
            duties |= self._store.timeline_duties(self.name, engine.wake)
        return duties

    def _watch_engines(
        self, engine: Engine[LaneWork], member: Membership, compare_zones: Callable[[], Awaitable[None]]
    ) -> Duty:
        """The watch over the others that share the lane."""
        meter = LoadMeter(engine.metrics)

        def told() -> tuple[int, dict[str, Any]]:
            targets = sorted(self.actions.targets)[:_MOST_TARGETS]
            load = {**engine.load(), "grace_seconds": engine.work.grace_us / 1_000_000}
            return engine.work.up_since, {**load, **meter.read(self._clock.elapsed()), "targets": targets}

        async def rescue() -> None:
            if await self._rescue(member):
                engine.work.rescued(self._clock.now())
                engine.wake(AT_ONCE)
            self.actions.wake()  # there may be messages that nobody delivers any more

        async def watch(stop: asyncio.Event) -> None:
            await member.watch(stop, told, rescue, compare_zones)

        return watch

    # --- stopping -------------------------------------------------------------------------------------------------

    async def stop(self, timeout_us: int | None = None) -> bool:
        """False: some runs had not ended in the time given, and were cut off."""
        if self._stopping is None or self._stopping.done():
            self._stopped.clear()
            self._reached.clear()
            self._cut_off = None
            self._stopping = _task(self._stop(), "noonbell-stop")
            self._stopping.add_done_callback(lambda _: self._stopped.set())
        # shielded: the lane must not be let go while something of ours runs, whoever gives up waiting
        await asyncio.shield(self._stopping if timeout_us is None else self._stop_within(self._stopping, timeout_us))
        return not self._cut_off

    async def _stop_within(self, stopping: asyncio.Task[None], timeout_us: int) -> None:
        await self._clock.wait(self._clock.now() + timeout_us, self._stopped)
        if self._ending is None and not stopping.done():  # it has not come to what there is to wait for
            reached = _task(self._reached.wait(), "noonbell-stop-reached")
            await asyncio.wait([stopping, reached], return_when=asyncio.FIRST_COMPLETED)
            reached.cancel()
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
        member, self._member = self._member, None
        self._ending = (engine, services)
        self._reached.set()
        self._stop_heeding()
        try:
            engine.request_stop()
            self.actions.request_stop()
            if not lost and member is not None:
                await self._record(member, "stop-start")
            await engine.stop()
            if services is not None:  # after the loop: what its last runs have sent may still go out
                await services.stop()
            await self.actions.close()
            if member is not None and not lost:
                if self._cut_off is not None:
                    await self._hand_over(member)
                await self._record(member, "stop-end")
                logger.info('The lane "%s" is left: nothing of it runs here any more', self.name)
        finally:
            self._ending = None
            if member is not None:
                member.release()

    async def _hand_over(self, member: Membership) -> None:
        """What was cut off is queued again, for whoever is free, or ends where it must not be repeated."""
        reason = "the engine was stopped while it was executing, and it is not repeated"
        try:
            queued = (await member.hand_over(self._teller(self._clock.now(), reason))).queued
        except Exception as error:
            expected = isinstance(error, StoreError)
            told = "%d runs that were cut off could not be handed back, and are taken up as after a crash: %s"
            logger.error(told, self._cut_off, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more
        else:
            if self._cut_off:
                logger.warning("%d runs were cut off by the stop; %d of them start again", self._cut_off, queued)

    async def _record(self, member: Membership, event: Literal["stop-start", "stop-end"]) -> None:
        try:
            await member.record(event)
            await (member.beat("stopping") if event == "stop-start" else member.leave())
        except HoldLostError:
            logger.warning("%s is not recorded: the engine %s was taken for dead", event, member.instance)
        except Exception as error:
            expected = isinstance(error, StoreError)
            logger.error("%s could not be recorded: %s", event, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more

    # --- being taken for dead -------------------------------------------------------------------------------------

    def _on_lost(self, engine: Engine[LaneWork]) -> None:
        self.lost += 1
        told = "The engine %s was taken for dead, and what it had in hand is another's; it leaves that%s"
        if self._ending is not None and self._ending[0] is engine:
            logger.error(told, engine.work.owner, ", and stops")
            self._leaving = _task(engine.cut_off(), "noonbell-leave")
            return
        logger.error(told, engine.work.owner, ", and comes back under a new name")
        self._give_up = asyncio.Event()
        self._returning = _task(self._return(engine, self._give_up), "noonbell-return")

    async def _return(self, engine: Engine[LaneWork], give_up: asyncio.Event) -> None:
        async with self._changing:
            if self.engine is not engine:
                return  # it is being stopped
            await engine.cut_off()  # however it ended, it would count for nothing
            await self._end(engine, lost=True)
        await self._come_back(give_up)

    async def _come_back(self, give_up: asyncio.Event) -> None:
        pause = _FIRST_RETURN
        while not give_up.is_set():
            async with self._changing:
                if give_up.is_set() or self.engine is not None:
                    return
                try:
                    await self._start()
                except Exception as error:
                    expected = isinstance(error, StoreError)
                    told = 'The lane "%s" could not be joined again yet: %s'
                    logger.error(told, self.name, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more
                else:
                    return
            await self._clock.wait(self._clock.now() + pause, give_up)
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


def _version() -> str:
    """The version of this program; the package itself is above the layers."""
    try:
        return metadata.version("noonbell")
    except metadata.PackageNotFoundError:
        return "-"


def _nothing() -> None:
    """Nobody was heeded."""


def _task(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work, name=name)
