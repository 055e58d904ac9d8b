"""Stores that tell when a burst is over: how many runs have ended on disk, and what was written for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from noonbell.core.records import Settlement, StoredSchedule, Turn
from noonbell.ports import LaneClaim, Settled, TakeTurn
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore

PAGE_BYTES = 4096 + 24  # a page in the log, with the header of its frame


# An idle connection tells the server what it has done after this long.
LATE_SECONDS = 11.0


class Written(NamedTuple):
    """Rows that were inserted, changed or deleted, where they were counted, and bytes of the log."""

    rows: int | None
    log_bytes: int

    def since(self, before: Written) -> Written:
        rows = None if self.rows is None or before.rows is None else self.rows - before.rows
        return Written(rows, self.log_bytes - before.log_bytes)


class Counted:
    """How many runs have ended, by a settle or with their claim."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.ended = 0
        self.looked = asyncio.Event()
        self.enough = asyncio.Event()
        self.expected = 0

    def expect(self, runs: int) -> None:
        self.ended, self.expected = 0, runs
        self.enough.clear()

    def _count(self, runs: int) -> None:
        self.ended += runs
        if self.ended == self.expected:
            self.enough.set()

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        settled: Settled = await super().settle(settlements)  # type: ignore[misc]  # of the store that it is mixed with
        assert not settled.stale
        self._count(len(settlements))
        return settled

    async def claim_by_policy(
        self, lane: str, owner: str, now: int, limit: int, take_turn: TakeTurn, **narrowed: Any
    ) -> LaneClaim:
        finished = 0

        def watched(stored: StoredSchedule) -> Turn:
            nonlocal finished
            turn = take_turn(stored)
            finished += len(turn.finished)
            return turn

        claim: LaneClaim = await super().claim_by_policy(lane, owner, now, limit, watched, **narrowed)  # type: ignore[misc]  # as above
        self._count(finished)
        self.looked.set()
        return claim


class CountedSqlite(Counted, SqliteStore):
    """A file."""

    async def written(self, *, rows: bool) -> Written:
        found = await self._connection.run(written_by, write=False)
        return found if rows else found._replace(rows=None)


def written_by(db: apsw.Connection) -> Written:
    """What this connection has written since it was opened."""
    return Written(db.total_changes(), db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0] * PAGE_BYTES)


class CountedPostgres(Counted, PostgresStore):
    """A database."""

    async def written(self, *, rows: bool) -> Written:
        async with self._connections.reading() as db:
            return await written_to(db, rows=rows)


async def written_to(db: Any, *, rows: bool) -> Written:
    """What the whole server has written; rows only where there is time to wait for them."""
    if rows:
        await asyncio.sleep(LATE_SECONDS)
    row: Any = await db.fetchrow(
        "SELECT tup_inserted + tup_updated + tup_deleted, pg_current_wal_lsn() - '0/0'::pg_lsn "
        "FROM pg_stat_database WHERE datname = current_database()"
    )
    return Written(int(row[0]) if rows else None, int(row[1]))
