"""Creating, editing and deleting durable schedules on SQLite, and their quiet hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import apsw
import msgspec

from noonbell.core.presence import lane_name
from noonbell.core.records import (
    AuditEvent,
    DurableSchedule,
    Edit,
    QuietHoursPolicy,
    ScheduleColumns,
    StoredSchedule,
)
from noonbell.core.tags import changed_tags, tags_of
from noonbell.core.turns import quiet_rules
from noonbell.errors import QuietHoursInUseError, ScheduleChangedError, ScheduleExistsError, ScheduleNotFoundError
from noonbell.ports import MakeEdit, ScheduleChange
from noonbell.store.sqlite import auditing, ending, rows, stored, turns
from noonbell.store.sqlite.tables import lane_numbers

_encode = msgspec.json.Encoder().encode

_NEW: Final = (
    "schedule_definitions (sid, created_at, updated_at, schedule_id, name, type, spec, timezone, "
    "quiet_hours_policy_id, catch_up_policy, payload, managed_by, definition, lane, team)"
)
_NEW_STATE: Final = "schedule_state (sid, lane_no, enabled, next_run_at, cursor_at, anchor_at)"

# From so many on, first epochs that are alike are worth a statement of their own.
LEAST_ALIKE: Final = 16
# CROSS JOIN: the batch drives, whatever the planner thinks of the tables
_OPEN_FIRST: Final = """
    INSERT INTO epochs (sid, epoch, from_at, to_at, spec, timezone, zone_hash, policies, enabled)
    SELECT s.sid, 1, s.cursor_at, NULL, d.spec, d.timezone, ?2, ?3, s.enabled
    FROM json_each(?1) b CROSS JOIN schedule_state s ON s.sid = b.value
    CROSS JOIN schedule_definitions d ON d.sid = s.sid
"""
_SNAPSHOT: Final = ", ".join(f"'{name}', {name}" for name in ScheduleColumns.__struct_fields__)
_AUDIT_CREATED: Final = f"""
    INSERT INTO audit_events (at, event, subject, actor, detail, team)
    SELECT ?2, 'schedule.created', schedule_id, ?3, json_object({_SNAPSHOT}), team
    FROM schedule_definitions WHERE sid >= ?1 ORDER BY sid
