"""Documents: small things that people put in and take out, by kind and id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noonbell.core.records import AuditEvent, Document, DocumentWrite


class LedgerDocuments(Protocol):
    """Documents by kind and id, with versions."""

    async def put(self, writes: Sequence[DocumentWrite], at: int, audits: Sequence[AuditEvent] = ()) -> list[Document]:
        """Put all of them or none, with the audit events; returns them as they are now, in order.

        Raises DocumentConflictError if one does not have the expected version, or belongs to another team.
        """
        ...

    async def get(self, kind: str, ids: Sequence[str]) -> list[Document]:
        """Return those that exist, by id."""
        ...

    async def page(self, kind: str, team: str | None, after: str, limit: int) -> list[Document]:
        """Return a page by id, past `after`; of one team or of all."""
        ...

    async def drop(
        self, kind: str, ids: Sequence[str], audits: Sequence[AuditEvent] = (), *, expected: int | None = None
    ) -> int:
        """Delete them; returns how many there were. The audit events are written only if there was one.

        Raises DocumentConflictError, and deletes none, if one of them does not have the version `expected`.
        """
        ...

    async def due(self, kind: str, now: int, limit: int) -> tuple[list[Document], int | None]:
        """Return those whose wake_at has come, the earliest first, and when the next one that was left out comes."""
        ...
