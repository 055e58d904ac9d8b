"""What wakes next in a store, and schedules by their numbers: the verbs behind an overview, one small class per store.

These are looks at the index of wake-ups, each with a bound: a page must not cost more where there are a million
schedules. Those of one team are looked for among the first MOST_SOUGHT of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.core.presence import LANE
from noonbell.core.records import StoredSchedule

MOST_SOUGHT: Final = 20_000
# Lane by lane, because the index is: so many of each, and of those the first.
_SOON: Final = (
    "FROM schedule_state WHERE lane_no = n.no AND enabled = 1 AND next_run_at > {after} AND next_run_at <= {upto} "
    f"ORDER BY next_run_at, sid LIMIT {MOST_SOUGHT}"
)
_SIDS_SQL: Final = (
    "SELECT soon.sid FROM (SELECT s.sid, s.next_run_at FROM lane_numbers n CROSS JOIN {of_lane} "
    f"WHERE n.name LIKE '{LANE}%' ORDER BY s.next_run_at, s.sid LIMIT {MOST_SOUGHT}) AS soon "
    "WHERE CAST({team} AS TEXT) IS NULL "
    "OR EXISTS (SELECT 1 FROM schedule_definitions d WHERE d.sid = soon.sid AND d.team = {team}) "
    "ORDER BY soon.next_run_at, soon.sid LIMIT {limit}"
)
_OF_LANE_ON_SQLITE: Final = f"schedule_state s ON s.sid IN (SELECT sid {_SOON})"
_OF_LANE_ON_POSTGRES: Final = f"LATERAL (SELECT sid, next_run_at {_SOON}) s"


class ComingOnSqlite:
    _connection: Any

    async def upcoming(self, after: int, upto: int, limit: int, team: str | None = None) -> list[StoredSchedule]:
        from noonbell.store.sqlite import stored  # noqa: PLC0415 - apsw, where this store is used

        def look(db: Any) -> list[StoredSchedule]:
            of_lane = _OF_LANE_ON_SQLITE.format(after="?1", upto="?2")
            sql = _SIDS_SQL.format(of_lane=of_lane, team="?3", limit="?4")
            return stored.by_sids(db, [row[0] for row in db.execute(sql, (after, upto, team, limit))])

        found: list[StoredSchedule] = await self._connection.run(look, write=False)
        return found

    async def by_sids(self, sids: Sequence[int]) -> list[StoredSchedule]:
        return await self._by_sids(sids)

    async def _by_sids(self, sids: Sequence[int]) -> list[StoredSchedule]:
        """Do the work of `by_sids`, which is timed as a verb of its own."""
        from noonbell.store.sqlite import stored  # noqa: PLC0415 - apsw, where this store is used

        wanted = list(sids)
        found: list[StoredSchedule] = await self._connection.run(lambda db: stored.by_sids(db, wanted), write=False)
        return found


class ComingOnPostgres:
    _connections: Any

    async def upcoming(self, after: int, upto: int, limit: int, team: str | None = None) -> list[StoredSchedule]:
        async with self._connections.reading() as db:
            of_lane = _OF_LANE_ON_POSTGRES.format(after="$1", upto="$2")
            sql = _SIDS_SQL.format(of_lane=of_lane, team="$3", limit="$4")
            sids = [row[0] for row in await db.fetch(sql, after, upto, team, limit)]
        found = {one.sid: one for one in await self._by_sids(sids)}
        return [found[sid] for sid in sids if sid in found]

    async def by_sids(self, sids: Sequence[int]) -> list[StoredSchedule]:
        return await self._by_sids(sids)

    async def _by_sids(self, sids: Sequence[int]) -> list[StoredSchedule]:
        """Do the work of `by_sids`, which is timed as a verb of its own."""
        from noonbell.store.postgres import stored  # noqa: PLC0415 - asyncpg, where this store is used

        async with self._connections.reading() as db:
            return await stored.by_sids(db, sids)
