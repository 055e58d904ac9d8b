"""When schedules wake: the verbs behind a timeline in front of a store and an overview, one small class per store.

`wake_times` tells the truth about some schedules, each by its key. `wakes` goes through wake-ups in their order, page
by page: those of one lane by its index. Without a lane each lane has a bound, since a page must not cost more where
there are a million schedules. Neither locks or changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.core.presence import LANE, lane_name
from noonbell.ports import WakeFilter

_encode = msgspec.json.Encoder().encode

MOST_SOUGHT: Final = 20_000
# The upper bound: SQLite sorts texts after all numbers, and damage must not pass for a far instant.
_PAST: Final = "{wake} >= {at} AND {wake} <= {upto} AND ({wake} > {at} OR {of}.sid > {sid}) ORDER BY {wake}, {of}.sid"
_OF_TEAM: Final = "EXISTS (SELECT 1 FROM schedule_definitions d WHERE d.sid = {of}.sid AND d.team = {team}) AND "
_OF_LANE: Final = "s.lane_no = (SELECT no FROM lane_numbers WHERE name = {lane})"
_OF_LANES: Final = f"s.lane_no IN (SELECT no FROM lane_numbers WHERE name LIKE '{LANE}%')"
_OWN: Final = f"SELECT s.next_run_at, s.sid FROM schedule_state s WHERE s.enabled = 1 AND {_OF_LANE} AND "
_LIVE: Final = (
    "SELECT DISTINCT l.wake_at, l.sid FROM runs_live l JOIN schedule_state s ON s.sid = l.sid "
    "WHERE l.state <> 'running' AND {of_lane} AND "
)
# Lane by lane, because the index is: so many of each, and of those the first.
_SOON: Final = (
    "FROM schedule_state o WHERE o.lane_no = n.no AND o.enabled = 1 AND "
    + _PAST.replace("{wake}", "o.next_run_at").replace("{of}", "o")
    + f" LIMIT {MOST_SOUGHT}"
)
_OF_EACH_LANE: Final = (
    "SELECT soon.next_run_at, soon.sid FROM (SELECT s.sid, s.next_run_at FROM lane_numbers n CROSS JOIN {source} "
    f"WHERE n.name LIKE '{LANE}%' ORDER BY s.next_run_at, s.sid LIMIT {MOST_SOUGHT}) AS soon WHERE "
)
_SOON_ON_SQLITE: Final = f"schedule_state s ON s.sid IN (SELECT o.sid {_SOON})"
_SOON_ON_POSTGRES: Final = f"LATERAL (SELECT o.sid, o.next_run_at {_SOON}) s"


def _wakes_sql(
    wanted: WakeFilter, after: tuple[int, int], limit: int, parameter: Callable[[int], str], soon: str
) -> tuple[str, list[Any]]:
    """Return the statement for a page of wake-ups and its bindings; `soon` is the source for all lanes."""
    bindings: list[Any] = []

    def bound(value: Any) -> str:
        bindings.append(value)
        return parameter(len(bindings))

    past = {"at": bound(after[0]), "sid": bound(after[1]), "upto": bound(wanted.upto)}
    lane = None if wanted.lane is None else bound(lane_name(wanted.lane))
    team = None if wanted.team is None else bound(wanted.team)
    if wanted.live:
        head, of, wake = _LIVE.format(of_lane=_OF_LANES if lane is None else _OF_LANE.format(lane=lane)), "l", "wake_at"
    elif lane is not None:
        head, of, wake = _OWN.format(lane=lane), "s", "next_run_at"
    else:
        head, of, wake = _OF_EACH_LANE.format(source=soon.format(**past)), "soon", "next_run_at"
    chosen = "" if team is None else _OF_TEAM.format(of=of, team=team)
    sql = f"{head}{chosen}{_PAST.format(wake=f'{of}.{wake}', of=of, **past)} LIMIT {bound(limit)}"
    return sql, bindings


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

    async def wakes(self, wanted: WakeFilter, after: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        sql, bindings = _wakes_sql(wanted, after, limit, "?{}".format, _SOON_ON_SQLITE)
        rows: list[tuple[int, int]] = await self._connection.run(
            lambda db: db.execute(sql, bindings).fetchall(), write=False
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

    async def wakes(self, wanted: WakeFilter, after: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        sql, bindings = _wakes_sql(wanted, after, limit, "${}".format, _SOON_ON_POSTGRES)
        async with self._connections.reading() as db:
            return [(row[0], row[1]) for row in await db.fetch(sql, *bindings)]
