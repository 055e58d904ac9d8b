"""The registry of tasks: those that are scheduled, those that are leaving, and those left by an earlier process.

A change is written first and believed after that, so a store that fails leaves everything as it was. The caller sees to
it that changes come one at a time and between two looks of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from noonbell.core.records import LifecycleEvent
from noonbell.core.terms import declared_terms
from noonbell.declarative.host_zone import HostZone, zone_named
from noonbell.declarative.override import plan
from noonbell.declarative.registrations import Registration
from noonbell.declarative.task_state import StoredTask, read_stored
from noonbell.engine import DeclaredJobs, Engine, Task
from noonbell.periodic.store_lease import StoreLease
from noonbell.ports import Clock
from noonbell.timing import rules_hash

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Entry:
    """A task of this life. Compared by identity: a task that left and came back is another."""

    registration: Registration
    sid: int


class Registry:
    """The tasks of one scheduler, here and in its store."""

    def __init__(self, lease: StoreLease, clock: Clock, managed_by: str, time_zone: str | tzinfo | None) -> None:
        self.scheduled: dict[str, Entry] = {}
        self.leaving: dict[str, Entry] = {}  # cancelled, and their last run is still under way
        self.left: dict[str, list[Row]] = {}  # stored in an earlier life, and not scheduled in this one so far
        self._doubtful = False  # a change failed, and may have been written all the same
        self._lease = lease
        self._clock = clock
        self._managed_by = managed_by
        self._host = HostZone() if time_zone is None else None
        self.zone, self.zone_name = zone_named(time_zone) if self._host is None else (self._host.zone, self._host.name)

    def begin(self, rows: Sequence[Row]) -> None:
        """Take over the stored rows: right after the store is opened, all of them are left over."""
        self.left = _by_name(rows)
        self._doubtful = False
        if self._host is not None:
            self._host.look()
            self.zone, self.zone_name = self._host.zone, self._host.name

    async def read(self) -> dict[str, StoredTask]:
        """The scheduled tasks as they are stored."""
        registrations = [entry.registration for entry in self.scheduled.values()]
        declared = await self._lease.store.schedules.read_declared(self._managed_by)
        return read_stored(declared.rows, registrations).tasks

    async def add(
        self, engine: Engine[DeclaredJobs], registrations: Sequence[Registration], events: Sequence[LifecycleEvent] = ()
    ) -> None:
        """Store tasks, new ones and such as were left, and give them to the engine."""
        await self._reread_if_doubtful()
        coming = [registration for registration in registrations if registration.name not in self.leaving]
        returning = [registration for registration in registrations if registration.name in self.leaving]
        if coming:
            rows = [row for registration in coming for row in self.left.get(registration.name, ())]
            await self._declare(engine, coming, rows, events, orphans=True)
        if returning:
            await self._redeclare(engine, returning)

    async def take_out(self, engine: Engine[DeclaredJobs] | None, names: Sequence[str]) -> tuple[int, list[Entry]]:
        """Remove tasks that do not run now; returns how many were found, and those that have yet to end a run."""
        await self._reread_if_doubtful()
        entries = {name: self.scheduled[name] for name in names if name in self.scheduled}
        staying = {name for name, entry in entries.items() if engine is not None and engine.running(entry.sid)}
        left = [name for name in names if name in self.left]
        idle = [entry.sid for name, entry in entries.items() if name not in staying]
        await self._lease.remove([*idle, *(self.left[name][0]["sid"] for name in left)])
        for name in left:
            del self.left[name]
        for name, entry in entries.items():
            del self.scheduled[name]
            if engine is not None:
                engine.work.tasks.pop(entry.sid, None)
        ending = {name: entries[name] for name in staying}
        self.leaving.update(ending)
        return len(entries) + len(left), list(ending.values())

    def forget(self) -> None:
        """The store is let go: what is stored stays there."""
        self.scheduled.clear()
        self.leaving.clear()
        self.left.clear()

    async def follow_host_zone(self, engine: Engine[DeclaredJobs]) -> str | None:
        """If the host's zone was changed, take every task into the new one, from its cursor; returns the old one."""
        host = self._host
        if host is None:
            return None
        host.look()
        if host.name == self.zone_name and rules_hash(host.zone) == rules_hash(self.zone):
            return None
        before = self.zone, self.zone_name
        self.zone, self.zone_name = host.zone, host.name
        try:
            await self._redeclare(engine, [entry.registration for entry in self.scheduled.values()])
        except BaseException:
            self.zone, self.zone_name = before  # so that the next look tries again
            raise
        return before[1]

    # --- writing --------------------------------------------------------------------------------------------------

    async def _redeclare(self, engine: Engine[DeclaredJobs], registrations: Sequence[Registration]) -> None:
        """Bring tasks that are ours already up to their registrations; runs that are under way go on."""
        declared = await self._lease.store.schedules.read_declared(self._managed_by)
        names = {registration.name for registration in registrations}
        rows = [row for row in declared.rows if row["name"] in names]
        await self._declare(engine, registrations, rows, (), orphans=False)

    async def _declare(
        self,
        engine: Engine[DeclaredJobs],
        registrations: Sequence[Registration],
        rows: Sequence[Row],
        events: Sequence[LifecycleEvent],
        *,
        orphans: bool,
    ) -> None:
        made = plan(
            registrations,
            read_stored(rows, registrations).tasks,
            [],
            managed_by=self._managed_by,
            zone=self.zone,
            zone_name=self.zone_name,
            now=self._clock.now(),
            events=list(events),
            orphans=orphans,
            retry_vs_new="finish",
        )
        if events:  # the first declaration of a life
            names = {registration.name for registration in registrations}
            made.declaration.parked = [found[0]["sid"] for name, found in self.left.items() if name not in names]
        self._doubtful = True
        created = iter(await self._lease.store.schedules.declare(made.declaration))
        self._doubtful = False
        planned = zip(registrations, made.sids, made.schedule_ids, made.timings, strict=True)
        for registration, known, schedule_id, timing in planned:
            sid = next(created) if known is None else known
            name = registration.name
            engine.work.tasks[sid] = Task(
                sid, schedule_id, name, declared_terms(timing, "finish"), registration.retry_delay_us,
                registration.callback, registration.is_async,
            )  # fmt: skip
            if name in self.scheduled and self.scheduled[name].registration is registration:
                continue
            self.scheduled[name] = Entry(registration, sid)
            self.left.pop(name, None)
            self.leaving.pop(name, None)

    async def _reread_if_doubtful(self) -> None:
        if not self._doubtful:
            return
        rows = _by_name((await self._lease.store.schedules.read_declared(self._managed_by)).rows)
        self.left = {name: found for name, found in rows.items() if name not in self.scheduled | self.leaving}
        self._doubtful = False


def _by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Stored rows by the task they belong to.

    Their wake-up is taken for gone: the engine takes it away when it meets a schedule without a task, so the caller
    that adds the task again has to write it.
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        if isinstance(row["name"], str):
            found.setdefault(row["name"], []).append({**row, "next_run_at": None})
    return found
