"""The outbox on SQLite: messages on their way, stream by stream, and those that could not be delivered.

A stream is what one schedule has in the outbox. Its row in `outbox_streams` is there for as long as there is a message:
appending one adds the row where it is missing, and delivering the last one removes it, each in the
transaction of the change itself. So no message is ever without a stream that wakes.

`append` and `free` are parts of other transactions: `append` belongs to a claim or a settle that puts messages into
the outbox, `free` to the take-over from dead engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import astuple

from noonbell.core.records import DeadLetter, Delivery, OutboxMessage, Sending, Stream
from noonbell.ports import BOUNDS, MakeAudit, StreamBounds, StreamClaim
from noonbell.store.sqlite import auditing, rows
from noonbell.store.sqlite.part import Part
from noonbell.store.stream_selection import MOST_TOGETHER, DueStream, choose, looked_at

_encode = msgspec.json.Encoder().encode
_number = itemgetter(0)

_COLUMNS: Final = ", ".join(OutboxMessage.__struct_fields__)
_TARGET: Final = "(SELECT o.target FROM outbox o WHERE o.sid = s.sid ORDER BY o.id LIMIT 1)"
# The inner limit is by the index (sid, id): a stream that is long costs no more than one that is not. The length of a
# body is known without reading it, so what does not fit is not read. Counting in turns is three times the work of
# reading, and rarely needed. A list of bare sids is read in half the time of a list of pairs. Sorting by SQLite would
# copy every body.
_BROUGHT: Final = f"""
    FROM json_each(?1) b LEFT JOIN outbox o ON o.id IN
        (SELECT i.id FROM outbox i WHERE i.sid = {{sid}} ORDER BY i.id LIMIT {MOST_TOGETHER})
"""
_ALL: Final = ", ".join(f"o.{name}" for name in ("id", *_COLUMNS.split(", ")))
_WHOLE: Final = _BROUGHT.format(sid="b.value")
_BYTES: Final = f"SELECT coalesce(sum(octet_length(o.body)), 0) {_WHOLE}"
_OLDEST: Final = f"SELECT b.value, {_ALL} {_WHOLE}"
_FITTING: Final = f"""
    WITH oldest AS (
        SELECT b.value ->> 0 AS sid, b.value ->> 1 AS most, b.key AS place, o.id, octet_length(o.body) AS size,
            row_number() OVER (PARTITION BY b.key ORDER BY o.id) AS nth
        {_BROUGHT.format(sid="b.value ->> 0")}
    ), summed AS (
        SELECT sid, place, nth, id, sum(size) OVER (ORDER BY nth, place) AS bytes FROM oldest WHERE nth <= most
    )
    SELECT s.sid, {_ALL} FROM summed s LEFT JOIN outbox o ON o.id = s.id
    WHERE coalesce(s.bytes, 0) <= ?2 OR (s.nth = 1 AND s.place = 0) ORDER BY s.place, s.nth
