"""The numbered steps that make the tables, and bring older ones up to date.

All steps that are missing are applied in one transaction under a lock, so that instances that start together do not
get in each other's way: the second one waits and finds nothing to do. The lock ends with its transaction; nothing here
outlives one, so it also works behind a transaction pooler.

Engines of the version before go on during the steps and afterwards, so a step only adds: tables, indexes, columns that
may be NULL or have a constant default. It may need a table for itself, and the next transaction that needs that table
waits in line behind it, even where it still waits for a long read. So it waits briefly, lets the line go on, and tries
again. All tables that the missing steps change are locked before the first of them, in the order in which engines take
them: a step that has one and wants another, which an engine has that wants the first, would send engine after engine
away.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib.resources import files
from typing import Any, Final

import asyncpg

from noonbell.errors import StoreError, StoreUnavailableError
from noonbell.store.postgres.connection import Connection

logger = logging.getLogger("noonbell.store")

# The space of our advisory locks; the second number says what is locked.
LOCKS: Final = 1_313_820_750
MIGRATING: Final = 1
NUMBERING: Final = 2
PARTITIONING: Final = 3
EDITING: Final = 4
AUDITING: Final = 5
PRUNING: Final = 6

# So long a step waits for a table, in the first try and in the last ones. The first is shorter than what a server takes
# to look for a circle of locks (a second), so that an engine is rarely the one it sends away; the last is longer, since
# only then does an automatic vacuum make room.
_FIRST_WAIT_SECONDS: Final = 0.3
_LAST_WAIT_SECONDS: Final = 1.5
# A step may build an index over all there is; no statement of an engine takes that long.
_LONGEST_STEP_SECONDS: Final = 6 * 3600.0
# The order in which engines take tables; the others come after these.
_ENGINES_TAKE: Final = (
    "instances", "engines", "schedule_state", "lane_numbers", "runs_live", "schedule_definitions", "runs",
)  # fmt: skip
_ALTERED: Final = re.compile(r"\bALTER TABLE (\w+)")
_INDEXED: Final = re.compile(r"\bCREATE (?:UNIQUE )?INDEX \w+ ON (\w+)")
_IN_THE_WAY: Final = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)

_RECORD = """
    CREATE TABLE IF NOT EXISTS noonbell_migrations (
        version int4 PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
    )
"""

# Texts are stored as they come, in every language. SQL_ASCII keeps the bytes it is given, and those of the driver are
# UTF-8; every other encoding lacks characters, and one that it lacks would be refused in the middle of a batch.
_HOLDS_EVERY_TEXT: Final = ("UTF8", "SQL_ASCII")
# Tables are made in the schema that comes first on the search_path, and found in any that is on it.
_PLACE: Final = """
    SELECT current_setting('server_encoding'), current_schema()::text, (
        SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = to_regclass('noonbell_migrations')
    )
