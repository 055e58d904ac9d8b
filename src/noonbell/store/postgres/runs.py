"""Live runs on PostgreSQL. Each verb is one transaction, and a fixed number of statements whatever the batch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from noonbell.core.presence import ENGINE, engine_name
from noonbell.core.records import DECLARED_OWNERS, LiveRun, Settlement, Start, TriggerSource, asked_cause
from noonbell.ports import Decide, LaneClaim, Settled
from noonbell.store.postgres import claim_schedules, claiming, manual_runs, settling, slot_ends, slots, turns
from noonbell.store.postgres.connection import Connection, UndoneError
from noonbell.store.postgres.session import Part, Session
from noonbell.store.waking import Wanted

# After a batch of ends that had to be recorded twice, so many are recorded in the way that fits all of them.
_UNUSUAL_BATCHES: Final = 16


def _is_plain(end: Settlement) -> bool:
    """Return whether an end can be recorded where nothing is asked about it."""
    return slot_ends.may_hold(end) and slot_ends.is_plain(end) and not end.messages


class PostgresRuns(Part):
    """Live runs: claimed, settled, handed back and asked for."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._unusual = 0

    async def claim(
        self,
        lane: str,
        owner: str,
        now: int,
        limit: int,
        decide: Decide,
        *,
        among: Sequence[int] | None = None,
        due_by: int | None = None,
    ) -> LaneClaim:
        session = self._session
        if not lane.startswith(DECLARED_OWNERS):
            await session.days.prepare(now)  # runs that send messages end in the claim itself
        wanted = Wanted(lane, now if due_by is None else due_by, limit, among)
        numbered = turns.Owner(owner, await session.owners.know(owner))
        backlogged = lane in session.backlogged
        claiming = partial(
            claim_schedules.claim,
            decide=decide,
            wanted=wanted,
            owner=numbered,
            now=now,
            cache=session.definitions,
            backlogged=backlogged,
        )
        names = engine_name(owner), lane  # a private lane is held by its name
        try:
            async with session.claiming(owner, *names) as db:
                claim = await claiming(db)
        except claim_schedules.ContradictedError:
            async with session.claiming(owner, *names) as db:
                claim = await claiming(db, singly=True)
        if among is None:
            (session.backlogged.add if claim.claimed.full else session.backlogged.discard)(lane)
        return claim

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        session = self._session
        if settlements:
            await session.days.prepare(max(settlement.ended_at for settlement in settlements))
        owners = {owner: await session.owners.know(owner) for owner in {one.owner for one in settlements}}
        if self._unusual:
            self._unusual -= 1
        elif settlements and all(map(_is_plain, settlements)):
            try:
                await session.at_once(slot_ends.recording(settlements, owners))
            except UndoneError:
                self._unusual = _UNUSUAL_BATCHES
            else:
                return Settled([], {})
        try:
            async with self._settling(settlements, owners) as db:
                return await settling.settle_in_slots(db, settlements, owners)
        except slot_ends.NotInSlotsError:
            async with self._settling(settlements, owners) as db:
                return await settling.settle(db, settlements, owners)

    @asynccontextmanager
    async def _settling(self, settlements: Sequence[Settlement], owners: Iterable[str]) -> AsyncIterator[Connection]:
        session = self._session
        async with session.writing_for(*map(engine_name, owners)) as db:
            if any(not name.startswith(ENGINE) for name in session.held.leases):  # declared tasks have their own
                sids = [settlement.start.sid for settlement in settlements]
                await session.still_held(db, *await settling.declared(db, sids))
            yield db

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        session = self._session
        async with self._connections.writing() as db:
            if starts:
                await session.still_held(db, engine_name(owner))
                await session.still_held(db, *await settling.lock_schedules(db, [start.sid for start in starts]))
                await claiming.hand_back(db, starts, owner, now)

    async def trigger(self, sid: int, owner: str, now: int) -> Start | None:
        session = self._session
        await session.owners.know(owner)
        async with session.claiming(owner) as db:
            await session.still_held(db, engine_name(owner))
            await session.still_held(db, *await settling.lock_schedules(db, [sid]))
            return await claiming.trigger(db, sid, owner, now)

    async def ask(
        self,
        schedule_id: str,
        at: int,
        actor: str,
        via: TriggerSource = "manual",
        *,
        queue: bool = False,
        retry: bool = True,
    ) -> int | None:
        cause = asked_cause(via, retry=retry)
        async with self._connections.writing() as db:
            return await manual_runs.ask(db, schedule_id, at, actor, cause, queue=queue)

    async def live(self, sid: int | None = None, *, owner: str | None = None) -> list[LiveRun]:
        if owner is not None:
            # waits for claims of this owner that are still on their way, even over a connection that was lost
            async with self._session.accounting(owner) as db:
                return [live for live in await slots.owned(db, owner) if sid in (None, live.sid)]
        where, bindings = ("true", []) if sid is None else ("sid = $1", [sid])
        sql = f"SELECT {claiming.LIVE} FROM live_runs WHERE {where} ORDER BY sid, kind, run_for"
        return [LiveRun(*row) for row in await self._session.read(sql, *bindings)]
