"""The audit: changes that people made, and unusual decisions."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from noonbell.core.records import AuditEvent


class AuditFilter(NamedTuple):
    """A filter of audit events; None leaves a part open, the bounds on `at` are included."""

    subject: str | None = None
    event: str | None = None
    actor: str | None = None
    from_at: int | None = None
    to_at: int | None = None
    team: str | None = None


class LedgerAudit(Protocol):
    """Audit events, numbered in the order in which they were written: by the verbs that make the changes."""

    async def page(
        self, wanted: AuditFilter, past: int | None, limit: int, *, newest_first: bool = False
    ) -> list[tuple[int, AuditEvent]]:
        """Return events with their numbers, past the number `past`, the oldest first unless asked otherwise."""
        ...
