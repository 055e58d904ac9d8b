"""The local backend: a store that is opened for one command, with the interfaces of the library over it.

A missing file is created only if the command says so, and a file that is not a ledger is not changed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from noonbell.access import Access, ApiKey
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.secrets.keys import find_keys
from noonbell.actions.secrets.secrets import Secrets
from noonbell.cli.backend.backend_protocol import Backend, EngineUp, ShownPlan
from noonbell.cli.backend.local_schedules import LocalSchedules
from noonbell.cli.connection_target import ConnectionTarget, actor
from noonbell.config import load
from noonbell.core.instants import instant, moment
from noonbell.core.records import DEFAULT_TEAM
from noonbell.engine import SystemClock
from noonbell.errors import NoonbellError, ScheduleNotFoundError
from noonbell.ledger import Answer, Report, verify_store, why
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ledger.why import find_task, zone_of_task
from noonbell.monitors import Monitors
from noonbell.notify import Channels, Rules
from noonbell.planning import Plan, ScheduleFile, apply, plan
from noonbell.ports import Clock, Ledger, ScheduleFilter
from noonbell.schedules import Schedules
from noonbell.schedules.live_changes import LiveChanges, LiveEvent
from noonbell.schedules.warnings import Here
from noonbell.store.opening import open_store, require_ledger
from noonbell.store.wrapping import with_verbs


class StandingClock(SystemClock):
    """The clock of one command: it is stopped at the moment when the command was called."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self._at = instant(at)

    def now(self) -> int:
        return self._at


@asynccontextmanager
async def opened(
    place: ConnectionTarget,
    *,
    read_only: bool = False,
    create: bool = False,
    needs_keys: bool = False,
    key_file: Path | None = None,
    allow: tuple[str, ...] = (),
    apprise: bool = False,
    live: bool = False,
) -> AsyncIterator[Backend]:
    """Open the store of a place. `live` is for commands that keep running: their clock advances."""
    assert place.store is not None  # noqa: S101 - a place without a server has a store
    keys = find_keys(key_file, os.environ) if needs_keys else None
    if not create:
        require_ledger(place.store)
    store = open_store(place.store, read_only=read_only)
    clock: Clock = SystemClock() if live else StandingClock(place.now)
    timeline = None if read_only else _timeline_of(place.store)
    if timeline is not None:  # so that engines are notified of changes at once, and not at their next poll
        from noonbell.timeline import with_timeline  # noqa: PLC0415 - where there is one

        store = with_timeline(store, timeline, clock)
    await store.open()
    try:
        yield LocalBackend(store, clock, keys, Egress(EgressPolicy(allow=allow)), apprise=apprise)
    finally:
        await store.close()


def _timeline_of(store: str) -> str | None:
    """Return the timeline in front of this store, if the settings name one."""
    try:
        settings = load(environ=os.environ)
    except NoonbellError:  # the service reports what is wrong with them
        return None
    return settings.timeline if settings.store == store else None


class LocalBackend:
    """The interfaces of the library over one open store. Access to the database gives access to all teams."""

    def __init__(self, store: Ledger, clock: Clock, keys: Any, egress: Egress, *, apprise: bool) -> None:
        who = actor()
        self._store = store
        self._clock = clock
        self._secrets = Secrets(store, keys, clock, who)
        # the engine that runs a command checks whether it may be started, not the program that writes the schedule
        faces = Schedules(
            store, clock=clock, secrets=self._secrets, egress=egress, actor=who, apprise=apprise, commands=True
        )
        # a view: the command prints what the library would log
        self.schedules = LocalSchedules(store, faces.acting(who, None))
        self.channels: Channels = faces.channels
        self.rules: Rules = faces.rules
        # the body of a ping may hold secrets; without the master keys they are unknown and cannot be masked
        self.monitors = Monitors(store, clock, actor=who, secrets=self._secrets if keys is not None else None)
        self.secrets = LocalSecrets(store, self._secrets)
        self.keys = LocalKeys(store, clock, who)
        self.ledger = LocalLedger(store, clock)
        self.files = LocalFiles(store, clock)

    def team_for(self, given: str | None) -> str:
        return DEFAULT_TEAM if given is None else given

    def team_seen(self, given: str | None) -> str | None:
        return given

    async def engines(self) -> Sequence[EngineUp]:
        now = self._clock.now()
        found = (await self._store.engines.members(now)).alive
        return [
            EngineUp(
                one.lane, one.state, moment(one.up_since), moment(one.joined_at), one.seen_ago_us / 1_000_000,
                one.version, one.zone_data, one.load, one.instance, one.host, one.pid, one.poll_seconds_ago(now),
            )
            for one in found
        ]  # fmt: skip

    async def follow(self, team: str | None) -> AsyncIterator[LiveEvent | None]:
        changes = LiveChanges(self._store, self._clock)
        try:
            async for event in changes.follow(team, idle_seconds=5.0):
                yield event
        finally:
            await changes.stop()


