"""Writes of the audit on PostgreSQL, in batches.

An append holds a lock until its transaction is over, so numbers are given in the order of the commits: a reader that
goes on from the last number it has seen misses nothing. It is the last lock that a transaction takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.core.records import AuditEvent
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
