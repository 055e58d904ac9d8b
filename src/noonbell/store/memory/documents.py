"""Documents in plain dicts."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from noonbell.core.records import AuditEvent, Document, DocumentRemoval, DocumentWrite
from noonbell.errors import DocumentConflictError
from noonbell.ports import DocumentFilter
from noonbell.store.memory.handle import MemoryPart
from noonbell.store.memory.tables import Transaction


class MemoryDocuments(MemoryPart):
    """The documents of a memory store."""

    async def write(
        self,
        put: Sequence[DocumentWrite] = (),
        at: int = 0,
        audits: Sequence[AuditEvent] = (),
        *,
        removed: Sequence[DocumentRemoval] = (),
    ) -> list[Document]:
        with self._transaction() as tx:
            gone = self._remove(tx, removed)
            written = [self._put(tx, write, at) for write in put] + gone
            if written or not removed:
                tx.add_audits(audits)
        return [copy(document) for document in written]

    def _remove(self, tx: Transaction, removed: Sequence[DocumentRemoval]) -> list[Document]:
        found: list[Document] = []
        for removal in removed:
            before = self.data.documents.get((removal.kind, removal.id))
            if before is None:
                continue
            if removal.expected not in (None, before.version):
                raise DocumentConflictError(removal.kind, removal.id, before.version)
            tx.delete(self.data.documents, (removal.kind, removal.id))
            found.append(before)
        return found

    def _put(self, tx: Transaction, write: DocumentWrite, at: int) -> Document:
        before = self.data.documents.get((write.kind, write.id))
        version = 0 if before is None else before.version
        if before is not None and before.team != write.team:
            raise DocumentConflictError(write.kind, write.id, None)
        if write.expected is not None and write.expected != version:
            raise DocumentConflictError(write.kind, write.id, version)
        created_at = at if before is None else before.created_at
        document = Document(write.kind, write.id, write.team, version + 1, write.body, created_at, at, write.wake_at)
        tx.put(self.data.documents, (write.kind, write.id), document)
        return document

    async def find(self, wanted: DocumentFilter, after: str = "", limit: int | None = None) -> list[Document]:
        ids = None if wanted.ids is None else set(wanted.ids)
        found = [
            document
            for (kind, one), document in self._tables().documents.items()
            if kind == wanted.kind
            and one > after
            and (ids is None or one in ids)
            and wanted.team in (None, document.team)
            and (document.wake_at is not None or not wanted.waking)
        ]
        found.sort(key=lambda document: (document.wake_at or 0 if wanted.waking else 0, document.id))
        return [copy(document) for document in found[:limit]]