class LocalSecrets:
    """The secrets of a store; signing keys are created only for existing schedules of the team."""

    def __init__(self, store: Ledger, secrets: Secrets) -> None:
        self._store = store
        self._secrets = secrets
        self.put = secrets.put
        self.list = secrets.list
        self.delete = secrets.delete
        self.rotate = secrets.rotate

    async def signing_keys(self, schedule_id: str, team: str) -> Any:
        await self._require(schedule_id, team)
        return await self._secrets.signing_keys(schedule_id, team)

    async def rotate_signing_keys(self, schedule_id: str, team: str, *, overlap: Any) -> Any:
        await self._require(schedule_id, team)
        return await self._secrets.rotate_signing_keys(schedule_id, team, overlap=overlap)

    async def _require(self, schedule_id: str, team: str) -> None:
        if not any(
            found.team == team for found in await self._store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
        ):
            raise ScheduleNotFoundError("schedule", schedule_id)


class LocalKeys(Access):
    """The keys of a store. The first key, and with it the team, may be created before the service first starts."""

    async def create_key(self, *args: Any, **kwargs: Any) -> tuple[ApiKey, str]:
        await self.ensure_default_team()
        return await super().create_key(*args, **kwargs)


class LocalLedger:
    def __init__(self, store: Ledger, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def zone_of(self, task: str, owner: str | None) -> str:
        return str(zone_of_task(await find_task(self._store, task, owner)).zone)

    async def why(self, task: str, at: datetime | None, owner: str | None) -> Answer:
        return await why(self._store, task, at, managed_by=owner, now=self._clock.now())

    async def verify(
        self, owner: str | None, start: datetime | None, end: datetime | None, progress: Callable[[int], None]
    ) -> Report:
        return await verify_store(
            _counting(self._store, progress),
            managed_by=owner,
            from_at=None if start is None else instant(start),
            to_at=None if end is None else instant(end),
        )

    async def owners(self) -> list[str]:
        return sorted({str(row["managed_by"]) for row in await schedule_rows(self._store)})


def _counting(store: Ledger, progress: Callable[[int], None]) -> Ledger:
    """Return the store, which reports how many rows of its ledger were read."""
    rows = 0

    async def read(*args: Any, **kwargs: Any) -> list[tuple[Any, ...]]:
        nonlocal rows
        found = await store.read(*args, **kwargs)
        rows += len(found)
        progress(rows)
        return found

    return with_verbs(store, {"read": read})


class LocalFiles:
    """Plans against the store. A plan is kept as long as this object, or is passed to the next one."""

    def __init__(self, store: Ledger, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def plan(self, file: ScheduleFile, text: str, form: str, team: str | None) -> ShownPlan:
        del text, form  # a server reads it again
        return shown_plan(await plan(self._store, file, now=self._clock.now(), team=team or DEFAULT_TEAM))

    async def apply(self, shown: ShownPlan, actor: str | None) -> Sequence[str]:
        assert isinstance(shown.made, Plan)  # noqa: S101 - it was made above
        here = Here(callbacks=(), runs_commands=False)
        done = await apply(self._store, shown.made, now=self._clock.now(), actor=actor, allow_delete=True, here=here)
        return done.warnings


def shown_plan(made: Plan) -> ShownPlan:
    data = made.to_json()
    return ShownPlan(
        made.file.document.source, made.file.owner, made.unchanged, made.schedules, made.quiet_hours, data, made
    )
