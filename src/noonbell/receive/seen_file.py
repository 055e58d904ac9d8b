"""The memory of messages in an SQLite file: shared by the processes of one host, and there after a restart.

Each step is a transaction of its own that is on the disk when it returns. The work happens in a thread, one step at a
time
for each process. Where the file cannot be written, messages are refused with 503 rather than handled twice.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from noonbell.errors import WebhookUnavailableError
from noonbell.receive.seen import Claim, check_times

_T = TypeVar("_T")

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS noonbell_seen (
    message_id TEXT PRIMARY KEY,
    token TEXT,                -- NULL: finished
    ends_at REAL NOT NULL      -- of the claim, or of the memory
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS noonbell_seen_ends ON noonbell_seen (ends_at);
"""
# Ended rows that one step removes: more than come in with it, so that they never pile up, and few enough to be quick.
_SWEEP: Final = """
DELETE FROM noonbell_seen WHERE message_id IN (SELECT message_id FROM noonbell_seen WHERE ends_at <= ? LIMIT 50)
"""


class SqliteSeen:
    """Remembers in a file, each finished message for `ttl`. Close it when the program ends."""

    def __init__(
        self, path: Path | str, *, ttl: timedelta = timedelta(days=7), busy_for: timedelta = timedelta(minutes=5)
    ) -> None:
        check_times(ttl, busy_for)
        self.ttl = ttl
        self._busy_for = busy_for
        self._lock = threading.Lock()
        if str(path) != ":memory:":
            Path(path).touch(mode=0o600)  # for its owner alone; a file that exists keeps its mode
        self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        try:
            self._db.executescript(_TABLE)
        except sqlite3.Error:
            self._db.close()
            raise

    async def begin(self, message_id: str, now: float) -> Claim:
        return await self._step(lambda: self._begin(message_id, now))

    async def finish(self, message_id: str, now: float) -> None:
        ends_at = now + self.ttl.total_seconds()
        statement = "INSERT OR REPLACE INTO noonbell_seen (message_id, token, ends_at) VALUES (?, NULL, ?)"
        await self._step(lambda: self._db.execute(statement, (message_id, ends_at)))

    async def forget(self, message_id: str, token: str) -> None:
        statement = "DELETE FROM noonbell_seen WHERE message_id = ? AND token = ?"
        await self._step(lambda: self._db.execute(statement, (message_id, token)))

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _begin(self, message_id: str, now: float) -> Claim:
        self._db.execute(_SWEEP, (now,))
        row = self._db.execute(
            "SELECT token FROM noonbell_seen WHERE message_id = ? AND ends_at > ?", (message_id, now)
        ).fetchone()
        if row is not None:
            return Claim("done" if row[0] is None else "busy")
        token = secrets.token_hex(8)
        self._db.execute(
            "INSERT OR REPLACE INTO noonbell_seen (message_id, token, ends_at) VALUES (?, ?, ?)",
            (message_id, token, now + self._busy_for.total_seconds()),
        )
        return Claim("new", token)

    async def _step(self, step: Callable[[], _T]) -> _T:
        # a caller that is cancelled does not wait, but the step is done whole
        return await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(self._transaction, step)))

    def _transaction(self, step: Callable[[], _T]) -> _T:
        try:
            with self._lock:
                # taken before reading: two processes cannot both find that a message is new
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    result = step()
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
                return result
        except sqlite3.Error as error:
            raise WebhookUnavailableError(f"messages cannot be remembered now: {error}") from error
