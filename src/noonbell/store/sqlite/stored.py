"""Durable schedules on SQLite as they are read: rows joined with their quiet hours, last run and live runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.records import DEFAULT_TEAM, LiveRun, ScheduleColumns, StoredSchedule
from noonbell.ports import ScheduleFilter
from noonbell.store.sqlite import slots
from noonbell.store.sqlite.claiming import LIVE
from noonbell.store.sqlite.tables import LANE_NO
from noonbell.store.words import SCHEDULED

_encode = msgspec.json.Encoder().encode

# So many sids past the last page are looked through before an index is gone through whole.
_NEAR: Final = 10_000
_LONGEST_LIKE: Final = 1_000
_SKIPS: Final = '"overlap":"skip"'

_COLUMNS: Final = """
    s.sid, d.schedule_id, s.enabled, d.managed_by, ifnull(d.lane, d.managed_by), d.created_at, d.updated_at,
    s.next_run_at, s.last_run_at, s.last_attempt_at, s.last_success_at, s.last_failure_at, s.epoch, s.cursor_at,
    s.anchor_at, s.backlog_left, s.backlog_until, s.last_run_for, d.team, d.name, d.type, d.spec, d.timezone,
    d.quiet_hours_policy_id, d.catch_up_policy, d.payload, d.definition, s.slot_for
"""
# CROSS JOIN: the state drives, so that definitions are read only of what was chosen by it
_DUE: Final = f"""
    SELECT {_COLUMNS} FROM schedule_state s CROSS JOIN schedule_definitions d ON d.sid = s.sid
    WHERE s.enabled = 1 AND s.lane_no = {LANE_NO.format(lane="?1")} AND s.next_run_at <= ?2
    ORDER BY s.next_run_at, s.sid LIMIT ?3
"""
# CROSS JOIN: the batch drives, whatever the planner thinks of the tables
_BY_SIDS: Final = f"""
    SELECT {_COLUMNS} FROM json_each(?) b CROSS JOIN schedule_state s ON s.sid = b.value
    CROSS JOIN schedule_definitions d ON d.sid = s.sid ORDER BY b.key
"""
_LIVES: Final = f"""
    SELECT {LIVE} FROM json_each(?) b CROSS JOIN live_runs l ON l.sid = b.value ORDER BY l.sid, l.kind, l.run_for
"""
_QUIET: Final = """
    SELECT q.policy_id, q.document FROM json_each(?) b CROSS JOIN quiet_hours_policies q ON q.policy_id = b.value
"""
_RAN: Final = f"""
    SELECT r.sid, r.started_at, r.ended_at FROM json_each(?) b CROSS JOIN runs r
    ON r.run_for = b.value ->> 1 AND r.sid = b.value ->> 0 AND r.kind = {SCHEDULED}
