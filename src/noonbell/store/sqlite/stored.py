"""Durable schedules on SQLite as they are read: rows joined with their quiet hours, last run and live runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.records import LiveRun, ScheduleColumns, StoredSchedule
from noonbell.ports import ScheduleFilter
from noonbell.store.sqlite.claiming import LIVE

_encode = msgspec.json.Encoder().encode

# So many sids past the last page are looked through before an index is gone through whole.
_NEAR: Final = 10_000
_LONGEST_LIKE: Final = 1_000

_SELECT: Final = """
    SELECT s.sid, s.schedule_id, s.enabled, s.managed_by, s.lane, s.created_at, s.updated_at, s.next_run_at,
        s.last_run_at, s.last_attempt_at, s.last_success_at, s.last_failure_at, s.epoch, s.cursor_at, s.anchor_at,
        s.backlog_left, s.backlog_until, s.last_run_for, q.document, r.started_at, r.ended_at, s.team,
        s.name, s.type, s.spec, s.timezone, s.quiet_hours_policy_id, s.catch_up_policy, s.payload, s.definition
"""
_JOINS: Final = """
    LEFT JOIN quiet_hours_policies q ON q.policy_id = s.quiet_hours_policy_id
    LEFT JOIN runs r ON r.run_for = iif(instr(s.definition, '"overlap":"skip"'), s.last_run_for, NULL)
        AND r.sid = s.sid AND r.kind = 'scheduled'
