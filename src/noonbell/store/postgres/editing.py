"""Creating, editing and deleting durable schedules on PostgreSQL, and their quiet hours and zone rules.

An edit takes a lock that keeps other edits waiting until it has committed: names and ids that were found free
stay free, and sids are given in order. Engines do not take it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import asyncpg

from noonbell.core.records import AuditEvent, DurableSchedule, Edit, Epoch, QuietHoursPolicy, StoredSchedule
from noonbell.core.tags import changed_tags, tags_of
from noonbell.core.turns import quiet_rules, snapshot
from noonbell.errors import QuietHoursInUseError, ScheduleChangedError, ScheduleExistsError, ScheduleNotFoundError
from noonbell.ports import MakeEdit, ScheduleChange
from noonbell.store.postgres import auditing, ending, lane_numbers, stored, turns
from noonbell.store.postgres.batches import batch
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.schema import EDITING, NUMBERING, lock


async def apply(db: Connection, change: ScheduleChange) -> list[int]:
    """Edit first: what is renamed or deleted makes room for what is new. The audit events come at the end.

    The numbers are locked before it: an edit may append to streams of the outbox, and those come after them.
    """
    await lock(db, EDITING)
    put, dropped = change.quiet
    users: set[int] = set()
    for one in put:
        await _require_as_seen(db, one.policy.policy_id, one.seen_at)
        users.update(await stored.users_of(db, one.policy.policy_id))
    found = await _known(db, change.edited, users) if change.edited or users else []
    if change.created:
        await lock(db, NUMBERING)
    audits = await _edit(db, found, change.edit) if found else []
    for one in put:
        await _put_policy(db, one.policy)
        audits.append(one.audit)
    sids = await _create(db, change.created, change.at)
    audits += _created(change.created, change.at, change.actor)
    for gone in dropped:
        await _require_as_seen(db, gone.policy_id, gone.seen_at)
        await _drop_policy(db, gone.policy_id)
        audits.append(gone.audit)
    if change.zone_rules:
        await _put_zone_rules(db, change.zone_rules)
    await auditing.append(db, audits)
    return sids


def _created(created: Sequence[DurableSchedule], at: int, actor: str) -> list[AuditEvent]:
    return [
        AuditEvent(at, "schedule.created", new.schedule_id, actor, snapshot(new.columns), new.team) for new in created
    ]


async def _create(db: Connection, created: Sequence[DurableSchedule], at: int) -> list[int]:
    if not created:
        return []
    first: int = await db.fetchval("SELECT coalesce(max(sid), 0) + 1 FROM schedule_definitions")
    sids = list(range(first, first + len(created)))
    await lane_numbers.number(db, {lane_numbers.name_of(new.lane, new.managed_by) for new in created})
    await db.execute("SAVEPOINT creation")
    try:
        await _insert(db, created, sids, at)
    except asyncpg.UniqueViolationError:
        # said only now which one it is: asking before would cost every creation its share
        await db.execute("ROLLBACK TO SAVEPOINT creation")
        await _refuse_known_ids(db, [new.schedule_id for new in created])
        await _refuse_taken_names(db, [(new.team, new.managed_by, new.columns.name) for new in created], ())
        raise
    await _open_first(db, created, first)
    await _know_zones(db, {new.columns.timezone: new.zone_hash for new in reversed(created)})
    numbered = zip(sids, created, strict=True)
    await _tag(db, [(tag, new.team, sid) for sid, new in numbered for tag in tags_of(new.columns.definition)])
    return sids


async def _insert(db: Connection, created: Sequence[DurableSchedule], sids: list[int], at: int) -> None:
    columns = [new.columns for new in created]
    await db.execute(
        "INSERT INTO schedule_state (sid, enabled, next_run_at, cursor_at, anchor_at, lane_no) SELECT b.sid, "
        "b.enabled, b.next_run_at, b.cursor_at, b.anchor_at, n.no FROM unnest($1::int8[], $2::int8[], $3::int8[], "
        "$4::int8[], $5::int8[], $6::text[]) AS b (sid, enabled, next_run_at, cursor_at, anchor_at, lane) "
        "JOIN lane_numbers n ON n.name = b.lane",
        sids, [int(new.enabled) for new in created], [new.next_run_at for new in created],
        [new.cursor_at for new in created], [new.anchor_at for new in created],
        [lane_numbers.name_of(new.lane, new.managed_by) for new in created],
    )  # fmt: skip
    await db.execute(
        "INSERT INTO schedule_definitions (sid, schedule_id, name, type, spec, timezone, quiet_hours_policy_id, "
        "catch_up_policy, payload, managed_by, definition, lane, team, created_at, updated_at) SELECT b.*, $14, $14 "
        "FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], "
        "$9::text[], $10::text[], $11::text[], $12::text[], $13::text[]) b",
        sids, [new.schedule_id for new in created], [c.name for c in columns], [c.type for c in columns],
        [c.spec for c in columns], [c.timezone for c in columns], [c.quiet_hours_policy_id for c in columns],
        [c.catch_up_policy for c in columns], [c.payload for c in columns], [new.managed_by for new in created],
        [c.definition for c in columns], [new.lane for new in created], [new.team for new in created], at,
    )  # fmt: skip


async def _open_first(db: Connection, created: Sequence[DurableSchedule], first: int) -> None:
    """The first epochs of rows that were just written."""
    part = batch(
        {
            "sid": list(range(first, first + len(created))),
            "zone_hash": [new.zone_hash for new in created],
            "policies": [new.policies for new in created],
        },
        texts=("zone_hash", "policies"),
    )
    named = part.columns
    await db.execute(
        "INSERT INTO epochs (sid, epoch, from_at, spec, timezone, zone_hash, policies, enabled) SELECT s.sid, 1, "
        f"s.cursor_at, d.spec, d.timezone, {named['zone_hash']}, {named['policies']}, s.enabled "
        f"FROM {stored.JOINED} JOIN {part.source} ON b.sid = s.sid",
        *part.bindings,
    )


async def _tag(db: Connection, tagged: Sequence[tuple[str, str, int]]) -> None:
    if tagged:
        await db.execute(
            "INSERT INTO schedule_tags (tag, team, sid) SELECT b.* FROM unnest($1::text[], $2::text[], $3::int8[]) b",
            *_turned(tagged),
        )


async def _retag(db: Connection, made: Sequence[tuple[StoredSchedule, Edit]]) -> None:
    """The tags by which schedules are listed: they follow the definition, and go with a schedule."""
    lost, found = changed_tags(made)
    if lost:
        await db.execute(
            "DELETE FROM schedule_tags t USING unnest($1::text[], $2::text[], $3::int8[]) AS b (tag, team, sid) "
            "WHERE t.tag = b.tag AND t.team = b.team AND t.sid = b.sid",
            *_turned(lost),
        )
    await _tag(db, found)


def _turned(tagged: Sequence[tuple[str, str, int]]) -> tuple[list[str], list[str], list[int]]:
    return [tag for tag, _, _ in tagged], [team for _, team, _ in tagged], [sid for _, _, sid in tagged]


async def _known(db: Connection, schedule_ids: Sequence[str], others: Iterable[int]) -> list[StoredSchedule]:
    """Return these schedules, locked, in the order in which they were named, and then the others by sid."""
    sids = await stored.sids_of(db, schedule_ids)
    for one in schedule_ids:
        if one not in sids:
            raise ScheduleNotFoundError("schedule", one)
    listed = [sids[one] for one in dict.fromkeys(schedule_ids)]
    ordered = [*listed, *sorted(set(others) - set(listed))]
    found = {seen.sid: seen for seen in await stored.locked(db, ordered)}
    return [found[sid] for sid in ordered]


async def _edit(db: Connection, found: Iterable[StoredSchedule], make_edit: MakeEdit) -> list[AuditEvent]:
    """Write the edits; return their audit events."""
    made = [(seen, change) for seen in found if (change := make_edit(seen)) is not None]
    edits = [change for _, change in made]
    kept = [(seen.team, seen.managed_by, change.columns.name) for seen, change in made if change.epoch is not None]
    await _refuse_taken_names(db, kept, [change.turn.sid for change in edits])
    renamed = [change for seen, change in made if change.epoch is not None and change.columns.name != seen.columns.name]
    if renamed:
        # names may go round among them, and a name is looked at row by row: first all of them are free
        await db.execute(
            "UPDATE schedule_definitions SET name = NULL WHERE sid = ANY($1::int8[])",
            [change.turn.sid for change in renamed],
        )
    await _retag(db, made)
    for at in dict.fromkeys(change.at for change in edits):  # one instant, but for a clock that went back
        await _write(db, [change for change in edits if change.at == at], at)
    return [event for change in edits for event in change.turn.audits]


async def _write(db: Connection, edits: list[Edit], at: int) -> None:
    await turns.write(db, [change.turn for change in edits], turns.NO_OWNER, at)
    await db.execute(
        "UPDATE epochs SET to_at = $2 WHERE to_at IS NULL AND sid = ANY($1::int8[])",
        [change.turn.sid for change in edits], at,
    )  # fmt: skip
    if gone := [change.turn.sid for change in edits if change.epoch is None]:
        await ending.end_all_of(db, gone, at)
        await db.execute(
            "UPDATE schedule_definitions SET removed_at = $2, updated_at = $2 WHERE sid = ANY($1::int8[])", gone, at
        )
        await db.execute("UPDATE schedule_state SET removed = 1 WHERE sid = ANY($1::int8[])", gone)
        left = [document for change in edits for document in change.documents]
        await db.execute(
            "DELETE FROM documents d USING unnest($1::text[], $2::text[]) AS b (kind, id) "
            "WHERE d.kind = b.kind AND d.id = b.id",
            [kind for kind, _ in left], [one for _, one in left],
        )  # fmt: skip
    if kept := [(change, change.epoch) for change in edits if change.epoch is not None]:
        await _open_epochs(db, [epoch for _, epoch in kept])
        columns = [change.columns for change, _ in kept]
        await db.execute(
            "UPDATE schedule_state s SET epoch = b.epoch FROM unnest($1::int8[], $2::int8[]) AS b (sid, epoch) "
            "WHERE s.sid = b.sid",
            [epoch.sid for _, epoch in kept], [epoch.epoch for _, epoch in kept],
        )  # fmt: skip
        await db.execute(
            "UPDATE schedule_definitions d SET name = b.name, type = b.type, spec = b.spec, timezone = b.timezone, "
            "quiet_hours_policy_id = b.quiet_hours_policy_id, catch_up_policy = b.catch_up_policy, "
            "payload = b.payload, definition = b.definition, updated_at = $10 FROM unnest($1::int8[], $2::text[], "
            "$3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]) AS b (sid, name, "
            "type, spec, timezone, quiet_hours_policy_id, catch_up_policy, payload, definition) WHERE d.sid = b.sid",
            [epoch.sid for _, epoch in kept], [c.name for c in columns], [c.type for c in columns],
            [c.spec for c in columns], [c.timezone for c in columns], [c.quiet_hours_policy_id for c in columns],
            [c.catch_up_policy for c in columns], [c.payload for c in columns], [c.definition for c in columns], at,
        )  # fmt: skip


async def _open_epochs(db: Connection, epochs: Sequence[Epoch]) -> None:
    await db.execute(
        "INSERT INTO epochs (sid, epoch, from_at, to_at, spec, timezone, zone_hash, policies, enabled) "
        "SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::text[], "
        "$8::text[], $9::int8[])",
        [e.sid for e in epochs], [e.epoch for e in epochs], [e.from_at for e in epochs], [e.to_at for e in epochs],
        [e.spec for e in epochs], [e.timezone for e in epochs], [e.zone_hash for e in epochs],
        [e.policies for e in epochs], [int(e.enabled) for e in epochs],
    )  # fmt: skip
    await _know_zones(db, {e.timezone: e.zone_hash for e in reversed(epochs)})


async def _refuse_known_ids(db: Connection, ids: Sequence[str]) -> None:
    sql = "SELECT schedule_id, removed_at IS NOT NULL FROM schedule_definitions WHERE schedule_id = ANY($1::text[])"
    known: dict[str, bool] = {row[0]: row[1] for row in await db.fetch(sql, ids)}
    for one in ids:
        if one in known:
            raise ScheduleExistsError("schedule_id", one, deleted=known[one])
        known[one] = False


async def _refuse_taken_names(db: Connection, names: Sequence[tuple[str, str, str]], but: Sequence[int]) -> None:
    """Refuse names that another schedule of the team and owner has; those in `but` are about to get new ones."""
    rows = await db.fetch(
        # OFFSET 0: one look by the index for each name, whatever the planner thinks of the table
        "SELECT s.sid, s.team, s.managed_by, s.name FROM unnest($1::text[], $2::text[], $3::text[]) "
        "AS b (team, managed_by, name) CROSS JOIN LATERAL (SELECT * FROM schedule_definitions t WHERE "
        "t.managed_by = b.managed_by AND t.name = b.name AND t.team = b.team AND t.removed_at IS NULL OFFSET 0) s",
        [team for team, _, _ in names], [owner for _, owner, _ in names], [name for _, _, name in names],
    )  # fmt: skip
    left_out = set(but)
    taken = {(row[1], row[2], row[3]) for row in rows if row[0] not in left_out}
    for key in names:
        if key in taken:
            raise ScheduleExistsError("name", key[2])
        taken.add(key)


# --- quiet hours ------------------------------------------------------------------------------------------------------


async def _put_policy(db: Connection, policy: QuietHoursPolicy) -> None:
    put = await db.fetch(
        "INSERT INTO quiet_hours_policies AS t (policy_id, name, document, created_at, updated_at, team) "
        "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (policy_id) "
        "DO UPDATE SET name = excluded.name, document = excluded.document, updated_at = excluded.updated_at "
        "WHERE t.team = excluded.team RETURNING policy_id",
        policy.policy_id, policy.name, policy.document, policy.created_at, policy.updated_at, policy.team,
    )  # fmt: skip
    if not put:
        raise ScheduleExistsError("policy_id", policy.policy_id)  # by another team
    await _know_zones(db, quiet_rules(policy.document))


async def _require_as_seen(db: Connection, policy_id: str, seen_at: int | None) -> None:
    """Refuse a policy that was changed since. It stays as found here: every change of one holds the lock of EDITING."""
    if seen_at is not None and [one.updated_at for one in await quiet_hours(db, policy_id)] != [seen_at]:
        raise ScheduleChangedError(policy_id, "quiet-hours policy")


async def _drop_policy(db: Connection, policy_id: str) -> None:
    users = len(await stored.users_of(db, policy_id))
    if users:
        raise QuietHoursInUseError(policy_id, users)
    sql = "DELETE FROM quiet_hours_policies WHERE policy_id = $1 RETURNING policy_id"
    if not await db.fetch(sql, policy_id):
        raise ScheduleNotFoundError("quiet-hours policy", policy_id)


async def quiet_hours(db: Connection, policy_id: str | None) -> list[QuietHoursPolicy]:
    sql = (
        "SELECT policy_id, name, document, created_at, updated_at, team FROM quiet_hours_policies "
        "WHERE $1::text IS NULL OR policy_id = $1 ORDER BY policy_id"
    )
    return [QuietHoursPolicy(*row) for row in await db.fetch(sql, policy_id)]


# --- zone rules -------------------------------------------------------------------------------------------------------


async def _know_zones(db: Connection, rules: Mapping[str, str]) -> None:
    """Store the rules of zones that are new here; the known ones stay until they are replaced."""
    await db.execute(
        "INSERT INTO zone_rules (timezone, zone_hash) SELECT b.* FROM unnest($1::text[], $2::text[]) b "
        "ON CONFLICT (timezone) DO NOTHING",
        list(rules), list(rules.values()),
    )  # fmt: skip


async def _put_zone_rules(db: Connection, rules: Mapping[str, str]) -> None:
    await db.execute(
        "INSERT INTO zone_rules (timezone, zone_hash) SELECT b.* FROM unnest($1::text[], $2::text[]) b "
        "ON CONFLICT (timezone) DO UPDATE SET zone_hash = excluded.zone_hash",
        list(rules), list(rules.values()),
    )  # fmt: skip
