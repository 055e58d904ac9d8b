"""Manual time beside a real server: the clock stands still while a verb of the store is under way.

A loop that waits for a socket looks as if it were at rest. `PatientPostgres` tells its `PatientClock` when a verb
begins and ends, so that nothing is overtaken by time and a test means the same on every store.

`calm_duties` lets the duties beside an engine look when they are woken or something is due, and not every five seconds:
on manual time those are hundreds of looks in an hour, and a wake-up that was forgotten would hide behind them. An
engine looks at least three times in the life of a lease, so a lease of `PatientPostgres` lasts three hours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from noonbell.actions import delivery
from noonbell.engine import deleted as deleted_runs
from noonbell.engine import membership
from noonbell.monitors import watch
from noonbell.notify import dispatcher
from noonbell.ports import PARTS
from noonbell.store.postgres import PostgresStore
from noonbell.store.postgres.leases import Lease
from noonbell.store.wrapping import verbs_of
from noonbell.testing import ManualClock

_HOUR: Final = 3_600_000_000


@contextmanager
def calm_duties(*, deleted: bool = False) -> Iterator[None]:
    """Delivery, notices, monitors and the watch over other engines look at least once an hour.

    With `deleted` the look for schedules that another process has deleted is as rare.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(delivery, "_LONGEST_WAIT", _HOUR)
        patched.setattr(dispatcher, "_REFRESH", _HOUR)
        patched.setattr(watch, "LONGEST_WAIT", _HOUR)
        patched.setattr(membership, "LOOK", _HOUR)
        patched.setattr(membership, "BEAT", _HOUR)
        if deleted:
            patched.setattr(deleted_runs, "_INTERVAL", _HOUR)
        yield


class UnderWay:
    """Counts verbs that have begun and not ended."""

    def __init__(self) -> None:
        self.count = 0
        self.ended = asyncio.Event()

    def watch(self, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(*args: Any, **more: Any) -> Any:
            self.count += 1
            try:
                return await verb(*args, **more)
            finally:
                self.count -= 1
                self.ended.set()

        return watched


class PatientClock(ManualClock):
    """At rest is only who waits for no store."""

    def __init__(self, start: Any) -> None:
        super().__init__(start)
        self.under_way = UnderWay()

    async def settle(self) -> None:
        while True:
            self.under_way.ended.clear()
            await super().settle()
            if self.under_way.count == 0:
                return
            await self.under_way.ended.wait()


class PatientPostgres(PostgresStore):
    """A handle whose verbs a PatientClock waits for. A handle that was killed is dead at once, not after its lease."""

    def __init__(self, dsn: str, dead: set[str]) -> None:
        super().__init__(dsn, pool_size=2, lease_ttl=3 * 3600.0)
        self._dead = dead
        # These tests talk to the server directly. Statements that are prepared once take half the round trips, and no
        # planning; tests/store has those on connections without a cache, and behind a transaction pooler.
        options = self._connections._options() | {"statement_cache_size": 200}
        self._connections._options = lambda: options  # type: ignore[method-assign]  # of this one alone

    def attend(self, clock: PatientClock) -> None:
        for whole in (self, *(getattr(self, part) for part in PARTS)):
            vars(whole).update({name: clock.under_way.watch(verb) for name, verb in verbs_of(whole).items()})

    async def open(self) -> None:
        await super().open()
        await self._drop_leases_of_dead()  # an edit before the next start has to see that the engine is gone

    async def hold(self, name: str, holder: str) -> Lease:
        await self._drop_leases_of_dead()
        return await super().hold(name, holder)

    async def _drop_leases_of_dead(self) -> None:
        if self._dead:
            async with self._connections.apart() as db:
                await db.execute("DELETE FROM instances WHERE token = ANY($1::text[])", list(self._dead))
            self._dead.clear()

    def kill(self) -> None:
        self._dead.update(lease.token for lease in self._held.leases.values())
        super().kill()
