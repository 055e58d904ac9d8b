"""Engines on SQLite: the members of each lane, and the runs of dead ones.

Whether one is alive is not in the file: it is the lock on its name (see `hold`). So a dead engine is known at once, and
one that is alive is never taken for dead, however long it stands still. A search for dead engines holds the write lock
of the file: no engine joins or claims in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.presence import EngineRecord, EngineSign, Gap, Polls, engine_name, lane_name, lanes_up, read_gaps
from noonbell.core.records import LifecycleEvent
from noonbell.ports import MakeNotices, Members, Rescue
from noonbell.store.sqlite import claim_schedules, declaring
from noonbell.store.sqlite.connection import Connection, InTransaction
from noonbell.store.sqlite.hold import forget, holder_of
from noonbell.store.sqlite.part import Part
from noonbell.store.sqlite.tables import LANE_NO

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_COLUMNS: Final = "instance, lane, host, pid, version, zone_data, joined_at, up_since, state, last_poll_at, load"
_POLLS: Final = "SELECT lane, last_poll_at, grace_us, gaps FROM lanes WHERE ?1 IS NULL OR lane = ?1"
_FIELDS: Final = (*_COLUMNS.split(", "), "seen_ago_us")
_OWNERS: Final = f"""
    SELECT coalesce(l.owner, '') FROM runs_live l JOIN schedule_state s ON s.sid = l.sid
    WHERE s.lane_no = {LANE_NO.format(lane="?1")} AND l.state = 'running'
    UNION SELECT o.instance FROM owners o WHERE o.no IN (
        SELECT slot_owner FROM schedule_state WHERE slot_for IS NOT NULL AND lane_no = {LANE_NO.format(lane="?1")}
    )
    UNION SELECT owner FROM outbox_streams WHERE lane = ?2 AND owner IS NOT NULL
