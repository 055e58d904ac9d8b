"""Durable schedules on PostgreSQL as they are read: rows with their quiet hours, last run and live runs.

A schedule is a row of `schedule_state` and one of `schedule_definitions`. The lock of a schedule is that of its state;
the definition is read by a statement of its own after it. In one statement with the lock it would be of the snapshot
from before, while the state is of the moment of the lock.

Each change of a definition gives the state a new revision, which is random: so one that was read before is used again
under the same revision, even if the database was restored in between and has had another history since.

`gathered` brings the rest to rows that the caller has read, and has locked where it changes them. It asks in
statements of its own, because what they show must be as new as the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from noonbell.core.records import DEFAULT_TEAM, LiveRun, ScheduleColumns, StoredSchedule
from noonbell.ports import ScheduleFilter
from noonbell.store.definitions import DefinitionCache, Known, extras
from noonbell.store.postgres.claiming import LIVE
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.numbers import RUN_WORDS
from noonbell.store.words import SCHEDULED

# Whole schedules. Columns need no prefix: `sid` is all that the tables share, and it is one column of the join.
JOINED: Final = "schedule_state s JOIN schedule_definitions d USING (sid)"

# as StoredSchedule has them, without what is gathered, and what the slot is for; then those of ScheduleColumns
STATE: Final = (
    "s.sid, s.enabled, s.next_run_at, s.last_run_at, s.last_attempt_at, s.last_success_at, s.last_failure_at, s.epoch, "
    "s.cursor_at, s.anchor_at, s.backlog_left, s.backlog_until, s.last_run_for, s.slot_for, s.revision"
)
_DEFINITION: Final = (
    "d.sid, d.schedule_id, d.created_at, d.updated_at, d.name, d.payload, d.managed_by, "
    "coalesce(d.lane, d.managed_by), d.team, d.type, d.spec, d.timezone, d.quiet_hours_policy_id, d.catch_up_policy, "
    "d.definition"
)
COLUMNS: Final = f"{STATE}, {_DEFINITION}"
NEXT_RUN_AT: Final = 2
_LAST_RUN_FOR: Final = 12
SLOT_FOR: Final = 13
_REVISION: Final = 14
_STATES: Final = 15
_damaged: Any = None
_NOTHING: Final = ScheduleColumns(*(_damaged,) * 8)
_MISSING: Final = Known(0, *(_damaged,) * 6, _NOTHING, *extras("", None))  # damage: every reader refuses it

_DEFINITIONS: Final = f"SELECT {_DEFINITION} FROM schedule_definitions d WHERE d.sid = ANY($1::int8[])"
# OFFSET 0: one look by the index for each schedule, whatever the planner thinks of the tables. Where `runs_live` is
# empty, as it mostly is, there is none.
_LIVES: Final = f"""
    SELECT l.* FROM unnest($1::int8[]) AS b (sid)
    CROSS JOIN LATERAL (SELECT {LIVE} FROM {{source}} t WHERE t.sid = b.sid OFFSET 0) l {{where}}
"""
_OUTSIDE: Final = _LIVES.format(source="runs_live", where="WHERE EXISTS (SELECT 1 FROM runs_live)")
_WITH_SLOT: Final = _LIVES.format(source="live_runs", where="")
_RAN: Final = f"""
    SELECT r.* FROM unnest($1::int8[], $2::int8[]) AS b (sid, run_for) CROSS JOIN LATERAL (
        SELECT r.sid, {RUN_WORDS["started_at"]} AS started_at, {RUN_WORDS["ended_at"]} AS ended_at FROM runs r
        WHERE r.run_for = b.run_for AND r.sid = b.sid AND r.kind = {SCHEDULED} OFFSET 0
    ) r
