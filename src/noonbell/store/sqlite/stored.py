"""Durable schedules on SQLite as they are read: rows joined with their quiet hours, last run and live runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.records import DECLARED_OWNERS, DEFAULT_TEAM, LiveRun, ScheduleColumns, StoredSchedule
from noonbell.ports import ScheduleFilter
from noonbell.store.definitions import DefinitionCache, Known, extras
from noonbell.store.sqlite import slots
from noonbell.store.sqlite.claiming import LIVE
from noonbell.store.sqlite.tables import LANE_NO
from noonbell.store.words import SCHEDULED

_encode = msgspec.json.Encoder().encode

# So many sids past the last page are looked through before an index is gone through whole.
_NEAR: Final = 10_000
_LONGEST_LIKE: Final = 1_000

_STATE: Final = """
    s.sid, s.enabled, s.next_run_at, s.last_run_at, s.last_attempt_at, s.last_success_at, s.last_failure_at, s.epoch,
    s.cursor_at, s.anchor_at, s.backlog_left, s.backlog_until, s.last_run_for, s.slot_for
"""
_DEFINITION: Final = """
    d.sid, d.schedule_id, d.created_at, d.updated_at, d.name, d.payload, d.managed_by, ifnull(d.lane, d.managed_by),
    d.team, d.type, d.spec, d.timezone, d.quiet_hours_policy_id, d.catch_up_policy, d.definition
"""
_EPOCH: Final = 7
_LAST_RUN_FOR: Final = 12
_SLOT: Final = 13
_DUE: Final = f"""
    SELECT {_STATE} FROM schedule_state s
    WHERE s.enabled = 1 AND s.lane_no = {LANE_NO.format(lane="?1")} AND s.next_run_at <= ?2
    ORDER BY s.next_run_at, s.sid LIMIT ?3
"""
# CROSS JOIN: the batch drives, whatever the planner thinks of the tables
_DEFINITIONS: Final = f"""
    SELECT {_DEFINITION} FROM json_each(?) b CROSS JOIN schedule_definitions d ON d.sid = b.value
"""
_BY_SIDS: Final = f"""
    SELECT {_STATE}, {_DEFINITION} FROM json_each(?) b CROSS JOIN schedule_state s ON s.sid = b.value
    CROSS JOIN schedule_definitions d ON d.sid = s.sid ORDER BY b.key
