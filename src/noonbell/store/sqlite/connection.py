"""One connection and the thread that owns it.

All work on the file goes through `run`: a function that gets the connection, inside a transaction. In a program it runs
in a thread of its own, so that a sync to disk never stops the event loop; `threaded=False` runs it in place, which
makes a simulation deterministic. A poll that finds nothing due is a read by an index: while the thread is idle, it is
made in place too, since two switches of threads would take longer than the read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw

from noonbell.errors import StoreCorruptError, StoreError, StoreUnavailableError
from noonbell.store.definitions import DefinitionCache
from noonbell.store.snapshot import refuse_writing
from noonbell.store.sqlite.schema import IS_OF_DEVELOPMENT, MIGRATIONS, SETTLE_TABLE

T = TypeVar("T")
_Job = tuple[Callable[[apsw.Connection], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]

_PASSING = (apsw.FullError, apsw.ReadOnlyError, apsw.BusyError, apsw.LockedError, apsw.CantOpenError, apsw.IOError)
_DAMAGE = (apsw.CorruptError, apsw.NotADBError)


class Connection:
    """The single writer of a file."""

    def __init__(self, path: Path, *, threaded: bool, busy_timeout_ms: int, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._threaded = threaded
        self._busy_timeout_ms = busy_timeout_ms
        self._db: apsw.Connection | None = None
        self.definitions = DefinitionCache()  # used in the thread alone
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._in_use = threading.Lock()  # held by the thread that works on the connection
        self._dead = False

    async def open(self) -> None:
        if self._db is not None:
            return
        self._dead = False
        if self._threaded:
            self._thread = threading.Thread(target=self._work, name="noonbell-sqlite", daemon=True)
            self._thread.start()
        try:
            await self._submit(lambda _: self._connect())
        except BaseException:
            await self.close()
            raise

    async def run(
        self,
        work: Callable[[apsw.Connection], T],
        *,
        write: bool = True,
        peek: Callable[[apsw.Connection], T | None] | None = None,
    ) -> T:
        """Run `work` in a transaction; not where `peek`, which only reads and needs none, has the answer already."""
        if peek is not None and self._may_peek():
            try:
                if (known := self._guarded(peek)) is not None:
                    return known
            finally:
                self._in_use.release()
            peek = None

        def in_transaction(db: apsw.Connection | None) -> T:
            if db is None:
                raise StoreUnavailableError(f"The store {self._path} is closed")
            if peek is not None and (known := peek(db)) is not None:
                return known
            with _transaction(db, write=write):
                return work(db)

        return await self._submit(in_transaction)

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            # the queue is served in order, so what was submitted before is done by then
            loop = asyncio.get_running_loop()
            closed: asyncio.Future[None] = loop.create_future()
            self._jobs.put((lambda _: self._disconnect(), closed, loop))
            self._jobs.put(None)
            await asyncio.shield(closed)
        else:
            self._disconnect()

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        self.definitions.clear()
        if db is not None:
            with contextlib.suppress(apsw.Error):  # a damaged file may fail its last checkpoint
                db.close()

    def kill(self) -> None:
        """Act as a dying process: nothing more is written."""
        self._dead = True
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()
        self._disconnect()

    def _may_peek(self) -> bool:
        """Take the connection for a short read in place, if it is open and its thread idle; the caller releases it."""
        if not self._jobs.empty() or not self._in_use.acquire(blocking=False):
            return False
        if self._db is None:
            self._in_use.release()
            return False
        return True

    # --- inside the thread ----------------------------------------------------------------------------------------

    async def _submit(self, work: Callable[[Any], T]) -> T:
        if self._dead or (self._threaded and self._thread is None):
            raise StoreUnavailableError(f"The store {self._path} is closed; open it first (async with, or open())")
        if not self._threaded:
            return self._guarded(work)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((work, future, loop))
        return await future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future, loop = job
            try:
                with self._in_use:
                    result, error = self._guarded(work), None
            except BaseException as raised:  # noqa: BLE001 - whatever it is, it belongs to the one who asked
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
                loop.call_soon_threadsafe(_hand_over, future, result, error)

    def _guarded(self, work: Callable[[Any], T]) -> T:
        if self._dead:
            raise StoreUnavailableError(f"The store {self._path} is closed")
        try:
            return work(self._db)
        except _PASSING as error:
            raise StoreUnavailableError(f"The store {self._path} cannot be used now: {error}") from error
        except _DAMAGE as error:
            raise StoreCorruptError(f"The store {self._path} is damaged or not an SQLite file: {error}") from error
        except apsw.Error as error:
            raise StoreError(f"The store {self._path} failed: {type(error).__name__}: {error}") from error

    def _connect(self) -> None:
        if self._read_only:
            self._db = _connect_to_read(self._path, self._busy_timeout_ms)
            return
        _create_private(self._path)
        db = apsw.Connection(str(self._path))
        try:
            db.set_busy_timeout(self._busy_timeout_ms)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA cache_size = -65536")
            # a burst writes the same pages again and again: they are copied into the file once for many commits
            db.execute("PRAGMA wal_autocheckpoint = 16384")
            db.execute("PRAGMA temp_store = MEMORY")
            _migrate(db, self._path)
            db.execute(SETTLE_TABLE)
        except BaseException:
            db.close()
            raise
        self._db = db


class InTransaction:
    """A Connection within one of its read transactions: work runs in that transaction, at once."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self.definitions = DefinitionCache()

    async def run(
        self,
        work: Callable[[apsw.Connection], T],
        *,
        write: bool = True,
        peek: Callable[[apsw.Connection], T | None] | None = None,
    ) -> T:
        del peek
        if write:
            refuse_writing()
        return work(self._db)


def _hand_over(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # the waiter was cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


@contextlib.contextmanager
def _transaction(db: apsw.Connection, *, write: bool) -> Iterator[None]:
    # IMMEDIATE: the lock is taken at once, so a transaction that has read never fails later for want of it
    db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if not db.get_autocommit():
            db.execute("ROLLBACK")
        raise


def _create_private(path: Path) -> None:
    """Create a missing file for its owner alone; SQLite gives the files beside it the same mode."""
    with contextlib.suppress(OSError):  # it exists, or SQLite reports why it cannot be created
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _connect_to_read(path: Path, busy_timeout_ms: int) -> apsw.Connection:
    """Open the file for reading: nothing is created, changed or brought up to date, and no writer is waited for."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        db.set_busy_timeout(busy_timeout_ms)
        version = _version(db, path)
        if version != len(MIGRATIONS):
            raise StoreError(
                f"The file {path} is of version {version}, not {len(MIGRATIONS)}; a scheduler brings it up to date"
            )
    except BaseException:
        db.close()
        raise
    return db


def _version(db: apsw.Connection, path: Path) -> int:
    """The number of steps that this file has seen; StoreError if they were those of a development version."""
    version = int(db.execute("PRAGMA user_version").get)
    if version and db.execute(IS_OF_DEVELOPMENT).get is not None:
        raise StoreError(
            f"The file {path} was made by a development version of Noonbell (its schema has the number {version}), and "
            "this version cannot read it. Start with a new file: create the schedules again there"
        )
    return version


def _migrate(db: apsw.Connection, path: Path) -> None:
    with _transaction(db, write=True):
        version = _version(db, path)
        if version > len(MIGRATIONS):
            raise StoreError(f"The file is of version {version}; this Noonbell knows up to {len(MIGRATIONS)}")
        for step, script in enumerate(MIGRATIONS[version:], start=version + 1):
            db.execute(script)
            db.execute(f"PRAGMA user_version = {step}")
