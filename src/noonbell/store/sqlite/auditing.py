"""The audit on SQLite: appended in blocks, read in pages."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from noonbell.core.records import AuditEvent
from noonbell.ports import AuditFilter
from noonbell.store import audit_pages
from noonbell.store.sqlite import rows
from noonbell.store.sqlite.part import Part


def append(db: apsw.Connection, audits: Sequence[AuditEvent]) -> None:
    values = [(event.at, event.event, event.subject, event.actor, event.detail, event.team) for event in audits]
    rows.insert(db, "audit_events (at, event, subject, actor, detail, team)", values)


class SqliteAudit(Part):
    """The audit of a file."""

    async def page(
        self, wanted: AuditFilter, past: int | None, limit: int, *, newest_first: bool = False
    ) -> list[tuple[int, AuditEvent]]:
        sql, values = audit_pages.statement(wanted, past, limit, "?", newest_first=newest_first)
        return [(row[0], AuditEvent(*row[1:])) for row in await self._read(sql, tuple(values))]
