"""Documents on SQLite: small things that people put in and take out, by kind and id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.records import AuditEvent, Document, DocumentRemoval, DocumentWrite
from noonbell.errors import DocumentConflictError
from noonbell.ports import DocumentFilter
from noonbell.store.sqlite import auditing
from noonbell.store.sqlite.part import Part

_encode = msgspec.json.Encoder().encode
_COLUMNS: Final = "kind, id, team, version, body, created_at, updated_at, wake_at"


def write(
    db: apsw.Connection,
    put: Sequence[DocumentWrite],
    at: int,
    audits: Sequence[AuditEvent],
    removed: Sequence[DocumentRemoval],
) -> list[Document]:
    gone = _remove(db, removed) if removed else []
    written = [_put(db, one, at) for one in put] + gone
    if written or not removed:
        auditing.append(db, audits)
    return written


def _remove(db: apsw.Connection, removed: Sequence[DocumentRemoval]) -> list[Document]:
    keys = _encode([(one.kind, one.id) for one in removed]).decode()
    sql = (
        "DELETE FROM documents WHERE (kind, id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?)) "
        f"RETURNING {_COLUMNS}"
    )
    found = {(row[0], row[1]): Document(*row) for row in db.execute(sql, (keys,))}
    for one in removed:
        document = found.get((one.kind, one.id))
        if document is not None and one.expected not in (None, document.version):
            raise DocumentConflictError(one.kind, one.id, document.version)
    return list(found.values())


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


def find(db: apsw.Connection, wanted: DocumentFilter, after: str, limit: int | None) -> list[Document]:
    parts: tuple[tuple[str, Any], ...] = (
        ("kind = ?", wanted.kind),
        ("id > ?", after or None),
        ("id IN (SELECT value FROM json_each(?))", None if wanted.ids is None else _encode(list(wanted.ids)).decode()),
        ("team = ?", wanted.team),
    )
    given = [(condition, value) for condition, value in parts if value is not None]
    conditions = [condition for condition, _ in given] + (["wake_at IS NOT NULL"] if wanted.waking else [])
    order = "wake_at, id" if wanted.waking else "id"
    sql = f"SELECT {_COLUMNS} FROM documents WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT ?"
    return [Document(*row) for row in db.execute(sql, (*(value for _, value in given), -1 if limit is None else limit))]


class SqliteDocuments(Part):
    """The documents of a file. Each verb is one transaction."""

    async def write(
        self,
        put: Sequence[DocumentWrite] = (),
        at: int = 0,
        audits: Sequence[AuditEvent] = (),
        *,
        removed: Sequence[DocumentRemoval] = (),
    ) -> list[Document]:
        return await self._connection.run(lambda db: write(db, put, at, audits, removed))

    async def find(self, wanted: DocumentFilter, after: str = "", limit: int | None = None) -> list[Document]:
        return await self._connection.run(lambda db: find(db, wanted, after, limit), write=False)
