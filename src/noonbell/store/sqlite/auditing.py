"""The audit on SQLite: appended in blocks, read in pages."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from noonbell.core.records import DEFAULT_TEAM, AuditEvent
from noonbell.ports import AuditFilter
from noonbell.store.sqlite import rows


def append(db: apsw.Connection, audits: Sequence[AuditEvent]) -> None:
    told = [(event.at, event.event, event.subject, event.actor, event.detail, event.team) for event in audits]
    rows.insert(db, "audit_events (at, event, subject, actor, detail, team)", told)


def page(db: apsw.Connection, wanted: AuditFilter, after_id: int, limit: int) -> list[tuple[int, AuditEvent]]:
    conditions, bindings = ["id > ?"], [after_id]
    parts = (
        ("subject = ?", wanted.subject),
        ("event = ?", wanted.event),
        ("actor = ?", wanted.actor),
        ("at >= ?", wanted.from_at),
        ("at <= ?", wanted.to_at),
        ("team = ?", wanted.team),
    )
    given: list[int | str] = [*bindings]
    for condition, value in parts:
        if value is not None:
            conditions.append(condition)
            given.append(value)
    if wanted.team not in (None, DEFAULT_TEAM):
        conditions.append(f"team <> '{DEFAULT_TEAM}'")  # says nothing new, but is what their index asks for
    sql = f"SELECT * FROM audit_events WHERE {' AND '.join(conditions)} ORDER BY id LIMIT ?"
    return [(row[0], AuditEvent(*row[1:])) for row in db.execute(sql, (*given, limit))]
