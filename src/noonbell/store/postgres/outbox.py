"""The outbox on PostgreSQL: messages on their way, stream by stream, and those that could not be delivered.

A stream is what one schedule has in the outbox. Its row in `outbox_streams` is there for as long as there is a message.
An append locks the row first, or inserts it, and holds its lock until the commit. So the numbers of a stream's messages
follow the order of the commits: what was delivered can be dropped up to its number. And the delivery of the last one,
which removes the row, has waited for the appends: no message is left without a stream.

`append` and `free` are parts of other transactions: `append` belongs to a claim or a settle that puts messages into the
outbox, `free` to the take-over from dead engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from noonbell.core.presence import engine_name
from noonbell.core.records import DeadLetter, Delivery, OutboxMessage, Sending, Stream
from noonbell.ports import BOUNDS, MakeAudit, StreamBounds, StreamClaim
from noonbell.store.postgres import auditing
from noonbell.store.postgres.batches import batch
from noonbell.store.postgres.claiming import LOCKED_PAUSE_US
from noonbell.store.postgres.connection import Connection, storable
from noonbell.store.postgres.session import Part
from noonbell.store.stream_selection import MOST_TOGETHER, DueStream, choose, looked_at

_COLUMNS: Final = "sid, lane, message_id, target, body, created_at, team"
_BEGIN: Final = """
    INSERT INTO outbox_streams AS t (sid, lane, wake_at) SELECT {sid}, {lane}, {wake_at} FROM {batch}
    ON CONFLICT (sid) DO UPDATE SET wake_at = t.wake_at
"""
_APPEND: Final = f"""
    INSERT INTO outbox ({_COLUMNS})
    SELECT {", ".join(f"{{{name}}}" for name in _COLUMNS.split(", "))} FROM {{batch}}
"""
_DUE: Final = """
    SELECT sid, attempt, wake_at FROM outbox_streams WHERE lane = $1 AND owner IS NULL AND wake_at <= $2
    ORDER BY lane, wake_at LIMIT $3 FOR UPDATE SKIP LOCKED
"""
_TARGETS: Final = """
    SELECT b.sid, (SELECT o.target FROM outbox o WHERE o.sid = b.sid ORDER BY o.sid, o.id LIMIT 1)
    FROM unnest($1::int8[]) AS b (sid)
"""
# The limits keep the planner to the indexes: whatever else is in the outbox is not looked at. The length of a body is
# known without reading it, so what does not fit is not read. Counting in turns is three times the work of reading, and
# rarely needed.
_BYTES: Final = f"""
    SELECT coalesce(sum(o.size), 0) FROM unnest($1::int8[]) AS b (sid) CROSS JOIN LATERAL (
        SELECT octet_length(i.body) AS size FROM outbox i WHERE i.sid = b.sid ORDER BY i.sid, i.id LIMIT {MOST_TOGETHER}
    ) o
"""
_OLDEST: Final = f"""
    SELECT b.sid, o.* FROM unnest($1::int8[]) AS b (sid) LEFT JOIN LATERAL (
        SELECT i.id, {_COLUMNS} FROM outbox i WHERE i.sid = b.sid ORDER BY i.sid, i.id LIMIT {MOST_TOGETHER}
    ) o ON true
"""
_FITTING: Final = f"""
    WITH oldest AS (
        SELECT b.sid, b.most, b.place, o.id, o.size, row_number() OVER (PARTITION BY b.place ORDER BY o.id) AS nth
        FROM unnest($1::int8[], $2::int8[]) WITH ORDINALITY AS b (sid, most, place)
        LEFT JOIN LATERAL (
            SELECT i.id, octet_length(i.body) AS size FROM outbox i WHERE i.sid = b.sid
            ORDER BY i.sid, i.id LIMIT {MOST_TOGETHER}
        ) o ON true
    ), summed AS (
        SELECT sid, place, nth, id, sum(size) OVER (ORDER BY nth, place) AS bytes FROM oldest WHERE nth <= most
    )
    SELECT s.sid, o.* FROM summed s
    LEFT JOIN LATERAL (SELECT i.id, {_COLUMNS} FROM outbox i WHERE i.id = s.id LIMIT 1) o ON true
    WHERE coalesce(s.bytes, 0) <= $3 OR (s.nth = 1 AND s.place = 1) ORDER BY s.place, s.nth
