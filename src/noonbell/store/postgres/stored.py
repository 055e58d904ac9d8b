"""Durable schedules on PostgreSQL as they are read: rows with their quiet hours, last run and live runs.

`gathered` brings these to rows that the caller has read, and has locked where he is going to change them. It asks in
statements of its own, because what they show must be as new as the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.core.records import DEFAULT_TEAM, LiveRun, ScheduleColumns, StoredSchedule
from noonbell.ports import ScheduleFilter
from noonbell.store.postgres.claiming import LIVE
from noonbell.store.postgres.connection import Connection

# as StoredSchedule has them, without what is gathered; then those of ScheduleColumns
COLUMNS: Final = (
    "s.sid, s.schedule_id, s.enabled, s.managed_by, s.lane, s.created_at, s.updated_at, s.next_run_at, s.last_run_at, "
    "s.last_attempt_at, s.last_success_at, s.last_failure_at, s.epoch, s.cursor_at, s.anchor_at, s.backlog_left, "
    "s.backlog_until, s.last_run_for, s.team, s.name, s.type, s.spec, s.timezone, s.quiet_hours_policy_id, "
    "s.catch_up_policy, s.payload, s.definition"
)
_KEPT: Final = 18
_LAST_RUN_FOR: Final = 17
_TEAM: Final = 18
_WRITTEN: Final = 19
_QUIET: Final = 23
_DEFINITION: Final = 26
_SKIPS: Final = '"overlap":"skip"'

# OFFSET 0: one look by the index for each schedule, whatever the planner thinks of the tables
_LIVES: Final = f"""
    SELECT l.* FROM unnest($1::int8[]) AS b (sid)
    CROSS JOIN LATERAL (SELECT {LIVE} FROM runs_live t WHERE t.sid = b.sid OFFSET 0) l
"""
_RAN: Final = """
    SELECT r.* FROM unnest($1::int8[], $2::int8[]) AS b (sid, run_for) CROSS JOIN LATERAL (
        SELECT t.sid, t.started_at, t.ended_at FROM runs t
        WHERE t.run_for = b.run_for AND t.sid = b.sid AND t.kind = 'scheduled' OFFSET 0
    ) r
