"""Reading and replacing what an owner has declared, and the record of its lifecycle.

`apply` writes one Declaration: created, changed, removed and revived together, in the caller's transaction. Numbers of
schedules and of events are given in order and without gaps, so they are given under a lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.core.records import DECLARED_OWNERS, Declaration, LifecycleEvent
from noonbell.ports import LEDGER_TABLES, Declared
from noonbell.store.postgres import ending, lane_numbers, live_rows
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.numbers import number_sql, owner_number_sql
from noonbell.store.postgres.schema import NUMBERING, lock
from noonbell.store.postgres.stored import JOINED
from noonbell.store.words import CAUSES, KINDS, OUTCOMES

_SCHEDULE = LEDGER_TABLES["schedules"].columns
_LIVE = ("run_for", "fence", "owner", "state", "attempt", "wake_at", "started_at", "attempt_at", "crashes", "cause")
_INTERRUPTED = "interrupted: the instance ended before the attempt did"


_NAMES = (*_SCHEDULE, *_LIVE, "live_kind", "live_epoch", "zone_hash", "policies")
_READ = ", ".join(
    [*(f"s.{n}" for n in _SCHEDULE), *(f"l.{n}" for n in _LIVE), "l.kind", "l.epoch", "e.zone_hash", "e.policies"]
)
# LIMIT and OFFSET 0: each row by its key, whatever the planner thinks of the tables.
_TASKS = f"""
    SELECT {_READ} FROM schedule_definitions m
    CROSS JOIN LATERAL (SELECT {", ".join(_SCHEDULE)} FROM {JOINED} WHERE sid = m.sid LIMIT 1) s
    LEFT JOIN LATERAL (SELECT * FROM live_runs t WHERE t.sid = m.sid OFFSET 0) l ON true
    LEFT JOIN epochs e ON e.sid = s.sid AND e.epoch = s.epoch
    WHERE m.managed_by = ANY ($1::text[]) AND m.lane IS NULL AND m.removed_at IS NULL
    ORDER BY s.sid, l.kind, l.run_for
