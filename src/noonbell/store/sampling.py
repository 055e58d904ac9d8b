"""A sample of all schedules, for pages that describe the whole, with one small class per store.

No more schedules are read than were asked for. Which ones are taken is the same for the same store: blocks of
neighbours that begin at places chosen by a generator with a fixed seed, so that a pattern in the order of their
creation does not distort the sample.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from noonbell.core.presence import LANE
from noonbell.ports import Sample

BLOCK: Final = 20
# the plus sign keeps the index of wake-ups out of it: it is gone through in the order of sids
_ENABLED: Final = f"enabled = 1 AND +lane_no IN (SELECT no FROM lane_numbers WHERE name LIKE '{LANE}%')"
_COUNT_SQL: Final = f"SELECT count(*), min(sid), max(sid) FROM schedule_state WHERE {_ENABLED}"


def _starts(size: int, low: int, high: int) -> list[int]:
    # evenly spread, and each at a place of its own within its part
    chance = Random(size)  # noqa: S311 - it need not be unguessable
    parts = max(1, size // BLOCK)
    width = (high - low + 1) / parts
    return [low + int((part + chance.random()) * width) for part in range(parts)]


class SamplingOnSqlite:
    _connection: Any

    async def sample(self, size: int) -> Sample:
        from noonbell.store.sqlite import stored  # noqa: PLC0415 - apsw, where this store is used

        def look(db: Any) -> Sample:
            ((total, low, high),) = db.execute(_COUNT_SQL)
            if total == 0:
                return Sample([], 0)
            sql = f"SELECT sid FROM schedule_state WHERE sid >= ? AND {_ENABLED} ORDER BY sid LIMIT ?"
            places, block = ([low], size) if total <= size else (_starts(size, low, high), BLOCK)
            sids = sorted({row[0] for place in places for row in db.execute(sql, (place, block))})
            return Sample(stored.by_sids(db, sids), total)

        found: Sample = await self._connection.run(look, write=False)
        return found


class SamplingOnPostgres:
    _connections: Any

    async def sample(self, size: int) -> Sample:
        from noonbell.store.postgres import stored  # noqa: PLC0415 - asyncpg, where this store is used

        async with self._connections.reading() as db:
            total, low, high = await db.fetchrow(_COUNT_SQL)
            if total == 0:
                return Sample([], 0)
            places, block = ([low], size) if total <= size else (_starts(size, low, high), BLOCK)
            sql = (
                "SELECT DISTINCT near.sid FROM unnest($1::int8[]) AS place (at), LATERAL ("
                f"SELECT sid FROM schedule_state WHERE sid >= place.at AND {_ENABLED} ORDER BY sid LIMIT $2"
                ") AS near ORDER BY 1"
            )
            sids = [row[0] for row in await db.fetch(sql, places, block)]
            return Sample(await stored.by_sids(db, sids), total)
