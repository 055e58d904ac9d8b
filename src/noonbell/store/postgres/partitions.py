"""The days of `runs`.

Each day (UTC, by `run_for`) is a partition of its own, so that pruning drops a table instead of deleting rows. Days are
made ahead of time, when ends of attempts are written: the day of the latest end and the two after it. A run whose day
has no partition goes to the default one; when its day is made later, such runs move there.

Making a day takes an exclusive lock on the (mostly empty) default partition for a moment. Where that lock is not to be
had shortly it is given up and tried again later; nothing depends on it.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from noonbell.errors import StoreError
from noonbell.store.postgres.connection import Connection, Transactions
from noonbell.store.postgres.schema import PARTITIONING, is_here, lock

logger = logging.getLogger("noonbell.store")

DAY_US: Final = 86_400_000_000
AHEAD: Final = 2
_TRY_AGAIN_AFTER: Final = 1000  # batches
_LAST_DAY: Final = (datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days


class Days:
    """The days that are known to have their partition."""

    def __init__(self, connections: Transactions) -> None:
        self._connections = connections
        self._made: set[int] = set()
        self._pause = 0

    async def prepare(self, latest: int) -> None:
        """Make the day of this instant and the next ones, if they are not there; never fails."""
        first = latest // DAY_US
        wanted = [day for day in range(first, first + AHEAD + 1) if day not in self._made and 0 <= day < _LAST_DAY]
        if not wanted:
            return
        if self._pause:
            self._pause -= 1
            return
        try:
            async with self._connections.writing("SET LOCAL lock_timeout = 2000") as db:
                await lock(db, PARTITIONING)
                for day in wanted:
                    await _make(db, day)
        except StoreError as error:
            self._pause = _TRY_AGAIN_AFTER
            logger.warning("The partitions of the coming days could not be made, runs go to the default one: %s", error)
        else:
            self._made.update(wanted)


def name_of(day: int) -> str:
    """The partition of a day, counted from 1970."""
    return f"runs_{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day):%Y%m%d}"


async def _make(db: Connection, day: int) -> None:
    table, low, high = name_of(day), day * DAY_US, (day + 1) * DAY_US
    if await is_here(db, table):
        return
    # Made apart and attached: unlike CREATE ... PARTITION OF, that leaves `runs` itself usable in the meantime.
    await db.execute(
        "LOCK TABLE runs_default IN ACCESS EXCLUSIVE MODE; "
        f"CREATE TABLE {table} (LIKE runs INCLUDING ALL); "
        f"WITH moved AS (DELETE FROM runs_default WHERE run_for >= {low} AND run_for < {high} RETURNING *) "
        f"INSERT INTO {table} SELECT * FROM moved; "
        f"ALTER TABLE runs ATTACH PARTITION {table} FOR VALUES FROM ({low}) TO ({high})"
    )
