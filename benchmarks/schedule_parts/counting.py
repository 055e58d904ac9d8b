"""Stores that say when a burst is over: how many runs have ended on disk, and what was written for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import apsw

from noonbell.core.records import Settlement, StoredSchedule, Turn
from noonbell.ports import Decide, LaneClaim, Settled
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from noonbell.store.wrapping import with_verbs

PAGE_BYTES = 4096 + 24  # a page in the log, with the header of its frame


class Counted:
    """How many runs have ended, by a settle or with their claim."""

    runs: Any

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.ended = self.expected = 0
        self.looked = asyncio.Event()
        self.enough = asyncio.Event()
        self._plain = self.runs
        self.runs = with_verbs(self._plain, {"settle": self._settle, "claim": self._claim})

    def expect(self, runs: int) -> None:
        self.ended, self.expected = 0, runs
        self.enough.clear()

    def _count(self, runs: int) -> None:
        self.ended += runs
        if self.ended == self.expected:
            self.enough.set()

    async def _settle(self, settlements: Sequence[Settlement]) -> Settled:
        settled: Settled = await self._plain.settle(settlements)
        assert not settled.stale
        self._count(len(settlements))
        return settled

    async def _claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any) -> LaneClaim:
        finished = 0

        def watched(stored: StoredSchedule) -> Turn:
            nonlocal finished
            turn = decide(stored)
            finished += len(turn.finished)
            return turn

        claim: LaneClaim = await self._plain.claim(lane, owner, now, limit, watched, **narrowed)
        self._count(finished)
        self.looked.set()
        return claim


class SqliteSizes(SqliteStore):
    """A file, and what is written to it."""

    async def log_bytes(self) -> int:
        """What this connection has added to the log since it was opened."""
        pages: int = await self._connection.run(lambda db: db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0], write=False)
        return pages * PAGE_BYTES

    async def kept_bytes(self) -> int:
        """The pages of ended runs and of their indexes."""
        sql = "SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_master WHERE tbl_name = 'runs')"
        rows: Any = await self._connection.run(lambda db: db.execute(sql).fetchall(), write=False)
        return int(rows[0][0])


class PostgresSizes(PostgresStore):
    """A database, and what its server writes."""

    async def log_bytes(self) -> int:
        """What the whole server has written to its log."""
        return int((await self._read("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))[0][0])

    async def kept_bytes(self) -> int:
        """The partitions of ended runs with their indexes; the day that has not come yet has none to speak of."""
        sql = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('runs') WHERE isleaf"
        return int((await self._read(sql))[0][0])


class CountedSqlite(Counted, SqliteSizes):
    """A file of durable schedules."""


class CountedPostgres(Counted, PostgresSizes):
    """A database of durable schedules."""
