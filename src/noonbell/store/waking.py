"""When schedules wake: the verbs behind a timeline in front of a store, one small class per store.

`wake_times` tells the truth about some schedules, each by its key. `upcoming_wakes` goes through the wake-ups of a lane
in their order, page by page. Neither locks or changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.core.presence import lane_name

_encode = msgspec.json.Encoder().encode

# The upper bound: SQLite sorts texts after all numbers, and damage must not pass for a far instant.
_COMING: Final = """
    SELECT next_run_at, sid FROM schedule_state
    WHERE enabled = 1 AND lane_no = (SELECT no FROM lane_numbers WHERE name = {lane})
        AND next_run_at >= {at} AND next_run_at <= {upto}
        AND (next_run_at > {at} OR sid > {sid})
    ORDER BY next_run_at, sid LIMIT {limit}
"""
_COMING_LIVE: Final = """
    SELECT DISTINCT l.wake_at, l.sid FROM runs_live l JOIN schedule_state s ON s.sid = l.sid
    WHERE l.state <> 'running' AND s.lane_no = (SELECT no FROM lane_numbers WHERE name = {lane})
        AND l.wake_at >= {at} AND l.wake_at <= {upto}
        AND (l.wake_at > {at} OR l.sid > {sid})
    ORDER BY l.wake_at, l.sid LIMIT {limit}
"""


class Wanted(NamedTuple):
    """What a claim looks at: what is due in a lane by then, so many at most; if given, of these sids alone."""

    lane: str
    due_by: int
    limit: int
    among: Sequence[int] | None


def _told(rows: Sequence[Any]) -> dict[int, int | None]:
    """Rows of sid, whether it is enabled, its own wake-up and that of its live runs."""
    found: dict[int, int | None] = {}
    for sid, enabled, next_run_at, wake_at in rows:
        times = [at for at in (next_run_at if enabled == 1 else None, wake_at) if isinstance(at, int)]
        if times or enabled == 1:
            found[sid] = min(times, default=None)
    return found


class WakingOnSqlite:
    _connection: Any

    async def wake_times(self, sids: Sequence[int]) -> dict[int, int | None]:
        from noonbell.store.sqlite.claim_schedules import ITS_TURN  # noqa: PLC0415 - apsw, where this store is used

        sql = f"""
            SELECT s.sid, s.enabled, s.next_run_at, (
                SELECT min(l.wake_at) FROM runs_live l WHERE l.sid = s.sid AND l.state <> 'running' AND {ITS_TURN}
            )
            FROM json_each(?) b CROSS JOIN schedule_state s ON s.sid = b.value
            CROSS JOIN schedule_definitions d ON d.sid = s.sid
            WHERE d.lane IS NOT NULL AND d.removed_at IS NULL
        """
        told = (_encode(list(sids)).decode(),)
        return _told(await self._connection.run(lambda db: db.execute(sql, told).fetchall(), write=False))

    async def upcoming_wakes(
        self, lane: str, after: tuple[int, int], upto: int, limit: int, *, live: bool = False
    ) -> list[tuple[int, int]]:
        sql = (_COMING_LIVE if live else _COMING).format(lane="?1", at="?2", sid="?3", upto="?4", limit="?5")
        rows: list[tuple[int, int]] = await self._connection.run(
            lambda db: db.execute(sql, (lane_name(lane), *after, upto, limit)).fetchall(), write=False
        )
        return rows


class WakingOnPostgres:
    _connections: Any

    async def wake_times(self, sids: Sequence[int]) -> dict[int, int | None]:
        from noonbell.store.postgres.claim_schedules import ITS_TURN  # noqa: PLC0415 - asyncpg, where this store is used

        sql = f"""
            SELECT s.sid, s.enabled, s.next_run_at, (
                SELECT min(l.wake_at) FROM runs_live l WHERE l.sid = s.sid AND l.state <> 'running' AND {ITS_TURN}
            )
            FROM schedule_state s JOIN schedule_definitions d ON d.sid = s.sid
            WHERE s.sid = ANY($1::int8[]) AND d.lane IS NOT NULL AND d.removed_at IS NULL
        """
        async with self._connections.reading() as db:
            return _told(await db.fetch(sql, list(sids)))

    async def upcoming_wakes(
        self, lane: str, after: tuple[int, int], upto: int, limit: int, *, live: bool = False
    ) -> list[tuple[int, int]]:
        sql = (_COMING_LIVE if live else _COMING).format(lane="$1", at="$2", sid="$3", upto="$4", limit="$5")
        async with self._connections.reading() as db:
            return [(row[0], row[1]) for row in await db.fetch(sql, lane_name(lane), *after, upto, limit)]
