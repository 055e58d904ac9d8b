"""The wake-ups of schedules, from which a timeline in front of a store and an overview are made.

`wake_times` says when schedules wake, as they were read. `wakes`, one small class per store, goes through wake-ups in
their order, page by page: those of one lane by its index. Without a lane each lane has a bound, since a page must not
cost more where there are a million schedules. Neither locks or changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from noonbell.core.presence import LANE, lane_name
from noonbell.core.records import LiveRun, StoredSchedule
from noonbell.core.turns import definition_of
from noonbell.ports import WakeFilter

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
    """The selection of a claim: what is due in a lane by then, so many at most; if given, of these sids alone."""

    lane: str
    due_by: int
    limit: int
    among: Sequence[int] | None


def wake_times(found: Iterable[StoredSchedule]) -> dict[int, int | None]:
    """Return when each schedule wakes: by its next occurrence or a live run, whichever is first.

    None where one has nothing to wake for now, as while its run is under way. Left out are those that are paused and
    have no live run that wants to go on.
    """
    times: dict[int, int | None] = {}
    for stored in found:
        wakes = (stored.next_run_at if stored.enabled else None, live_wake(stored.lives, stored.columns.definition))
        instants = [at for at in wakes if isinstance(at, int)]
        if instants or stored.enabled:
            times[stored.sid] = min(instants, default=None)
    return times


def live_wake(lives: Iterable[LiveRun], definition: str | None) -> int | None:
    """Return when the live runs of a schedule want to be looked at; `definition` is None for a declared task.

    Without overlap `allow` they go one after the other: what a person asked for, then the oldest.
    """
    in_turn = sorted(lives, key=lambda live: (live.kind == "scheduled", live.run_for))
    wakes = [live for live in in_turn if live.state != "running"]
    if wakes and (definition is None or definition_of(definition).overlap != "allow"):
        wakes = wakes[:1] if len(wakes) == len(in_turn) else []
    return min((live.wake_at for live in wakes if live.wake_at is not None), default=None)


class WakingOnSqlite:
    _connection: Any

    async def wakes(self, wanted: WakeFilter, after: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        sql, bindings = _wakes_sql(wanted, after, limit, "?{}".format, _SOON_ON_SQLITE)
        rows: list[tuple[int, int]] = await self._connection.run(
            lambda db: db.execute(sql, bindings).fetchall(), write=False
        )
        return rows


class WakingOnPostgres:
    _connections: Any

    async def wakes(self, wanted: WakeFilter, after: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        sql, bindings = _wakes_sql(wanted, after, limit, "${}".format, _SOON_ON_POSTGRES)
        async with self._connections.reading() as db:
            return [(row[0], row[1]) for row in await db.fetch(sql, *bindings)]
