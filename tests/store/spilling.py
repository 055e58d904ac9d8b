"""A SQLite store in which no run stays in the slot of its schedule: every claim spills at once."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from noonbell.ports import Decide, LaneClaim
from noonbell.store.sqlite import SqliteStore, slots
from tests.store.overriding import Overriding


class SpillingStore(Overriding, SqliteStore):
    async def runs_claim(
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
        claim = await self.plain.runs.claim(lane, owner, now, limit, decide, among=among, due_by=due_by)
        await self._connection.run(lambda db: slots.spill(db, filled(db)))
        return claim


def filled(db: apsw.Connection) -> list[int]:
    """The schedules whose slots are full."""
    return [row[0] for row in db.execute("SELECT sid FROM schedule_state WHERE slot_for IS NOT NULL ORDER BY sid")]