"""
_is_plain: Final = attrgetter("is_plain")
_DOCUMENTS: Final = "SELECT policy_id, document FROM quiet_hours_policies WHERE policy_id = ANY($1::text[])"


async def defined(
    db: Connection, states: Sequence[Any], cache: DefinitionCache | None = None, *, others: bool = True
) -> list[StoredSchedule]:
    """Return whole schedules, in the order of their rows of STATE.

    The rows are locked, and without `others` no run is in `runs_live` since. A definition is read only where the
    `cache` has none of this revision. In a transaction that has changed definitions there must be none.
    """
    if not states:
        return []
    cache = DefinitionCache() if cache is None else cache
    sids, revisions = [row[0] for row in states], [row[_REVISION] for row in states]
    found = cache.find(sids, revisions)
    missing = {sid: revision for sid, revision, known in zip(sids, revisions, found, strict=True) if known is None}
    added = cache.add(missing, await db.fetch(_DEFINITIONS, list(missing))) if missing else {}
    known = [added.get(sid, _MISSING) if one is None else one for sid, one in zip(sids, found, strict=True)]
    return await _whole(db, states, known, others=others)


async def gathered(db: Connection, rows: Sequence[Any]) -> list[StoredSchedule]:
    """Return whole schedules, in the order of their rows of COLUMNS."""
    known = DefinitionCache().add({row[0]: row[_REVISION] for row in rows}, [row[_STATES:] for row in rows])
    return await _whole(db, rows, [known[row[0]] for row in rows])


async def _whole(
    db: Connection, rows: Sequence[Any], definitions: Sequence[Known], *, others: bool = True
) -> list[StoredSchedule]:
    """Return schedules from rows that begin with STATE, and their definitions."""
    if not rows:
        return []
    lives: dict[int, list[LiveRun]] = {}
    for sql, sids in (
        (_OUTSIDE, [row[0] for row in rows if row[SLOT_FOR] is None] if others else ()),
        (_WITH_SLOT, [row[0] for row in rows if row[SLOT_FOR] is not None]),
    ):
        for live in await db.fetch(sql, sids) if sids else ():
            lives.setdefault(live[0], []).append(LiveRun(*live))
    for several in lives.values():
        several.sort(key=lambda live: (live.kind, live.run_for))
    ran: dict[int, tuple[int, int]] = {}
    documents: dict[str, str] = {}
    if not all(map(_is_plain, definitions)):
        # under overlap skip alone: only these need it
        fired = [
            (row[0], row[_LAST_RUN_FOR])
            for row, known in zip(rows, definitions, strict=True)
            if known.skips and row[_LAST_RUN_FOR] is not None
        ]
        if fired:
            for run in await db.fetch(_RAN, [sid for sid, _ in fired], [run_for for _, run_for in fired]):
                ran[run[0]] = (run[1], run[2])
        if named := {known.columns.quiet_hours_policy_id for known in definitions} - {None}:
            documents.update([(row[0], row[1]) for row in await db.fetch(_DOCUMENTS, list(named))])
    made: Callable[..., StoredSchedule] = StoredSchedule
    return [
        made(
            row[0], schedule_id, columns, row[1] == 1, managed_by, lane, created_at, updated_at,
            *row[NEXT_RUN_AT:SLOT_FOR], None if is_plain else documents.get(columns.quiet_hours_policy_id or ""),
            ran.get(row[0]) if skips else None, lives.get(row[0]) or [], team,
        )
        for row, (_, schedule_id, managed_by, lane, created_at, updated_at, team, columns, skips, is_plain) in zip(
            rows, definitions, strict=True
        )
    ]  # fmt: skip


async def locked(db: Connection, sids: Sequence[int]) -> list[StoredSchedule]:
    """The schedules of these sids, by sid; locked, in that order, up to the end of the transaction."""
    sql = f"SELECT {STATE} FROM schedule_state s WHERE s.sid = ANY($1::int8[]) ORDER BY s.sid FOR UPDATE"
    return await defined(db, await db.fetch(sql, sorted(set(sids)))) if sids else []


_BY_IDS: Final = f"FROM {JOINED} WHERE schedule_id = ANY($1::text[]) AND lane IS NOT NULL AND removed_at IS NULL"


async def sids_of(db: Connection, schedule_ids: Sequence[str]) -> dict[str, int]:
    """The sids of those that exist."""
    rows = await db.fetch(f"SELECT schedule_id, sid {_BY_IDS}", list(set(schedule_ids)))
    return {row[0]: row[1] for row in rows}


async def by_sids(db: Connection, sids: Sequence[int]) -> list[StoredSchedule]:
    """Durable schedules by their numbers, the deleted ones among them."""
    sql = f"SELECT {COLUMNS} FROM {JOINED} WHERE sid = ANY($1::int8[]) AND lane IS NOT NULL"
    return await gathered(db, await db.fetch(sql, list(sids)))


async def page(db: Connection, wanted: ScheduleFilter, after_sid: int, limit: int | None) -> list[StoredSchedule]:
    hidden = wanted.deleted is not False or wanted.declared is not False  # deleted schedules or declared tasks count
    parts: tuple[tuple[str, Any], ...] = (
        ("d.sid > {}", after_sid or None),
        ("d.sid = ANY({}::int8[])", None if wanted.sids is None else list(wanted.sids)),
        ("d.schedule_id = ANY({}::text[])", None if wanted.schedule_ids is None else list(wanted.schedule_ids)),
        ("d.managed_by = {}", wanted.managed_by),
        ("coalesce(d.lane, d.managed_by) = {}" if hidden else "d.lane = {}", wanted.lane),
        ("d.type = {}", wanted.type),
        # by this collation only ASCII letters have a case, as on the other stores
        ('strpos(lower(d.name COLLATE "C"), lower({}::text COLLATE "C")) > 0', wanted.name_contains),
        ("t.tag = {}", wanted.tag),
        ("t.team = {}", None if wanted.tag is None else wanted.team),
        ("d.quiet_hours_policy_id = {}", wanted.quiet_hours_policy_id),
        ("d.team = {}", wanted.team),
        ("d.timezone = {}", wanted.timezone),
    )
    given = [(condition, value) for condition, value in parts if value is not None]
    conditions = [condition.format(f"${place}") for place, (condition, _) in enumerate(given, 1)]
    # in the text, so that a partial index can serve
    if wanted.deleted is not None:
        conditions.append(f"d.removed_at IS {'NOT ' if wanted.deleted else ''}NULL")
    if wanted.declared is not None:
        conditions.append(f"d.lane IS {'' if wanted.declared else 'NOT '}NULL")
    if wanted.enabled is not None:
        live = " AND s.removed = 0" if wanted.deleted is False else ""
        conditions.append("s.enabled = 1" if wanted.enabled else f"s.enabled = 0{live}")
    if wanted.team not in (None, DEFAULT_TEAM):
        conditions.append(f"d.team <> '{DEFAULT_TEAM}'")  # says nothing new, but is what their index asks for
    if wanted.type not in (None, "cron"):
        conditions.append("d.type <> 'cron'")  # as above
    tags = "" if wanted.tag is None else "JOIN schedule_tags t ON t.sid = d.sid"
    bindings = [value for _, value in given]
    sql = f"SELECT {COLUMNS} FROM {JOINED} {tags} WHERE {' AND '.join(conditions) or 'true'} ORDER BY d.sid"
    if limit is not None:
        bindings.append(limit)
        sql += f" LIMIT ${len(bindings)}"
    return await gathered(db, await db.fetch(sql, *bindings))


async def users_of(db: Connection, policy_id: str) -> list[int]:
    """The sids of the schedules that refer to quiet hours."""
    sql = f"SELECT sid FROM {JOINED} WHERE quiet_hours_policy_id = $1 AND removed_at IS NULL ORDER BY sid"
    return [row[0] for row in await db.fetch(sql, policy_id)]
