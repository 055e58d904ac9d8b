"""The base of the parts of a SQLite store: the connection, or the open transaction of a snapshot."""

from __future__ import annotations

from typing import Any

from noonbell.store.sqlite.connection import Connection, InTransaction


class Part:
    """A part of the store on a connection."""

    def __init__(self, connection: Connection | InTransaction) -> None:
        self._connection = connection

    async def _read(self, sql: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return await self._connection.run(lambda db: db.execute(sql, bindings).fetchall(), write=False)
