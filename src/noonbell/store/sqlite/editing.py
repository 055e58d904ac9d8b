"""Creating, editing and deleting durable schedules on SQLite, and their quiet hours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from noonbell.core.records import AuditEvent, DurableSchedule, Edit, QuietHoursPolicy, StoredSchedule
from noonbell.core.turns import snapshot
from noonbell.errors import QuietHoursInUseError, ScheduleExistsError, ScheduleNotFoundError
from noonbell.ports import MakeEdit
from noonbell.store.sqlite import auditing, by_policy, stored

_encode = msgspec.json.Encoder().encode


def create(db: apsw.Connection, created: Sequence[DurableSchedule], at: int, actor: str) -> list[int]:
    if not created:
        return []
    _refuse_known_ids(db, [new.schedule_id for new in created])
    _refuse_taken_names(db, [(new.managed_by, new.columns.name) for new in created], ())
    first = (db.execute("SELECT max(sid) FROM schedules").get or 0) + 1
    rows = [
        (
            new.schedule_id, new.columns.name, int(new.enabled), new.columns.type, new.columns.spec, new.next_run_at,
            new.columns.timezone, new.columns.quiet_hours_policy_id, new.columns.catch_up_policy, new.columns.payload,
            new.managed_by, new.cursor_at, new.columns.definition, new.lane, new.anchor_at, new.zone_hash, new.policies,
        )
        for new in created
    ]  # fmt: skip
    told = _encode(rows)
    values = ", ".join(f"value ->> {place}" for place in range(15))
    db.execute(
        "INSERT INTO schedules (sid, created_at, updated_at, schedule_id, name, enabled, type, spec, next_run_at, "
        "timezone, quiet_hours_policy_id, catch_up_policy, payload, managed_by, cursor_at, definition, lane, "
        f"anchor_at) SELECT ?2 + key, ?3, ?3, {values} FROM json_each(?1)",
        (told, first, at),
    )
    db.execute(
        "INSERT INTO epochs SELECT ?2 + key, 1, value ->> 11, NULL, value ->> 4, value ->> 6, value ->> 15, "
        "value ->> 16, value ->> 2 FROM json_each(?1)",
        (told, first),
    )
    audits = [AuditEvent(at, "schedule.created", new.schedule_id, actor, snapshot(new.columns)) for new in created]
    auditing.append(db, audits)
    return list(range(first, first + len(created)))


def edit(db: apsw.Connection, schedule_ids: Sequence[str], make_edit: MakeEdit) -> None:
    found = {one.schedule_id: one for one in stored.by_ids(db, schedule_ids)}
    for one in schedule_ids:
        if one not in found:
            raise ScheduleNotFoundError("schedule", one)
    _edit(db, [found[one] for one in dict.fromkeys(schedule_ids)], make_edit)


def _edit(db: apsw.Connection, found: Iterable[StoredSchedule], make_edit: MakeEdit) -> None:
    made = [(seen, change) for seen in found if (change := make_edit(seen)) is not None]
    edits = [change for _, change in made]
    kept = [(seen.managed_by, change.columns.name) for seen, change in made if change.epoch is not None]
    _refuse_taken_names(db, kept, [change.turn.sid for change in edits])
    for at in dict.fromkeys(change.at for change in edits):  # one instant, but for a clock that went back
        _write(db, [change for change in edits if change.at == at], at)


def _write(db: apsw.Connection, edits: list[Edit], at: int) -> None:
    by_policy.write(db, [change.turn for change in edits], "", at)
    sids = _encode([change.turn.sid for change in edits]).decode()
    db.execute(
        "UPDATE epochs SET to_at = ?2 WHERE to_at IS NULL AND sid IN (SELECT value FROM json_each(?1))", (sids, at)
    )
    gone = _encode([change.turn.sid for change in edits if change.epoch is None]).decode()
    db.execute(
        "INSERT INTO runs SELECT run_for, sid, kind, iif(state = 'waiting', 'failed', 'abandoned'), attempt, "
        "coalesce(started_at, ?2), ?2, coalesce(owner, ''), epoch FROM runs_live "
        "WHERE sid IN (SELECT value FROM json_each(?1))",
        (gone, at),
    )
    db.execute("DELETE FROM runs_live WHERE sid IN (SELECT value FROM json_each(?))", (gone,))
    db.execute(
        "UPDATE schedules SET removed_at = ?2, updated_at = ?2 WHERE sid IN (SELECT value FROM json_each(?1))",
        (gone, at),
    )
    epochs = [change.epoch for change in edits if change.epoch is not None]
    if epochs:
        names = epochs[0].__struct_fields__
        values = ", ".join(f"value ->> '{name}'" for name in names)
        db.execute(f"INSERT INTO epochs ({', '.join(names)}) SELECT {values} FROM json_each(?)", (_encode(epochs),))
    rows = [(change.turn.sid, change.epoch.epoch, change.columns) for change in edits if change.epoch is not None]
    if rows:
        names = rows[0][2].__struct_fields__
        columns = ", ".join(f"{name} = b.value ->> '$[2].{name}'" for name in names)
        db.execute(
            f"UPDATE schedules SET epoch = b.value ->> 1, updated_at = ?2, {columns} FROM json_each(?1) b "
            "WHERE sid = b.value ->> 0",
            (_encode(rows), at),
        )


def _refuse_known_ids(db: apsw.Connection, ids: list[str]) -> None:
    sql = "SELECT s.schedule_id FROM json_each(?) b CROSS JOIN schedules s ON s.schedule_id = b.value"
    known = {row[0] for row in db.execute(sql, (_encode(ids).decode(),))}
    for one in ids:
        if one in known:
            raise ScheduleExistsError("schedule_id", one)
        known.add(one)


def _refuse_taken_names(db: apsw.Connection, names: list[tuple[str, str]], but: Sequence[int]) -> None:
    """Names of one owner are taken once; the schedules in `but` are about to get theirs anew."""
    sql = (
        "SELECT s.managed_by, s.name FROM json_each(?1) b CROSS JOIN schedules s ON s.managed_by = b.value ->> 0 "
        "AND s.name = b.value ->> 1 AND s.removed_at IS NULL AND s.sid NOT IN (SELECT value FROM json_each(?2))"
    )
    taken = {(row[0], row[1]) for row in db.execute(sql, (_encode(names).decode(), _encode(list(but)).decode()))}
    for key in names:
        if key in taken:
            raise ScheduleExistsError("name", key[1])
        taken.add(key)


# --- quiet hours ------------------------------------------------------------------------------------------------------


def put_quiet_hours(db: apsw.Connection, policy: QuietHoursPolicy, audit: AuditEvent, make_edit: MakeEdit) -> None:
    _edit(db, stored.by_sids(db, stored.users_of(db, policy.policy_id)), make_edit)
    db.execute(
        "INSERT INTO quiet_hours_policies VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (policy_id) "
        "DO UPDATE SET name = ?2, document = ?3, updated_at = ?5",
        (policy.policy_id, policy.name, policy.document, policy.created_at, policy.updated_at),
    )
    auditing.append(db, [audit])


def drop_quiet_hours(db: apsw.Connection, policy_id: str, audit: AuditEvent) -> bool:
    users = len(stored.users_of(db, policy_id))
    if users:
        raise QuietHoursInUseError(policy_id, users)
    db.execute("DELETE FROM quiet_hours_policies WHERE policy_id = ?", (policy_id,))
    if not db.changes():
        return False
    auditing.append(db, [audit])
    return True


def quiet_hours(db: apsw.Connection, policy_id: str | None) -> list[QuietHoursPolicy]:
    sql = "SELECT * FROM quiet_hours_policies WHERE ?1 IS NULL OR policy_id = ?1 ORDER BY policy_id"
    return [QuietHoursPolicy(*row) for row in db.execute(sql, (policy_id,))]
