"""Documents on SQLite: small things that people put in and take out, by kind and id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw
import msgspec

from noonbell.core.records import AuditEvent, Document, DocumentWrite
from noonbell.errors import DocumentConflictError
from noonbell.store.sqlite import auditing
from noonbell.store.sqlite.part import Part

_encode = msgspec.json.Encoder().encode
_COLUMNS: Final = "kind, id, team, version, body, created_at, updated_at, wake_at"
_CHOSEN: Final = "kind = ?1 AND id IN (SELECT value FROM json_each(?2))"


def put(db: apsw.Connection, writes: Sequence[DocumentWrite], at: int, audits: Sequence[AuditEvent]) -> list[Document]:
    found = [_put(db, write, at) for write in writes]
    auditing.append(db, audits)
    return found


def _put(db: apsw.Connection, write: DocumentWrite, at: int) -> Document:
    before = db.execute(
        "SELECT team, version, created_at FROM documents WHERE kind = ? AND id = ?", (write.kind, write.id)
    ).fetchone()
    team, version, created_at = before or (write.team, 0, at)
    if team != write.team:
        raise DocumentConflictError(write.kind, write.id, None)
    if write.expected is not None and write.expected != version:
        raise DocumentConflictError(write.kind, write.id, version)
    row = (write.kind, write.id, team, version + 1, write.body, created_at, at, write.wake_at)
    db.execute(f"INSERT OR REPLACE INTO documents ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    return Document(*row)


def get(db: apsw.Connection, kind: str, ids: Sequence[str]) -> list[Document]:
    sql = f"SELECT {_COLUMNS} FROM documents WHERE {_CHOSEN} ORDER BY id"
    return [Document(*row) for row in db.execute(sql, (kind, _encode(list(ids)).decode()))]


def page(db: apsw.Connection, kind: str, team: str | None, after: str, limit: int) -> list[Document]:
    chosen = "" if team is None else "AND team = ?4"
    sql = f"SELECT {_COLUMNS} FROM documents WHERE kind = ?1 AND id > ?2 {chosen} ORDER BY id LIMIT ?3"
    bindings = (kind, after, limit, *(() if team is None else (team,)))
    return [Document(*row) for row in db.execute(sql, bindings)]


def drop(db: apsw.Connection, kind: str, ids: Sequence[str], audits: Sequence[AuditEvent], expected: int | None) -> int:
    if expected is not None:
        for document in get(db, kind, ids):
            if document.version != expected:
                raise DocumentConflictError(kind, document.id, document.version)
    db.execute(f"DELETE FROM documents WHERE {_CHOSEN}", (kind, _encode(list(ids)).decode()))
    gone = db.changes()
    if gone:
        auditing.append(db, audits)
    return gone


def due(db: apsw.Connection, kind: str, now: int, limit: int) -> tuple[list[Document], int | None]:
    sql = f"SELECT {_COLUMNS} FROM documents WHERE kind = ? AND wake_at IS NOT NULL ORDER BY wake_at, id LIMIT ?"
    waking = [Document(*row) for row in db.execute(sql, (kind, limit + 1))]
    found = [document for document in waking[:limit] if document.wake_at is not None and document.wake_at <= now]
    return found, waking[len(found)].wake_at if len(waking) > len(found) else None


class SqliteDocuments(Part):
    """The documents of a file. Each verb is one transaction."""

    async def put(self, writes: Sequence[DocumentWrite], at: int, audits: Sequence[AuditEvent] = ()) -> list[Document]:
        return await self._connection.run(lambda db: put(db, writes, at, audits))

    async def get(self, kind: str, ids: Sequence[str]) -> list[Document]:
        return await self._connection.run(lambda db: get(db, kind, ids), write=False)

    async def drop(
        self, kind: str, ids: Sequence[str], audits: Sequence[AuditEvent] = (), *, expected: int | None = None
    ) -> int:
        return await self._connection.run(lambda db: drop(db, kind, ids, audits, expected))

    async def due(self, kind: str, now: int, limit: int) -> tuple[list[Document], int | None]:
        return await self._connection.run(lambda db: due(db, kind, now, limit), write=False)

    async def page(self, kind: str, team: str | None, after: str, limit: int) -> list[Document]:
        return await self._connection.run(lambda db: page(db, kind, team, after, limit), write=False)