"""


class SqliteOutbox(Part):
    """The outbox of a file. Each verb is one transaction."""

    async def post(self, messages: Sequence[OutboxMessage], at: int) -> None:
        await self._connection.run(lambda db: append(db, messages, at))

    async def claim(self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS) -> StreamClaim:
        return await self._connection.run(lambda db: claim(db, lane, owner, now, limit=limit, bounds=bounds))

    async def settle(self, deliveries: Sequence[Delivery]) -> None:
        await self._connection.run(lambda db: settle(db, deliveries))

    async def owned(self, owner: str) -> list[int]:
        sql = "SELECT sid FROM outbox_streams WHERE owner = ? ORDER BY sid"
        return await self._connection.run(lambda db: [row[0] for row in db.execute(sql, (owner,))], write=False)

    async def sending(self, sid: int, message_id: str) -> Sending | None:
        return await self._connection.run(lambda db: sending(db, sid, message_id), write=False)

    async def dead_letters(self, sid: int | None, after: int, limit: int, team: str | None = None) -> list[DeadLetter]:
        return await self._connection.run(lambda db: dead_letters(db, sid, after, limit, team), write=False)

    async def resolve(
        self, numbers: Sequence[int], audit: MakeAudit | None = None, *, redeliver_at: int | None = None
    ) -> int:
        return await self._connection.run(lambda db: resolve(db, numbers, audit, redeliver_at))


def append(db: apsw.Connection, messages: Sequence[OutboxMessage], now: int) -> None:
    """Put messages at the ends of their streams; one that is under way or waits keeps its owner and its wake-up."""
    if not messages:
        return
    rows.insert(db, f"outbox ({_COLUMNS})", list(map(astuple, messages)))
    lanes: dict[str, set[int]] = {}
    for message in messages:
        lanes.setdefault(message.lane, set()).add(message.sid)
    for lane, sids in lanes.items():
        db.execute(
            "INSERT OR IGNORE INTO outbox_streams (sid, lane, wake_at) SELECT value, ?2, ?3 FROM json_each(?1)",
            (_encode(sorted(sids)).decode(), lane, now),
        )


def free(db: apsw.Connection, lane: str, owners: str) -> None:
    """Free the streams that these owners (a JSON list) were delivering, and count one more attempt of each."""
    db.execute(
        "UPDATE outbox_streams SET owner = NULL, attempt = attempt + 1 WHERE lane = ? AND owner IN "
        "(SELECT value FROM json_each(?))",
        (lane, owners),
    )


def claim(db: apsw.Connection, lane: str, owner: str, now: int, *, limit: int, bounds: StreamBounds) -> StreamClaim:
    most = looked_at(limit, bounds)
    found: list[tuple[Any, ...]] = db.execute(
        f"SELECT s.sid, s.attempt, {_TARGET if bounds.away else 'NULL'} FROM outbox_streams s "
        "WHERE s.lane = ? AND s.owner IS NULL AND s.wake_at <= ? ORDER BY s.wake_at, s.sid LIMIT ?",
        (lane, now, most),
    ).fetchall()
    due = [DueStream(*row) for row in found]
    attempts = {stream.sid: stream.attempt for stream in due}
    chosen = choose(due, limit, bounds)
    streams: dict[int, Stream] = {}
    if chosen.brought:
        for sid, number, *parts in _oldest(db, chosen.brought, bounds.most_bytes):
            stream = streams.get(sid)
            if stream is None:
                stream = streams[sid] = Stream(sid, attempts[sid], [])
            if number is not None:
                stream.messages.append((number, OutboxMessage(*parts)))
        for stream in streams.values():
            stream.messages.sort(key=_number)
        db.execute(
            "UPDATE outbox_streams SET owner = ?2 WHERE sid IN (SELECT value FROM json_each(?1))",
            (_encode(list(streams)).decode(), owner),
        )
    if chosen.put_off:
        db.execute(
            "UPDATE outbox_streams SET wake_at = b.value ->> 1, error = b.value ->> 2 FROM json_each(?) b "
            "WHERE outbox_streams.sid = b.value ->> 0",
            (_encode(chosen.put_off).decode(),),
        )
    following = db.execute(
        "SELECT min(wake_at) FROM outbox_streams WHERE lane = ? AND owner IS NULL AND wake_at > ?", (lane, now)
    ).get
    full = len(due) >= most or chosen.crowded or len(streams) < len(chosen.brought)
    return StreamClaim(list(streams.values()), full, following)


def _oldest(db: apsw.Connection, brought: Mapping[int, int], most_bytes: int) -> Iterable[tuple[Any, ...]]:
    """The messages that come, stream by stream: the sid, and where there is one, the number and the columns."""
    if min(brought.values()) == MOST_TOGETHER:
        sids = (_encode(list(brought)).decode(),)
        if db.execute(_BYTES, sids).get <= most_bytes:
            return db.execute(_OLDEST, sids)
    return db.execute(_FITTING, (_encode(list(brought.items())).decode(), most_bytes))


def settle(db: apsw.Connection, deliveries: Sequence[Delivery]) -> None:
    """Drop what was delivered, bury what is dead, free the streams; a stream that is empty by now goes."""
    done = _owned(db, deliveries)
    if not done:
        return
    _bury(db, [d for d in done if d.dead is not None])
    # by number of the stream: what a JSON object has as its keys is compared as numbers with the column
    upto = {d.sid: max(d.delivered or 0, d.dead or 0) for d in done}
    db.execute(
        "DELETE FROM outbox WHERE id IN "
        "(SELECT o.id FROM json_each(?) b CROSS JOIN outbox o ON o.sid = b.key AND o.id <= b.value)",
        (_encode(upto).decode(),),
    )
    db.execute(
        "DELETE FROM outbox_streams WHERE sid IN (SELECT value FROM json_each(?)) "
        "AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.sid = outbox_streams.sid)",
        (_encode(list(upto)).decode(),),
    )
    if db.changes() == len(upto):
        return
    db.execute(
        "UPDATE outbox_streams SET owner = NULL, wake_at = coalesce(b.value ->> 4, b.value ->> 1), "
        "attempt = iif(b.value ->> 2 IS NULL AND b.value ->> 3 IS NULL, attempt, 0) "
        "+ (b.value ->> 3 IS NULL AND b.value ->> 4 IS NOT NULL), "
        "error = iif(b.value ->> 3 IS NULL AND b.value ->> 4 IS NOT NULL, nullif(b.value ->> 5, ''), NULL) "
        "FROM json_each(?) b WHERE sid = b.value ->> 0",
        (_as_json(done),),
    )


def _owned(db: apsw.Connection, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return those whose stream still belongs to the one that has claimed it."""
    claimed: dict[str, list[int]] = {}
    for delivery in deliveries:
        claimed.setdefault(delivery.owner, []).append(delivery.sid)
    owned = "SELECT sid FROM outbox_streams WHERE owner = ?2 AND sid IN (SELECT value FROM json_each(?1))"
    mine = {
        owner: {row[0] for row in db.execute(owned, (_encode(sids).decode(), owner))} for owner, sids in claimed.items()
    }
    return [d for d in deliveries if d.sid in mine[d.owner]]


