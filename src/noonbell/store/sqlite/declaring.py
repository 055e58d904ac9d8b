"""Reading and replacing what an owner has declared, and the record of its lifecycle.

`apply` writes one Declaration: created, changed, removed and revived together, in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw
import msgspec

from noonbell.core.records import DECLARED_OWNERS, Declaration, LifecycleEvent
from noonbell.ports import Declared
from noonbell.store.sqlite import ending, slots
from noonbell.store.sqlite.numbers import owner_number_sql
from noonbell.store.sqlite.tables import SCHEDULES, lane_numbers

_encode = msgspec.json.Encoder().encode


_SCHEDULE = (
    "sid", "schedule_id", "name", "enabled", "type", "spec", "next_run_at", "last_run_at", "timezone",
    "quiet_hours_policy_id", "catch_up_policy", "payload", "created_at", "updated_at", "managed_by", "team", "epoch",
    "cursor_at", "retry_delay_us", "last_attempt_at", "last_success_at", "last_failure_at", "removed_at",
    "last_ended_for", "last_ended_manual", "ended_runs", "succeeded_runs", "anchor_at", "backlog_left",
)  # fmt: skip
_LIVE = ("run_for", "fence", "owner", "state", "attempt", "wake_at", "started_at", "attempt_at", "crashes", "cause")


# The owners are read from the numbers of lanes, of which there are few, and their tasks by the index of names.
_DECLARED = " OR ".join(f"n.name GLOB '{prefix}*'" for prefix in DECLARED_OWNERS)
_OF_ALL_OWNERS = f"IN (SELECT n.name FROM lane_numbers n WHERE {_DECLARED})"
_LIVE_NAMES = (*_LIVE, "live_kind", "live_epoch")
_NO_LIVE = dict.fromkeys(_LIVE_NAMES)


def tasks_sql(owners: str) -> str:
    """Return the statement for the tasks of these owners."""
    return (
        f"SELECT {', '.join(f's.{name}' for name in _SCHEDULE)}, e.zone_hash, e.policies "
        f"FROM (SELECT * FROM {SCHEDULES}) s "
        "LEFT JOIN epochs e ON e.sid = s.sid AND e.epoch = s.epoch "
        f"WHERE s.managed_by {owners} AND s.lane IS NULL AND s.removed_at IS NULL ORDER BY s.sid"
    )


OF_ALL_OWNERS = tasks_sql(_OF_ALL_OWNERS)
# CROSS JOIN: the batch drives, whatever the planner thinks of the tables
_LIVES = (
    f"SELECT l.sid, {', '.join(f'l.{name}' for name in _LIVE)}, l.kind, l.epoch "
    "FROM json_each(?) b CROSS JOIN live_runs l ON l.sid = b.value ORDER BY l.sid, l.kind, l.run_for"
)


def read(db: apsw.Connection, managed_by: str | None) -> Declared:
    names = (*_SCHEDULE, "zone_hash", "policies")
    of_owner = db.execute(OF_ALL_OWNERS) if managed_by is None else db.execute(tasks_sql("= ?"), (managed_by,))
    tasks = [dict(zip(names, row, strict=True)) for row in of_owner]
    lives: dict[int, list[dict[str, Any]]] = {}
    for sid, *values in db.execute(_LIVES, (_encode([task["sid"] for task in tasks]),)) if tasks else ():
        lives.setdefault(sid, []).append(dict(zip(_LIVE_NAMES, values, strict=True)))
    rows: list[Mapping[str, Any]] = [task | live for task in tasks for live in lives.get(task["sid"], [_NO_LIVE])]
    last = db.execute(
        "SELECT managed_by, at, instance, event, detail FROM lifecycle WHERE managed_by = ? ORDER BY id DESC LIMIT 1",
        (managed_by,),
    ).fetchone()
    return Declared(rows, None if last is None else LifecycleEvent(*last))


def record(db: apsw.Connection, event: LifecycleEvent) -> None:
    db.execute(
        "INSERT INTO lifecycle (managed_by, at, instance, event, detail) VALUES (?, ?, ?, ?, ?)",
        (event.managed_by, event.at, event.instance, event.event, event.detail),
    )


def apply(db: apsw.Connection, declaration: Declaration) -> list[int]:
    _remove(db, declaration)
    if declaration.parked:
        db.execute(
            "UPDATE schedule_state SET enabled = 0, next_run_at = NULL WHERE sid IN (SELECT value FROM json_each(?))",
            (_encode(declaration.parked),),
        )
    _revive(db, declaration)
    if declaration.interrupted:
        ending.end_live(db, declaration.interrupted, "unknown", declaration.at)
    _change(db, declaration)
    sids = _create(db, declaration)
    for event in declaration.events:
        record(db, event)
    return sids


def _remove(db: apsw.Connection, declaration: Declaration) -> None:
    if not declaration.removed:
        return
    gone = _encode([(r.sid, r.cursor_at) for r in declaration.removed])
    at = declaration.at
    ending.end_all_of(db, [r.sid for r in declaration.removed], at)
    db.execute(
        "UPDATE schedule_definitions SET removed_at = ?2, updated_at = ?2 FROM json_each(?1) b "
        "WHERE sid = b.value ->> 0",
        (gone, at),
    )
    db.execute(
        "UPDATE schedule_state SET enabled = 0, removed = 1, next_run_at = NULL, cursor_at = b.value ->> 1 "
        "FROM json_each(?) b WHERE sid = b.value ->> 0",
        (gone,),
    )
    db.execute(
        "UPDATE epochs SET to_at = b.value ->> 1 FROM json_each(?) b WHERE sid = b.value ->> 0 AND to_at IS NULL",
        (gone,),
    )


def _change(db: apsw.Connection, declaration: Declaration) -> None:
    if not declaration.changed:
        return
    changed = _encode(declaration.changed)
    db.execute(
        "UPDATE epochs SET to_at = b.value ->> 'cursor_at' FROM json_each(?) b "
        "WHERE sid = b.value ->> 'sid' AND to_at IS NULL AND b.value ->> 'new_epoch'",
        (changed,),
    )
    # INSERT OR IGNORE: a row that came without its epoch (older data, or a repaired one) gets it here
    db.execute(
        "INSERT OR IGNORE INTO epochs SELECT value ->> 'sid', value ->> 'epoch', value ->> 'cursor_at', NULL, "
        "value ->> 'spec', value ->> 'timezone', value ->> 'zone_hash', value ->> 'policies', 1 FROM json_each(?)",
        (changed,),
    )
    db.execute(
        "UPDATE schedule_state SET epoch = b.value ->> 'epoch', cursor_at = b.value ->> 'cursor_at', enabled = 1, "
        # a run that executes puts the wake-up back when it ends; it may have ended since the plan was made
        "next_run_at = iif(EXISTS (SELECT 1 FROM live_runs l WHERE l.sid = schedule_state.sid "
        "AND l.state = 'running'), NULL, b.value ->> 'next_run_at') "
        "FROM json_each(?) b WHERE sid = b.value ->> 'sid'",
        (changed,),
    )
    # most are as they were: a start does not rewrite what it finds
    db.execute(
        "UPDATE schedule_definitions SET spec = b.value ->> 'spec', timezone = b.value ->> 'timezone', "
        "retry_delay_us = b.value ->> 'retry_delay_us', updated_at = iif(b.value ->> 'new_epoch', ?2, updated_at) "
        "FROM json_each(?1) b WHERE sid = b.value ->> 'sid' AND (b.value ->> 'new_epoch' "
        "OR spec IS NOT b.value ->> 'spec' OR timezone IS NOT b.value ->> 'timezone' "
        "OR retry_delay_us IS NOT b.value ->> 'retry_delay_us')",
        (changed, declaration.at),
    )


def _revive(db: apsw.Connection, declaration: Declaration) -> None:
    if not declaration.revived:
        return
    slots.spill(db, [live.sid for live in declaration.revived])
    revived = _encode(declaration.revived)
    match = "l.sid = b.value ->> 'sid' AND l.kind = b.value ->> 'kind' AND l.run_for = b.value ->> 'run_for'"
    db.execute(
        f"INSERT OR REPLACE INTO {ending.CUT_ATTEMPT}, l.attempt_at, ?2, {owner_number_sql('l.owner')}, "
        "'interrupted: the instance ended before the attempt did' "
        f"FROM json_each(?1) b JOIN runs_live l ON {match} WHERE l.state = 'running'",
        (revived, declaration.at),
    )
    db.execute(
        "UPDATE runs_live AS l SET fence = b.value ->> 'fence', owner = b.value ->> 'owner', "
        "state = b.value ->> 'state', attempt = b.value ->> 'attempt', wake_at = b.value ->> 'wake_at', "
        "started_at = b.value ->> 'started_at', "
        "attempt_at = b.value ->> 'attempt_at', crashes = b.value ->> 'crashes', epoch = b.value ->> 'epoch', "
        f"cause = b.value ->> 'cause' FROM json_each(?) b WHERE {match}",
        (revived,),
    )


def _create(db: apsw.Connection, declaration: Declaration) -> list[int]:
    if not declaration.created:
        return []
    first = (db.execute("SELECT max(sid) FROM schedule_definitions").get or 0) + 1
    sids = list(range(first, first + len(declaration.created)))
    created = _encode(
        [
            (
                n.schedule_id,
                n.name,
                n.type,
                n.spec,
                n.next_run_at,
                n.timezone,
                n.cursor_at,
                n.retry_delay_us,
                n.zone_hash,
                n.policies,
            )
            for n in declaration.created
        ]
    )
    db.execute(
        "INSERT INTO schedule_definitions (sid, schedule_id, name, type, spec, timezone, retry_delay_us, created_at, "
        "updated_at, managed_by) SELECT ?2 + key, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 5, "
        "value ->> 7, ?3, ?3, ?4 FROM json_each(?1)",
        (created, first, declaration.at, declaration.managed_by),
    )
    lane_no = lane_numbers(db, [declaration.managed_by])[declaration.managed_by]
    db.execute(
        "INSERT INTO schedule_state (sid, lane_no, next_run_at, cursor_at) SELECT ?2 + key, ?3, value ->> 4, "
        "value ->> 6 FROM json_each(?1)",
        (created, first, lane_no),
    )
    db.execute(
        "INSERT INTO epochs SELECT ?2 + key, 1, value ->> 6, NULL, value ->> 3, value ->> 5, value ->> 8, value ->> 9, "
        "1 FROM json_each(?1)",
        (created, first),
    )
    return sids
