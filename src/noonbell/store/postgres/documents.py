"""Documents on PostgreSQL: small things that people put in and take out, by kind and id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.core.records import AuditEvent, Document, DocumentWrite
from noonbell.errors import DocumentConflictError
from noonbell.store.postgres import auditing
from noonbell.store.postgres.connection import Connection, storable
from noonbell.store.postgres.session import Part

_COLUMNS: Final = "kind, id, team, version, body, created_at, updated_at, wake_at"
_CHOSEN: Final = "kind = $1 AND id = ANY($2::text[])"


async def put(db: Connection, writes: Sequence[DocumentWrite], at: int, audits: Sequence[AuditEvent]) -> list[Document]:
    # in one order for all, so that two who put the same documents wait for each other once
    order = sorted(range(len(writes)), key=lambda place: (writes[place].kind, writes[place].id))
    found = {place: await _put(db, writes[place], at) for place in order}
    await auditing.append(db, audits)
    return [found[place] for place in range(len(writes))]


async def _put(db: Connection, write: DocumentWrite, at: int) -> Document:
    # the row is locked whether it was there or not; what it says is compared afterwards, and undone where it is wrong
    (row,) = await db.fetch(
        f"INSERT INTO documents AS d ({_COLUMNS}) VALUES ($1, $2, $3, 1, $4, $5, $5, $6) "
        "ON CONFLICT (kind, id) DO UPDATE SET version = d.version + 1, body = excluded.body, "
        f"updated_at = excluded.updated_at, wake_at = excluded.wake_at RETURNING {_COLUMNS}",
        write.kind, write.id, write.team, storable(write.body), at, write.wake_at,
    )  # fmt: skip
    document = Document(*row)
    if document.team != write.team:
        raise DocumentConflictError(write.kind, write.id, None)
    if write.expected is not None and write.expected != document.version - 1:
        raise DocumentConflictError(write.kind, write.id, document.version - 1)
    return document


class PostgresDocuments(Part):
    """Documents by kind and id, with versions."""

    async def put(self, writes: Sequence[DocumentWrite], at: int, audits: Sequence[AuditEvent] = ()) -> list[Document]:
        async with self._connections.writing() as db:
            return await put(db, writes, at, audits)

    async def get(self, kind: str, ids: Sequence[str]) -> list[Document]:
        async with self._connections.reading() as db:
            sql = f"SELECT {_COLUMNS} FROM documents WHERE {_CHOSEN} ORDER BY id"
            return [Document(*row) for row in await db.fetch(sql, kind, list(ids))]

    async def page(self, kind: str, team: str | None, after: str, limit: int) -> list[Document]:
        chosen = "" if team is None else "AND team = $4"
        sql = f"SELECT {_COLUMNS} FROM documents WHERE kind = $1 AND id > $2 {chosen} ORDER BY id LIMIT $3"
        async with self._connections.reading() as db:
            rows = await db.fetch(sql, kind, after, limit, *(() if team is None else (team,)))
            return [Document(*row) for row in rows]

    async def drop(
        self, kind: str, ids: Sequence[str], audits: Sequence[AuditEvent] = (), *, expected: int | None = None
    ) -> int:
        async with self._connections.writing() as db:
            gone = await db.fetch(f"DELETE FROM documents WHERE {_CHOSEN} RETURNING id, version", kind, list(ids))
            for document_id, version in gone:  # what was deleted comes back with the error
                if expected not in (None, version):
                    raise DocumentConflictError(kind, document_id, version)
            if gone:
                await auditing.append(db, audits)
            return len(gone)

    async def due(self, kind: str, now: int, limit: int) -> tuple[list[Document], int | None]:
        sql = f"SELECT {_COLUMNS} FROM documents WHERE kind = $1 AND wake_at IS NOT NULL ORDER BY wake_at, id LIMIT $2"
        async with self._connections.reading() as db:
            waking = [Document(*row) for row in await db.fetch(sql, kind, limit + 1)]
        found = [document for document in waking[:limit] if document.wake_at is not None and document.wake_at <= now]
        return found, waking[len(found)].wake_at if len(waking) > len(found) else None