"""
# Of a declared task a claim reads the state alone: its engine knows the rest.
_DECLARED: Final = ScheduleColumns("", "cron", "", "", None, "run_once", None, "")
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


def due(db: apsw.Connection, cache: DefinitionCache, lane: str, now: int, limit: int) -> list[StoredSchedule]:
    """The schedules of a lane that wake by `now`, the earliest first."""
    rows: list[Any] = db.execute(_DUE, (lane, now, limit)).fetchall()
    if lane.startswith(DECLARED_OWNERS):
        known = Known(0, "", lane, lane, 0, 0, DEFAULT_TEAM, _DECLARED, *extras("", None))
        return _made(db, rows, [known] * len(rows))
    return _made(db, rows, _definitions(db, rows, cache))


def by_sids(db: apsw.Connection, sids: Sequence[int]) -> list[StoredSchedule]:
    """The schedules of these sids, in their order."""
    if not sids:
        return []
    rows: list[Any] = db.execute(_BY_SIDS, (_encode(sids).decode(),)).fetchall()
    epochs = {row[0]: row[_EPOCH] for row in rows}
    added = DefinitionCache().add(epochs, (row[_SLOT + 1 :] for row in rows))
    return _made(db, [row[: _SLOT + 1] for row in rows], [added[row[0]] for row in rows])


def _definitions(db: apsw.Connection, rows: list[Any], cache: DefinitionCache) -> list[Known | None]:
    """The definitions of these schedules, from the cache or else from their rows; None where a row is missing."""
    sids, epochs = [row[0] for row in rows], [row[_EPOCH] for row in rows]
    found = cache.find(sids, epochs)
    missing = {sid: epoch for sid, epoch, known in zip(sids, epochs, found, strict=True) if known is None}
    if not missing:
        return found
    added = cache.add(missing, db.execute(_DEFINITIONS, (_encode(list(missing)).decode(),)))
    return [added.get(sid) if known is None else known for sid, known in zip(sids, found, strict=True)]


def by_ids(db: apsw.Connection, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
    """Return the schedules that exist, by sid."""
    sql = (
        "SELECT DISTINCT d.sid FROM json_each(?) b CROSS JOIN schedule_definitions d ON d.schedule_id = b.value "
        "WHERE d.lane IS NOT NULL AND d.removed_at IS NULL ORDER BY d.sid"
    )
    return by_sids(db, [row[0] for row in db.execute(sql, (_encode(list(schedule_ids)).decode(),))])


def page(db: apsw.Connection, wanted: ScheduleFilter, after_sid: int, limit: int | None) -> list[StoredSchedule]:
    """By sid. Which index serves is said here: a page of a few must not cost a look at all the others.

    What no index knows in the order of sids is sought among the next ones first, which finds whatever is frequent. What
    is not is sought in the index of names then, which is a small part of the table.
    """
    some = wanted.sids, wanted.schedule_ids, wanted.tag, wanted.quiet_hours_policy_id
    sought = wanted.name_contains or wanted.managed_by
    if sought and limit is not None and some.count(None) == len(some) and wanted.deleted is False:
        near = _sids(db, wanted, after_sid, limit, upto_sid=after_sid + _NEAR)
        return by_sids(db, near if len(near) == limit else _sids(db, wanted, after_sid, limit, by_name=True))
    return by_sids(db, _sids(db, wanted, after_sid, limit))


def _sids(
    db: apsw.Connection,
    wanted: ScheduleFilter,
    after_sid: int,
    limit: int | None,
    *,
    upto_sid: int | None = None,
    by_name: bool = False,
) -> list[int]:
    source, sid = ("schedule_definitions d INDEXED BY idx_schedules_name", "d.sid") if by_name else _listed(wanted)
    chosen = [one for one in (wanted.sids, wanted.schedule_ids) if one is not None]
    hidden = wanted.deleted is not False or wanted.declared is not False  # deleted schedules or declared tasks count
    parts: tuple[tuple[str, Any], ...] = (
        (f"{sid} > ?", after_sid),
        (f"{sid} <= ?", upto_sid),
        ("t.tag = ?", wanted.tag),
        ("t.team = ?", None if wanted.tag is None else wanted.team),
        ("d.team = ?", wanted.team),
        ("d.managed_by = ?", wanted.managed_by),
        ("ifnull(d.lane, d.managed_by) = ?" if hidden else "d.lane = ?", wanted.lane),
        ("d.type = ?", wanted.type),
        ("d.timezone = ?", wanted.timezone),
        _in_name(wanted.name_contains),
        ("d.quiet_hours_policy_id = ?", wanted.quiet_hours_policy_id),
    )
    given = [(condition, value) for condition, value in parts if value is not None]
    conditions = [condition for condition, _ in given]
    if wanted.deleted is not None:
        conditions.append(f"d.removed_at IS {'NOT ' if wanted.deleted else ''}NULL")
    if wanted.declared is not None:
        conditions.append(f"d.lane IS {'' if wanted.declared else 'NOT '}NULL")
    if wanted.enabled is not None:
        conditions.append(f"s.enabled = {int(wanted.enabled)}")
        if "schedule_state" not in source:
            source += " CROSS JOIN schedule_state s ON s.sid = d.sid"
    if wanted.enabled is False and wanted.deleted is False:
        conditions.append("s.removed = 0")  # says nothing new, but is what their index asks for
    if wanted.type not in (None, "cron"):
        conditions.append("d.type <> 'cron'")  # as above
    once = "DISTINCT " if chosen else ""  # a sid or an id may be named twice
    sql = f"SELECT {once}d.sid FROM {source} WHERE {' AND '.join(conditions)} ORDER BY {sid} LIMIT ?"
    bindings = (*(_encode(list(one)).decode() for one in chosen), *(value for _, value in given))
    return [row[0] for row in db.execute(sql, (*bindings, -1 if limit is None else limit))]


def _in_name(part: str | None) -> tuple[str, str | None]:
    """LIKE takes half the time; of what it cannot say the slower way is sure. Both know the case of ASCII alone."""
    if part is None or len(part) > _LONGEST_LIKE or "\0" in part:
        return "instr(lower(d.name), lower(?)) > 0", part
    escaped = re.sub(r"([\\%_])", r"\\\1", part)
    return "d.name LIKE ? ESCAPE '\\'", f"%{escaped}%"


def _listed(wanted: ScheduleFilter) -> tuple[str, str]:
    """The tables that a list is read from, and the sid of the one that is gone through in that order."""
    named = (("d.sid", wanted.sids), ("d.schedule_id", wanted.schedule_ids))
    if given := [name for name, values in named if values is not None]:
        # CROSS JOIN: the batch drives, whatever the planner thinks of the tables
        tables = [f"json_each(?) b CROSS JOIN schedule_definitions d ON {given[0]} = b.value"]
        tables += [f"json_each(?) c ON {name} = c.value" for name in given[1:]]
        tables += [] if wanted.tag is None else ["schedule_tags t ON t.sid = d.sid"]
        return " CROSS JOIN ".join(tables), "d.sid"
    if wanted.tag is not None:
        return "schedule_tags t CROSS JOIN schedule_definitions d ON d.sid = t.sid", "t.sid"
    if wanted.deleted is not False or wanted.declared is not False:
        return "schedule_definitions d NOT INDEXED", "d.sid"
    if wanted.quiet_hours_policy_id is not None:
        return "schedule_definitions d INDEXED BY idx_schedules_quiet_hours", "d.sid"
    if wanted.enabled is False and wanted.team in (None, DEFAULT_TEAM):  # another team has few schedules of many
        disabled = "schedule_state s INDEXED BY idx_schedules_disabled"
        return f"{disabled} CROSS JOIN schedule_definitions d ON d.sid = s.sid", "s.sid"
    if wanted.team is None:
        return "schedule_definitions d NOT INDEXED", "d.sid"
    name = "team" if wanted.type in (None, "cron") else "type"
    return f"schedule_definitions d INDEXED BY idx_schedules_{name}", "d.sid"


def users_of(db: apsw.Connection, policy_id: str) -> list[int]:
    """The sids of the schedules that refer to quiet hours."""
    sql = "SELECT sid FROM schedule_definitions WHERE quiet_hours_policy_id = ? AND removed_at IS NULL ORDER BY sid"
    return [row[0] for row in db.execute(sql, (policy_id,))]


def _made(db: apsw.Connection, rows: list[Any], definitions: Sequence[Known | None]) -> list[StoredSchedule]:
    """Schedules from their rows. The rest is looked up for those that have it: in a burst, almost none."""
    lives = _lives(db, rows)
    special = [
        (row, known) for row, known in zip(rows, definitions, strict=True) if known is not None and not known.is_plain
    ]
    quiet, ran = (_quiet(db, special), _ran(db, special)) if special else ({}, {})
    no_lives: list[LiveRun] = []  # one for all, which is never changed: almost every schedule has none
    made = []
    for row, known in zip(rows, definitions, strict=True):
        if known is None:
            continue  # a state without its definition, which `verify` reports
        _, schedule_id, managed_by, lane, created_at, updated_at, team, columns, _, is_plain = known
        (
            sid, enabled, next_run_at, last_run_at, last_attempt_at, last_success_at, last_failure_at, epoch, cursor_at,
            anchor_at, backlog_left, backlog_until, last_run_for, _,
        ) = row  # fmt: skip
        made.append(
            StoredSchedule(
                sid, schedule_id, columns, bool(enabled), managed_by, lane, created_at, updated_at, next_run_at,
                last_run_at, last_attempt_at, last_success_at, last_failure_at, epoch, cursor_at, anchor_at,
                backlog_left, backlog_until, last_run_for,
                None if is_plain else quiet.get(columns.quiet_hours_policy_id), None if is_plain else ran.get(sid),
                lives.get(sid, no_lives) if lives else no_lives, team,
            )
        )  # fmt: skip
    return made


def _lives(db: apsw.Connection, rows: list[Any]) -> dict[int, list[LiveRun]]:
    found: dict[int, list[LiveRun]] = {}
    if rows and (any(row[_SLOT] is not None for row in rows) or slots.has_others(db)):
        for live in db.execute(_LIVES, (_encode([row[0] for row in rows]).decode(),)):
            found.setdefault(live[0], []).append(LiveRun(*live))
    return found


def _quiet(db: apsw.Connection, special: list[tuple[Any, Known]]) -> dict[str | None, str]:
    """The documents of quiet hours, by their ids."""
    policies = {policy for _, known in special if (policy := known.columns.quiet_hours_policy_id) is not None}
    if not policies:
        return {}
    found: Any = db.execute(_QUIET, (_encode(sorted(policies)).decode(),)).fetchall()
    return dict(found)


def _ran(db: apsw.Connection, special: list[tuple[Any, Known]]) -> dict[int, tuple[int, int]]:
    """Return when the last runs began and ended, for the schedules whose overlap policy needs it."""
    asked = [(row[0], row[_LAST_RUN_FOR]) for row, known in special if known.skips]
    if not asked:
        return {}
    return {sid: (began, ended) for sid, began, ended in db.execute(_RAN, (_encode(asked).decode(),))}