"""
_DOCUMENTS: Final = "SELECT policy_id, document FROM quiet_hours_policies WHERE policy_id = ANY($1::text[])"


async def gathered(db: Connection, rows: Sequence[Any]) -> list[StoredSchedule]:
    """Whole schedules, in the order of their rows."""
    if not rows:
        return []
    lives: dict[int, list[LiveRun]] = {}
    for live in await db.fetch(_LIVES, [row[0] for row in rows]):
        lives.setdefault(live[0], []).append(LiveRun(*live))
    for several in lives.values():
        several.sort(key=lambda live: (live.kind, live.run_for))
    # under overlap skip alone: nobody else asks
    fired = [
        (row[0], row[_LAST_RUN_FOR])
        for row in rows
        if row[_LAST_RUN_FOR] is not None and _SKIPS in (row[_DEFINITION] or "")
    ]
    ran: dict[int, tuple[int, int]] = {}
    if fired:
        for run in await db.fetch(_RAN, [sid for sid, _ in fired], [run_for for _, run_for in fired]):
            ran[run[0]] = (run[1], run[2])
    documents: dict[str, str] = {}
    if named := sorted({row[_QUIET] for row in rows} - {None}):
        documents.update([(row[0], row[1]) for row in await db.fetch(_DOCUMENTS, named)])
    return [_one(tuple(row), documents.get(row[_QUIET]), ran.get(row[0]), lives.get(row[0])) for row in rows]


def _one(
    row: tuple[Any, ...], quiet: str | None, ran: tuple[int, int] | None, lives: list[LiveRun] | None
) -> StoredSchedule:
    columns = ScheduleColumns(*row[_WRITTEN:])
    values: tuple[Any, ...] = (
        row[0], row[1], columns, row[2] == 1, *row[3:_KEPT], quiet, ran, lives or [], row[_TEAM],
    )  # fmt: skip
    return StoredSchedule(*values)


async def locked(db: Connection, sids: Sequence[int]) -> list[StoredSchedule]:
    """The schedules of these sids, by sid; locked, in that order, up to the end of the transaction."""
    sql = f"SELECT {COLUMNS} FROM schedules s WHERE s.sid = ANY($1::int8[]) ORDER BY s.sid FOR UPDATE"
    return await gathered(db, await db.fetch(sql, sorted(set(sids)))) if sids else []


async def sids_of(db: Connection, schedule_ids: Sequence[str]) -> dict[str, int]:
    """The sids of those that exist."""
    sql = (
        "SELECT schedule_id, sid FROM schedules "
        "WHERE schedule_id = ANY($1::text[]) AND lane IS NOT NULL AND removed_at IS NULL"
    )
    return {row[0]: row[1] for row in await db.fetch(sql, list(set(schedule_ids)))}


async def by_ids(db: Connection, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
    """Those that exist, by sid."""
    sql = (
        f"SELECT {COLUMNS} FROM schedules s WHERE s.schedule_id = ANY($1::text[]) AND s.lane IS NOT NULL "
        "AND s.removed_at IS NULL ORDER BY s.sid"
    )
    return await gathered(db, await db.fetch(sql, list(set(schedule_ids))))


async def page(db: Connection, wanted: ScheduleFilter, after_sid: int, limit: int) -> list[StoredSchedule]:
    parts: tuple[tuple[str, Any], ...] = (
        ("s.managed_by = {}", wanted.managed_by),
        ("s.lane = {}", wanted.lane),
        ("s.type = {}", wanted.type),
        # by this collation only ASCII letters have a case, as on the other stores
        ('strpos(lower(s.name COLLATE "C"), lower({}::text COLLATE "C")) > 0', wanted.name_contains),
        ("t.tag = {}", wanted.tag),
        ("t.team = {}", None if wanted.tag is None else wanted.team),
        ("s.quiet_hours_policy_id = {}", wanted.quiet_hours_policy_id),
        ("s.team = {}", wanted.team),
    )
    given = [(condition, value) for condition, value in parts if value is not None]
    conditions = [condition.format(f"${place}") for place, (condition, _) in enumerate(given, 3)]
    if wanted.enabled is not None:
        conditions.append(f"s.enabled = {int(wanted.enabled)}")  # in the text, so that a partial index can serve
    if wanted.team not in (None, DEFAULT_TEAM):
        conditions.append(f"s.team <> '{DEFAULT_TEAM}'")  # says nothing new, but is what their index asks for
    if wanted.type not in (None, "cron"):
        conditions.append("s.type <> 'cron'")  # as above
    tags = "" if wanted.tag is None else "JOIN schedule_tags t ON t.sid = s.sid"
    return await _page(db, conditions, after_sid, limit, *(value for _, value in given), joined=tags)


async def in_zone(db: Connection, timezone: str, after_sid: int, limit: int) -> list[StoredSchedule]:
    return await _page(db, ["s.timezone = $3"], after_sid, limit, timezone)


async def _page(
    db: Connection, conditions: Sequence[str], after_sid: int, limit: int, *bindings: Any, joined: str = ""
) -> list[StoredSchedule]:
    where = " AND ".join(("s.sid > $1", "s.lane IS NOT NULL", "s.removed_at IS NULL", *conditions))
    sql = f"SELECT {COLUMNS} FROM schedules s {joined} WHERE {where} ORDER BY s.sid LIMIT $2"
    return await gathered(db, await db.fetch(sql, after_sid, limit, *bindings))


async def users_of(db: Connection, policy_id: str) -> list[int]:
    """The sids of the schedules that refer to quiet hours."""
    sql = "SELECT sid FROM schedules WHERE quiet_hours_policy_id = $1 AND removed_at IS NULL ORDER BY sid"
    return [row[0] for row in await db.fetch(sql, policy_id)]