"""


def apply(db: apsw.Connection, change: ScheduleChange) -> list[int]:
    """Edit first: what is renamed or deleted makes room for what is new."""
    put, dropped = change.quiet
    for one in put:
        _require_as_seen(db, one.policy.policy_id, one.seen_at)
    found = _known(db, change.edited) if change.edited else []
    listed = {seen.sid for seen in found}
    users = sorted({sid for one in put for sid in stored.users_of(db, one.policy.policy_id)} - listed)
    if found or users:
        _edit(db, [*found, *stored.by_sids(db, users)], change.edit)
    for one in put:
        _put_policy(db, one.policy, one.audit)
    sids = _create(db, change.created, change.at, change.actor)
    for gone in dropped:
        _require_as_seen(db, gone.policy_id, gone.seen_at)
        _drop_policy(db, gone.policy_id, gone.audit)
    if change.zone_rules:
        _put_zone_rules(db, change.zone_rules)
    return sids


def _create(db: apsw.Connection, created: Sequence[DurableSchedule], at: int, actor: str) -> list[int]:
    if not created:
        return []
    first = (db.execute("SELECT max(sid) FROM schedule_definitions").get or 0) + 1
    try:
        _insert(db, created, first, at, actor)
    except apsw.ConstraintError:
        # said only now which one it is: asking before would cost every creation its share
        _refuse_known_ids(db, [new.schedule_id for new in created], first)
        _refuse_taken_names(db, [(new.team, new.managed_by, new.columns.name) for new in created], (), first)
        raise
    return list(range(first, first + len(created)))


def _insert(db: apsw.Connection, created: Sequence[DurableSchedule], first: int, at: int, actor: str) -> None:
    made = [
        (
            sid, at, at, new.schedule_id, one.name, one.type, one.spec, one.timezone, one.quiet_hours_policy_id,
            one.catch_up_policy, one.payload, new.managed_by, one.definition, new.lane, new.team,
        )
        for sid, new in enumerate(created, first)
        for one in (new.columns,)
    ]  # fmt: skip
    rows.insert(db, _NEW, made)
    numbers = lane_numbers(db, {lane_name(new.lane) for new in created})
    states = [
        (sid, numbers[lane_name(new.lane)], new.enabled, new.next_run_at, new.cursor_at, new.anchor_at)
        for sid, new in enumerate(created, first)
    ]
    rows.insert(db, _NEW_STATE, states)
    _open_first(db, created, first)
    tags = {new.columns.definition: tags_of(new.columns.definition) for new in created}
    tagged = [(tag, new.team, sid) for sid, new in enumerate(created, first) for tag in tags[new.columns.definition]]
    rows.insert(db, "schedule_tags", tagged)
    _know_rules(db, {new.columns.timezone: new.zone_hash for new in created})
    # as `snapshot` and `AuditEvent` would write it, without a value of the row leaving the file and coming back
    db.execute(_AUDIT_CREATED, (first, at, actor))


def _open_first(db: apsw.Connection, created: Sequence[DurableSchedule], first: int) -> None:
    """The first epochs of rows that were just written; most schedules of a batch share what is not in their rows."""
    alike: dict[tuple[str, str], list[int]] = {}
    for sid, new in enumerate(created, first):
        alike.setdefault((new.zone_hash, new.policies), []).append(sid)
    left: list[tuple[object, ...]] = []
    for (zone_hash, policies), sids in alike.items():
        if len(sids) >= LEAST_ALIKE:
            db.execute(_OPEN_FIRST, (_encode(sids), zone_hash, policies))
            continue
        for sid in sids:
            new = created[sid - first]
            spec, timezone = new.columns.spec, new.columns.timezone
            left.append((sid, 1, new.cursor_at, None, spec, timezone, zone_hash, policies, new.enabled))
    rows.insert(db, "epochs", left)


def _known(db: apsw.Connection, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
    found = {one.schedule_id: one for one in stored.by_ids(db, schedule_ids)}
    for one in schedule_ids:
        if one not in found:
            raise ScheduleNotFoundError("schedule", one)
    return [found[one] for one in dict.fromkeys(schedule_ids)]


def _edit(db: apsw.Connection, found: Iterable[StoredSchedule], make_edit: MakeEdit) -> None:
    made = [(seen, change) for seen in found if (change := make_edit(seen)) is not None]
    edits = [change for _, change in made]
    kept = [(seen.team, seen.managed_by, change.columns.name) for seen, change in made if change.epoch is not None]
    _refuse_taken_names(db, kept, [change.turn.sid for change in edits])
    renamed = [
        seen.sid for seen, change in made if change.epoch is not None and change.columns.name != seen.columns.name
    ]
    if renamed:
        # names may go round among them, and a name is looked at row by row: first all of them are free
        sql = "UPDATE schedule_definitions SET name = NULL WHERE sid IN (SELECT value FROM json_each(?))"
        db.execute(sql, (_encode(renamed).decode(),))
    _retag(db, made)
    # what none of them changes is not written: the indexes on it stay as they are
    changed = [
        name
        for name in ScheduleColumns.__struct_fields__
        if any(getattr(seen.columns, name) != getattr(change.columns, name) for seen, change in made)
    ]
    for at in dict.fromkeys(change.at for change in edits):  # one instant, but for a clock that went back
        _write(db, [change for change in edits if change.at == at], at, changed)


def _retag(db: apsw.Connection, made: Sequence[tuple[StoredSchedule, Edit]]) -> None:
    """The tags by which schedules are listed: they follow the definition, and go with a schedule."""
    lost, found = changed_tags(made)
    if lost:
        sql = (
            "DELETE FROM schedule_tags WHERE (tag, team, sid) IN "
            "(SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?))"
        )
        db.execute(sql, (_encode(lost).decode(),))
    rows.insert(db, "schedule_tags", found)


def _write(db: apsw.Connection, edits: list[Edit], at: int, changed: Sequence[str]) -> None:
    turns.write(db, [change.turn for change in edits], "", at)
    sids = _encode([change.turn.sid for change in edits]).decode()
    db.execute(
        "UPDATE epochs SET to_at = ?2 WHERE to_at IS NULL AND sid IN (SELECT value FROM json_each(?1))", (sids, at)
    )
    if gone := [change.turn.sid for change in edits if change.epoch is None]:
        ending.end_all_of(db, gone, at)
        removed = _encode(gone).decode()
        db.execute(
            "UPDATE schedule_definitions SET removed_at = ?2, updated_at = ?2 "
            "WHERE sid IN (SELECT value FROM json_each(?1))",
            (removed, at),
        )
        sql = "UPDATE schedule_state SET removed = 1 WHERE sid IN (SELECT value FROM json_each(?))"
        db.execute(sql, (removed,))
        left = [document for change in edits for document in change.documents]
        db.execute(
            "DELETE FROM documents WHERE (kind, id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))",
            (_encode(left).decode(),),
        )
    epochs = [change.epoch for change in edits if change.epoch is not None]
    if epochs:
        names = epochs[0].__struct_fields__
        values = ", ".join(f"value ->> '{name}'" for name in names)
        db.execute(f"INSERT INTO epochs ({', '.join(names)}) SELECT {values} FROM json_each(?)", (_encode(epochs),))
        _know_rules(db, {epoch.timezone: epoch.zone_hash for epoch in epochs})
    kept = [(change.turn.sid, change.epoch.epoch, change.columns) for change in edits if change.epoch is not None]
    if kept:
        written = _encode(kept)
        sql = "UPDATE schedule_state SET epoch = b.value ->> 1 FROM json_each(?) b WHERE sid = b.value ->> 0"
        db.execute(sql, (written,))
        columns = "".join(f", {name} = b.value ->> '$[2].{name}'" for name in changed)
        db.execute(
            f"UPDATE schedule_definitions SET updated_at = ?2{columns} FROM json_each(?1) b WHERE sid = b.value ->> 0",
            (written, at),
        )


def _know_rules(db: apsw.Connection, rules: dict[str, str]) -> None:
    """Remember the rules of zones that nothing has used before; those of the others stay as they are."""
    sql = "INSERT INTO zone_rules SELECT key, value FROM json_each(?) WHERE true ON CONFLICT (timezone) DO NOTHING"
    db.execute(sql, (_encode(rules),))


def _put_zone_rules(db: apsw.Connection, rules: Mapping[str, str]) -> None:
    db.execute("INSERT OR REPLACE INTO zone_rules SELECT key, value FROM json_each(?)", (_encode(dict(rules)),))


def _refuse_known_ids(db: apsw.Connection, ids: list[str], below: int) -> None:
    """Ids are given once; those of the schedules from the sid `below` on are the ones in question."""
    sql = (
        "SELECT d.schedule_id, d.removed_at IS NOT NULL FROM json_each(?1) b "
        "CROSS JOIN schedule_definitions d ON d.schedule_id = b.value WHERE d.sid < ?2"
    )
    known = {row[0]: bool(row[1]) for row in db.execute(sql, (_encode(ids).decode(), below))}
    for one in ids:
        if one in known:
            raise ScheduleExistsError("schedule_id", one, deleted=known[one])
        known[one] = False


def _refuse_taken_names(
    db: apsw.Connection, names: list[tuple[str, str, str]], but: Sequence[int], below: int = 1 << 62
) -> None:
    """Names of a team and owner are taken once; those in `but` and from the sid `below` on are about to get theirs."""
    sql = (
        "SELECT d.team, d.managed_by, d.name FROM json_each(?1) b CROSS JOIN schedule_definitions d "
        "ON d.team = b.value ->> 0 AND d.managed_by = b.value ->> 1 AND d.name = b.value ->> 2 "
        "AND d.removed_at IS NULL AND d.sid < ?3 AND d.sid NOT IN (SELECT value FROM json_each(?2))"
    )
    bindings = (_encode(names).decode(), _encode(list(but)).decode(), below)
    taken = {(row[0], row[1], row[2]) for row in db.execute(sql, bindings)}
    for key in names:
        if key in taken:
            raise ScheduleExistsError("name", key[2])
        taken.add(key)


# --- quiet hours ------------------------------------------------------------------------------------------------------


def _put_policy(db: apsw.Connection, policy: QuietHoursPolicy, audit: AuditEvent) -> None:
    db.execute(
        "INSERT INTO quiet_hours_policies VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (policy_id) "
        "DO UPDATE SET name = ?2, document = ?3, updated_at = ?5 WHERE team = ?6",
        (policy.policy_id, policy.name, policy.document, policy.created_at, policy.updated_at, policy.team),
    )
    if not db.changes():
        raise ScheduleExistsError("policy_id", policy.policy_id)  # by another team
    _know_rules(db, quiet_rules(policy.document))
    auditing.append(db, [audit])


def _require_as_seen(db: apsw.Connection, policy_id: str, seen_at: int | None) -> None:
    if seen_at is not None and [one.updated_at for one in quiet_hours(db, policy_id)] != [seen_at]:
        raise ScheduleChangedError(policy_id, "quiet-hours policy")


def _drop_policy(db: apsw.Connection, policy_id: str, audit: AuditEvent) -> None:
    users = len(stored.users_of(db, policy_id))
    if users:
        raise QuietHoursInUseError(policy_id, users)
    db.execute("DELETE FROM quiet_hours_policies WHERE policy_id = ?", (policy_id,))
    if not db.changes():
        raise ScheduleNotFoundError("quiet-hours policy", policy_id)
    auditing.append(db, [audit])


def quiet_hours(db: apsw.Connection, policy_id: str | None) -> list[QuietHoursPolicy]:
    sql = "SELECT * FROM quiet_hours_policies WHERE ?1 IS NULL OR policy_id = ?1 ORDER BY policy_id"
    return [QuietHoursPolicy(*row) for row in db.execute(sql, (policy_id,))]
