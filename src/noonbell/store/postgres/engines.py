"""Engines on PostgreSQL: the members of each lane, those that are alive, and the runs of dead ones.

An engine is alive while its lease lasts, by the clock of the database (see `leases`). If that clock is set back, the
lease of a dead one seems to last for as much longer; but the clock has not come to its last heartbeat then, and
a living engine sends another soon (`set_back`).

A rescue takes away the leases that have run out, and with them the right to write. Every verb of their holders shares a
lock on its lease; where one is under way, or the lease is being renewed at that moment, it is left alone. What is then
owned by an engine without a lease is an orphan. So no engine writes as the owner of a run that was given to another,
and no run of a living engine is touched.

Locks are taken in the order of all verbs (`claim_schedules`), and those of leases before them. Statements name
`instances` before `engines`, and both before the others: tables are locked in the order of the text, and a newer
version that changes several of them takes them in this order too (`schema`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from noonbell.core.presence import (
    ENGINE,
    GRACE_US,
    EngineRecord,
    EngineSign,
    Gap,
    Polls,
    engine_name,
    lane_name,
    read_gaps,
)
from noonbell.core.records import AT_ONCE, LifecycleEvent
from noonbell.ports import MakeNotices, Members, Rescue
from noonbell.store.postgres import claim_schedules, declaring, hints, outbox
from noonbell.store.postgres.clock_regression import ClockRegressionWatch
from noonbell.store.postgres.connection import Connection, storable
from noonbell.store.postgres.session import Part

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

# Spaces of advisory locks; the second number is the lane.
_JOINING: Final = 1_313_820_751
_RESCUING: Final = 1_313_820_752

_COLUMNS: Final = "instance, lane, host, pid, version, zone_data, joined_at, up_since, state, last_poll_at, load"
_FIELDS: Final = (*_COLUMNS.split(", "), "seen_ago_us")
_OF: Final = ", ".join(f"e.{name}" for name in _COLUMNS.split(", "))
_LEASE: Final = f"i.name = '{ENGINE}' || e.instance"
_LASTS: Final = "i.expires_at > clock_timestamp()"
# As numbers they can be bound in an array (see `connection`).
_MICROSECONDS: Final = "(extract(epoch FROM {at}) * 1000000)::int8"
_ENDS: Final = _MICROSECONDS.format(at="i.expires_at")

_UP: Final = f"""
    SELECT e.lane, min(e.up_since) FROM instances i JOIN engines e ON {_LEASE}
    WHERE {_LASTS} AND e.state <> 'starting' AND ($1::text IS NULL OR e.lane = $1) GROUP BY e.lane
"""
# After a restart of the server every holder has the time of a lease to renew its own. A start that is still to come
# says nothing: the clock was set back. Without that time (NULL) no lease has run out.
_TRUSTED: Final = """
    {seconds}::float8 IS NOT NULL AND pg_postmaster_start_time()
    NOT BETWEEN clock_timestamp() - make_interval(secs => {seconds}) AND clock_timestamp()
"""
# Those whose heartbeat is still to come are distinguished from those whose lease is gone or has run out.
_MEMBERS: Final = f"""
    SELECT {_OF}, greatest(extract(epoch FROM clock_timestamp() - e.seen_at) * 1000000, 0)::int8,
        coalesce({_LASTS}, false), {_MICROSECONDS.format(at="e.seen_at")}, {_ENDS},
        i.name IS NULL OR {_TRUSTED.format(seconds="$2")} AND (
            NOT {_LASTS} OR e.seen_at > clock_timestamp() + interval '1 second'
        )
    FROM instances i RIGHT JOIN engines e ON {_LEASE}
    WHERE $1::text IS NULL OR e.lane = $1 ORDER BY e.lane, e.joined_at, e.instance
"""
# Leases that have run out: of engines of the lane, of one that never came to join, and of the lane itself, which
# older versions held. It does not wait: a lease whose holder stands still in the middle of a transaction is left to a
# later look, when the server has ended that; to wait for it would keep this engine from its own work.
_TAKE_LEASES: Final = f"""
    DELETE FROM instances WHERE name IN (
        SELECT i.name FROM instances i
        WHERE (i.expires_at <= clock_timestamp() OR EXISTS (
            SELECT 1 FROM unnest($5::text[], $6::int8[]) AS b (instance, ends)
            WHERE i.name = '{ENGINE}' || b.instance AND {_ENDS} = b.ends
        )) AND i.name <> '{ENGINE}' || $4 AND {_TRUSTED.format(seconds="$3")} AND (
            i.name = $2
            OR (starts_with(i.name, '{ENGINE}') AND (
                EXISTS (SELECT 1 FROM engines e WHERE {_LEASE} AND e.lane = $1)
                OR i.expires_at <= clock_timestamp() - interval '1 hour'
            ))
        ) FOR UPDATE SKIP LOCKED
    )
