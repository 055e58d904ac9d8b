"""The audit on PostgreSQL: appended in batches, read in pages.

Who appends holds a lock until his transaction is over, so numbers are given in the order of the commits: a reader who
goes on from the last number he has seen misses nothing. It is the last lock that a transaction takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.core.records import DEFAULT_TEAM, AuditEvent
from noonbell.ports import AuditFilter
from noonbell.store.postgres.connection import Connection, storable
from noonbell.store.postgres.schema import AUDITING, lock


async def append(db: Connection, audits: Sequence[AuditEvent]) -> None:
    if not audits:
        return
    await lock(db, AUDITING)
    await db.execute(
        "INSERT INTO audit_events (at, event, subject, actor, detail, team) SELECT b.* FROM unnest($1::int8[], "
        "$2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) b",
        [a.at for a in audits], [a.event for a in audits], [a.subject for a in audits], [a.actor for a in audits],
        [storable(a.detail) for a in audits], [a.team for a in audits],
    )  # fmt: skip


async def page(db: Connection, wanted: AuditFilter, after_id: int, limit: int) -> list[tuple[int, AuditEvent]]:
    parts = (
        ("id >", after_id),
        ("subject =", wanted.subject),
        ("event =", wanted.event),
        ("actor =", wanted.actor),
        ("at >=", wanted.from_at),
        ("at <=", wanted.to_at),
        ("team =", wanted.team),
    )
    given = [(condition, value) for condition, value in parts if value is not None]
    conditions = " AND ".join(f"{condition} ${place}" for place, (condition, _) in enumerate(given, 2))
    if wanted.team not in (None, DEFAULT_TEAM):
        conditions += f" AND team <> '{DEFAULT_TEAM}'"  # says nothing new, but is what their index asks for
    sql = (
        f"SELECT id, at, event, subject, actor, detail, team FROM audit_events WHERE {conditions} ORDER BY id LIMIT $1"
    )
    return [(row[0], AuditEvent(*row[1:])) for row in await db.fetch(sql, limit, *(value for _, value in given))]
