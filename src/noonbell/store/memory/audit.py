"""The audit in plain dicts."""

from __future__ import annotations

from copy import copy
from itertools import islice

from noonbell.core.records import AuditEvent
from noonbell.ports import AuditFilter
from noonbell.store.memory.handle import MemoryPart


class MemoryAudit(MemoryPart):
    """The audit events of a memory store."""

    async def page(
        self, wanted: AuditFilter, past: int | None, limit: int, *, newest_first: bool = False
    ) -> list[tuple[int, AuditEvent]]:
        audits = self._tables().audits
        found = (
            number
            for number in sorted(audits, reverse=newest_first)
            if (past is None or (number < past if newest_first else number > past)) and _fits(audits[number], wanted)
        )
        return [(number, copy(audits[number])) for number in islice(found, limit)]


def _fits(event: AuditEvent, wanted: AuditFilter) -> bool:
    return (
        wanted.subject in (None, event.subject)
        and wanted.event in (None, event.event)
        and wanted.actor in (None, event.actor)
        and wanted.team in (None, event.team)
        and (wanted.from_at is None or event.at >= wanted.from_at)
        and (wanted.to_at is None or event.at <= wanted.to_at)
    )