"""
_FORGET: Final = f"""
    DELETE FROM engines e WHERE e.lane = $1 AND NOT EXISTS (SELECT 1 FROM instances i WHERE {_LEASE})
    RETURNING e.instance
"""


async def join(db: Connection, engine: EngineRecord) -> int:
    # two that start together: the second one sees the first, or the other way round
    await db.execute(f"SELECT pg_advisory_xact_lock({_JOINING}, hashtext($1))", engine.lane)
    up_since = (await lanes_up(db, engine.lane)).get(engine.lane, engine.up_since)
    await db.execute(
        f"INSERT INTO engines ({_COLUMNS}, seen_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, NULL, "
        "$10, clock_timestamp()) ON CONFLICT (instance) DO UPDATE SET lane = excluded.lane, host = excluded.host, "
        "pid = excluded.pid, version = excluded.version, zone_data = excluded.zone_data, "
        "joined_at = excluded.joined_at, up_since = excluded.up_since, state = excluded.state, "
        "last_poll_at = NULL, load = excluded.load, seen_at = excluded.seen_at",
        engine.instance, engine.lane, storable(engine.host), engine.pid, engine.version, engine.zone_data,
        engine.joined_at, up_since, engine.state, _load(engine.load),
    )  # fmt: skip
    return up_since


async def beat(db: Connection, sign: EngineSign, now: Callable[[], int]) -> None:
    lane = await db.fetchval(
        "UPDATE engines SET seen_at = clock_timestamp(), up_since = $2, state = $3, zone_data = $4, load = $5, "
        "last_poll_at = $6 WHERE instance = $1 RETURNING lane",
        sign.instance, sign.up_since, sign.state, sign.zone_data, _load(sign.load), sign.last_poll_at,
    )  # fmt: skip
    if lane is None:
        return
    if sign.last_poll_at is not None:
        polls = await _locked(db, lane)
        await _put_polls(db, lane, polls.polled(sign.last_poll_at, sign.grace_us, now()))
    if sign.event is not None:
        await declaring.record(db, [sign.event])


async def polls(db: Connection) -> dict[str, Polls]:
    rows = await db.fetch("SELECT lane, last_poll_at, grace_us, gaps FROM lanes")
    return {row[0]: Polls(row[1], row[2], read_gaps(row[3])) for row in rows}


async def record_gaps(db: Connection, lane: str, gaps: Sequence[Gap], now: Callable[[], int]) -> Polls:
    polls = await _locked(db, lane)
    return await _put_polls(db, lane, polls.ended(gaps, now()))


async def _locked(db: Connection, lane: str) -> Polls:
    """The polls of a lane; others that record some wait until the transaction has ended."""
    await db.execute("INSERT INTO lanes VALUES ($1, 0, $2, '[]') ON CONFLICT (lane) DO NOTHING", lane, GRACE_US)
    row = await db.fetchrow("SELECT last_poll_at, grace_us, gaps FROM lanes WHERE lane = $1 FOR UPDATE", lane)
    return Polls() if row is None else Polls(row[0], row[1], read_gaps(row[2]))


async def _put_polls(db: Connection, lane: str, found: Polls) -> Polls:
    await db.execute(
        "UPDATE lanes SET last_poll_at = $2, grace_us = $3, gaps = $4 WHERE lane = $1", lane, found.last_poll_at,
        found.grace_us, _encode(found.gaps).decode(),
    )  # fmt: skip
    return found


async def leave(db: Connection, instance: str, event: LifecycleEvent | None) -> None:
    left = await db.fetchval("DELETE FROM engines WHERE instance = $1 RETURNING instance", instance)
    if event is not None and left is not None:
        await declaring.record(db, [event])


async def members(db: Connection, lane: str | None, patience: float | None, set_back: ClockRegressionWatch) -> Members:
    """Return the members; the dead are found as by `rescue`, and doubtful ones are neither alive nor dead, or still
    alive.
    """
    rows = [tuple(row) for row in await db.fetch(_MEMBERS, lane, patience)]
    described = ((*row[:10], _decode(row[10]), row[11]) for row in rows if row[12])
    alive = [EngineRecord(**dict(zip(_FIELDS, fields, strict=True))) for fields in described]
    dead = [row[0] for row in rows if row[15] and not row[12]]
    now = time.monotonic()
    for one in {row[1] for row in rows} if lane is None else {lane}:
        ahead = [(row[0], row[13], row[14]) for row in rows if row[1] == one and row[12] and row[15]]
        set_back.note(one, ahead, now)
        dead += set_back.dead(one, now, patience) if patience is not None else {}
    return Members(alive, sorted(dead))


async def lanes_up(db: Connection, lane: str | None = None) -> dict[str, int]:
    return {row[0]: row[1] for row in await db.fetch(_UP, lane)}


async def rescue(
    db: Connection,
    lane: str,
    owner: str,
    at: int,
    make_notices: MakeNotices | None,
    *,
    patience: float | None,
    set_back: ClockRegressionWatch,
) -> Rescue:
    """Leases count as run out where the server has been up for longer than `patience`; without any, none does."""
    if not await db.fetchval(f"SELECT pg_try_advisory_xact_lock({_RESCUING}, hashtext($1))", lane):
        return Rescue(0, [])  # another engine is at it at this moment
    if patience is not None:
        stuck = set_back.dead(lane, time.monotonic(), patience)
        await db.execute(_TAKE_LEASES, lane, lane_name(lane), patience, owner, list(stuck), list(stuck.values()))
    gone = sorted(row[0] for row in await db.fetch(_FORGET, lane))
    crashes = await _crashes(db, lane, gone, owner, at)
    queued, left = await claim_schedules.take_over(db, lane, at, make_notices, events=crashes)
    await hints.give(db, {lane: AT_ONCE} if queued else {})
    return Rescue(queued, gone, left)


async def hand_over(db: Connection, lane: str, owner: str, at: int, make_notices: MakeNotices | None) -> Rescue:
    """Free the runs and streams of an engine that has stopped; what is left are streams that others had locked."""
    queued, left = await claim_schedules.take_over(db, lane, at, make_notices, stopped=owner)
    await hints.give(db, {lane: AT_ONCE} if queued else {})
    return Rescue(queued, [], left)


async def _crashes(db: Connection, lane: str, gone: Sequence[str], owner: str, at: int) -> list[LifecycleEvent]:
    """Return the crashes of engines that left no end: dead members, and one from before engines were members."""
    name = lane_name(lane)
    before = await db.fetchval(
        "SELECT l.instance FROM (SELECT instance FROM lifecycle WHERE managed_by = $1 ORDER BY managed_by DESC, "
        f"id DESC LIMIT 1) l WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE i.name = '{ENGINE}' || l.instance)",
        name,
    )
    silent = sorted({*gone} | ({before} if before is not None else set()))
    rows = await db.fetch(
        "SELECT b.instance, (SELECT l.event FROM lifecycle l WHERE l.managed_by = $1 AND l.instance = b.instance "
        "ORDER BY l.id DESC LIMIT 1) FROM unnest($2::text[]) AS b (instance)",
        name, silent,
    )  # fmt: skip
    cut = sorted(row[0] for row in rows if row[1] in ("init-ok", "stop-start"))
    return [LifecycleEvent(name, at, one, "crash", f"found by {owner}") for one in cut]


def _load(load: dict[str, Any]) -> str:
    return storable(_encode(load).decode()) or ""


class PostgresEngines(Part):
    """The engines of all lanes."""

    async def join(self, engine: EngineRecord) -> int:
        async with self._connections.writing() as db:
            await self._session.still_held(db, engine_name(engine.instance))
            return await join(db, engine)

    async def beat(self, sign: EngineSign, now: Callable[[], int]) -> None:
        async with self._connections.writing() as db:
            await self._session.still_held(db, engine_name(sign.instance))
            await beat(db, sign, now)

    async def leave(self, instance: str, event: LifecycleEvent | None = None) -> None:
        async with self._connections.writing() as db:
            await self._session.still_held(db, engine_name(instance))
            await leave(db, instance, event)

    async def members(self, now: int, lane: str | None = None) -> Members:
        del now  # the clock of the database, which they share, says when they were seen
        async with self._connections.reading() as db:
            return await members(db, lane, self._session.patience(), self._session.set_back)

    async def polls(self) -> dict[str, Polls]:
        async with self._connections.reading() as db:
            return await polls(db)

    async def record_gaps(self, lane: str, instance: str, gaps: Sequence[Gap], now: Callable[[], int]) -> Polls:
        async with self._connections.writing() as db:
            await self._session.still_held(db, engine_name(instance))
            return await record_gaps(db, lane, gaps, now)

    async def rescue(
        self, lane: str, owner: str, at: int, make_notices: MakeNotices | None = None, *, stopped: bool = False
    ) -> Rescue:
        session = self._session
        async with self._connections.writing() as db:
            await session.still_held(db, engine_name(owner))
            if not stopped:
                return await rescue(
                    db, lane, owner, at, make_notices, patience=session.patience(), set_back=session.set_back
                )
            handed = await hand_over(db, lane, owner, at, make_notices)
        if handed.left:  # in a transaction that holds nothing else, and so may wait
            async with self._connections.writing() as db:
                await session.still_held(db, engine_name(owner))
                await outbox.free(db, lane, owner, wait=True)
        return handed._replace(left=0)
