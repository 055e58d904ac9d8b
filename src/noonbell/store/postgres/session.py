"""The base of the parts of a ledger on PostgreSQL.

Verbs of an engine make sure that its name is still held, where this store holds it, before they take any other lock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from noonbell.store.definitions import DefinitionCache
from noonbell.store.postgres.claiming import accounting_lock
from noonbell.store.postgres.clock_regression import ClockRegressionWatch
from noonbell.store.postgres.connection import Connection, InTransaction, Transactions
from noonbell.store.postgres.held_names import HeldNames
from noonbell.store.postgres.leases import all_held_sql, held_sql, still_held
from noonbell.store.postgres.numbers import Owners
from noonbell.store.postgres.partitions import Days


class Session:
    """Transactions, the names that are held, and what is known of days, owners, definitions and the clock."""

    def __init__(self, connections: Transactions, held: HeldNames, set_back: ClockRegressionWatch) -> None:
        self.connections = connections
        self.held = held
        self.set_back = set_back
        self.days = Days(connections)
        self.owners = Owners(connections)
        self.definitions = DefinitionCache()
        self.backlogged: set[str] = set()  # lanes whose last claim has left more that is due

    def within(self, db: Connection) -> Session:
        """Return a session whose verbs all work in the open transaction of `db`, which reads only."""
        return Session(InTransaction(db, self.connections.where), self.held, self.set_back)

    async def read(self, sql: str, *bindings: Any) -> list[Any]:
        async with self.connections.reading() as db:
            return list(await db.fetch(sql, *bindings))

    async def still_held(self, db: Connection, *names: str) -> None:
        await still_held(db, self.held.covered(*names))

    @asynccontextmanager
    async def writing_for(self, *names: str, also: str = "") -> AsyncIterator[Connection]:
        """A transaction in which these names, where this store holds them, are still held."""
        covered = self.held.covered(*names)
        async with self.connections.begun(f"{also}; {held_sql(covered)}") as (db, found):
            await still_held(db, covered, found)
            yield db

    async def at_once(self, statement: str) -> None:
        """A transaction of one statement, in which all names that this store holds are still held.

        Raises:
            UndoneError: one of them is not, or the statement fails as `Connections.at_once` says.
        """
        covered = self.held.covered(*self.held.leases)
        first = f"{all_held_sql(covered)}; " if covered.leases else ""
        await self.connections.at_once(f"{first}{statement}")

    def claiming(self, owner: str, *names: str) -> AbstractAsyncContextManager[Connection]:
        """A transaction that the accounting of an owner waits for; `names` as for `writing_for`."""
        return self.writing_for(*names, also=f"SELECT pg_advisory_xact_lock_shared({accounting_lock(owner)})")

    def accounting(self, owner: str) -> AbstractAsyncContextManager[Connection]:
        return self.connections.writing(f"SELECT pg_advisory_xact_lock({accounting_lock(owner)})")

    def patience(self) -> float | None:
        """Return for how long the server must have been up to decide which engines are dead; None if that is unknown
        now.
        """
        return None if self.held.in_doubt else self.held.lease_ttl


class Part:
    """A part of the ledger: each of its verbs is one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._connections = session.connections