"""


def due(db: apsw.Connection, lane: str, now: int, limit: int) -> list[StoredSchedule]:
    """The schedules of a lane that wake by `now`, the earliest first."""
    return _made(db, db.execute(_DUE, (lane, now, limit)).fetchall())


def by_sids(db: apsw.Connection, sids: Sequence[int]) -> list[StoredSchedule]:
    """The schedules of these sids, in their order."""
    if not sids:
        return []
    return _made(db, db.execute(_BY_SIDS, (_encode(sids).decode(),)).fetchall())


def by_ids(db: apsw.Connection, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
    """Those that exist, by sid."""
    sql = (
        "SELECT DISTINCT d.sid FROM json_each(?) b CROSS JOIN schedule_definitions d ON d.schedule_id = b.value "
        "WHERE d.lane IS NOT NULL AND d.removed_at IS NULL ORDER BY d.sid"
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
    source, sid = ("schedule_definitions d INDEXED BY idx_schedules_name", "d.sid") if by_name else _listed(wanted)
    parts: tuple[tuple[str, Any], ...] = (
        (f"{sid} > ?", after_sid),
        (f"{sid} <= ?", upto_sid),
        ("t.tag = ?", wanted.tag),
        ("t.team = ?", None if wanted.tag is None else wanted.team),
        ("d.team = ?", wanted.team),
        ("d.managed_by = ?", wanted.managed_by),
        ("d.lane = ?", wanted.lane),
        ("d.type = ?", wanted.type),
        _in_name(wanted.name_contains),
        ("d.quiet_hours_policy_id = ?", wanted.quiet_hours_policy_id),
    )
    given = [(condition, value) for condition, value in parts if value is not None]
    conditions = ["d.removed_at IS NULL", "d.lane IS NOT NULL", *(condition for condition, _ in given)]
    if wanted.enabled is not None:
        conditions.append(f"s.enabled = {int(wanted.enabled)}")
        if "schedule_state" not in source:
            source += " CROSS JOIN schedule_state s ON s.sid = d.sid"
    if wanted.enabled is False:
        conditions.append("s.removed = 0")  # says nothing new, but is what their index asks for
    if wanted.type not in (None, "cron"):
        conditions.append("d.type <> 'cron'")  # as above
    sql = f"SELECT d.sid FROM {source} WHERE {' AND '.join(conditions)} ORDER BY {sid} LIMIT ?"
    return [row[0] for row in db.execute(sql, (*(value for _, value in given), limit))]


def _in_name(part: str | None) -> tuple[str, str | None]:
    """LIKE takes half the time; of what it cannot say the slower way is sure. Both know the case of ASCII alone."""
    if part is None or len(part) > _LONGEST_LIKE or "\0" in part:
        return "instr(lower(d.name), lower(?)) > 0", part
    escaped = re.sub(r"([\\%_])", r"\\\1", part)
    return "d.name LIKE ? ESCAPE '\\'", f"%{escaped}%"


def _listed(wanted: ScheduleFilter) -> tuple[str, str]:
    """The tables that a list is read from, and the sid of the one that is gone through in that order."""
    if wanted.tag is not None:
        return "schedule_tags t CROSS JOIN schedule_definitions d ON d.sid = t.sid", "t.sid"
    if wanted.quiet_hours_policy_id is not None:
        return "schedule_definitions d INDEXED BY idx_schedules_quiet_hours", "d.sid"
    if wanted.enabled is False and wanted.team in (None, DEFAULT_TEAM):  # another team has few schedules of many
        disabled = "schedule_state s INDEXED BY idx_schedules_disabled"
        return f"{disabled} CROSS JOIN schedule_definitions d ON d.sid = s.sid", "s.sid"
    if wanted.team is None:
        return "schedule_definitions d NOT INDEXED", "d.sid"
    name = "team" if wanted.type in (None, "cron") else "type"
    return f"schedule_definitions d INDEXED BY idx_schedules_{name}", "d.sid"


def in_zone(db: apsw.Connection, timezone: str, after_sid: int, limit: int) -> list[StoredSchedule]:
    sql = (
        "SELECT sid FROM schedule_definitions WHERE sid > ? AND timezone = ? AND lane IS NOT NULL "
        "AND removed_at IS NULL ORDER BY sid LIMIT ?"
    )
    return by_sids(db, [row[0] for row in db.execute(sql, (after_sid, timezone, limit))])


def zone_rules(db: apsw.Connection) -> dict[str, str]:
    rows: Any = db.execute("SELECT timezone, zone_hash FROM zone_rules").fetchall()
    return dict(rows)


def users_of(db: apsw.Connection, policy_id: str) -> list[int]:
    """The sids of the schedules that refer to quiet hours."""
    sql = "SELECT sid FROM schedule_definitions WHERE quiet_hours_policy_id = ? AND removed_at IS NULL ORDER BY sid"
    return [row[0] for row in db.execute(sql, (policy_id,))]


def _made(db: apsw.Connection, rows: list[Any]) -> list[StoredSchedule]:
    """Schedules from their rows. The rest is looked up for those that have it: in a burst, almost none."""
    lives, quiet, ran = _lives(db, rows), _quiet(db, rows), _ran(db, rows)
    return [
        StoredSchedule(
            sid, schedule_id,
            ScheduleColumns(name, kind, spec, timezone, policy, catch_up, payload, definition),
            bool(enabled), managed_by, lane, created_at, updated_at, next_run_at, last_run_at, last_attempt_at,
            last_success_at, last_failure_at, epoch, cursor_at, anchor_at, backlog_left, backlog_until, last_run_for,
            None if policy is None else quiet.get(policy), ran.get(sid), lives.get(sid) or [], team,
        )
        for (
            sid, schedule_id, enabled, managed_by, lane, created_at, updated_at, next_run_at, last_run_at,
            last_attempt_at, last_success_at, last_failure_at, epoch, cursor_at, anchor_at, backlog_left, backlog_until,
            last_run_for, team, name, kind, spec, timezone, policy, catch_up, payload, definition, _,
        ) in rows
    ]  # fmt: skip


def _lives(db: apsw.Connection, rows: list[tuple[Any, ...]]) -> dict[int, list[LiveRun]]:
    found: dict[int, list[LiveRun]] = {}
    if rows and (any(row[27] is not None for row in rows) or slots.has_others(db)):
        for live in db.execute(_LIVES, (_encode([row[0] for row in rows]).decode(),)):
            found.setdefault(live[0], []).append(LiveRun(*live))
    return found


def _quiet(db: apsw.Connection, rows: list[tuple[Any, ...]]) -> dict[str, str]:
    """The documents of quiet hours, by their ids."""
    policies = {str(row[23]) for row in rows if row[23] is not None}
    if not policies:
        return {}
    found: Any = db.execute(_QUIET, (_encode(sorted(policies)).decode(),)).fetchall()
    return dict(found)


def _ran(db: apsw.Connection, rows: list[tuple[Any, ...]]) -> dict[int, tuple[int, int]]:
    """When the last runs began and ended, of those schedules whose overlap policy asks for it."""
    asked = [(row[0], row[17]) for row in rows if isinstance(row[26], str) and _SKIPS in row[26]]
    if not asked:
        return {}
    return {sid: (began, ended) for sid, began, ended in db.execute(_RAN, (_encode(asked).decode(),))}