"""


async def read(db: Connection, managed_by: str | None) -> Declared:
    if managed_by is not None:
        owners = [managed_by]
    else:
        # The owners are read from the numbers of lanes, of which there are few. They are bound to the second statement,
        # so that it is planned for them and not for the owner that most schedules have.
        prefixes = [f"{prefix}%" for prefix in DECLARED_OWNERS]
        found = await db.fetch("SELECT name FROM lane_numbers WHERE name LIKE ANY ($1::text[])", prefixes)
        owners = [row[0] for row in found]
    rows: list[Mapping[str, Any]] = [dict(zip(_NAMES, row, strict=True)) for row in await db.fetch(_TASKS, owners)]
    if managed_by is None:
        return Declared(rows, None)
    last = await db.fetchrow(
        "SELECT managed_by, at, instance, event, detail FROM lifecycle WHERE managed_by = $1 ORDER BY id DESC LIMIT 1",
        managed_by,
    )
    return Declared(rows, None if last is None else LifecycleEvent(*last))


async def record(db: Connection, events: Sequence[LifecycleEvent]) -> None:
    if not events:
        return
    await lock(db, NUMBERING)
    await db.execute(
        "INSERT INTO lifecycle (id, managed_by, at, instance, event, detail) "
        "SELECT (SELECT coalesce(max(id), 0) FROM lifecycle) + b.n, b.managed_by, b.at, b.instance, b.event, b.detail "
        "FROM unnest($1::text[], $2::int8[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY "
        "AS b (managed_by, at, instance, event, detail, n)",
        [e.managed_by for e in events], [e.at for e in events], [e.instance for e in events],
        [e.event for e in events], [e.detail for e in events],
    )  # fmt: skip


async def apply(db: Connection, declaration: Declaration) -> list[int]:
    await _remove(db, declaration)
    if declaration.parked:
        await db.execute(
            "UPDATE schedule_state SET enabled = 0, next_run_at = NULL WHERE sid = ANY($1::int8[])", declaration.parked
        )
    await _revive(db, declaration)
    if declaration.interrupted:
        await ending.end_live(db, declaration.interrupted, "unknown", declaration.at)
    await _change(db, declaration)
    sids = await _create(db, declaration)
    await record(db, declaration.events)
    return sids


async def _remove(db: Connection, declaration: Declaration) -> None:
    if not declaration.removed:
        return
    sids, cursors = [r.sid for r in declaration.removed], [r.cursor_at for r in declaration.removed]
    at = declaration.at
    await ending.end_all_of(db, sids, at)
    await db.execute(
        "UPDATE schedule_state s SET enabled = 0, removed = 1, next_run_at = NULL, cursor_at = b.cursor_at "
        "FROM unnest($1::int8[], $2::int8[]) AS b (sid, cursor_at) WHERE s.sid = b.sid",
        sids, cursors,
    )  # fmt: skip
    await db.execute(
        "UPDATE schedule_definitions SET removed_at = $2, updated_at = $2 WHERE sid = ANY($1::int8[])", sids, at
    )
    await db.execute(
        "UPDATE epochs e SET to_at = b.cursor_at FROM unnest($1::int8[], $2::int8[]) AS b (sid, cursor_at) "
        "WHERE e.sid = b.sid AND e.to_at IS NULL",
        sids, cursors,
    )  # fmt: skip


async def _change(db: Connection, declaration: Declaration) -> None:
    changed = declaration.changed
    if not changed:
        return
    edited = [c for c in changed if c.new_epoch]
    if edited:
        await db.execute(
            "UPDATE epochs e SET to_at = b.cursor_at FROM unnest($1::int8[], $2::int8[]) AS b (sid, cursor_at) "
            "WHERE e.sid = b.sid AND e.to_at IS NULL",
            [c.sid for c in edited], [c.cursor_at for c in edited],
        )  # fmt: skip
    # ON CONFLICT: a row that came without its epoch (older data, or a repaired one) gets it here
    await db.execute(
        "INSERT INTO epochs (sid, epoch, from_at, spec, timezone, zone_hash, policies, enabled) "
        "SELECT b.*, 1 FROM unnest("
        "$1::int8[], $2::int8[], $3::int8[], $4::text[], $5::text[], $6::text[], $7::text[]) b "
        "ON CONFLICT (sid, epoch) DO NOTHING",
        [c.sid for c in changed], [c.epoch for c in changed], [c.cursor_at for c in changed],
        [c.spec for c in changed], [c.timezone for c in changed], [c.zone_hash for c in changed],
        [c.policies for c in changed],
    )  # fmt: skip
    await db.execute(
        "UPDATE schedule_state s SET epoch = b.epoch, cursor_at = b.cursor_at, enabled = 1, "
        # a run that executes puts the wake-up back when it ends; it may have ended since the plan was made
        "next_run_at = CASE WHEN EXISTS (SELECT 1 FROM runs_live l WHERE l.sid = s.sid AND l.state = 'running') "
        "THEN NULL ELSE b.next_run_at END FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[]) "
        "AS b (sid, epoch, cursor_at, next_run_at) WHERE s.sid = b.sid",
        [c.sid for c in changed], [c.epoch for c in changed], [c.cursor_at for c in changed],
        [c.next_run_at for c in changed],
    )  # fmt: skip
    await db.execute(
        "UPDATE schedule_definitions d SET spec = b.spec, timezone = b.timezone, retry_delay_us = b.retry_delay_us, "
        "updated_at = CASE WHEN b.new_epoch = 1 THEN $6 ELSE d.updated_at END "
        "FROM unnest($1::int8[], $2::text[], $3::text[], $4::int8[], $5::int8[]) "
        "AS b (sid, spec, timezone, retry_delay_us, new_epoch) WHERE d.sid = b.sid AND (b.new_epoch = 1 OR "
        "(d.spec, d.timezone, d.retry_delay_us) IS DISTINCT FROM (b.spec, b.timezone, b.retry_delay_us))",
        [c.sid for c in changed], [c.spec for c in changed], [c.timezone for c in changed],
        [c.retry_delay_us for c in changed], [int(c.new_epoch) for c in changed], declaration.at,
    )  # fmt: skip


async def _revive(db: Connection, declaration: Declaration) -> None:
    revived = declaration.revived
    if not revived:
        return
    keys = [r.sid for r in revived], [r.kind for r in revived], [r.run_for for r in revived]
    await db.execute(
        "INSERT INTO attempts (sid, run_for, kind, attempt, outcome, cause, started_at, ended_at, owner, error) "
        f"SELECT l.sid, l.run_for, {number_sql(KINDS, 'l.kind')}, l.attempt, {OUTCOMES.index('unknown')}, "
        f"{number_sql(CAUSES, 'l.cause')}, l.attempt_at, $4, {owner_number_sql('l.owner')}, $5 "
        f"FROM {live_rows.KEYS} {live_rows.OF_BATCH} WHERE l.state = 'running' "
        "ON CONFLICT (sid, run_for, kind, attempt) DO UPDATE SET outcome = excluded.outcome, cause = excluded.cause, "
        "started_at = excluded.started_at, ended_at = excluded.ended_at, owner = excluded.owner, "
        "error = excluded.error",
        *keys, declaration.at, _INTERRUPTED,
    )  # fmt: skip
    await db.execute(
        f"INSERT INTO runs_live ({live_rows.COLUMNS}) SELECT b.* FROM unnest($1::int8[], $2::text[], "
        "$3::int8[], $4::int8[], $5::text[], $6::text[], $7::int8[], $8::int8[], $9::int8[], $10::int8[], $11::int8[], "
        f"$12::int8[], $13::text[]) AS b ({live_rows.COLUMNS}) {live_rows.OF_BATCH} ON CONFLICT (sid, kind, run_for) "
        "DO UPDATE SET fence = excluded.fence, owner = excluded.owner, state = excluded.state, "
        "attempt = excluded.attempt, wake_at = excluded.wake_at, started_at = excluded.started_at, "
        "attempt_at = excluded.attempt_at, crashes = excluded.crashes, epoch = excluded.epoch, cause = excluded.cause",
        *keys, [r.fence for r in revived], [r.owner for r in revived], [r.state for r in revived],
        [r.attempt for r in revived], [r.wake_at for r in revived], [r.started_at for r in revived],
        [r.attempt_at for r in revived], [r.crashes for r in revived], [r.epoch for r in revived],
        [r.cause for r in revived],
    )  # fmt: skip


async def _create(db: Connection, declaration: Declaration) -> list[int]:
    created = declaration.created
    if not created:
        return []
    await lock(db, NUMBERING)
    first: int = await db.fetchval("SELECT coalesce(max(sid), 0) + 1 FROM schedule_definitions")
    sids = list(range(first, first + len(created)))
    cursors, specs, zones = [c.cursor_at for c in created], [c.spec for c in created], [c.timezone for c in created]
    await lane_numbers.number(db, [lane_numbers.name_of(None, declaration.managed_by)])
    await db.execute(
        "INSERT INTO schedule_state (sid, next_run_at, cursor_at, lane_no) SELECT b.*, "
        "(SELECT no FROM lane_numbers WHERE name = $4) FROM unnest($1::int8[], $2::int8[], $3::int8[]) b",
        sids, [c.next_run_at for c in created], cursors, lane_numbers.name_of(None, declaration.managed_by),
    )  # fmt: skip
    await db.execute(
        "INSERT INTO schedule_definitions (sid, schedule_id, name, type, spec, timezone, retry_delay_us, "
        "created_at, updated_at, managed_by) SELECT b.*, $8, $8, $9 FROM unnest($1::int8[], $2::text[], "
        "$3::text[], $4::text[], $5::text[], $6::text[], $7::int8[]) b",
        sids, [c.schedule_id for c in created], [c.name for c in created], [c.type for c in created], specs, zones,
        [c.retry_delay_us for c in created], declaration.at, declaration.managed_by,
    )  # fmt: skip
    await db.execute(
        "INSERT INTO epochs (sid, epoch, from_at, spec, timezone, zone_hash, policies, enabled) "
        "SELECT b.sid, 1, b.from_at, b.spec, b.timezone, b.zone_hash, b.policies, 1 FROM unnest($1::int8[], "
        "$2::int8[], $3::text[], $4::text[], $5::text[], $6::text[]) "
        "AS b (sid, from_at, spec, timezone, zone_hash, policies)",
        sids, cursors, specs, zones, [c.zone_hash for c in created], [c.policies for c in created],
    )  # fmt: skip
    return sids