def _bury(db: apsw.Connection, dead: Sequence[Delivery]) -> None:
    if not dead:
        return
    db.execute(
        f"INSERT INTO dead_letters (id, {_COLUMNS}, died_at, attempts, error) SELECT o.id, o.sid, o.lane, "
        "o.message_id, o.target, o.body, o.created_at, o.team, b.value ->> 1, "
        "iif(b.value ->> 2 IS NULL, s.attempt, 0) + 1, b.value ->> 5 FROM json_each(?) b "
        "JOIN outbox o ON o.id = b.value ->> 3 AND o.sid = b.value ->> 0 "
        "JOIN outbox_streams s ON s.sid = o.sid",
        (_as_json(dead),),
    )
    auditing.append(db, [d.audit for d in dead if d.audit is not None])


def _as_json(deliveries: Sequence[Delivery]) -> str:
    return _encode([(d.sid, d.at, d.delivered, d.dead, d.wake_at, d.error or "") for d in deliveries]).decode()


def sending(db: apsw.Connection, sid: int, message_id: str) -> Sending | None:
    sql = (
        "SELECT (SELECT count(*) FROM outbox i WHERE i.sid = o.sid AND i.id < o.id), s.attempt, s.wake_at, s.owner, "
        "s.error, o.sid, o.lane, o.message_id, o.target, o.body, o.created_at, o.team FROM outbox o "
        "JOIN outbox_streams s ON s.sid = o.sid WHERE o.sid = ? AND o.message_id = ? ORDER BY o.id LIMIT 1"
    )
    for ahead, attempt, wake_at, owner, error, *parts in db.execute(sql, (sid, message_id)):
        return Sending(OutboxMessage(*parts), ahead, attempt, wake_at, owner, error)
    return None


# --- dead letters -----------------------------------------------------------------------------------------------------


def dead_letters(
    db: apsw.Connection, sid: int | None, after: int, limit: int, team: str | None = None
) -> list[DeadLetter]:
    given = [(name, value) for name, value in (("sid", sid), ("team", team)) if value is not None]
    chosen = " ".join(f"AND {name} = ?{place}" for place, (name, _) in enumerate(given, 3))
    sql = (
        f"SELECT id, died_at, attempts, error, {_COLUMNS} FROM dead_letters WHERE id > ?1 {chosen} ORDER BY id LIMIT ?2"
    )
    bindings = (after, limit, *(value for _, value in given))
    return [
        DeadLetter(number, OutboxMessage(*parts), died_at, attempts, error)
        for number, died_at, attempts, error, *parts in db.execute(sql, bindings)
    ]


def resolve(
    db: apsw.Connection, numbers: Sequence[int], audit: MakeAudit | None = None, redeliver_at: int | None = None
) -> int:
    chosen = _encode(list(numbers)).decode()
    if redeliver_at is not None:
        source = "FROM dead_letters WHERE id IN (SELECT value FROM json_each(?1))"
        db.execute(f"INSERT INTO outbox ({_COLUMNS}) SELECT {_COLUMNS} {source} ORDER BY id", (chosen,))
        db.execute(
            f"INSERT INTO outbox_streams (sid, lane, wake_at) SELECT DISTINCT sid, lane, ?2 {source} "
            "ON CONFLICT (sid) DO UPDATE SET wake_at = min(wake_at, excluded.wake_at)",
            (chosen, redeliver_at),
        )
    sql = "DELETE FROM dead_letters WHERE id IN (SELECT value FROM json_each(?)) RETURNING id"
    gone: list[tuple[Any, ...]] = db.execute(sql, (chosen,)).fetchall()
    found = sorted(row[0] for row in gone)
    if found and audit is not None:
        auditing.append(db, [audit(found)])
    return len(found)
