"""Live runs on SQLite: claimed, settled, handed back and asked for. Each verb is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noonbell.core.records import LiveRun, Settlement, Start, TriggerSource, asked_cause
from noonbell.ports import Decide, LaneClaim, Settled
from noonbell.store.sqlite import claim_schedules, claiming, manual_runs, settling
from noonbell.store.sqlite.part import Part
from noonbell.store.waking import Wanted


class SqliteRuns(Part):
    """The live runs of a file."""

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
        wanted = Wanted(lane, now if due_by is None else due_by, limit, among)
        return await self._connection.run(
            lambda db: claim_schedules.claim(db, self._connection.definitions, decide, wanted, owner=owner, now=now),
            peek=lambda db: claim_schedules.peek(db, wanted),
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        return await self._connection.run(lambda db: settling.settle(db, settlements))

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        await self._connection.run(lambda db: claiming.hand_back(db, starts, owner, now))

    async def trigger(self, sid: int, owner: str, now: int) -> Start | None:
        return await self._connection.run(lambda db: claiming.trigger(db, sid, owner, now))

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
        return await self._connection.run(lambda db: manual_runs.ask(db, schedule_id, at, actor, cause, queue=queue))

    async def live(self, sid: int | None = None, *, owner: str | None = None) -> list[LiveRun]:
        parts: tuple[tuple[str, Any], ...] = (
            ("l.sid = ?", sid),
            ("l.state = 'running' AND l.owner = ?", owner),
        )
        given = [(condition, value) for condition, value in parts if value is not None]
        where = " AND ".join(condition for condition, _ in given) or "true"
        sql = f"SELECT {claiming.LIVE} FROM live_runs l WHERE {where} ORDER BY l.sid, l.kind, l.run_for"
        return [LiveRun(*row) for row in await self._read(sql, tuple(value for _, value in given))]
