"""Assembly of the service: the one place where concrete implementations are chosen.

    service = build(settings)
    await service.start()
    ...
    await service.stop(settings.shutdown_seconds)

`build` opens nothing. `start` opens the store, creates required records, and runs an engine of the lane. `stop` stops
claiming at once, waits for runs until its timeout, and queues the remaining ones again.

With the setting `engine` off, no engine runs here: the service watches the engines of other processes and notifies when
none polls (`notify.engine_watch`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from noonbell.access import Access
from noonbell.access.upkeep import AccessUpkeep
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.http.slots import HttpLimits
from noonbell.actions.secrets.keys import KeyRing, find_keys
from noonbell.actions.secrets.refresh import SecretsRefresh
from noonbell.actions.secrets.secrets import Secrets
from noonbell.config import Settings, is_loopback
from noonbell.core.presence import EngineHealth, health
from noonbell.engine import clock_for, contain_interrupts
from noonbell.engine.supervisor import Supervisor
from noonbell.errors import SettingsInvalidError
from noonbell.monitors import Monitors
from noonbell.notify import Channels, Rules
from noonbell.notify.channels import ChannelSender
from noonbell.notify.engine_watch import EngineWatch
from noonbell.periodic import PeriodicScheduler
from noonbell.periodic.application import load_registrations, start_application_tasks
from noonbell.ports import BackgroundService, Clock, Ledger
from noonbell.schedules import Schedules
from noonbell.schedules.live_changes import LiveChanges
from noonbell.store.opening import open_store
from noonbell.store.outage import outage_log_for
from noonbell.store.timed import StoreTimes, time_verbs

logger = logging.getLogger("noonbell.service")

_LONGEST_WAIT: Final = timedelta(seconds=1)
_UPKEEP_US: Final = 15_000_000
_LAST_USES_SECONDS: Final = 2.0
# The time to queue cancelled runs again; a store that does not answer must not delay a stop for longer.
_HAND_BACK_SECONDS: Final = 8.0


class Service:
    """The parts of a service. Created by `build`."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Ledger,
        times: StoreTimes,
        *,
        keys: KeyRing | None,
        registrations: Sequence[Any] | None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.store = store
        self.times = times
        self.egress = Egress(
            EgressPolicy(allow=_allowed(settings), proxy=settings.egress_proxy),
        )
        self.secrets = Secrets(store, keys, clock)
        self.schedules = Schedules(
            store, clock=clock, secrets=self.secrets, lane=settings.lane, longest_wait=_LONGEST_WAIT,
            commands=settings.allowed_commands, egress=self.egress, apprise=settings.apprise,
            public_url=settings.public_url, targets=_built_targets(settings, self.egress), threads=settings.threads,
            http_limits=HttpLimits(total=settings.http_slots, per_host=settings.http_slots_per_host),
            retention=None if settings.retention_days is None else timedelta(days=settings.retention_days),
        )  # fmt: skip
        self.channels: Channels = self.schedules.channels
        self.rules: Rules = self.schedules.rules
        self.monitors = Monitors(store, clock, secrets=self.secrets)
        self.access = Access(store, clock, "service")
        self.events = LiveChanges(store, clock)
        self.tasks: PeriodicScheduler | None = None  # of an application, where its module was named
        self.stopping = asyncio.Event()  # set when a stop begins: streams that are open end then
        self.started_at: int | None = None
        self._registrations = registrations
        self._watch: EngineWatch | None = None  # where no engine runs here
        self._upkeep = AccessUpkeep(self.access, clock, interval_us=_UPKEEP_US)
        self._supervisor: Supervisor | None = None  # the services that run beside the engine, or instead of it
        self._patience: asyncio.Timeout | None = None  # how long a stop that is under way waits for the tasks
        self._abandoned = False  # a stop has left something that may still want to write

    async def backlog(self) -> dict[str, int]:
        """Return the number of due schedules and live runs in the whole store."""
        return await self.store.backlog(self.clock.now())

    @property
    def poll_age(self) -> float | None:
        """The seconds since a poll completed: by the engine here, or, without one, by any engine of the lane.

        None if an engine should run here and does not.
        """
        return self.schedules.poll_age if self._watch is None else self._watch.poll_age

    @property
    def stalled(self) -> bool:
        """True if no poll completed within the grace."""
        return self.engine_health == "stalled"

    @property
    def engine_health(self) -> EngineHealth:
        """The state of the engine here; without one, of the engines of the lane."""
        return health(self.poll_age) if self._watch is None else self._watch.health

    @property
    def ready(self) -> bool:
        """True if the service is up: the store is open, and an engine polls."""
        up = self.started_at is not None and not self.stopping.is_set()
        return up and self.engine_health == "running"

    # --- its life -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store and create required records; nothing runs yet."""
        await self.store.open()
        try:
            await self.access.ensure_default_team()
        except BaseException:
            await self.store.close()
            raise

    async def start(self) -> None:
        """Open the store, and run the lane and the tasks of the application. A failure here leaves nothing open."""
        contain_interrupts()
        await self.open()
        try:
            if self._registrations is not None:
                self.tasks = await start_application_tasks(
                    self.store, self._registrations, clock=self.clock, threads=self.settings.threads
                )
            services: dict[str, BackgroundService] = {"access": self._upkeep}
            if self.settings.engine:
                await self.schedules.start()
            else:
                services |= await self._watch_engines()
        except BaseException:
            if self.tasks is not None:
                await self.tasks.close()
            await self.store.close()
            raise
        self.started_at = self.clock.now()
        self._supervisor = Supervisor(self.clock, services, outage_log_for(self.store))
        self._supervisor.start()

    async def _watch_engines(self) -> dict[str, BackgroundService]:
        """Return the services of a process without an engine."""
        settings, store = self.settings, self.store
        postman = ChannelSender(self.clock, egress=self.egress, secrets=self.secrets, apprise=settings.apprise)
        self._watch = EngineWatch(store, self.clock, postman, lane=settings.lane, public_url=settings.public_url)
        services: dict[str, BackgroundService] = {"engine-watch": self._watch}
        if self.secrets.usable:
            await self.secrets.know_all()
            services["secrets"] = SecretsRefresh(self.secrets, self.clock)
        return services

    async def stop(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - the time that is given is the contract
        """Stop claiming, wait up to `timeout` seconds for runs, and close the store. Return False if runs are left.

        Those are queued again for the next engine of the lane, with the same run id, unless they must not be repeated.
        """
        in_time = await self.stop_work(timeout)
        await self.close()
        return in_time

    async def stop_work(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as above
        """Do the first half of a stop: start nothing new, and wait for runs. The store stays open."""
        self.stopping.set()
        await self.events.stop()
        if self._supervisor is not None:
            supervisor, self._supervisor = self._supervisor, None
            supervisor.cancel()
            await supervisor.stop()
            with contextlib.suppress(TimeoutError):  # a store that does not answer must not hold up a stop
                async with asyncio.timeout(_LAST_USES_SECONDS):
                    await self._upkeep.write_uses()
        ended = await asyncio.gather(self._stop_schedules(timeout), self._stop_tasks(timeout))
        if not all(ended):
            logger.warning(
                "runs cancelled at the shutdown timeout timeout_seconds=%g; repeatable runs are queued again, "
                "and the others end as unknown", timeout or 0,
            )  # fmt: skip
        return all(ended)

    async def _stop_schedules(self, timeout: float | None) -> bool:  # noqa: ASYNC109 - as above
        given = None if timeout is None else timedelta(seconds=timeout)
        try:
            async with asyncio.timeout(None if timeout is None else timeout + _HAND_BACK_SECONDS):
                return await self.schedules.stop(given)
        except TimeoutError:
            logger.error("store does not answer: cancelled runs are recovered as after a crash")  # noqa: TRY400 - a traceback does not help
            self._abandoned = True
            return False

    async def _stop_tasks(self, timeout: float | None) -> bool:  # noqa: ASYNC109 - as above
        """Stop the tasks of an application, which its next start restarts, as after a crash.

        A second stop gives the first one its own time: both end together.
        """
        if self.tasks is None:
            return True
        if self._patience is not None:
            if not self._patience.expired():
                until = None if timeout is None else asyncio.get_running_loop().time() + timeout
                self._patience.reschedule(until)
            return False
        try:
            async with asyncio.timeout(timeout) as self._patience:
                await self.tasks.close()
        except TimeoutError:
            self._abandoned = True
            return False
        finally:
            self._patience = None
        return True

    async def close(self) -> None:
        """Do the second half of a stop: close the store, which is not used any more."""
        if self._abandoned:
            self.store.kill()  # as a dying process: what is left running here can write nothing
        else:
            await self.store.close()


def build(settings: Settings, *, clock: Clock | None = None, environ: Mapping[str, str] | None = None) -> Service:
    """Return a service with these settings, not started yet; raise an error for invalid settings."""
    environ = os.environ if environ is None else environ
    named = None if settings.master_keys_file is None else Path(settings.master_keys_file)
    keys = find_keys(named, environ)
    if settings.tasks is not None and not settings.engine:
        source = settings.sources.get("tasks", "the program")
        raise SettingsInvalidError("tasks", settings.tasks, source, "needs an engine; leave out --no-engine")
    registrations = None if settings.tasks is None else load_registrations(settings.tasks)
    store = open_store(settings.store)
    times = time_verbs(store)  # before a timeline copies its parts
    chosen = clock_for(store) if clock is None else clock
    if settings.timeline is not None:
        from noonbell.timeline import with_timeline  # noqa: PLC0415 - where there is one

        store = with_timeline(store, settings.timeline, chosen)
    return Service(settings, chosen, store, times, keys=keys, registrations=registrations)


def _built_targets(settings: Settings, egress: Egress) -> dict[str, Any]:
    for target in settings.targets:
        if target.missing is not None:
            source = settings.sources.get("targets", "the program")
            raise SettingsInvalidError(f"targets.{target.name}.kind", target.kind, source, f"needs {target.missing}")
    return {target.name: target.build(egress) for target in settings.targets}


def _allowed(settings: Settings) -> tuple[str, ...]:
    """Return the addresses that schedules may reach. The demo's own port is added, so that it can be its own target.

    This is done only if the service listens on loopback: egress checks hosts and ports, not paths or teams, so a user
    who may write a schedule could send requests to any path of the API from this machine, though with no other key
    than their own.
    """
    if not settings.demo or not is_loopback(settings.host):
        return settings.egress_allow
    return (*settings.egress_allow, f"127.0.0.1:{settings.port}")
