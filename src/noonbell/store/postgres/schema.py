"""The numbered steps that make the tables, and bring older ones up to date.

All steps that are missing are applied in one transaction under a lock, so that instances that start together do not
get in each other's way: the second one waits and finds nothing to do. The lock ends with its transaction; nothing here
outlives one, so it works behind a transaction pooler too.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

from noonbell.errors import StoreError
from noonbell.store.postgres.connection import Connection

# The space of our advisory locks; the second number says what is locked.
LOCKS: Final = 1_313_820_750
MIGRATING: Final = 1
NUMBERING: Final = 2
PARTITIONING: Final = 3
EDITING: Final = 4
AUDITING: Final = 5
PRUNING: Final = 6

_RECORD = """
    CREATE TABLE IF NOT EXISTS noonbell_migrations (
        version int4 PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
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


async def migrate(db: Connection, upto: int | None = None) -> None:
    """Apply what is missing, in the caller's transaction."""
    steps = migrations()
    if await version(db) == len(steps):
        return
    await lock(db, MIGRATING)
    # made only under the lock: IF NOT EXISTS does not keep two sessions from making one table at the same moment
    await db.execute(_RECORD)
    done = await version(db)
    if done > len(steps):
        raise StoreError(f"The database is of version {done}; this Noonbell knows up to {len(steps)}")
    for number, (name, sql) in enumerate(steps[done:upto], start=done + 1):
        await db.execute(sql)
        await db.execute("INSERT INTO noonbell_migrations (version, name) VALUES ($1, $2)", number, name)


async def version(db: Connection) -> int:
    """How many steps this database has seen."""
    if await db.fetchval("SELECT to_regclass('noonbell_migrations')") is None:
        return 0
    found: Any = await db.fetchval("SELECT coalesce(max(version), 0) FROM noonbell_migrations")
    return int(found)


async def require_current(db: Connection) -> None:
    """Refuse tables that this Noonbell would have to change first."""
    done, known = await version(db), len(migrations())
    if done > known:
        raise StoreError(f"The database is of version {done}; this Noonbell knows up to {known}")
    if done < known:
        raise StoreError(
            f"The database is of version {done}, and this Noonbell reads version {known}; whatever writes to it brings "
            "it up to date"
        )