"""
_LAST_EVENT: Final = "SELECT event FROM lifecycle WHERE managed_by = ? AND instance = ? ORDER BY id DESC LIMIT 1"


class SqliteEngines(Part):
    """The engines of a file. Each verb is one transaction."""

    def __init__(self, connection: Connection | InTransaction, path: Path) -> None:
        super().__init__(connection)
        self._path = path

    async def join(self, engine: EngineRecord) -> int:
        return await self._connection.run(lambda db: self._join(db, engine))

    def _join(self, db: apsw.Connection, engine: EngineRecord) -> int:
        beside = [one for one in _joined(db, engine.joined_at, engine.lane) if self._lives(one.instance)]
        up_since = lanes_up(beside).get(engine.lane, engine.up_since)
        db.execute(
            f"INSERT OR REPLACE INTO engines ({_COLUMNS}, seen_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                engine.instance, engine.lane, engine.host, engine.pid, engine.version, engine.zone_data,
                engine.joined_at, up_since, engine.state, None, _encode(engine.load).decode(), engine.joined_at,
            ),
        )  # fmt: skip
        return up_since

    async def beat(self, sign: EngineSign, now: Callable[[], int]) -> None:
        await self._connection.run(lambda db: _beat(db, sign, now))

    async def leave(self, instance: str, event: LifecycleEvent | None = None) -> None:
        await self._connection.run(lambda db: _leave(db, instance, event))

    async def members(self, now: int, lane: str | None = None) -> Members:
        joined = await self._connection.run(lambda db: _joined(db, now, lane), write=False)
        alive = [one for one in joined if self._lives(one.instance)]
        names = {one.instance for one in alive}
        return Members(alive, sorted(one.instance for one in joined if one.instance not in names))

    async def polls(self) -> dict[str, Polls]:
        return await self._connection.run(_polls, write=False)

    async def record_gaps(self, lane: str, instance: str, gaps: Sequence[Gap], now: Callable[[], int]) -> Polls:
        del instance
        return await self._connection.run(
            lambda db: _put_polls(db, lane, _polls(db, lane).get(lane, Polls()).ended(gaps, now()))
        )

    async def rescue(
        self, lane: str, owner: str, at: int, make_notices: MakeNotices | None = None, *, stopped: bool = False
    ) -> Rescue:
        if stopped:
            queued = await self._connection.run(
                lambda db: claim_schedules.take_over(db, lane, at, make_notices, gone=[owner], stopped=True)
            )
            return Rescue(queued, [])
        return await self._connection.run(lambda db: self._rescue(db, lane, owner, at, make_notices))

    def _rescue(self, db: apsw.Connection, lane: str, owner: str, at: int, make_notices: MakeNotices | None) -> Rescue:
        dead = sorted(one.instance for one in _joined(db, at, lane) if not self._lives(one.instance))
        self._record_crashes(db, lane, dead, owner, at)
        db.execute("DELETE FROM engines WHERE instance IN (SELECT value FROM json_each(?))", (_encode(dead).decode(),))
        gone = [row[0] for row in db.execute(_OWNERS, (lane_name(lane), lane)) if not self._lives(row[0])]
        queued = claim_schedules.take_over(db, lane, at, make_notices, gone=gone, stopped=False)
        for instance in dead:
            forget(self._path, engine_name(instance))
        return Rescue(queued, dead)

    def _record_crashes(self, db: apsw.Connection, lane: str, dead: list[str], owner: str, at: int) -> None:
        """Record the crash of engines that left no end: dead members, and one from before engines were members."""
        name = lane_name(lane)
        last: Any = db.execute(
            "SELECT instance FROM lifecycle WHERE managed_by = ? ORDER BY id DESC LIMIT 1", (name,)
        ).get
        if last is not None and last not in dead and not self._lives(last):
            dead = sorted([*dead, last])
        for instance in dead:
            if db.execute(_LAST_EVENT, (name, instance)).get in ("init-ok", "stop-start"):
                declaring.record(db, LifecycleEvent(name, at, instance, "crash", f"found by {owner}"))

    def _lives(self, instance: str) -> bool:
        return holder_of(self._path, engine_name(instance)) is not None


def _beat(db: apsw.Connection, sign: EngineSign, now: Callable[[], int]) -> None:
    db.execute(
        "UPDATE engines SET seen_at = ?, up_since = ?, state = ?, zone_data = ?, load = ?, last_poll_at = ? "
        "WHERE instance = ?",
        (
            sign.at, sign.up_since, sign.state, sign.zone_data, _encode(sign.load).decode(), sign.last_poll_at,
            sign.instance,
        ),
    )  # fmt: skip
    if sign.event is not None and db.changes():
        declaring.record(db, sign.event)
    if sign.last_poll_at is not None:
        lane: Any = db.execute("SELECT lane FROM engines WHERE instance = ?", (sign.instance,)).get
        if lane is not None:
            polls = _polls(db, lane).get(lane, Polls())
            _put_polls(db, lane, polls.polled(sign.last_poll_at, sign.grace_us, now()))


def _leave(db: apsw.Connection, instance: str, event: LifecycleEvent | None) -> None:
    db.execute("DELETE FROM engines WHERE instance = ?", (instance,))
    if event is not None and db.changes():
        declaring.record(db, event)


def _polls(db: apsw.Connection, lane: str | None = None) -> dict[str, Polls]:
    rows: list[Any] = db.execute(_POLLS, (lane,)).fetchall()
    return {name: Polls(last_poll_at, grace_us, read_gaps(gaps)) for name, last_poll_at, grace_us, gaps in rows}


def _put_polls(db: apsw.Connection, lane: str, polls: Polls) -> Polls:
    row = (lane, polls.last_poll_at, polls.grace_us, _encode(polls.gaps).decode())
    db.execute("INSERT OR REPLACE INTO lanes (lane, last_poll_at, grace_us, gaps) VALUES (?, ?, ?, ?)", row)
    return polls


def _joined(db: apsw.Connection, now: int, lane: str | None = None) -> list[EngineRecord]:
    """Return all engines that have joined and not left, dead or alive."""
    sql = f"SELECT {_COLUMNS}, max(?1 - seen_at, 0) FROM engines WHERE ?2 IS NULL OR lane = ?2 ORDER BY 2, 7, 1"
    rows: list[Any] = db.execute(sql, (now, lane)).fetchall()
    return [EngineRecord(**dict(zip(_FIELDS, (*row[:10], _decode(row[10]), row[11]), strict=True))) for row in rows]
