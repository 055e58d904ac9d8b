"""Documents in plain dicts."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import islice

from noonbell.core.records import AuditEvent, Document, DocumentWrite
from noonbell.errors import DocumentConflictError
from noonbell.store.memory.handle import MemoryPart
from noonbell.store.memory.tables import Transaction


class MemoryDocuments(MemoryPart):
    """The documents of a memory store."""

    async def put(self, writes: Sequence[DocumentWrite], at: int, audits: Sequence[AuditEvent] = ()) -> list[Document]:
        with self._transaction() as tx:
            put = [self._put_document(tx, write, at) for write in writes]
            tx.tell(audits)
        return [copy(document) for document in put]

    def _put_document(self, tx: Transaction, write: DocumentWrite, at: int) -> Document:
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

    async def get(self, kind: str, ids: Sequence[str]) -> list[Document]:
        documents = self._tables().documents
        return [copy(documents[kind, one]) for one in sorted(set(ids)) if (kind, one) in documents]

    async def page(self, kind: str, team: str | None, after: str, limit: int) -> list[Document]:
        documents = sorted(self._tables().documents.items())
        found = (
            copy(document)
            for (its_kind, one), document in documents
            if its_kind == kind and one > after and team in (None, document.team)
        )
        return list(islice(found, limit))

    async def drop(
        self, kind: str, ids: Sequence[str], audits: Sequence[AuditEvent] = (), *, expected: int | None = None
    ) -> int:
        with self._transaction() as tx:
            found = [(kind, one) for one in sorted(set(ids)) if (kind, one) in self.data.documents]
            for key in found:
                version = self.data.documents[key].version
                if expected not in (None, version):
                    raise DocumentConflictError(kind, key[1], version)
                tx.delete(self.data.documents, key)
            if found:
                tx.tell(audits)
        return len(found)

    async def due(self, kind: str, now: int, limit: int) -> tuple[list[Document], int | None]:
        waking = sorted(
            (document.wake_at, document.id, document)
            for document in self._tables().documents.values()
            if document.kind == kind and document.wake_at is not None
        )
        due = [document for wake_at, _, document in waking if wake_at <= now][:limit]
        following = waking[len(due)][0] if len(waking) > len(due) else None
        return [copy(document) for document in due], following
