"""Creating, editing and deleting durable schedules on SQLite, and their quiet hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import apsw
import msgspec

from noonbell.core.records import AuditEvent, DurableSchedule, Edit, QuietHoursPolicy, StoredSchedule
from noonbell.core.turns import quiet_rules, snapshot
from noonbell.errors import QuietHoursInUseError, ScheduleExistsError, ScheduleNotFoundError
from noonbell.ports import MakeEdit, QuietChanges
from noonbell.store.sqlite import auditing, ending, rows, stored, turns

_encode = msgspec.json.Encoder().encode

_NEW: Final = (
    "schedules (sid, created_at, updated_at, schedule_id, name, enabled, type, spec, next_run_at, timezone, "
    "quiet_hours_policy_id, catch_up_policy, payload, managed_by, cursor_at, definition, lane, anchor_at)"
)


def create(db: apsw.Connection, created: Sequence[DurableSchedule], at: int, actor: str) -> list[int]:
    if not created:
        return []
    first = (db.execute("SELECT max(sid) FROM schedules").get or 0) + 1
    try:
        _insert(db, created, first, at, actor)
    except apsw.ConstraintError:
        # said only now which one it is: asking before would cost every creation its share
        _refuse_known_ids(db, [new.schedule_id for new in created], first)
        _refuse_taken_names(db, [(new.managed_by, new.columns.name) for new in created], (), first)
        raise
    return list(range(first, first + len(created)))


def _insert(db: apsw.Connection, created: Sequence[DurableSchedule], first: int, at: int, actor: str) -> None:
    numbered = list(enumerate(created, first))
    made = [
        (
            sid, at, at, new.schedule_id, one.name, new.enabled, one.type, one.spec, new.next_run_at, one.timezone,
            one.quiet_hours_policy_id, one.catch_up_policy, one.payload, new.managed_by, new.cursor_at, one.definition,
            new.lane, new.anchor_at,
        )
        for sid, new in numbered
        for one in (new.columns,)
    ]  # fmt: skip
    rows.insert(db, _NEW, made)
    epochs = [
        (sid, 1, new.cursor_at, None, one.spec, one.timezone, new.zone_hash, new.policies, new.enabled)
        for sid, new in numbered
        for one in (new.columns,)
    ]
    rows.insert(db, "epochs", epochs)
    _know_rules(db, {new.columns.timezone: new.zone_hash for new in created})
    audits = [AuditEvent(at, "schedule.created", new.schedule_id, actor, snapshot(new.columns)) for new in created]
    auditing.append(db, audits)


def apply(
    db: apsw.Connection,
    created: Sequence[DurableSchedule],
    schedule_ids: Sequence[str],
    make_edit: MakeEdit,
    *,
    at: int,
    actor: str,
    quiet: QuietChanges,
) -> list[int]:
    """Edit first: what is renamed or deleted makes room for what is new."""
    found = _known(db, schedule_ids)
    listed = {seen.sid for seen in found}
    users = sorted({sid for policy, _ in quiet.put for sid in stored.users_of(db, policy.policy_id)} - listed)
    _edit(db, [*found, *stored.by_sids(db, users)], make_edit)
    for policy, audit in quiet.put:
        _put_policy(db, policy, audit)
    sids = create(db, created, at, actor)
    for policy_id, audit in quiet.dropped:
        drop_quiet_hours(db, policy_id, audit)
    return sids


def edit(db: apsw.Connection, schedule_ids: Sequence[str], make_edit: MakeEdit) -> None:
    _edit(db, _known(db, schedule_ids), make_edit)


def _known(db: apsw.Connection, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
    found = {one.schedule_id: one for one in stored.by_ids(db, schedule_ids)}
    for one in schedule_ids:
        if one not in found:
            raise ScheduleNotFoundError("schedule", one)
    return [found[one] for one in dict.fromkeys(schedule_ids)]


def _edit(db: apsw.Connection, found: Iterable[StoredSchedule], make_edit: MakeEdit) -> None:
    made = [(seen, change) for seen in found if (change := make_edit(seen)) is not None]
    edits = [change for _, change in made]
    kept = [(seen.managed_by, change.columns.name) for seen, change in made if change.epoch is not None]
    _refuse_taken_names(db, kept, [change.turn.sid for change in edits])
    renamed = [
        seen.sid for seen, change in made if change.epoch is not None and change.columns.name != seen.columns.name
    ]
    if renamed:
        # names may go round among them, and a name is looked at row by row: first all of them are free
        sql = "UPDATE schedules SET name = NULL WHERE sid IN (SELECT value FROM json_each(?))"
        db.execute(sql, (_encode(renamed).decode(),))
    for at in dict.fromkeys(change.at for change in edits):  # one instant, but for a clock that went back
        _write(db, [change for change in edits if change.at == at], at)


def _write(db: apsw.Connection, edits: list[Edit], at: int) -> None:
    turns.write(db, [change.turn for change in edits], "", at)
    sids = _encode([change.turn.sid for change in edits]).decode()
    db.execute(
        "UPDATE epochs SET to_at = ?2 WHERE to_at IS NULL AND sid IN (SELECT value FROM json_each(?1))", (sids, at)
    )
    if gone := [change.turn.sid for change in edits if change.epoch is None]:
        ending.end_all_of(db, gone, at)
        db.execute(
            "UPDATE schedules SET removed_at = ?2, updated_at = ?2 WHERE sid IN (SELECT value FROM json_each(?1))",
            (_encode(gone).decode(), at),
        )
    epochs = [change.epoch for change in edits if change.epoch is not None]
    if epochs:
        names = epochs[0].__struct_fields__
        values = ", ".join(f"value ->> '{name}'" for name in names)
        db.execute(f"INSERT INTO epochs ({', '.join(names)}) SELECT {values} FROM json_each(?)", (_encode(epochs),))
        _know_rules(db, {epoch.timezone: epoch.zone_hash for epoch in epochs})
    kept = [(change.turn.sid, change.epoch.epoch, change.columns) for change in edits if change.epoch is not None]
    if kept:
        names = kept[0][2].__struct_fields__
        columns = ", ".join(f"{name} = b.value ->> '$[2].{name}'" for name in names)
        db.execute(
            f"UPDATE schedules SET epoch = b.value ->> 1, updated_at = ?2, {columns} FROM json_each(?1) b "
            "WHERE sid = b.value ->> 0",
            (_encode(kept), at),
        )


def _know_rules(db: apsw.Connection, rules: dict[str, str]) -> None:
    """Remember the rules of zones that nothing has used before; of the others, `put_zone_rules` tells anew."""
    sql = "INSERT INTO zone_rules SELECT key, value FROM json_each(?) WHERE true ON CONFLICT (timezone) DO NOTHING"
    db.execute(sql, (_encode(rules),))


def put_zone_rules(db: apsw.Connection, rules: Mapping[str, str]) -> None:
    db.execute("INSERT OR REPLACE INTO zone_rules SELECT key, value FROM json_each(?)", (_encode(dict(rules)),))


def _refuse_known_ids(db: apsw.Connection, ids: list[str], below: int) -> None:
    """Ids are given once; those of the schedules from the sid `below` on are the ones in question."""
    sql = "SELECT s.schedule_id FROM json_each(?1) b CROSS JOIN schedules s ON s.schedule_id = b.value WHERE s.sid < ?2"
    known = {row[0] for row in db.execute(sql, (_encode(ids).decode(), below))}
    for one in ids:
        if one in known:
            raise ScheduleExistsError("schedule_id", one)
        known.add(one)


def _refuse_taken_names(
    db: apsw.Connection, names: list[tuple[str, str]], but: Sequence[int], below: int = 1 << 62
) -> None:
    """Names of one owner are taken once; those in `but`, and from the sid `below` on, are about to get theirs."""
    sql = (
        "SELECT s.managed_by, s.name FROM json_each(?1) b CROSS JOIN schedules s ON s.managed_by = b.value ->> 0 "
        "AND s.name = b.value ->> 1 AND s.removed_at IS NULL AND s.sid < ?3 "
        "AND s.sid NOT IN (SELECT value FROM json_each(?2))"
    )
    bindings = (_encode(names).decode(), _encode(list(but)).decode(), below)
    taken = {(row[0], row[1]) for row in db.execute(sql, bindings)}
    for key in names:
        if key in taken:
            raise ScheduleExistsError("name", key[1])
        taken.add(key)


# --- quiet hours ------------------------------------------------------------------------------------------------------


def put_quiet_hours(db: apsw.Connection, policy: QuietHoursPolicy, audit: AuditEvent, make_edit: MakeEdit) -> None:
    _edit(db, stored.by_sids(db, stored.users_of(db, policy.policy_id)), make_edit)
    _put_policy(db, policy, audit)


def _put_policy(db: apsw.Connection, policy: QuietHoursPolicy, audit: AuditEvent) -> None:
    db.execute(
        "INSERT INTO quiet_hours_policies VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (policy_id) "
        "DO UPDATE SET name = ?2, document = ?3, updated_at = ?5",
        (policy.policy_id, policy.name, policy.document, policy.created_at, policy.updated_at),
    )
    _know_rules(db, quiet_rules(policy.document))
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
