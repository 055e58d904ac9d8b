"""The audit of a ledger on PostgreSQL. How it is written is in `auditing`, and its pages in `store.audit_pages`."""

from __future__ import annotations

from noonbell.core.records import AuditEvent
from noonbell.ports import AuditFilter
from noonbell.store import audit_pages
from noonbell.store.postgres.session import Part


class PostgresAudit(Part):
    """Audit events, numbered in the order of the commits."""

    async def page(
        self, wanted: AuditFilter, past: int | None, limit: int, *, newest_first: bool = False
    ) -> list[tuple[int, AuditEvent]]:
        sql, values = audit_pages.statement(wanted, past, limit, "$", newest_first=newest_first)
        async with self._connections.reading() as db:
            return [(row[0], AuditEvent(*row[1:])) for row in await db.fetch(sql, *values)]
