"""Looks at a whole store for pages that people read: the newest audit events, and a sample of all schedules.

Each has a bound, whatever there is: events come in pages from the newest to the oldest, and of schedules no more are
read than were asked for. Which ones are taken is the same for the same store: blocks of neighbours that begin at places
chosen by a generator with a fixed seed, so that no rhythm in the order of their creation is taken for the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple, Protocol, cast

from noonbell.core.presence import LANE
from noonbell.core.records import DEFAULT_TEAM, AuditEvent, StoredSchedule
from noonbell.ports import AuditFilter
from noonbell.store.coming import ComingStore
from noonbell.store.memory_tables import MemoryData

BLOCK: Final = 20
# the plus sign keeps the index of wake-ups out of it: it is gone through in the order of sids
_ENABLED: Final = f"enabled = 1 AND +lane_no IN (SELECT no FROM lane_numbers WHERE name LIKE '{LANE}%')"
_COUNT_SQL: Final = f"SELECT count(*), min(sid), max(sid) FROM schedule_state WHERE {_ENABLED}"
_AUDIT_SQL: Final = "SELECT id, at, event, subject, actor, detail, team FROM audit_events WHERE {} ORDER BY id DESC"
_CONDITIONS: Final = (
    ("id <", "before"), ("subject =", "subject"), ("event =", "event"), ("actor =", "actor"), ("at >=", "from_at"),
    ("at <=", "to_at"), ("team =", "team"),
)  # fmt: skip


class Sample(NamedTuple):
    """Enabled durable schedules of all teams, and how many there are altogether."""

    schedules: list[StoredSchedule]
    total: int

    @property
    def whole(self) -> bool:
        return len(self.schedules) == self.total


class SurveyStore(Protocol):
    async def newest_audit(
        self, wanted: AuditFilter, before_id: int | None, limit: int
    ) -> list[tuple[int, AuditEvent]]:
        """Audit events with their numbers, newest first, those before `before_id`."""
        ...

    async def sample_schedules(self, size: int) -> Sample:
        """All that are enabled where they are no more than `size`; else about so many of them."""
        ...


def _starts(size: int, low: int, high: int) -> list[int]:
    # evenly spread, and each at a place of its own within its part
    chance = Random(size)  # noqa: S311 - nothing depends on nobody guessing it
    parts = max(1, size // BLOCK)
    width = (high - low + 1) / parts
    return [low + int((part + chance.random()) * width) for part in range(parts)]


def _audit_query(wanted: AuditFilter, before_id: int | None, sign: str) -> tuple[str, list[int | str]]:
    """The statement but its limit, with its values; `sign` is how the backend writes the n-th parameter."""
    values = {**wanted._asdict(), "before": before_id}
    given = [(condition, values[name]) for condition, name in _CONDITIONS if values[name] is not None]
    parts = [f"{condition} {sign}{place}" for place, (condition, _) in enumerate(given, 2)] or ["id > 0"]
    if wanted.team not in (None, DEFAULT_TEAM):
        parts.append(f"team <> '{DEFAULT_TEAM}'")  # says nothing new, but is what their index asks for
    return _AUDIT_SQL.format(" AND ".join(parts)), [value for _, value in given]


class SurveyInMemory:
    _tables: Callable[[], MemoryData]
    _stored: Callable[[int], StoredSchedule]

    async def newest_audit(
        self, wanted: AuditFilter, before_id: int | None, limit: int
    ) -> list[tuple[int, AuditEvent]]:
        found = [
            (number, event)
            for number, event in self._tables().audits.items()
            if (before_id is None or number < before_id)
            and wanted.subject in (None, event.subject)
            and wanted.event in (None, event.event)
            and wanted.actor in (None, event.actor)
            and wanted.team in (None, event.team)
            and (wanted.from_at is None or event.at >= wanted.from_at)
            and (wanted.to_at is None or event.at <= wanted.to_at)
        ]
        return sorted(found, key=lambda one: -one[0])[:limit]

    async def sample_schedules(self, size: int) -> Sample:
        data = self._tables()
        sids = sorted(sid for sid in data.durable if data.schedules[sid]["enabled"])
        taken = sids if len(sids) <= size else sorted(Random(size).sample(sids, size))  # noqa: S311 - as above
        return Sample([self._stored(sid) for sid in taken], len(sids))


class SurveyOnSqlite:
    _connection: Any

    async def newest_audit(
        self, wanted: AuditFilter, before_id: int | None, limit: int
    ) -> list[tuple[int, AuditEvent]]:
        sql, values = _audit_query(wanted, before_id, "?")

        def look(db: Any) -> list[tuple[int, AuditEvent]]:
            return [(row[0], AuditEvent(*row[1:])) for row in db.execute(f"{sql} LIMIT ?1", (limit, *values))]

        found: list[tuple[int, AuditEvent]] = await self._connection.run(look, write=False)
        return found

    async def sample_schedules(self, size: int) -> Sample:
        def look(db: Any) -> tuple[list[int], int]:
            ((total, low, high),) = db.execute(_COUNT_SQL)
            if total == 0:
                return [], 0
            sql = f"SELECT sid FROM schedule_state WHERE sid >= ? AND {_ENABLED} ORDER BY sid LIMIT ?"
            places, block = ([low], size) if total <= size else (_starts(size, low, high), BLOCK)
            return sorted({row[0] for place in places for row in db.execute(sql, (place, block))}), total

        sids, total = await self._connection.run(look, write=False)
        return Sample(await cast("ComingStore", self).schedules_by_number(sids), total)


class SurveyOnPostgres:
    _connections: Any

    async def newest_audit(
        self, wanted: AuditFilter, before_id: int | None, limit: int
    ) -> list[tuple[int, AuditEvent]]:
        sql, values = _audit_query(wanted, before_id, "$")
        async with self._connections.reading() as db:
            return [(row[0], AuditEvent(*row[1:])) for row in await db.fetch(f"{sql} LIMIT $1", limit, *values)]

    async def sample_schedules(self, size: int) -> Sample:
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
        return Sample(await cast("ComingStore", self).schedules_by_number(sids), total)
