"""Documents: small things that people put in and take out, by kind and id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from noonbell.core.records import AuditEvent, Document, DocumentRemoval, DocumentWrite


class DocumentFilter(NamedTuple):
    """A filter of documents; None leaves a part open. `waking` selects those that have a wake-up."""

    kind: str
    ids: Sequence[str] | None = None
    team: str | None = None
    waking: bool = False


class LedgerDocuments(Protocol):
    """Documents by kind and id, with versions."""

    async def write(
        self,
        put: Sequence[DocumentWrite] = (),
        at: int = 0,
        audits: Sequence[AuditEvent] = (),
        *,
        removed: Sequence[DocumentRemoval] = (),
    ) -> list[Document]:
        """Remove and put documents, all of them or none; `at` is the time of those that are put.

        Returns the documents that were put, as they are now and in order, and after them those that were removed, as
        they were. A document that does not exist is passed over when it is removed. The audit events are written
        unless there was something to remove and none of it existed; without documents they are written alone.

        Raises DocumentConflictError if a document does not have the expected version, or one to be put belongs to
        another team.
        """
        ...

    async def find(self, wanted: DocumentFilter, after: str = "", limit: int | None = None) -> list[Document]:
        """Return up to `limit` documents whose ids come after `after`, by id; with `waking` the earliest first."""
        ...
