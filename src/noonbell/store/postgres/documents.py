"""Documents on PostgreSQL: small things that people put in and take out, by kind and id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.core.records import AuditEvent, Document, DocumentRemoval, DocumentWrite
from noonbell.errors import DocumentConflictError
from noonbell.ports import DocumentFilter
from noonbell.store.postgres import auditing
from noonbell.store.postgres.connection import Connection, storable
from noonbell.store.postgres.session import Part

_COLUMNS: Final = "kind, id, team, version, body, created_at, updated_at, wake_at"


async def write(
    db: Connection,
    put: Sequence[DocumentWrite],
    at: int,
    audits: Sequence[AuditEvent],
    removed: Sequence[DocumentRemoval],
) -> list[Document]:
    gone = await _remove(db, removed) if removed else []
    # in one order for all, so that two who put the same documents wait for each other once
    order = sorted(range(len(put)), key=lambda place: (put[place].kind, put[place].id))
    found = {place: await _put(db, put[place], at) for place in order}
    written = [found[place] for place in range(len(put))] + gone
    if written or not removed:
        await auditing.append(db, audits)
    return written


async def _remove(db: Connection, removed: Sequence[DocumentRemoval]) -> list[Document]:
    columns = ", ".join(f"d.{name}" for name in _COLUMNS.split(", "))
    rows = await db.fetch(
        "DELETE FROM documents d USING unnest($1::text[], $2::text[]) AS b (kind, id) "
        f"WHERE d.kind = b.kind AND d.id = b.id RETURNING {columns}",
        [one.kind for one in removed], [one.id for one in removed],
    )  # fmt: skip
    found = {(row[0], row[1]): Document(*row) for row in rows}
    for one in removed:  # what was deleted comes back with the error
        document = found.get((one.kind, one.id))
        if document is not None and one.expected not in (None, document.version):
            raise DocumentConflictError(one.kind, one.id, document.version)
    return list(found.values())


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

    async def write(
        self,
        put: Sequence[DocumentWrite] = (),
        at: int = 0,
        audits: Sequence[AuditEvent] = (),
        *,
        removed: Sequence[DocumentRemoval] = (),
    ) -> list[Document]:
        async with self._connections.writing() as db:
            return await write(db, put, at, audits, removed)

    async def find(self, wanted: DocumentFilter, after: str = "", limit: int | None = None) -> list[Document]:
        parts: tuple[tuple[str, Any], ...] = (
            ("kind = {}", wanted.kind),
            ("id > {}", after or None),
            ("id = ANY({}::text[])", None if wanted.ids is None else list(wanted.ids)),
            ("team = {}", wanted.team),
        )
        given = [(condition, value) for condition, value in parts if value is not None]
        conditions = [condition.format(f"${place}") for place, (condition, _) in enumerate(given, 2)]
        if wanted.waking:
            conditions.append("wake_at IS NOT NULL")
        order = "wake_at, id" if wanted.waking else "id"
        sql = f"SELECT {_COLUMNS} FROM documents WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT $1"
        return [Document(*row) for row in await self._session.read(sql, limit, *(value for _, value in given))]