"""


def due(db: apsw.Connection, lane: str, now: int, limit: int) -> list[StoredSchedule]:
    """The schedules of a lane that wake by `now`, the earliest first."""
    sql = (
        f"{_SELECT} FROM schedules s {_JOINS} WHERE s.enabled = 1 AND s.lane = ? AND s.next_run_at <= ? "
        "ORDER BY s.next_run_at, s.sid LIMIT ?"
    )
    rows = db.execute(sql, (lane, now, limit)).fetchall()
    return _made(db, rows, _encode([row[0] for row in rows]).decode())


def by_sids(db: apsw.Connection, sids: Sequence[int]) -> list[StoredSchedule]:
    """The schedules of these sids, in their order."""
    if not sids:
        return []
    told = _encode(sids).decode()
    # CROSS JOIN: the batch drives, whatever the planner thinks of the tables
    sql = f"{_SELECT} FROM json_each(?) b CROSS JOIN schedules s ON s.sid = b.value {_JOINS} ORDER BY b.key"
    return _made(db, db.execute(sql, (told,)).fetchall(), told)


def by_ids(db: apsw.Connection, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
    """Those that exist, by sid."""
    sql = (
        "SELECT DISTINCT s.sid FROM json_each(?) b CROSS JOIN schedules s ON s.schedule_id = b.value "
        "WHERE s.lane IS NOT NULL AND s.removed_at IS NULL ORDER BY s.sid"
    )
    return by_sids(db, [row[0] for row in db.execute(sql, (_encode(list(schedule_ids)).decode(),))])


def page(db: apsw.Connection, wanted: ScheduleFilter, after_sid: int, limit: int) -> list[StoredSchedule]:
    """By sid. Which index serves is said here: a page of a few must not cost a look at all the others.

    What no index knows in the order of sids is sought among the next ones first, which finds whatever is frequent. What
    is not is sought in the index of names then, which is a small part of the table.
    """
    if wanted.tag is None and wanted.quiet_hours_policy_id is None and (wanted.name_contains or wanted.managed_by):
        near = _sids(db, wanted, after_sid, limit, upto_sid=after_sid + _NEAR)
        return by_sids(db, near if len(near) == limit else _sids(db, wanted, after_sid, limit, by_name=True))
    return by_sids(db, _sids(db, wanted, after_sid, limit))


def _sids(
    db: apsw.Connection,
    wanted: ScheduleFilter,
    after_sid: int,
    limit: int,
    *,
    upto_sid: int | None = None,
    by_name: bool = False,
) -> list[int]:
    sid = "s.sid" if wanted.tag is None else "t.sid"  # of whichever table is gone through in that order
    parts: tuple[tuple[str, Any], ...] = (
        (f"{sid} > ?", after_sid),
        (f"{sid} <= ?", upto_sid),
        ("t.tag = ?", wanted.tag),
        ("t.team = ?", None if wanted.tag is None else wanted.team),
        ("s.team = ?", wanted.team),
        ("s.managed_by = ?", wanted.managed_by),
        ("s.lane = ?", wanted.lane),
        ("s.type = ?", wanted.type),
        _in_name(wanted.name_contains),
        ("s.quiet_hours_policy_id = ?", wanted.quiet_hours_policy_id),
    )
    given = [(condition, value) for condition, value in parts if value is not None]
    conditions = ["s.removed_at IS NULL", "s.lane IS NOT NULL", *(condition for condition, _ in given)]
    if wanted.enabled is not None:
        conditions.append(f"s.enabled = {int(wanted.enabled)}")
    if wanted.type not in (None, "cron"):
        conditions.append("s.type <> 'cron'")  # says nothing new, but is what their index asks for
    source = "schedules s INDEXED BY idx_schedules_name" if by_name else _listed(wanted)
    sql = f"SELECT s.sid FROM {source} WHERE {' AND '.join(conditions)} ORDER BY {sid} LIMIT ?"
    return [row[0] for row in db.execute(sql, (*(value for _, value in given), limit))]


def _in_name(part: str | None) -> tuple[str, str | None]:
    """LIKE takes half the time; of what it cannot say the slower way is sure. Both know the case of ASCII alone."""
    if part is None or len(part) > _LONGEST_LIKE or "\0" in part:
        return "instr(lower(s.name), lower(?)) > 0", part
    escaped = re.sub(r"([\\%_])", r"\\\1", part)
    return "s.name LIKE ? ESCAPE '\\'", f"%{escaped}%"


def _listed(wanted: ScheduleFilter) -> str:
    if wanted.tag is not None:
        return "schedule_tags t CROSS JOIN schedules s ON s.sid = t.sid"
    if wanted.quiet_hours_policy_id is not None:
        return "schedules s INDEXED BY idx_schedules_quiet_hours"
    if wanted.team is None:
        return "schedules s NOT INDEXED"
    if wanted.enabled is False:
        return "schedules s INDEXED BY idx_schedules_disabled"
    return f"schedules s INDEXED BY idx_schedules_{'team' if wanted.type in (None, 'cron') else 'type'}"


def in_zone(db: apsw.Connection, timezone: str, after_sid: int, limit: int) -> list[StoredSchedule]:
    sql = (
        "SELECT sid FROM schedules WHERE sid > ? AND timezone = ? AND lane IS NOT NULL AND removed_at IS NULL "
        "ORDER BY sid LIMIT ?"
    )
    return by_sids(db, [row[0] for row in db.execute(sql, (after_sid, timezone, limit))])


def zone_rules(db: apsw.Connection) -> dict[str, str]:
    rows: Any = db.execute("SELECT timezone, zone_hash FROM zone_rules").fetchall()
    return dict(rows)


def users_of(db: apsw.Connection, policy_id: str) -> list[int]:
    """The sids of the schedules that refer to quiet hours."""
    sql = "SELECT sid FROM schedules WHERE quiet_hours_policy_id = ? AND removed_at IS NULL ORDER BY sid"
    return [row[0] for row in db.execute(sql, (policy_id,))]


def _made(db: apsw.Connection, rows: list[tuple[Any, ...]], sids: str) -> list[StoredSchedule]:
    lives: dict[int, list[LiveRun]] = {}
    sql = (
        f"SELECT {LIVE} FROM json_each(?) b CROSS JOIN runs_live l ON l.sid = b.value ORDER BY l.sid, l.kind, l.run_for"
    )
    for row in db.execute(sql, (sids,)):
        lives.setdefault(row[0], []).append(LiveRun(*row))
    return [_one(row, lives.get(row[0], [])) for row in rows]


def _one(row: tuple[Any, ...], lives: list[LiveRun]) -> StoredSchedule:
    ran = None if row[19] is None else (row[19], row[20])
    values: tuple[Any, ...] = (
        row[0],
        row[1],
        ScheduleColumns(*row[22:]),
        bool(row[2]),
        *row[3:19],
        ran,
        lives,
        row[21],
    )
    return StoredSchedule(*values)