"""
_NEXT: Final = """
    SELECT
        (SELECT wake_at FROM outbox_streams WHERE lane = $1 AND owner IS NULL AND wake_at > $2
            ORDER BY lane, wake_at LIMIT 1),
        EXISTS (SELECT 1 FROM outbox_streams WHERE lane = $1 AND owner IS NULL AND wake_at <= $2)
"""
_OWNED: Final = """
    SELECT t.sid FROM outbox_streams t WHERE t.lane = $1 AND t.owner IS NOT NULL AND CASE WHEN $2::text IS NULL
    THEN (SELECT count(*) FROM instances i WHERE i.name = 'engine:' || t.owner) = 0 ELSE t.owner = $2 END
"""
_BATCH: Final = """
    unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::text[])
    AS b (sid, at, delivered, dead, wake_at, error)
"""


async def append(db: Connection, messages: Sequence[OutboxMessage], wakes: Sequence[int]) -> None:
    """Put messages at the ends of their streams, each with the wake-up of a stream that begins with it.

    A stream that is under way or waits keeps its owner and its wake-up.
    """
    if not messages:
        return
    begun: dict[int, tuple[str, int]] = {}
    for message, wake_at in zip(messages, wakes, strict=True):
        begun.setdefault(message.sid, (message.lane, wake_at))
    sids = sorted(begun)
    streams = batch(
        {"sid": sids, "lane": [begun[sid][0] for sid in sids], "wake_at": [begun[sid][1] for sid in sids]},
        texts=("lane",),
    )
    # an update that changes nothing: it takes the lock of a stream that is there, in the order of sids
    await db.execute(_BEGIN.format(batch=streams.source, **streams.columns), *streams.bindings)
    part = batch(
        {
            "sid": [m.sid for m in messages],
            "lane": [m.lane for m in messages],
            "message_id": [m.message_id for m in messages],
            "target": [m.target for m in messages],
            "body": [storable(m.body) for m in messages],
            "created_at": [m.created_at for m in messages],
            "team": [m.team for m in messages],
        },
        texts=("lane", "message_id", "target", "body", "team"),
    )
    await db.execute(_APPEND.format(batch=part.source, **part.columns), *part.bindings)


async def free(db: Connection, lane: str, owner: str | None, *, wait: bool = False) -> int:
    """Free the streams that the owner was delivering, and count one more attempt of each.

    Without an owner: the streams whose owner has no lease. A claim of a stream shares a lock on its owner's lease
    first, so that of an engine that is gone stays its own until here.

    Streams that another has locked are left as they are, and their number is returned: a transaction that has appended
    holds streams already, and to wait for one with a lower number could be in a circle. Who holds none may `wait`.
    """
    found = [row[0] for row in await db.fetch(_OWNED, lane, owner)]
    skip = "" if wait else "SKIP LOCKED"
    rows = await db.fetch(
        f"{_OWNED} AND t.sid = ANY($3::int8[]) ORDER BY t.sid FOR UPDATE OF t {skip}", lane, owner, found
    )
    await db.execute(
        "UPDATE outbox_streams SET owner = NULL, attempt = attempt + 1 WHERE sid = ANY($1::int8[])",
        [row[0] for row in rows],
    )
    return 0 if wait else len(found) - len(rows)


async def claim(db: Connection, lane: str, owner: str, now: int, *, limit: int, bounds: StreamBounds) -> StreamClaim:
    most = looked_at(limit, bounds)
    due = await db.fetch(_DUE, lane, now, most)
    attempts: dict[int, int] = {row[0]: row[1] for row in sorted(due, key=lambda row: (row[2], row[0]))}
    heads = await db.fetch(_TARGETS, list(attempts)) if attempts and bounds.away else []
    targets: dict[int, str | None] = {row[0]: row[1] for row in heads}
    waiting = [DueStream(sid, attempt, targets.get(sid)) for sid, attempt in attempts.items()]
    chosen = choose(waiting, limit, bounds)
    streams: dict[int, Stream] = {}
    if chosen.brought:
        for sid, number, *parts in await _oldest(db, chosen.brought, bounds.most_bytes):
            stream = streams.setdefault(sid, Stream(sid, attempts[sid], []))
            if number is not None:
                stream.messages.append((number, OutboxMessage(*parts)))
        await db.execute("UPDATE outbox_streams SET owner = $2 WHERE sid = ANY($1::int8[])", list(streams), owner)
    if chosen.put_off:
        await db.execute(
            "UPDATE outbox_streams t SET wake_at = b.until, error = b.error "
            "FROM unnest($1::int8[], $2::int8[], $3::text[]) AS b (sid, until, error) WHERE t.sid = b.sid",
            [sid for sid, _, _ in chosen.put_off], [until for _, until, _ in chosen.put_off],
            [storable(error) for _, _, error in chosen.put_off],
        )  # fmt: skip
    full = len(due) >= most or chosen.crowded or len(streams) < len(chosen.brought)
    (row,) = await db.fetch(_NEXT, lane, now)
    # those that another transaction holds at this moment are looked for again
    following = now + LOCKED_PAUSE_US if row[1] and not full and not chosen.left else row[0]
    return StreamClaim(list(streams.values()), full, following)


async def _oldest(db: Connection, brought: Mapping[int, int], most_bytes: int) -> Sequence[Any]:
    """The messages that come, stream by stream: the sid, and where there is one, the number and the columns."""
    sids, most = list(brought), list(brought.values())
    if min(most) == MOST_TOGETHER:
        ((size,),) = await db.fetch(_BYTES, sids)
        if size <= most_bytes:
            return await db.fetch(_OLDEST, sids)
    return await db.fetch(_FITTING, sids, most, most_bytes)


async def settle(db: Connection, deliveries: Sequence[Delivery]) -> None:
    """Drop what was delivered, bury what is dead, free the streams; a stream that is empty by now goes."""
    rows = await db.fetch(
        "SELECT sid, owner FROM outbox_streams WHERE sid = ANY($1::int8[]) ORDER BY sid FOR UPDATE",
        sorted({d.sid for d in deliveries}),
    )
    owners = {row[0]: row[1] for row in rows}
    mine: dict[int, Delivery] = {}
    for delivery in deliveries:
        if owners.get(delivery.sid) == delivery.owner:
            mine.setdefault(delivery.sid, delivery)
    if not mine:
        return
    done = list(mine.values())
    batch = (
        [d.sid for d in done], [d.at for d in done], [d.delivered for d in done], [d.dead for d in done],
        [d.wake_at for d in done], [storable(d.error) for d in done],
    )  # fmt: skip
    if any(d.dead is not None for d in done):
        await db.execute(
            f"INSERT INTO dead_letters (id, {_COLUMNS}, died_at, attempts, error) SELECT o.id, o.sid, o.lane, "
            "o.message_id, o.target, o.body, o.created_at, o.team, b.at, "
            "CASE WHEN b.delivered IS NULL THEN t.attempt ELSE 0 END + 1, coalesce(b.error, '') "
            f"FROM {_BATCH} JOIN outbox o ON o.id = b.dead AND o.sid = b.sid JOIN outbox_streams t ON t.sid = b.sid",
            *batch,
        )
    await db.execute(
        f"DELETE FROM outbox o USING {_BATCH} WHERE o.sid = b.sid AND o.id <= greatest(b.delivered, b.dead)",
        *batch,
    )
    gone = await db.execute(
        "DELETE FROM outbox_streams t WHERE t.sid = ANY($1::int8[]) "
        "AND (SELECT o.id FROM outbox o WHERE o.sid = t.sid ORDER BY o.sid, o.id LIMIT 1) IS NULL",
        batch[0],
    )
    if gone != f"DELETE {len(done)}":
        await _free_settled(db, batch)
    # last, as everywhere: after an append to the audit no other lock is awaited
    await auditing.append(db, [d.audit for d in done if d.dead is not None and d.audit is not None])


async def _free_settled(db: Connection, batch: Sequence[Sequence[Any]]) -> None:
    """Free the streams that have messages left."""
    await db.execute(
        "UPDATE outbox_streams t SET owner = NULL, wake_at = coalesce(b.wake_at, b.at), attempt = "
        "CASE WHEN b.delivered IS NULL AND b.dead IS NULL THEN t.attempt ELSE 0 END "
        "+ CASE WHEN b.dead IS NULL AND b.wake_at IS NOT NULL THEN 1 ELSE 0 END, "
        "error = CASE WHEN b.dead IS NULL AND b.wake_at IS NOT NULL THEN nullif(b.error, '') END "
        f"FROM {_BATCH} WHERE t.sid = b.sid",
        *batch,
    )


async def owned(db: Connection, owner: str) -> list[int]:
    """The sids of the streams that `owner` has claimed."""
    return [row[0] for row in await db.fetch("SELECT sid FROM outbox_streams WHERE owner = $1 ORDER BY sid", owner)]


async def sending(db: Connection, sid: int, message_id: str) -> Sending | None:
    sql = (
        "SELECT (SELECT count(*) FROM outbox i WHERE i.sid = o.sid AND i.id < o.id), s.attempt, s.wake_at, s.owner, "
        "s.error, o.sid, o.lane, o.message_id, o.target, o.body, o.created_at, o.team FROM outbox o "
        "JOIN outbox_streams s ON s.sid = o.sid WHERE o.sid = $1 AND o.message_id = $2 ORDER BY o.id LIMIT 1"
    )
    for ahead, attempt, wake_at, owner, error, *parts in await db.fetch(sql, sid, message_id):
        return Sending(OutboxMessage(*parts), ahead, attempt, wake_at, owner, error)
    return None


# --- dead letters -----------------------------------------------------------------------------------------------------


async def dead_letters(
    db: Connection, sid: int | None, after: int, limit: int, team: str | None = None
) -> list[DeadLetter]:
    given = [(name, value) for name, value in (("sid", sid), ("team", team)) if value is not None]
    chosen = " ".join(f"AND {name} = ${place}" for place, (name, _) in enumerate(given, 3))
    sql = (
        f"SELECT id, died_at, attempts, error, {_COLUMNS} FROM dead_letters WHERE id > $1 {chosen} ORDER BY id LIMIT $2"
    )
    rows = await db.fetch(sql, after, limit, *(value for _, value in given))
    return [
        DeadLetter(number, OutboxMessage(*parts), died_at, attempts, error)
        for number, died_at, attempts, error, *parts in rows
    ]


async def resolve(
    db: Connection, numbers: Sequence[int], audit: MakeAudit | None = None, redeliver_at: int | None = None
) -> int:
    chosen = list(set(numbers))
    if redeliver_at is not None:
        await _redeliver(db, chosen, redeliver_at)
    rows = await db.fetch("DELETE FROM dead_letters WHERE id = ANY($1::int8[]) RETURNING id", chosen)
    found = sorted(row[0] for row in rows)
    if found and audit is not None:
        await auditing.append(db, [audit(found)])
    return len(found)


async def _redeliver(db: Connection, numbers: Sequence[int], at: int) -> None:
    """Put dead letters back at the ends of their streams."""
    rows = await db.fetch(
        f"SELECT {_COLUMNS} FROM dead_letters WHERE id = ANY($1::int8[]) ORDER BY id FOR UPDATE", numbers
    )
    messages = [OutboxMessage(*row) for row in rows]
    await append(db, messages, [at] * len(messages))
    await db.execute(
        "UPDATE outbox_streams SET wake_at = $2 WHERE sid = ANY($1::int8[]) AND wake_at > $2",
        sorted({m.sid for m in messages}), at,
    )  # fmt: skip


class PostgresOutbox(Part):
    """Messages by stream, and dead letters."""

    async def post(self, messages: Sequence[OutboxMessage], at: int) -> None:
        async with self._connections.writing() as db:
            await append(db, messages, [at] * len(messages))

    async def claim(self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS) -> StreamClaim:
        async with self._session.claiming(owner) as db:
            await self._session.still_held(db, engine_name(owner))
            return await claim(db, lane, owner, now, limit=limit, bounds=bounds)

    async def settle(self, deliveries: Sequence[Delivery]) -> None:
        async with self._connections.writing() as db:
            await self._session.still_held(db, *{engine_name(delivery.owner) for delivery in deliveries})
            await settle(db, deliveries)

    async def owned(self, owner: str) -> list[int]:
        """Wait for claims of this owner that are still on their way, even over a connection that was lost."""
        async with self._session.accounting(owner) as db:
            return await owned(db, owner)

    async def sending(self, sid: int, message_id: str) -> Sending | None:
        async with self._connections.reading() as db:
            return await sending(db, sid, message_id)

    async def dead_letters(self, sid: int | None, after: int, limit: int, team: str | None = None) -> list[DeadLetter]:
        async with self._connections.reading() as db:
            return await dead_letters(db, sid, after, limit, team)

    async def resolve(
        self, numbers: Sequence[int], audit: MakeAudit | None = None, *, redeliver_at: int | None = None
    ) -> int:
        async with self._connections.writing() as db:
            return await resolve(db, numbers, audit, redeliver_at)