"""


@cache
def migrations() -> tuple[tuple[str, str], ...]:
    """Name and SQL of every step, in order."""
    steps = [step for step in files(__package__).joinpath("migrations").iterdir() if step.name.endswith(".sql")]
    return tuple((step.name, step.read_text(encoding="utf-8")) for step in sorted(steps, key=lambda step: step.name))


async def lock(db: Connection, what: int) -> None:
    """Wait for a lock that lasts as long as the transaction."""
    await db.execute(f"SELECT pg_advisory_xact_lock({LOCKS}, {what})")


async def is_here(db: Connection, table: str) -> bool:
    """Return whether the table exists where it would be made; another ledger on the search_path may also have one."""
    found = await db.fetchval("SELECT to_regclass(quote_ident(current_schema()) || '.' || $1::text)", table)
    return found is not None


async def bring_up_to_date(
    transaction: Callable[[], AbstractAsyncContextManager[Connection]], patience_seconds: float
) -> None:
    """Apply what is missing. Where others hold the tables, step aside and try again, for so long.

    Raises:
        StoreError: a newer Noonbell has changed the tables, or there cannot be a ledger here.
        StoreUnavailableError: others held them all the time; nothing has changed.
    """
    until = time.monotonic() + patience_seconds
    wait = _FIRST_WAIT_SECONDS
    while True:
        try:
            async with transaction() as db:
                await migrate(db, wait_seconds=wait)
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, _IN_THE_WAY):
                raise
            if time.monotonic() >= until:
                message = "it has to be brought up to date, and others have been using its tables"
                raise StoreUnavailableError(f"{error}; {message} for {patience_seconds:g} s") from error
            if wait == _FIRST_WAIT_SECONDS:
                logger.info("Others use the tables that have to be brought up to date; retrying: %s", error)
        else:
            return
        # those who stood behind us come first now
        await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - keeps two apart, and no secret
        wait = min(2 * wait, _LAST_WAIT_SECONDS)


async def migrate(db: Connection, upto: int | None = None, *, wait_seconds: float = 0) -> None:
    """Apply what is missing, in the caller's transaction; wait for each table so long, or as long as it takes (0)."""
    steps = migrations()
    await _require_place(db)
    done = await _known_version(db)
    if done == len(steps):
        return
    await lock(db, MIGRATING)
    # made only under the lock: IF NOT EXISTS does not keep two sessions from making one table at the same moment
    await db.execute(_RECORD)
    done = await _known_version(db)
    await db.execute(f"SET LOCAL lock_timeout = {round(wait_seconds * 1000)}; SET LOCAL statement_timeout = 0")
    for locking in _locks(" ".join(sql for _, sql in steps[done:upto])):
        await db.execute(locking)
    for number, (name, sql) in enumerate(steps[done:upto], start=done + 1):
        await db.execute(sql, timeout=_LONGEST_STEP_SECONDS)
        await db.execute("INSERT INTO noonbell_migrations (version, name) VALUES ($1, $2)", number, name)


def _locks(sql: str) -> Iterator[str]:
    """Statements that lock what is there of the tables that are changed by `sql`."""
    altered, indexed = set(_ALTERED.findall(sql)), set(_INDEXED.findall(sql))
    place = {name: number for number, name in enumerate(_ENGINES_TAKE)}
    for table in sorted(altered | indexed, key=lambda name: (place.get(name, len(place)), name)):
        mode = "ACCESS EXCLUSIVE" if table in altered else "SHARE"
        yield (
            f"DO $$ BEGIN IF to_regclass(quote_ident(current_schema()) || '.{table}') IS NOT NULL "
            f"THEN LOCK TABLE {table} IN {mode} MODE; END IF; END $$"
        )


async def _require_place(db: Connection) -> None:
    """Refuse a database that cannot hold every text, and a ledger in another schema than its tables are made in."""
    ((encoding, first, found),) = await db.fetch(_PLACE)
    if encoding not in _HOLDS_EVERY_TEXT:
        raise StoreError(
            f"The database has the encoding {encoding}, which cannot hold every text; a ledger needs a database with "
            "UTF8: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )
    if found not in (None, first):
        raise StoreError(
            f'The search_path leads to the ledger in schema "{found}", and "{first}" comes first on it, where tables '
            f'are made; put "{found}" first to use that ledger, or leave it out to make another in "{first}"'
        )


async def version(db: Connection) -> int:
    """Return the number of steps that this database has seen."""
    if await db.fetchval("SELECT to_regclass('noonbell_migrations')") is None:
        return 0
    found: Any = await db.fetchval("SELECT coalesce(max(version), 0) FROM noonbell_migrations")
    return int(found)


async def require_current(db: Connection) -> None:
    """Refuse tables that this Noonbell would have to change first."""
    done, known = await _known_version(db), len(migrations())
    if done < known:
        raise StoreError(
            f"The database is of version {done}, and this Noonbell reads version {known}; whatever writes to it brings "
            "it up to date"
        )


async def _known_version(db: Connection) -> int:
    """Return how many steps this database has seen; refuse one of a development version or of a newer one."""
    done, steps = await version(db), migrations()
    if done:
        first = await db.fetchval("SELECT name FROM noonbell_migrations WHERE version = 1")
        if first != steps[0][0]:
            raise StoreError(
                f'The database has the tables of a development version of Noonbell (its first step is "{first}", not '
                f'"{steps[0][0]}"), which this version cannot read; use a new database or schema'
            )
    if done > len(steps):
        raise StoreError(
            f"The database is of version {done}; this Noonbell knows up to {len(steps)}: a newer one has changed it"
        )
    return done
