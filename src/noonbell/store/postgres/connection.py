"""Connections, transactions, and what their failures mean.

Nothing here relies on the session: every verb is one transaction, settings are made with SET LOCAL, and no statement
is prepared under a name. Behind a transaction pooler two transactions of one connection may land on two servers, and a
statement prepared on the first is unknown on the second; so the statement cache of the driver is off.

`PASSING` failures (the server is gone, full, read-only, busy) become StoreUnavailableError, and nothing is repeated
here: the caller knows whether it should be. When the answer to a COMMIT is lost, it may or may not have happened.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol
from urllib.parse import urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from noonbell.errors import StoreCorruptError, StoreError, StoreUnavailableError, StoreUrlError
from noonbell.store.snapshot import refuse_writing

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]
    _BareConnection = asyncpg.Connection[asyncpg.Record]
    _Pool = asyncpg.Pool[asyncpg.Record]
else:
    Connection = asyncpg.Connection
    _BareConnection = asyncpg.Connection
    _Pool = asyncpg.Pool

_CONNECT_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 10.0
# The server is asked to stop a statement first; the driver gives up on a server that does not even do that.
_PATIENCE_SECONDS: Final = 5.0

# Classes of SQLSTATE, or whole ones, of what may work later: connection, authorization, unknown database, rollback,
# resources (53100 is a full disk), lock, operator, system; read-only; transactions that were ended from outside.
_PASSING: Final = re.compile(r"08|28|3D|40|53|57|58|55P03|25006|25P0[34]")
_DAMAGED: Final = ("XX001", "XX002")


class StatelessConnection(_BareConnection):
    """A connection that goes back to the pool without a reset: it has no session state."""

    def get_reset_query(self) -> str:
        return ""


def shown(dsn: str) -> str:
    """The address without user, password and options, for messages."""
    parts = urlsplit(dsn)
    if "@" not in parts.netloc and "@" in dsn:
        return "postgresql://…"  # a password with a slash in it, unescaped: better to say nothing
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def storable(text: str | None) -> str | None:
    """PostgreSQL's texts hold no NUL and no lone surrogate; one in a message must not hold up its whole batch."""
    if text is None:
        return None
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def committing(statements: str) -> str:
    """Return the last statements of a transaction with its COMMIT: one message for both."""
    return f"{statements}; COMMIT"


def rows_of(status: str) -> int:
    """Return how many rows a SELECT has found, by the status of its statement; 0 for other statements."""
    command, _, count = status.rpartition(" ")
    return int(count) if command == "SELECT" else 0


