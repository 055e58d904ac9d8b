"""One life of an engine of a lane: how it starts, which services run beside its loop, and how it ends.

A start, in order:

1. join the lane, under a name of this engine's own (`engine.membership`);
2. free what dead engines have left (`engine.rescue`);
3. compare the rules of the time zones in use with those that schedules were computed with, and move the schedules of a
   changed zone to the new ones (`zone_watch`);
4. read the secrets that are to be masked; record that this engine is up;
5. begin to poll, and start the background services: delivery, heartbeat, rescue, deleted runs, zone rules, and where
   they are used secrets, notices, monitors, pruning and the timeline. The first poll decides what was missed.

A crash after any of these is as one before it: the next start does the same again, and finds done what was done.

An end keeps the lease until nothing of the engine runs any more. What a stop did not wait for is cancelled and released
in the ledger, as a rescue would, before the lease is given up; that counts as no death. Only a plain function cannot be
cancelled: it may still run here when its run begins again elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, Final, Literal, NamedTuple

from noonbell.actions.message import message_of
from noonbell.actions.registry import Actions
from noonbell.actions.secrets.refresh import SecretsRefresh
from noonbell.core.presence import GRACE_US
from noonbell.core.records import AT_ONCE, LiveRun, OutboxMessage, Outcome, StoredSchedule
from noonbell.engine import Engine
from noonbell.engine.heartbeat import Heartbeat
from noonbell.engine.lane_jobs import LaneJobs
from noonbell.engine.load import LoadMeter
from noonbell.engine.membership import RECORDED_WITHIN, Membership, intervals
from noonbell.engine.pruning import Pruner
from noonbell.engine.rescue import NoticesOf, Rescuer
from noonbell.engine.supervisor import Supervisor
from noonbell.errors import LeaseLostError, StoreError, describe_error
from noonbell.monitors.watch import Watch
from noonbell.notify.dispatcher import NotificationDispatcher
from noonbell.ports import BackgroundService, Clock, Ledger, MakeNotices, Rescue
from noonbell.schedules.zone_rules import zone_data_version
from noonbell.schedules.zone_watch import ZoneWatch
from noonbell.store.outage import outage_log_for

logger = logging.getLogger("noonbell.schedules")

_MOST_TARGETS: Final = 1_000  # that an engine publishes


class LaneConfig(NamedTuple):
    """The parts that every engine of a lane is built from."""

    store: Ledger
    clock: Clock
    name: str
    actions: Actions
    desk: NotificationDispatcher | None
    longest_wait_us: int
    retention_us: int | None
    threads: int | None


class EngineLife:
    """One engine of a lane with its services, from `start` to `end`."""

    def __init__(self, lane: LaneConfig, on_lost: Callable[[EngineLife], None]) -> None:
        store, clock = lane.store, lane.clock
        self.member = Membership(store, clock, lane.name, version=_version(), zone_data=zone_data_version)
        self._lane = lane
        self._zones = ZoneWatch(store, clock)
        self._rescuer = Rescuer(
            store, clock, lane=lane.name, instance=self.member.instance,
            interval_us=intervals(store.lease_seconds).look_us,
            notices_of=None if lane.desk is None else _notices_by(lane.desk),
        )  # fmt: skip
        self.engine = self._make_engine(on_lost)
        self._supervisor = Supervisor(clock, self._services(), outage_log_for(store), self.engine.on_lease_lost)
        self._unsubscribe: Callable[[], None] = _nothing
        self._abandoning: asyncio.Task[int] | None = None

    # --- starting -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the lane and begin to poll. What fails here leaves nothing behind."""
        member, desk = self.member, self._lane.desk
        try:
            await member.join()
            if desk is not None:  # before the rest: a rescue may have something to notify of
                await desk.refresh()
            await self._rescuer.rescue()
            await self._zones.run_once()
            await self._lane.actions.know_secrets()
            await member.beat("up", event="init-ok")
        except BaseException:
            member.release()
            raise
        self._begin()

    def _begin(self) -> None:
        lane, engine, member = self._lane, self.engine, self.member
        engine.work.up_since = member.up_since
        member.polled = lambda: (
            None if engine.work.has_unrecorded_gap else engine.last_poll_at,
            engine.work.grace_us,
        )
        engine.start(member.up_since)
        if lane.desk is not None:
            lane.desk.deliver_by(lane.actions.wake)
        self._supervisor.start()
        self._unsubscribe = lane.store.subscribe(lane.name, engine.wake)
        logger.info("engine started lane=%s instance=%s", lane.name, member.instance)

    def _make_engine(self, on_lost: Callable[[EngineLife], None]) -> Engine[LaneJobs]:
        lane, member, zones = self._lane, self.member, self._zones
        work = LaneJobs(
            lane.store,
            lane=lane.name,
            owner=member.instance,
            preparer=lane.actions.preparer,
            message_of=message_of,
            on_messages=lane.actions.wake,
            outdated=lambda: zones.outdated,
            needs_thread=lane.actions.needs_thread,
            knows=lane.actions.knows,
            others=lambda: member.others_up,
            now=lane.clock.now,
            up_since=member.up_since,
            grace_us=max(GRACE_US, lane.longest_wait_us + RECORDED_WITHIN),
            notices=None if lane.desk is None else lane.desk.notifier,
        )
        engine = Engine(
            lane.store,
            lane.clock,
            work,
            longest_wait_us=lane.longest_wait_us,
            on_messages=lane.actions.wake,
            on_lost=lambda: on_lost(self),
            mask=lane.actions.mask,
            threads=lane.threads,
        )
        zones.lock, zones.on_change = engine.claim_lock, lambda: engine.wake(lane.clock.now())
        self._rescuer.on_rescue = self._on_rescue
        return engine

    def _services(self) -> dict[str, BackgroundService]:
        lane, engine, member = self._lane, self.engine, self.member
        services: dict[str, BackgroundService] = {
            "heartbeat": Heartbeat(
                member, lane.clock, interval_us=intervals(lane.store.lease_seconds).beat_us,
                read_load=self._load_reader(), on_new_zone_data=self._zones.wake,
            ),
            "rescue": self._rescuer,
            "delivery": lane.actions.deliverer(lane.store, lane=lane.name, owner=member.instance, dispatcher=lane.desk),
            "deleted": engine.deleted_runs,
            "zone-rules": self._zones,
        }  # fmt: skip
        secrets = lane.actions.secrets
        if secrets is not None and secrets.usable:
            services["secrets"] = SecretsRefresh(secrets, lane.clock)
        if lane.desk is not None:
            services["notices"] = lane.desk
            services["monitors"] = Watch(lane.desk.store, lane.clock, lane.desk)
        if lane.retention_us is not None:
            services["pruning"] = Pruner(lane.store, lane.clock, lane.retention_us)
        return services | dict(lane.store.services(lane.name, engine.wake))

    def _load_reader(self) -> Callable[[], tuple[int, dict[str, Any]]]:
        lane, engine = self._lane, self.engine
        meter = LoadMeter(engine.metrics)

        def read() -> tuple[int, dict[str, Any]]:
            targets = sorted(lane.actions.targets)[:_MOST_TARGETS]
            load = {**engine.load(), "grace_seconds": engine.work.grace_us / 1_000_000}
            return engine.work.up_since, {**load, **meter.read(lane.clock.elapsed()), "targets": targets}

        return read

    def _on_rescue(self, rescued: Rescue) -> None:
        if rescued.queued:
            self.engine.work.rescued(self._lane.clock.now())
            self.engine.wake(AT_ONCE)
        self._lane.actions.wake()  # there may be messages of a stream that its engine has left

    # --- ending ---------------------------------------------------------------------------------------------------

    async def abandon(self) -> int:
        """Cancel and abandon what runs, and the services, so that `end` returns; returns how many runs that were."""
        abandoned = await self.engine.cut_off()
        self._supervisor.cancel()
        return abandoned

    def abandon_soon(self) -> None:
        """Abandon what runs: the lease was lost while this life ends."""
        create_task = asyncio.get_running_loop().create_task
        self._abandoning = create_task(self.engine.cut_off(), name="noonbell-abandon")

    async def end(self, abandoned: Callable[[], int | None], *, lost: bool = False) -> None:
        """Return when nothing of this engine runs any more and its lease is released.

        `abandoned` returns how many runs a stop did not wait for, None where it has waited for all. With `lost` nothing
        is recorded: what the engine had claimed is another's.
        """
        lane, member = self._lane, self.member
        self._unsubscribe()
        try:
            self.engine.request_stop()
            lane.actions.request_stop()
            if not lost:
                await self._record("stop-start")
            await self.engine.stop()
            await self._supervisor.stop()  # after the loop: what its last runs have sent may still go out
            await lane.actions.close()
            if not lost:
                if (left := abandoned()) is not None:
                    await self._release_abandoned(left)
                await self._record("stop-end")
                logger.info("engine stopped lane=%s instance=%s", lane.name, member.instance)
        finally:
            member.release()

    async def _release_abandoned(self, abandoned: int) -> None:
        """Queue abandoned runs again, for any engine that is free; those that must not be repeated end."""
        try:
            queued = (await self._rescuer.release_own()).queued
        except Exception as error:
            expected = isinstance(error, StoreError)
            message = "%d abandoned runs could not be released and restart as after a crash: %s"
            logger.error(message, abandoned, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it helps
        else:
            if abandoned:
                logger.warning("%d runs were cut off by the stop; %d of them start again", abandoned, queued)

    async def _record(self, event: Literal["stop-start", "stop-end"]) -> None:
        member = self.member
        try:
            await (member.beat("stopping", event=event) if event == "stop-start" else member.leave(event=event))
        except LeaseLostError:
            logger.warning("lease lost, %s is not recorded engine=%s", event, member.instance)
        except Exception as error:
            expected = isinstance(error, StoreError)
            logger.error("%s could not be recorded: %s", event, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it helps


def _notices_by(desk: NotificationDispatcher) -> NoticesOf:
    """Return what makes the notices of runs that a rescue ends."""

    def notices_of(at: int, reason: str) -> MakeNotices:
        def of_run(stored: StoredSchedule, live: LiveRun, outcome: Outcome) -> Sequence[OutboxMessage]:
            why = reason
            if outcome == "abandoned":
                why = f"the engine died {live.crashes + 1} times while it was executing, and it is not tried again"
            try:
                return desk.notifier.of_cut(stored, live, at, why)
            except Exception:  # a rule that cannot be applied must not keep the lane from starting
                logger.exception("notification rules failed, a run gets no notices schedule=%r", stored.columns.name)
                return []

        return of_run

    return notices_of


def _version() -> str:
    """The version of this program; the package itself is above the layers."""
    try:
        return metadata.version("noonbell")
    except metadata.PackageNotFoundError:
        return "-"


def _nothing() -> None:
    """Do nothing: no subscription was made."""