def translated(error: BaseException, where: str) -> StoreError | None:
    """Return the store error that a failure means; None where it is not about the store."""
    if isinstance(error, StoreError):
        return None
    state = getattr(error, "sqlstate", None)
    if isinstance(error, asyncpg.PostgresError) and isinstance(state, str):
        if state in _DAMAGED:
            return StoreCorruptError(f"The store {where} is damaged: {error}")
        if _PASSING.match(state):
            return StoreUnavailableError(f"The store {where} cannot be used now: {error}")
        return StoreError(f"The store {where} failed: {type(error).__name__}: {error}")
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        # the driver could not send a value: it will not be able to later either
        return StoreError(f"The store {where} failed: {type(error).__name__}: {error}")
    if isinstance(error, TimeoutError):
        return StoreUnavailableError(f"The store {where} cannot be used now: it did not answer in time")
    if isinstance(error, OSError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        reason = str(error) or type(error).__name__
        return StoreUnavailableError(f"The store {where} cannot be used now: {reason}")
    return None


class UndoneError(Exception):
    """A transaction that was sent at once has found something else than it expects, and was undone."""


class Transactions(Protocol):
    """The source of the verbs' transactions: those of a pool, or the one of a snapshot."""

    @property
    def where(self) -> str: ...

    def reading(self) -> AbstractAsyncContextManager[Connection]: ...

    def writing(self, also: str = "") -> AbstractAsyncContextManager[Connection]: ...

    def begun(self, also: str) -> AbstractAsyncContextManager[tuple[Connection, int]]: ...

    async def at_once(self, statements: str) -> None: ...


class Connections:
    """A pool, and transactions on it."""

    def __init__(self, dsn: str, *, pool_size: int, statement_timeout: float, idle_timeout: float = 60.0) -> None:
        """`idle_timeout` is how many seconds a transaction may wait for its client before the server ends it."""
        self._dsn = dsn
        self._pool_size = pool_size
        self._timeout_seconds = statement_timeout
        self._pool: _Pool | None = None
        self.where = shown(dsn)
        timeout_ms, idle_ms = max(1, round(statement_timeout * 1000)), max(1, round(idle_timeout * 1000))
        # The isolation is named, since the default of a role or database may be another, and a verb has to see what was
        # committed while it waited for a lock. A default of read-only is left as it is: it is intended.
        #
        # What a verb touches is few rows against its table, found by an index. The statistics of a table that was just
        # filled do not know that, and a plan made from them may read all of it: so the other ways are closed.
        self._begin_write = (
            f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {timeout_ms}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {idle_ms}; SET LOCAL jit = off; "
            "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; "
            "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
        )
        # one snapshot for all statements of a verb that reads
        self._begin_read = (
            f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {timeout_ms}"
        )

    @property
    def is_open(self) -> bool:
        return self._pool is not None

    async def open(self) -> None:
        """Connect; a second call does nothing."""
        if self._pool is not None:
            return
        try:
            # None is kept up by the pool itself: while the server is away it would try, and log, beside every verb.
            pool = await asyncpg.create_pool(
                self._dsn,
                min_size=0,
                max_size=self._pool_size,
                connection_class=StatelessConnection,
                init=_learn_types,
                **self._options(),
            )
            async with pool.acquire(timeout=self._timeout_seconds + _PATIENCE_SECONDS):
                self._pool = pool  # one is made at once, so that a wrong address is reported here
        except ValueError as error:
            raise self._unreadable(error) from None
        except Exception as error:
            raise self._meaning(error) from error

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await pool.close()
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pool.terminate()

    def kill(self) -> None:
        """Cut every connection at once: the server rolls back what was under way."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    async def connect(self) -> _BareConnection:
        """A connection outside the pool; also where the pool is not open."""
        try:
            return await asyncpg.connect(self._dsn, connection_class=StatelessConnection, **self._options())
        except ValueError as error:
            raise self._unreadable(error) from None
        except Exception as error:
            raise self._meaning(error) from error

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[Connection]:
        """A transaction on a connection of its own, which is closed after it."""
        db = await self.connect()
        try:
            async with self._translating(), self._transaction(db, self._begin_write):
                yield db
        finally:
            db.terminate()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """A transaction that changes nothing. Also a single statement needs one behind some poolers."""
        async with self._acquired() as db, self._transaction(db, self._begin_read):
            yield db

    @asynccontextmanager
    async def writing(self, also: str = "") -> AsyncIterator[Connection]:
        """A transaction; `also` is sent along with its beginning and costs no round trip of its own."""
        async with self.begun(also) as (db, _):
            yield db

    @asynccontextmanager
    async def begun(self, also: str) -> AsyncIterator[tuple[Connection, int]]:
        """The same with how many rows the last statement of `also`, a SELECT, has found."""
        begin = f"{self._begin_write}; {also}"
        async with self._acquired() as db, self._transaction(db, begin) as status:
            yield db, rows_of(status)

    async def at_once(self, statements: str) -> None:
        """A whole transaction as one message: nothing else that the client does lies between its statements.

        Raises:
            UndoneError: a division by zero or a violated constraint; nothing was written.
        """
        async with self._acquired() as db:
            try:
                async with self._transaction(db, f"{self._begin_write}; {committing(statements)}"):
                    pass
            except (asyncpg.DivisionByZeroError, asyncpg.IntegrityConstraintViolationError) as error:
                raise UndoneError from error

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Connection]:
        pool = self._pool
        if pool is None:
            raise StoreUnavailableError(f"The store {self.where} is closed; open it first (async with, or open())")
        async with self._translating(), pool.acquire(timeout=self._timeout_seconds + _PATIENCE_SECONDS) as db:
            yield db

    @asynccontextmanager
    async def _translating(self) -> AsyncIterator[None]:
        """Raise failures of the driver as the store errors that they mean."""
        try:
            yield
        except Exception as error:
            meaning = translated(error, self.where)
            if meaning is None:
                raise
            raise meaning from error

    @asynccontextmanager
    async def _transaction(self, db: Connection, begin: str) -> AsyncIterator[str]:
        """A transaction, with the status of its beginning. It may have sent its COMMIT with its last statement."""
        try:
            yield await db.execute(begin)
            if db.is_in_transaction():
                await db.execute("COMMIT")
        except BaseException as error:
            await _give_up(db, error)
            raise

    def _options(self) -> dict[str, Any]:
        return {
            "statement_cache_size": 0,
            "timeout": _CONNECT_SECONDS,
            "command_timeout": self._timeout_seconds + _PATIENCE_SECONDS,
            "server_settings": {"application_name": "noonbell"},
        }

    def _meaning(self, error: Exception) -> Exception:
        return translated(error, self.where) or error

    def _unreadable(self, error: ValueError) -> StoreError:
        # neither the text of the error nor its cause: they may quote the address, and with it the password
        del error
        return StoreUrlError(f"The address {self.where} cannot be understood", value=self.where)


class InTransaction:
    """Connections within one read transaction: every verb gets the connection of that one."""

    def __init__(self, db: Connection, where: str) -> None:
        self._db = db
        self.where = where

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        yield self._db

    def writing(self, also: str = "") -> NoReturn:
        del also
        refuse_writing()

    def begun(self, also: str) -> NoReturn:
        del also
        refuse_writing()

    async def at_once(self, statements: str) -> NoReturn:
        del statements
        refuse_writing()


async def _learn_types(db: Connection) -> None:
    """Let the driver ask about the one type that it does not know of itself, before the first verb.

    It turns a setting of the session off and on again round that question. In one transaction both reach the same
    server; inside a verb, which has made that setting itself, the second part would be left out. No statement may use
    arrays of other types than int8 and text.
    """
    async with db.transaction():
        await db.fetchval("SELECT $1::int8[]", [1])


async def _give_up(db: Connection, error: BaseException) -> None:
    """End a transaction that failed. A connection that may still be busy with it is cut: the server then rolls back."""
    try:
        if db.is_closed():
            return
    except asyncpg.InterfaceError:  # the pool has let go of it already; the first failure is the one to report
        return
    if isinstance(error, asyncio.CancelledError | TimeoutError | OSError | asyncpg.InterfaceError):
        db.terminate()
        return
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await db.execute("ROLLBACK")
    except Exception:  # noqa: BLE001 - the first failure is the one to report
        db.terminate()
    except BaseException:
        db.terminate()
        raise
